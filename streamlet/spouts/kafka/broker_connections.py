"""One connection for each broker, shared by the partitions it leads or is read from: a thin face of the client."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from streamlet.kafka.broker_errors import may_pass
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.leader_requests import (
    list_offsets,
    offsets_for_leader_epoch,
)
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import UNKNOWN_NODE
from streamlet.kafka.metadata.cluster import Broker as KafkaBroker
from streamlet.kafka.protocol.messages.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from streamlet.spouts.kafka.activity import Steps, answer_to
from streamlet.spouts.kafka.partition import Broker, Partition

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The log of a partition as its leader sees it."""

    start: int
    """The first offset."""
    end: int
    """The last stable offset (exclusive): no open transaction lies before it."""
    at_time: int | None = None
    """The first offset at or after the time asked for; None: not asked, or every record is older."""
    at_stop: int | None = None
    """The same for the time to stop at."""
    high_watermark: int = -1
    """Where the log ends for readers who wait for no transaction; -1: not asked."""

    @property
    def whole_end(self) -> int:
        """Return the end of the log (exclusive), with its open transactions."""
        return max(self.end, self.high_watermark)


class Connection:
    """The way to one broker, and this task's partitions on it."""

    __slots__ = ("address", "broker", "client", "partitions", "read_here")

    def __init__(self, client: KafkaClient, broker: Broker) -> None:
        self.client = client
        # The hosts of the settings come without node ids: the client takes a broker by its address just as well.
        self.address = KafkaBroker(UNKNOWN_NODE, broker.host, broker.port)
        self.broker = broker
        self.partitions: set[Partition] = set()
        """Those that it leads."""
        self.read_here: set[Partition] = set()
        """Those that another one leads, and whose records come from here."""

    def log_bounds(
        self, partition: Partition, timestamp_ms: int | None = None, stop_ms: int | None = None
    ) -> Steps[LogBounds]:
        """Ask for the log's ends and the offsets of two times. Raises KafkaError."""
        times = [time for time in (timestamp_ms, stop_ms) if time is not None]
        # Rule: the end is asked for twice. A read stops at the stable one; only the log's own tells whether an offset
        # is there. A transaction may be open below an offset that was stored, or is written in the settings.
        asked = [EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, *times]
        whole = {partition.tp: LATEST_TIMESTAMP}
        # All requests leave before the first answer is awaited.
        answers = [list_offsets(self.client, self.address, {partition.tp: time}) for time in asked]
        answers.append(list_offsets(self.client, self.address, whole, read_committed=False))
        found: list[int] = []
        for answer in answers:
            row = (yield from answer_to(answer)).get(partition.tp)
            if row is None:
                raise KafkaError(f"The answer of {self.broker} about the offsets of {partition} does not speak of it.")
            if row.error is not None:
                raise row.error(f"Looking up the offsets of {partition} at {self.broker}")
            found.append(row.offset)
        at = {time: offset for time, offset in zip(times, found[2:-1], strict=True) if offset >= 0}
        at_time, at_stop = (None if time is None else at.get(time) for time in (timestamp_ms, stop_ms))
        return LogBounds(found[0], found[1], at_time, at_stop, high_watermark=found[-1])

    def epoch_end(self, partition: Partition, leader_epoch: int, current_leader_epoch: int = -1) -> Steps[int | None]:
        """Ask where ``leader_epoch`` ends in the leader's log (KIP-320). Raises retriable KafkaErrors.

        -1: its log knows no epoch so late. None: no epoch is given, or the broker may not be asked; reading then goes
        on as it would without the question.
        """
        if leader_epoch < 0:
            return None
        wanted = {partition.tp: (leader_epoch, current_leader_epoch)}
        try:
            row = (yield from answer_to(offsets_for_leader_epoch(self.client, self.address, wanted))).get(partition.tp)
            if row is not None and row.error is not None:
                raise row.error(f"Asking {self.broker} where leader epoch {leader_epoch} of {partition} ends")
        except KafkaError as error:
            if may_pass(error):
                raise
            log.warning("%s: whether its log was truncated cannot be asked. %s", partition, error.message)
            return None
        if row is None:
            raise KafkaError(
                f"The answer of {self.broker} about the leader epochs of {partition} does not speak of it."
            )
        return row.end_offset

    def disconnect(self) -> None:
        """Close the client's connection to this broker."""
        self.client.disconnect(self.address)


class DynamicPartitionConnections:
    """Connections counted by partition: the first partition opens a broker's, the last closes it."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._by_broker: dict[Broker, Connection] = {}
        self._by_partition: dict[Partition, Connection] = {}
        self._nearer: dict[Partition, Connection] = {}

    def register(self, partition: Partition, broker: Broker) -> Connection:
        """Return the connection to ``broker`` for ``partition``; give back the one to another broker."""
        known = self._by_partition.get(partition)
        if known is not None and known.broker == broker:
            return known
        connection = self._by_partition[partition] = self._at(broker)
        # First: the new leader may be the replica that the partition is read from, over a connection in use.
        connection.partitions.add(partition)
        self.read_from_leader(partition)
        if known is not None:
            known.partitions.discard(partition)
            self._close_unused(known)
        return connection

    def get_connection(self, partition: Partition) -> Connection | None:
        """Return the connection of a registered partition to its leader, else None."""
        return self._by_partition.get(partition)

    def read_connection(self, partition: Partition) -> Connection | None:
        """Return the connection that brings a registered partition's records, else None."""
        return self._nearer.get(partition) or self._by_partition.get(partition)

    def read_from(self, partition: Partition, broker: Broker) -> None:
        """Let a registered partition be read from a replica."""
        before = self._nearer.get(partition)
        if before is None or before.broker != broker:
            self.read_from_leader(partition)
            connection = self._nearer[partition] = self._at(broker)
            connection.read_here.add(partition)

    def read_from_leader(self, partition: Partition) -> None:
        """Let a partition's records come from its leader, as at first."""
        connection = self._nearer.pop(partition, None)
        if connection is not None:
            connection.read_here.discard(partition)
            self._close_unused(connection)

    def unregister(self, partition: Partition) -> None:
        """Give the partition's connections back; an unknown partition is ignored."""
        self.read_from_leader(partition)
        connection = self._by_partition.pop(partition, None)
        if connection is not None:
            connection.partitions.discard(partition)
            self._close_unused(connection)

    def connections(self) -> list[Connection]:
        """Return the connections in use."""
        return list(self._by_broker.values())

    def _at(self, broker: Broker) -> Connection:
        connection = self._by_broker.get(broker)
        if connection is None:
            connection = self._by_broker[broker] = Connection(self._client, broker)
        return connection

    def _close_unused(self, connection: Connection) -> None:
        if not (connection.partitions or connection.read_here):
            del self._by_broker[connection.broker]
            connection.disconnect()
