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
- A partition is read from its leader, or from the nearer replica that the leader has named (``read_sources``).

No fetch sessions (KIP-227) here: a spout asks a few brokers for a few partitions, and the spout must be able to leave a
partition out of one fetch and take it into the next at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import UnknownTopicId
from streamlet.kafka.client.leader_requests import FetchedPartition, FetchPosition, FetchSettings, fetch
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.fetch.pauses import Pauses
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.records.record_batch import first_time_ms, scan_headers
from streamlet.spouts.kafka.broker_connections import Connection, DynamicPartitionConnections
from streamlet.spouts.kafka.manager import PartitionManager
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.read_sources import ReadSources

# The broker answers one fetch after the other. With the usual wait (500 ms) a quiet partition in the fetch would hold
# up the full one, which is soon empty and then starves.
BUSY_WAIT_MS = 10
"""Milliseconds a broker may hold a fetch while another of its partitions has a full buffer."""

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
        self.sources = ReadSources(connections, self._is_free)
        self._reading: set[Broker] = set()
        """Brokers that a partition is read from, as of the last ``send``."""

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
                    if self.sources.failed(one.manager.partition, broker, error, now_s)
                ]
                continue
            self._broker_pauses.ended(broker)
            failed += self._take(broker, found, asked, now_s)
        return failed

    def send(self, managers: Iterable[PartitionManager], topic_id: Callable[[str], str | None], now_s: float) -> None:
        """Ask each idle broker for those of its partitions that want more.

        ``topic_id``: tells a topic's id in the client's metadata.
        """
        sources = [(manager, self.sources.of(manager.partition, now_s)) for manager in managers]
        self._reading = {connection.broker for _, connection in sources if connection is not None}
        rooms = self._rooms(sources)
        wanted: dict[Broker, tuple[Connection, list[PartitionManager]]] = {}
        busy: set[Broker] = set()
        pausing = self._pauses.active(now_s)
        for manager, connection in sources:
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

    @property
    def all_asked(self) -> bool:
        """Whether every broker that is read from owes an answer."""
        return bool(self._reading) and not any(map(self._is_free, self._reading))

    def _is_free(self, broker: Broker) -> bool:
        state = self._brokers.get(broker)
        return state is None or state.answer is None

    def forget_unused(self) -> None:
        """Drop the state of brokers that no partition uses any more."""
        used = {connection.broker for connection in self._connections.connections()}
        for broker in [broker for broker in self._brokers if broker not in used]:
            del self._brokers[broker]
            self._broker_pauses.ended(broker)
        self.sources.forget_closed()

    def _rooms(self, sources: Iterable[tuple[PartitionManager, Connection | None]]) -> dict[Broker, int]:
        """Return how many bytes each idle broker may send now."""
        # Each broker gets a share of its own: of a common budget each could send all that it was asked for, and one
        # broker would starve while another's bytes are buffered.
        by_broker: dict[Broker, list[PartitionManager]] = {}
        total = self._buffer_size_bytes
        for manager, connection in sources:
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
        rack = "" if self.sources.hides_rack((one.partition for one in managers), now_s) else self._settings.client_rack
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
                manager.answered(row.last_stable_offset, row.high_watermark, now_s)
                self._pauses.ended(partition)
                if row.preferred_read_replica >= 0:  # the leader names it in place of records
                    self.sources.named(partition, row.preferred_read_replica, now_s)
                    continue
                self.sources.read(partition, broker)
                if manager.paused:  # it asked before; what comes is dropped, as what had come
                    continue
                # Where to read on is known from the batch headers, before anything is unpacked: so the next fetch is
                # under way while these records are decoded and emitted.
                scan = scan_headers(row.records, position)
                # Unreadable bytes count as one offset: the answer is then taken in, and the reader names the fault.
                end = scan.next_offset + scan.unreadable
                manager.add(
                    row.batches(),
                    len(row.records),
                    end,
                    row.last_stable_offset,
                    leader_epoch=scan.leader_epoch,
                    time_ms=first_time_ms(row.records),
                )
                continue
            error = row.error(f"Fetching {partition} from offset {position}")
            if not self.sources.failed(partition, broker, error, now_s):
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
