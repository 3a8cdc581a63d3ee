"""Fetches: one in flight for each broker, sent while the records of the last are emitted.

Rules:

- A broker has at most one fetch in flight. It asks for all partitions on that broker that want more, so its answer is
  also the broker's sign of life; a broker that does not answer holds up no other broker.
- A task's bytes ahead of the emit (``buffer_size_bytes``) are shared out evenly by broker. A fetch asks for the rest of
  its broker's share, so buffered bytes and bytes in flight together never exceed the budget.
- An answer counts for a partition only if the partition still reads from the position and under the leader epoch that
  were asked for. Anything else is stale (leader moved, log truncated, partition opened again) and is dropped.
- After a failure a broker, or a single partition, pauses for a growing time. What a failure means (look at the leaders
  again, reset, stop) is the coordinator's decision: ``collect`` only reports it.
- With a rack the leader of a partition may name a nearer replica (KIP-392), which is read from for a time. Whatever
  goes wrong there, the leader is asked again, and no rack named to it for that time.

No fetch sessions (KIP-227) here: a spout asks a few brokers for a few partitions, and the spout must be able to leave a
partition out of one fetch and take it into the next at no cost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import UnknownTopicId
from streamlet.kafka.client.leader_requests import FetchedPartition, FetchPosition, FetchSettings, fetch
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.fetch.nearer_replica import NearerReplica
from streamlet.kafka.fetch.pauses import Pauses
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.records.record_batch import scan_headers
from streamlet.spouts.kafka.broker_connections import Connection, DynamicPartitionConnections
from streamlet.spouts.kafka.manager import PartitionManager
from streamlet.spouts.kafka.partition import Broker, Partition

log = logging.getLogger(__name__)

# The broker answers one fetch after the other. With the usual wait (500 ms) a quiet partition in the fetch would hold
# up the full one, which is soon empty and then starves.
BUSY_WAIT_MS = 10
"""Milliseconds a broker may hold a fetch while another of its partitions has a full buffer."""

NEARER_S = 300.0
"""Seconds until the leader is asked again which replica is nearer; Java's age of metadata."""

RETRY = Backoff(initial=0.1, maximum=1.0)


@dataclass(frozen=True, slots=True)
class FailedFetch:
    """A partition could not be read; the coordinator decides what that means."""

    partition: Partition
    error: KafkaError
    first: bool = True
    """False for a repetition of the failure before: not worth a line in the log."""


class _Asked(NamedTuple):
    """The partition, offset and leader epoch that were asked for."""

    manager: PartitionManager
    position: int
    leader_epoch: int


@dataclass(slots=True)
class _Broker:
    """The fetch in flight of one broker."""

    answer: RequestFuture[dict[TopicPartition, FetchedPartition]] | None = None
    asked: dict[TopicPartition, _Asked] = field(default_factory=dict)


