"""One connection for each broker, shared by the partitions it leads (SEEDMAP K2)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Generic, TypeVar

from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.leader_requests import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochEnd,
    FetchedPartition,
    FetchPosition,
    FetchSettings,
    ListedOffset,
    fetch,
    list_offsets,
    offsets_for_leader_epoch,
)
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import UNKNOWN_NODE, TopicPartition
from streamlet.kafka.metadata.cluster import Broker as KafkaBroker
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.start import LogBounds
from streamlet.spouts.kafka.steps import Steps

log = logging.getLogger(__name__)

T = TypeVar("T")


class Answer(Generic[T]):
    """A request's answer as something to wait for."""

    __slots__ = ("future",)

    def __init__(self, future: RequestFuture[T]) -> None:
        self.future = future

    def done(self) -> bool:
        """Whether it is there, good or bad."""
        return self.future.done

    def value(self) -> T:
        """The response. Raises the KafkaError it failed with."""
        return self.future.value


def kafka_broker(broker: Broker) -> KafkaBroker:
    """The client's name for a broker that is known by its address."""
    return KafkaBroker(UNKNOWN_NODE, broker.host, broker.port)


class Connection:
    """The partitions of one task that one broker leads, and the way to it."""

    __slots__ = ("broker", "client", "partitions")

    def __init__(self, client: KafkaClient, broker: Broker) -> None:
        self.client = client
        self.broker = broker
        self.partitions: set[Partition] = set()

    def fetch(
        self, positions: Mapping[TopicPartition, FetchPosition], settings: FetchSettings
    ) -> Answer[dict[TopicPartition, FetchedPartition]]:
        """Ask this broker for records."""
        return Answer(fetch(self.client, kafka_broker(self.broker), positions, settings))

    def list_offset(self, partition: Partition, timestamp: int) -> Answer[dict[TopicPartition, ListedOffset]]:
        """Ask this broker for the first offset at or after a time, or for an end of the log."""
        wanted = {TopicPartition(partition.topic, partition.number): timestamp}
        return Answer(list_offsets(self.client, kafka_broker(self.broker), wanted))

    def epoch_end(
        self, partition: Partition, leader_epoch: int, current_leader_epoch: int
    ) -> Answer[dict[TopicPartition, EpochEnd]]:
        """Ask this broker where a leader epoch ends in its log (KIP-320)."""
        wanted = {TopicPartition(partition.topic, partition.number): (leader_epoch, current_leader_epoch)}
        return Answer(offsets_for_leader_epoch(self.client, kafka_broker(self.broker), wanted))


class DynamicPartitionConnections:
    """Counts partitions by broker: a broker's connection is opened by its first and closed with its last."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._by_broker: dict[Broker, Connection] = {}
        self._by_partition: dict[Partition, Connection] = {}

    def register(self, partition: Partition, broker: Broker) -> Connection:
        """The connection to ``broker``, for ``partition``; one it had to another broker is given back."""
        known = self._by_partition.get(partition)
        if known is not None:
            if known.broker == broker:
                return known
            self.unregister(partition)
        connection = self._by_broker.get(broker)
        if connection is None:
            connection = self._by_broker[broker] = Connection(self._client, broker)
        connection.partitions.add(partition)
        self._by_partition[partition] = connection
        return connection

    def get_connection(self, partition: Partition) -> Connection | None:
        """The connection of a registered partition, else None."""
        return self._by_partition.get(partition)

    def unregister(self, partition: Partition) -> None:
        """The partition needs its broker no more; unknown ones are ignored."""
        connection = self._by_partition.pop(partition, None)
        if connection is None:
            return
        connection.partitions.discard(partition)
        if not connection.partitions:
            del self._by_broker[connection.broker]
            broker = connection.broker
            self._client.disconnect(kafka_broker(broker))

    def connections(self) -> list[Connection]:
        """Those in use."""
        return list(self._by_broker.values())

    def close(self) -> None:
        """Give all of them back."""
        for partition in list(self._by_partition):
            self.unregister(partition)


def log_bounds(connection: Connection, partition: Partition, timestamp_ms: int | None = None) -> Steps[LogBounds]:
    """Where the log begins and ends (its last stable offset), and which offset a time has. Raises KafkaError."""
    asked = [EARLIEST_TIMESTAMP, LATEST_TIMESTAMP] + ([] if timestamp_ms is None else [timestamp_ms])
    answers = [connection.list_offset(partition, time) for time in asked]
    found: list[int] = []
    for answer in answers:
        yield answer
        row = answer.value().get(TopicPartition(partition.topic, partition.number))
        if row is None:
            raise KafkaError(
                f"The answer of {connection.broker} about the offsets of {partition} does not speak of it."
            )
        if row.error is not None:
            raise row.error(f"Looking up the offsets of {partition} at {connection.broker}")
        found.append(row.offset)
    at_time = found[2] if timestamp_ms is not None and found[2] >= 0 else None
    return LogBounds(start=found[0], end=found[1], at_time=at_time)


def epoch_end(
    connection: Connection, partition: Partition, leader_epoch: int, current_leader_epoch: int = -1
) -> Steps[int | None]:
    """Where ``leader_epoch`` ends in the leader's log; None where that cannot be told. Raises retriable KafkaErrors.

    None means: no epoch is known, the broker's log knows none so late (which no log does that this one was read from),
    or it does not answer such a question. Reading goes on then, as it would without having asked.
    """
    if leader_epoch < 0:
        return None
    answer = connection.epoch_end(partition, leader_epoch, current_leader_epoch)
    yield answer
    try:
        row = answer.value().get(TopicPartition(partition.topic, partition.number))
        if row is not None and row.error is not None:
            raise row.error(f"Asking {connection.broker} where leader epoch {leader_epoch} of {partition} ends")
    except KafkaError as error:
        if error.retriable:
            raise
        log.warning("%s: whether its log was truncated cannot be asked. %s", partition, error.message)
        return None
    if row is None or row.end_offset < 0:
        log.warning(
            "%s: the log of %s knows no leader epoch as late as %d, in which the last record was written",
            partition,
            connection.broker,
            leader_epoch,
        )
        return None
    return row.end_offset
