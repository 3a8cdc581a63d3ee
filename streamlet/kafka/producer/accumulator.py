"""Records that wait to be sent, by partition (Java: RecordAccumulator). Pure; whoever holds the producer's lock calls.

::

    append --> | tp-0: [full] [full] [open] |          ready(now): which brokers may get something
               | tp-1: [open]               |  drain   one batch a partition, in turn, up to max_request_size
               | tp-2:                      | ------>  in flight, by partition and in order
                   ^                               |   reenqueue: back to the head, in order of sequence
                   +-------------------------------+

A batch is *ready* at ``batch_size``, and goes on taking records until it is drained or ``growth`` times as large: when
the sender cannot keep up, batches grow with the load instead of queueing.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from streamlet.base.backoff import Backoff
from streamlet.kafka.metadata.cluster import UNKNOWN_EPOCH, Cluster, TopicPartition
from streamlet.kafka.producer.batch import ProducerBatch, Settler
from streamlet.kafka.producer.buffer_pool import BufferPool
from streamlet.kafka.producer.sequences import Sequences
from streamlet.kafka.records.appending import HEADER_SIZE


@dataclass(frozen=True, slots=True)
class AccumulatorSettings:
    """Times in seconds, sizes in bytes."""

    batch_size: int
    linger_s: float
    delivery_timeout_s: float
    retry: Backoff
    growth: int = 16
    max_request_size: int = 1_048_576


class PartitionQueue:
    """One partition's batches, oldest first. ``open`` is the last one while it takes records."""

    __slots__ = ("batches", "muted", "open", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.muted = False
        """One of its batches is in flight, and ``max_in_flight = 1`` promises order."""


@dataclass(slots=True)
class ReadyNodes:
    """What :meth:`RecordAccumulator.ready` found."""

    nodes: dict[int, list[PartitionQueue]] = field(default_factory=dict)
    """Broker id -> its partitions with something to send, for brokers with at least one that is due."""
    next_check_s: float = float("inf")
    """Seconds until time alone makes another one due."""
    leaderless: list[PartitionQueue] = field(default_factory=list)


class RecordAccumulator:
    """See the module."""

    def __init__(
        self, settings: AccumulatorSettings, pool: BufferPool, sequences: Sequences | None, uniform: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._uniform = uniform
        self.pool = pool
        self.sequences = sequences
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}
        """Queues that have a batch: what ready() looks at, so that idle partitions cost nothing."""
        self.incomplete: set[ProducerBatch] = set()
        """Every batch without a final state, queued or in flight."""
        self.flushes = 0
        """Callers in flush(): nothing lingers meanwhile."""
        self.closed = False
        self.may_send: Callable[[ProducerBatch], bool] = lambda batch: True
        """The transaction's word on a batch: whether its partition has been added."""
        self.settler: Settler | None = None
        """The thread that settles the batches made here."""
        self._turn = 0
        self._drained = 0
        self._largest: dict[str, int] = {}

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        """The partition's queue, made on first use."""
        found = self._queues.get(tp)
        if found is None:
            found = self._queues[tp] = PartitionQueue(tp)
        return found

    def forget_topics(self, topics: Iterable[str]) -> set[str]:
        """Drop what is known of idle topics; gives those of them that have nothing queued or on its way."""
        idle = set(topics) - {batch.topic_partition.topic for batch in self.incomplete}
        rows = [queue for tp, queue in self._queues.items() if tp.topic in idle]
        idle -= {queue.topic_partition.topic for queue in rows if queue.muted}
        for queue in rows:
            if queue.topic_partition.topic in idle:
                del self._queues[queue.topic_partition]
        for topic in idle:
            self._largest.pop(topic, None)
        if self.sequences is not None:
            self.sequences.forget(idle)
        return idle

    def unmute(self, tp: TopicPartition) -> None:
        """Its batch is answered for."""
        queue = self._queues.get(tp)
        if queue is not None:
            queue.muted = False

    # -- filling

    def grow(self, batch: ProducerBatch, size: int) -> bool:
        """Let an open batch take ``size`` more bytes than its room; False when it must end here."""
        limit = self.largest(batch.topic_partition.topic)
        if batch.size + size > limit:
            return False
        step = max(self._settings.batch_size, size)
        if not self.pool.try_take(step):
            return False
        batch.memory += step
        batch.room = min(batch.room + step, limit)
        return batch.size + size <= batch.room

    def largest(self, topic: str) -> int:
        """How far a batch of the topic may grow; ``batch_size`` once a broker refused a larger one."""
        known = self._largest.get(topic)
        if known is None:
            grown = self._settings.batch_size * self._settings.growth
            return max(self._settings.batch_size, min(grown, self._settings.max_request_size))
        return known

    def first_size(self, record_size: int) -> int:
        """What a new batch that begins with such a record takes of the pool."""
        return max(self._settings.batch_size, HEADER_SIZE + record_size)

    def open_batch(self, queue: PartitionQueue, memory: int, timestamp: int, now_s: float) -> ProducerBatch:
        """A new last batch, for memory that was taken. The queue may have been forgotten while that was waited for."""
        queue = self.queue(queue.topic_partition)
        batch = ProducerBatch(queue.topic_partition, timestamp, now_s, memory, memory)
        batch.settler = self.settler
        queue.batches.append(batch)
        queue.open = batch
        self._active[queue.topic_partition] = queue
        self.incomplete.add(batch)
        return batch

    def close_open_batches(self) -> None:
        """Let no batch take more: the next record asks again whether it may be taken (close, commit, abort)."""
        for queue in self._active.values():
            queue.open = None

    # -- sending

    def ready(self, cluster: Cluster, now_s: float, hurry: bool = False) -> ReadyNodes:
        """Which brokers may get something, and when to look again. ``hurry``: nothing lingers."""
        found = ReadyNodes()
        due: set[int] = set()
        every = hurry or self.pool.exhausted or self.closed or self.flushes > 0
        for queue in self._rotated():
            if queue.muted:
                continue
            head = queue.batches[0]
            leader = cluster.leader_for(queue.topic_partition)
            if leader is None:
                found.leaderless.append(queue)
                continue
            wait = self._back_off_s(head, cluster, now_s)
            if wait > 0:
                found.next_check_s = min(found.next_check_s, wait)
                continue
            found.nodes.setdefault(leader.node_id, []).append(queue)
            wait = 0.0 if every or self._is_full(queue, head) or head.retry else self._linger_s(head, now_s)
            if wait <= 0:
                due.add(leader.node_id)
            else:
                found.next_check_s = min(found.next_check_s, wait)
        found.nodes = {node: queues for node, queues in found.nodes.items() if node in due}
        return found

    def _rotated(self) -> list[PartitionQueue]:
        """Active queues, each time from another one on: a request that is full leaves out another one's batch."""
        rows = list(self._active.values())
        if len(rows) > 1:
            self._turn = (self._turn + 1) % len(rows)
            rows = rows[self._turn :] + rows[: self._turn]
        return rows

    def _is_full(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """One that was given more room is: a record did not fit, and who uses that room wakes nobody."""
        size = self._settings.batch_size
        return len(queue.batches) > 1 or queue.open is not head or head.size >= size or head.room > size

    def _linger_s(self, head: ProducerBatch, now_s: float) -> float:
        return head.created_s + self._settings.linger_s - now_s

    def _back_off_s(self, head: ProducerBatch, cluster: Cluster, now_s: float) -> float:
        if not head.retry or not head.attempts:
            return 0.0
        epoch = cluster.leader_epoch(head.topic_partition)
        if epoch > head.leader_epoch != UNKNOWN_EPOCH:
            return 0.0  # a new leader: there is nothing to wait for (KIP-951)
        return head.last_attempt_s + self._settings.retry.delay(head.attempts, self._uniform) - now_s

    def drain(self, queues: Iterable[PartitionQueue], cluster: Cluster, now_s: float) -> list[ProducerBatch]:
        """One batch of each queue, up to ``max_request_size`` in all; one that is larger goes alone."""
        taken: list[ProducerBatch] = []
        size = 0
        for queue in queues:
            if queue.muted or not queue.batches:
                continue
            head = queue.batches[0]
            if taken and size + head.size > self._settings.max_request_size:
                break
            if not self.may_send(head) or (self.sequences is not None and not self.sequences.may_drain(head)):
                continue
            queue.batches.popleft()
            if queue.open is head:
                queue.open = None
            if not queue.batches:
                del self._active[queue.topic_partition]
            head.record_count = len(head.parts)
            if not head.retry:
                self._drained += 1
                head.drained_turn = self._drained
            head.leader_epoch = cluster.leader_epoch(head.topic_partition)
            if self.sequences is not None:
                self.sequences.assign(head)
            head.on_wire = True
            size += head.size
            taken.append(head)
        return taken

    def reenqueue(self, batch: ProducerBatch, now_s: float) -> None:
        """Back to the head of its queue, in order of sequence."""
        batch.attempts += 1
        batch.last_attempt_s = now_s
        batch.retry = True
        self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        queue = self.queue(batch.topic_partition)
        self._active[queue.topic_partition] = queue
        if not batch.has_sequence:
            place = 0
            while place < len(queue.batches) and _goes_before(queue.batches[place], batch):
                place += 1
            queue.batches.insert(place, batch)
            return
        row = self.sequences.of(batch.topic_partition).in_flight if self.sequences is not None else []
        places = {other: at for at, other in enumerate(row)}
        sent = [other for other in queue.batches if other.has_sequence]
        fresh = [other for other in queue.batches if not other.has_sequence]
        insort(sent, batch, key=lambda other: places.get(other, len(places)))
        queue.batches = deque(sent + fresh)

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """A batch that the broker finds too large becomes several, queued in its place; no try is used up."""
        topic = batch.topic_partition.topic
        self._largest[topic] = min(self.largest(topic), self._settings.batch_size)
        target = min(self._settings.batch_size, max(batch.size // 2, HEADER_SIZE + 1))
        parts = batch.split(target)
        self.incomplete.discard(batch)
        self.incomplete.update(parts)
        if self.sequences is not None:
            self.sequences.replace(batch, parts)
        # The memory goes with the first part: what they hold together is what the whole one held.
        share = batch.memory // len(parts)
        for part in parts:
            part.memory = share
        parts[0].memory += batch.memory - share * len(parts)
        batch.memory = 0
        for part in reversed(parts):
            part.leader_epoch = batch.leader_epoch
            self._insert(part)
        return parts

    def move(self, queue: PartitionQueue, target: TopicPartition, keyed_too: bool) -> list[ProducerBatch]:
        """Batches that were never sent go to another partition (P8); those that name theirs stay."""
        moved = [
            batch
            for batch in queue.batches
            if not batch.was_sent and not batch.has_sequence and not batch.pinned and (keyed_too or not batch.keyed)
        ]
        if not moved:
            return []
        other = self.queue(target)
        queue.batches = deque(batch for batch in queue.batches if batch not in moved)
        queue.open = None
        if not queue.batches:
            self._active.pop(queue.topic_partition, None)
        other.open = None
        for batch in moved:
            batch.topic_partition = target
        sent = [batch for batch in other.batches if batch.was_sent or batch.has_sequence]
        fresh = [batch for batch in other.batches if not (batch.was_sent or batch.has_sequence)]
        other.batches = deque(sent + sorted(fresh + moved, key=lambda batch: batch.created_s))
        self._active[target] = other
        return moved

    # -- the end of batches

    def expired(self, now_s: float) -> list[ProducerBatch]:
        """Queued batches whose time is up (E1), taken off their queues. Only heads are looked at: they are oldest."""
        found: list[ProducerBatch] = []
        for queue in list(self._active.values()):
            while queue.batches and now_s - queue.batches[0].created_s >= self._settings.delivery_timeout_s:
                batch = queue.batches.popleft()
                if queue.open is batch:
                    queue.open = None
                found.append(batch)
            if not queue.batches:
                del self._active[queue.topic_partition]
        return found

    def next_expiry_s(self, now_s: float) -> float:
        """Seconds until a queued batch expires."""
        first = min((queue.batches[0].created_s for queue in self._active.values()), default=float("inf"))
        return first + self._settings.delivery_timeout_s - now_s

    def take_undrained(self, only: Callable[[ProducerBatch], bool] = lambda batch: True) -> list[ProducerBatch]:
        """Everything queued that ``only`` admits, taken off (close, abort)."""
        found: list[ProducerBatch] = []
        for queue in list(self._active.values()):
            gone = [batch for batch in queue.batches if only(batch)]
            found += gone
            queue.batches = deque(batch for batch in queue.batches if not only(batch))
            if queue.open in gone:
                queue.open = None
            if not queue.batches:
                del self._active[queue.topic_partition]
        return found

    def forget(self, batch: ProducerBatch) -> None:
        """It has its final state."""
        self.incomplete.discard(batch)

    def release(self, batch: ProducerBatch) -> bool:
        """Give its memory back, once, and never while the socket may still send from it (E4). True: somebody got it."""
        if batch.on_wire or batch.final_state is None or not batch.memory:
            return False
        size, batch.memory = batch.memory, 0
        batch.forget_records()
        return self.pool.free(size)

    def __iter__(self) -> Iterator[PartitionQueue]:
        return iter(self._active.values())


def _goes_before(other: ProducerBatch, batch: ProducerBatch) -> bool:
    """Of batches without sequences that are sent again: the one that was drained first."""
    return other.retry and other.drained_turn < batch.drained_turn