class SpoutFetcher:
    """Keeps each broker busy with one fetch, within the task's byte budget. Never waits."""

    def __init__(
        self, connections: DynamicPartitionConnections, settings: FetchSettings, buffer_size_bytes: int
    ) -> None:
        self._connections = connections
        self._settings = settings
        self._buffer_size_bytes = buffer_size_bytes
        self._mismatched: list[FailedFetch] = []
        self._brokers: dict[Broker, _Broker] = {}
        self._broker_pauses: Pauses[Broker] = Pauses(RETRY)
        self._pauses: Pauses[Partition] = Pauses(RETRY)
        self._nearer: dict[Partition, NearerReplica] = {}
        self._told: dict[Partition, Broker] = {}
        """Where the log says that partitions are read from, if not from the leader."""

    def collect(self, now_s: float) -> list[FailedFetch]:
        """Take in the answers that have come; return the partitions that failed."""
        failed, self._mismatched = self._mismatched, []
        for broker, state in self._brokers.items():
            if state.answer is None or not state.answer.done:
                continue
            answer, state.answer = state.answer, None
            asked, state.asked = state.asked, {}
            try:
                found = answer.value
            except KafkaError as error:
                first = self._broker_pauses.failed(broker, now_s) == 1
                failed += [
                    FailedFetch(one.manager.partition, error, first)
                    for one in asked.values()
                    if not self._back_to_leader(one.manager.partition, broker, error, now_s)
                ]
                continue
            self._broker_pauses.ended(broker)
            failed += self._take(broker, found, asked, now_s)
        return failed

    def send(self, managers: Iterable[PartitionManager], topic_id: Callable[[str], str | None], now_s: float) -> None:
        """Ask each idle broker for those of its partitions that want more.

        ``topic_id``: tells a topic's id in the client's metadata.
        """
        managers = list(managers)
        self._ask_leaders_again(now_s)
        rooms = self._rooms(managers)
        wanted: dict[Broker, tuple[Connection, list[PartitionManager]]] = {}
        busy: set[Broker] = set()
        pausing = self._pauses.active(now_s)
        for manager in managers:
            connection = self._connections.read_connection(manager.partition)
            if connection is None or manager.closed or manager.paused or manager.partition in pausing:
                continue
            if not manager.wants_fetch():
                # Full, so it will want more soon; a partition at its end wants nothing more.
                if not manager.fetched_all:
                    busy.add(connection.broker)
                continue
            known = None if manager.topic_id is None else topic_id(manager.partition.topic)
            if known is not None and manager.topic_id != known:
                # Offsets of a topic that was deleted mean nothing in the new one of the same name: report, never fetch.
                # Either of the two may be the newer one; a client that had no error of it learns of it by age only.
                connection.client.metadata.request_update(reset_equivalent=False)
                error = UnknownTopicId(f"Fetching {manager.partition}")
                self._mismatched.append(FailedFetch(manager.partition, error, first=False))
                self._pauses.hold(manager.partition, now_s)
                continue
            wanted.setdefault(connection.broker, (connection, []))[1].append(manager)
        resting = self._broker_pauses.active(now_s)
        for broker, (connection, mine) in wanted.items():
            state = self._brokers.setdefault(broker, _Broker())
            if state.answer is None and broker not in resting and rooms[broker] > 0:
                wait_ms = self._settings.fetch_max_wait_ms
                wait_ms = min(wait_ms, BUSY_WAIT_MS) if broker in busy else wait_ms
                self._ask(connection, state, mine, rooms[broker], wait_ms, now_s)

    def _ask_leaders_again(self, now_s: float) -> None:
        """Ask leaders again whose answer about a nearer replica is old."""
        for partition in [one for one, nearer in self._nearer.items() if nearer.until_s <= now_s]:
            connection = self._connections.read_connection(partition)
            state = None if connection is None else self._brokers.get(connection.broker)
            # Between two fetches: the connection may be closed with it, and a fetch under way would fail.
            if state is None or state.answer is None:
                del self._nearer[partition]
                self._connections.read_from_leader(partition)

    def _read_nearer(self, partition: Partition, node: int, now_s: float) -> None:
        """Read on from the replica that the leader has named."""
        nearer = self._nearer.setdefault(partition, NearerReplica())
        leader = self._connections.get_connection(partition)
        replica = None if leader is None else leader.client.cluster.brokers.get(node)
        if replica is None:  # nobody knows its address yet
            nearer.failed(now_s + NEARER_S)
            return
        nearer.named(node, now_s + NEARER_S)
        near = Broker(replica.host, replica.port)
        self._connections.read_from(partition, near)
        if self._told.get(partition) != near:
            self._told[partition] = near
            log.info("%s is read from %s, the replica that its leader names for this rack", partition, near)

    def _back_to_leader(self, partition: Partition, broker: Broker, error: KafkaError, now_s: float) -> bool:
        """Ask the leader again after a failure of a nearer replica; False: it was not one."""
        read = self._connections.read_connection(partition)
        if read is None or read.broker != broker or read is self._connections.get_connection(partition):
            return False
        self._nearer[partition].failed(now_s + NEARER_S)
        self._told.pop(partition, None)
        self._connections.read_from_leader(partition)
        log.warning("%s is read from its leader for %g s. %s", partition, NEARER_S, error.message)
        return True

    @property
    def all_asked(self) -> bool:
        """Whether every broker owes an answer."""
        return bool(self._brokers) and all(state.answer is not None for state in self._brokers.values())

    def forget_unused(self) -> None:
        """Drop the state of brokers that no partition uses any more."""
        used = {connection.broker for connection in self._connections.connections()}
        for broker in [broker for broker in self._brokers if broker not in used]:
            del self._brokers[broker]
            self._broker_pauses.ended(broker)
        for partition in {*self._nearer, *self._told}:
            if self._connections.get_connection(partition) is None:
                self._nearer.pop(partition, None)
                self._told.pop(partition, None)

    def _rooms(self, managers: Iterable[PartitionManager]) -> dict[Broker, int]:
        """Return how many bytes each idle broker may send now."""
        # Each broker gets a share of its own: of a common budget each could send all that it was asked for, and one
        # broker would starve while another's bytes are buffered.
        by_broker: dict[Broker, list[PartitionManager]] = {}
        total = self._buffer_size_bytes
        for manager in managers:
            connection = self._connections.read_connection(manager.partition)
            if connection is None:
                total -= manager.buffer.size_bytes  # fetched from a leader that is gone
            else:
                by_broker.setdefault(connection.broker, []).append(manager)
        return {broker: _room(total // len(by_broker), mine) for broker, mine in by_broker.items()}

    def _ask(
        self,
        connection: Connection,
        state: _Broker,
        managers: list[PartitionManager],
        room: int,
        wait_ms: int,
        now_s: float,
    ) -> None:
        # The broker fills its answer in the order of the list: the partition with most bytes buffered goes to the end.
        managers.sort(key=lambda manager: manager.buffer.size_bytes)
        state.asked = {
            manager.partition.tp: _Asked(manager, manager.buffer.position, manager.current_leader_epoch)
            for manager in managers
        }
        positions = {tp: FetchPosition(one.position, one.leader_epoch) for tp, one in state.asked.items()}
        rack = self._settings.client_rack
        known = [self._nearer[one.partition] for one in managers if one.partition in self._nearer]
        if any(nearer.hides_rack(now_s) for nearer in known):
            rack = ""  # it is of the whole request
        settings = replace(self._settings, fetch_max_wait_ms=wait_ms, fetch_max_bytes=room, client_rack=rack)
        state.answer = fetch(connection.client, connection.address, positions, settings)

    def _take(
        self,
        broker: Broker,
        found: dict[TopicPartition, FetchedPartition],
        asked: dict[TopicPartition, _Asked],
        now_s: float,
    ) -> list[FailedFetch]:
        failed: list[FailedFetch] = []
        for tp, row in found.items():
            manager, position, leader_epoch = asked[tp]
            # Stale: asked for from elsewhere, or under another leadership. Its records may be those of a log that was
            # truncated since (KIP-320).
            if manager.closed or manager.buffer.position != position or manager.current_leader_epoch != leader_epoch:
                continue
            if manager.ending:  # the topic is gone, and another of its name may have answered
                continue
            partition = manager.partition
            if row.error is None:
                self._pauses.ended(partition)
                if row.preferred_read_replica >= 0:  # the leader names it in place of records
                    self._read_nearer(partition, row.preferred_read_replica, now_s)
                    continue
                # Where to read on is known from the batch headers, before anything is unpacked: so the next fetch is
                # under way while these records are decoded and emitted.
                scan = scan_headers(row.records, position)
                # Unreadable bytes count as one offset: the answer is then taken in, and the reader names the fault.
                end = scan.next_offset + scan.unreadable
                manager.add(
                    row.batches(), len(row.records), end, row.last_stable_offset, leader_epoch=scan.leader_epoch
                )
                continue
            error = row.error(f"Fetching {partition} from offset {position}")
            # What a follower lacks the leader may have; if not, the leader says so.
            if self._back_to_leader(partition, broker, error, now_s):
                continue
            failed.append(FailedFetch(partition, error, self._pauses.failed(partition, now_s) == 1))
        return failed


def _room(share: int, managers: Iterable[PartitionManager]) -> int:
    """Return the rest of a broker's share, in bytes; 0: ask for nothing now."""
    room = share - sum(manager.buffer.size_bytes for manager in managers)
    if room > 0:
        return room
    # Partitions that may emit nothing can fill the share for a long time. Then the others are asked for 1 byte, one
    # fetch at a time: Kafka sends the first batch whole, however small the limit.
    full = any(one.buffer.size_bytes and one.may_emit() and not one.paused for one in managers)
    return 0 if full else 1
