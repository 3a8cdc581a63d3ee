"""Records that wait to be sent, by topic and partition, and their memory.

Java: RecordAccumulator with its TopicInfo, BufferPool. Pure; the caller holds the producer's lock.

::

    append --> | tp-0: [full] [full] [open] |          ready(now): which brokers may get something
               | tp-1: [open]               |  drain   one batch a partition, in turn, up to max_request_size
               | tp-2:                      | ------>  in flight (batch_ledger)
                   ^                               |   reenqueue: back to the head, in order of sequence
                   +-------------------------------+

A batch is *ready* at ``batch_size``, and goes on taking records until it is drained or ``growth`` times as large: when
the sender cannot keep up, batches grow with the load instead of queueing.

A queue's last batch is *open* while it takes records. An open batch is a permission: the short paths of ``send`` put
records into it and check nothing else. So every refusal of further records (close, commit, abort, a partition that
moved) must close the open batches first.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamlet.base.backoff import Backoff
from streamlet.kafka.metadata.cluster import UNKNOWN_EPOCH, Cluster, TopicPartition
from streamlet.kafka.producer.errors import PartitionerFailed
from streamlet.kafka.producer.partitioners import (
    INTERVAL_STICKY,
    StickyPartition,
    all_replicas_down,
    ask_custom,
    custom,
    key_hash,
    other_partition,
)
from streamlet.kafka.producer.producer_batch import BatchState, ProducerBatch, Sequences, WaitGuard
from streamlet.kafka.records.appending import HEADER_SIZE

_MOST_KEYS = 16_384
_LONGEST_KEY = 64
"""Bytes of a key that is still remembered: this memory is no part of ``buffer_memory``, and must stay small."""


@dataclass(slots=True, eq=False)
class MemoryWaiter:
    """One thread that waits for ``wanted`` bytes, and has ``got`` so many."""

    wanted: int
    got: int = 0

    @property
    def served(self) -> bool:
        """Whether it has all it wanted, which now belongs to it."""
        return self.got >= self.wanted


class BufferPool:
    """The count of the memory of batches, and the line of waiters.

    Batches are immutable bytes made for one request, never a buffer used again, so the bytes that a
    socket still sends cannot become another batch's (KAFKA-19012); the count goes down when the bytes can be freed.
    """

    __slots__ = ("_waiters", "available", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.available = total
        self._waiters: deque[MemoryWaiter] = deque()

    @property
    def in_use(self) -> int:
        """Bytes held by batches, or set aside for waiters."""
        return self.total - self.available

    @property
    def exhausted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiters)

    def try_take(self, size: int) -> bool:
        """Take ``size`` bytes at once, or none; never past those who wait."""
        if self._waiters or size > self.available:
            return False
        self.available -= size
        return True

    def wait(self, size: int) -> MemoryWaiter:
        """Stand in line for ``size`` bytes."""
        # The first in line gathers every byte that is freed, so that small wants cannot starve a large one.
        waiter = MemoryWaiter(size)
        self._waiters.append(waiter)
        self._serve()
        return waiter

    def leave(self, waiter: MemoryWaiter) -> bool:
        """Leave the line, and the memory gathered so far to others; True when that served somebody."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        self.available += waiter.got
        waiter.got = 0
        return self._serve()

    def free(self, size: int) -> bool:
        """Give ``size`` bytes back; True when that served somebody."""
        self.available += size
        if self.available > self.total:
            raise RuntimeError(f"memory was given back twice: {self.available} of {self.total} bytes are free")
        return self._serve()

    def _serve(self) -> bool:
        served = False
        while self._waiters and self.available:
            head = self._waiters[0]
            part = min(head.wanted - head.got, self.available)
            head.got += part
            self.available -= part
            if not head.served:
                break
            self._waiters.popleft()
            served = True
        return served


@dataclass(frozen=True, slots=True)
class AccumulatorSettings:
    """The settings of an accumulator: times in seconds, sizes in bytes."""

    batch_size: int
    linger_s: float
    delivery_timeout_s: float
    retry: Backoff
    growth: int = 16
    max_request_size: int = 1_048_576
    transactional: bool = False
    """Batches bear the mark of a transaction."""


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """One partition's batches, oldest first; ``open`` is the last one while it takes records."""

    topic_partition: TopicPartition
    batches: deque[ProducerBatch] = field(default_factory=deque)
    open: ProducerBatch | None = None
    muted: bool = False
    """One of its batches is in flight, and ``max_in_flight = 1`` promises order. Written by the ledger."""


@dataclass(slots=True)
class ReadyNodes:
    """The brokers that may get something, as found by :meth:`RecordAccumulator.ready`."""

    nodes: dict[int, list[PartitionQueue]] = field(default_factory=dict)
    """Broker id -> its partitions with something to send, for brokers with at least one that is due."""
    next_check_s: float = float("inf")
    """Seconds until time alone makes another one due."""
    leaderless: list[PartitionQueue] = field(default_factory=list)
    every: bool = False
    """Whether nothing lingers."""


@dataclass(slots=True, eq=False, repr=False)
class RecordAccumulator:
    """The queues of all partitions, and every batch that is not finished.

    ``may_send`` says whether a batch's partition is part of the transaction; ``wait_guard`` is the thread that settles
    the batches made here.
    """

    # Long: every method moves batches between the same queues, and a batch is in exactly one of them. Memory
    # (`BufferPool`) and the batch itself (`producer_batch`) are apart.

    _settings: AccumulatorSettings
    pool: BufferPool
    sequences: Sequences | None
    _uniform: Callable[[], float]
    _may_send: Callable[[TopicPartition], bool] = lambda _tp: True
    _wait_guard: WaitGuard | None = None
    _queues: dict[TopicPartition, PartitionQueue] = field(default_factory=dict)
    _active: dict[TopicPartition, PartitionQueue] = field(default_factory=dict)
    """Queues that have a batch: only these are looked at each turn, so that idle partitions cost nothing."""
    live: dict[ProducerBatch, None] = field(default_factory=dict)
    """Every batch from its first record until its callbacks have run, in order of age."""
    flushes: int = 0
    """Callers in flush(): nothing lingers meanwhile."""
    closed: bool = False
    _turn: int = 0
    _drained: int = 0
    _largest: dict[str, int] = field(default_factory=dict)

    @property
    def incomplete(self) -> list[ProducerBatch]:
        """Every batch whose outcome is open. Needs no lock: ``list`` copies at one stroke."""
        return [batch for batch in list(self.live) if not batch.is_over]

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        """Return the partition's queue, made on first use."""
        found = self._queues.get(tp)
        if found is None:
            found = self._queues[tp] = PartitionQueue(tp)
        return found

    def forget_topics(self, topics: Iterable[str]) -> set[str]:
        """Drop the queues of topics that nobody sends to any more; return the topics that were dropped.

        A topic stays while it has something queued or on its way. Its sequences may have to stay longer: see
        :meth:`Sequences.forget`.
        """
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

    def mute(self, tp: TopicPartition, muted: bool) -> None:
        """Keep a partition from being drained, or let it go on."""
        queue = self._queues.get(tp)
        if queue is not None:
            queue.muted = muted

    # -- filling

    def grow(self, batch: ProducerBatch, size: int) -> bool:
        """Let an open batch take ``size`` more bytes than its room; False when it must end here."""
        # A full batch grows until the sender drains it. Python's threads change places every 5 ms, and a sender that
        # waits that long for each 16 KiB cannot keep up with one sending thread. This is also why ``linger_ms`` need
        # not be 5, as it is in Java from 4.0.
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
        """Return how far a batch of the topic may grow."""
        # No further than batch_size after a broker refused a larger one.
        known = self._largest.get(topic)
        if known is None:
            grown = self._settings.batch_size * self._settings.growth
            return max(self._settings.batch_size, min(grown, self._settings.max_request_size))
        return known

    def first_size(self, record_size: int) -> int:
        """Return the memory for a new batch with such a record."""
        return max(self._settings.batch_size, HEADER_SIZE + record_size)

    def open_batch(self, queue: PartitionQueue, memory: int, timestamp: int, now_s: float) -> ProducerBatch:
        """Add a new last batch, for memory that was taken."""
        # By name, not as given: the queue may have been forgotten while its caller waited for the memory.
        queue = self.queue(queue.topic_partition)
        batch = ProducerBatch(
            queue.topic_partition,
            timestamp,
            now_s,
            memory,
            memory,
            transactional=self._settings.transactional,
            wait_guard=self._wait_guard,
        )
        queue.batches.append(batch)
        queue.open = batch
        self._active[queue.topic_partition] = queue
        self.live[batch] = None
        return batch

    def close_open_batches(self) -> None:
        """Let no batch take more: the next record asks again whether it may be taken."""
        for queue in self._active.values():
            queue.open = None

    # -- sending

    def ready(self, cluster: Cluster, now_s: float, hurry: bool = False) -> ReadyNodes:
        """Return which brokers may get something, and when to look again.

        ``hurry``: nothing lingers. A broker is due when one of its partitions is; then the others may come along.
        """
        found = ReadyNodes(every=hurry or self.pool.exhausted or self.closed or self.flushes > 0)
        due: set[int] = set()
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
            wait = self._wait_s(queue, head, now_s, found.every)
            if wait <= 0:
                due.add(leader.node_id)
            else:
                found.next_check_s = min(found.next_check_s, wait)
        found.nodes = {node: queues for node, queues in found.nodes.items() if node in due}
        return found

    def still_due(
        self, found: ReadyNodes, queues: Iterable[PartitionQueue], cluster: Cluster, now_s: float
    ) -> list[PartitionQueue]:
        """Return a broker's queues for another request of this turn; [] where none is due.

        When the next one is goes into ``found``.
        """
        # Rule: what stands behind a batch that was sent lingers like any other, and waits out its own back-off.
        left: list[PartitionQueue] = []
        due = False
        for queue in queues:
            if queue.muted or not queue.batches:
                continue
            head = queue.batches[0]
            wait = self._back_off_s(head, cluster, now_s)
            if wait <= 0:
                left.append(queue)
                wait = self._wait_s(queue, head, now_s, found.every)
            due = due or wait <= 0
            found.next_check_s = found.next_check_s if wait <= 0 else min(found.next_check_s, wait)
        return left if due else []

    def _wait_s(self, queue: PartitionQueue, head: ProducerBatch, now_s: float, every: bool) -> float:
        return 0.0 if every or self._is_full(queue, head) or head.retry else self._linger_s(head, now_s)

    def _rotated(self) -> list[PartitionQueue]:
        """Return the active queues, each time from another one on."""
        # A full request leaves out the queues at the end; without the turn these would always be the same.
        rows = list(self._active.values())
        if len(rows) > 1:
            self._turn = (self._turn + 1) % len(rows)
            rows = rows[self._turn :] + rows[: self._turn]
        return rows

    def _is_full(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        size = self._settings.batch_size
        # A batch with more room than batch_size is due at once. A record did not fit and it was made to grow, and the
        # short paths into that room look at nothing but the room: they would fill it and wake nobody.
        return len(queue.batches) > 1 or queue.open is not head or head.size >= size or head.room > size

    def _linger_s(self, head: ProducerBatch, now_s: float) -> float:
        return head.created_s + self._settings.linger_s - now_s

    def _back_off_s(self, head: ProducerBatch, cluster: Cluster, now_s: float) -> float:
        if not head.retry or not head.attempts:
            return 0.0
        epoch = cluster.leader_epoch(head.topic_partition)
        if epoch > head.leader_epoch != UNKNOWN_EPOCH:
            return 0.0  # a new leader: nothing is left to wait for (KIP-951)
        return head.last_attempt_s + self._settings.retry.delay(head.attempts, self._uniform) - now_s

    def drain(self, queues: Iterable[PartitionQueue], cluster: Cluster) -> list[ProducerBatch]:
        """Take one batch of each queue for one request; they are in flight from here on.

        Up to ``max_request_size`` in all; a larger one goes alone.
        """
        taken: list[ProducerBatch] = []
        size = 0
        for queue in queues:
            if queue.muted or not queue.batches:
                continue
            head = queue.batches[0]
            if taken and size + head.size > self._settings.max_request_size:
                break
            if not self._may_send(head.topic_partition) or (
                self.sequences is not None and not self.sequences.may_drain(head)
            ):
                continue
            queue.batches.popleft()
            if queue.open is head:
                queue.open = None
            if not queue.batches:
                del self._active[queue.topic_partition]
            head.record_count = len(head.parts)  # closed: its sequence takes this count, and no record may follow
            if not head.retry:
                self._drained += 1
                head.drained_turn = self._drained
            head.leader_epoch = cluster.leader_epoch(head.topic_partition)
            if self.sequences is not None:
                self.sequences.assign(head)
            head.move(BatchState.IN_FLIGHT)
            size += head.size
            taken.append(head)
        return taken

    def reenqueue(self, batch: ProducerBatch, now_s: float) -> None:
        """Queue an answered batch again: at the head, in order of sequence."""
        batch.move(BatchState.QUEUED)
        batch.attempts += 1
        batch.last_attempt_s = now_s
        batch.retry = True
        self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        queue = self.queue(batch.topic_partition)
        self._active[queue.topic_partition] = queue
        # Several batches of a broken connection come back in any order of their answers. Those with sequences stand
        # in the order of these, the others in the order of their first drain, all before batches never sent.
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
        """Queue smaller batches in place of one that is too large; no try is used up."""
        batch.move(BatchState.SPLIT)
        topic = batch.topic_partition.topic
        self._largest[topic] = min(self.largest(topic), self._settings.batch_size)
        target = min(self._settings.batch_size, max(batch.size // 2, HEADER_SIZE + 1))
        parts = batch.split(target)
        self.live.pop(batch, None)
        self.live.update(dict.fromkeys(parts))
        if self.sequences is not None:
            self.sequences.replace(batch, parts)
        # The parts hold together as much memory as the whole one did, so that the pool's count stays right.
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
        """Move batches that were never sent to another partition, and return them.

        Those with a record that names its partition stay, and those with keys unless ``keyed_too``.
        """
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
        """Take queued batches whose time is up, and return them."""
        # Only heads are looked at. Each queue's head is its oldest: retries go back to the head, and batches that
        # moved from another partition are sorted in by age.
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
        """Return the seconds until a queued batch expires."""
        first = min((queue.batches[0].created_s for queue in self._active.values()), default=float("inf"))
        return first + self._settings.delivery_timeout_s - now_s

    def take_undrained(self) -> list[ProducerBatch]:
        """Take everything off the queues, and return it (close, abort)."""
        found: list[ProducerBatch] = []
        for queue in self._active.values():
            found += queue.batches
            queue.batches.clear()
            queue.open = None
        self._active.clear()
        return found

    def forget(self, batch: ProducerBatch) -> None:
        """Drop a batch from the live ones: its callbacks have run."""
        self.live.pop(batch, None)

    def release(self, batch: ProducerBatch) -> bool:
        """Give a batch's memory back, at most once. True when that served somebody who waits.

        Does nothing while the batch is undecided, or while the socket may still send from it.
        """
        # That a batch fails and that its memory is freed are two events: one that expired in flight must wait for
        # its answer, or for the connection's end.
        if batch.on_wire or not batch.is_over or not batch.memory:
            return False
        size, batch.memory = batch.memory, 0
        batch.forget_records()
        return self.pool.free(size)


def _goes_before(other: ProducerBatch, batch: ProducerBatch) -> bool:
    """Return whether ``other``, sent before, was drained before ``batch``."""
    return other.retry and other.drained_turn < batch.drained_turn


# -- topics: the queue of a record


class PartitionerSettings(Protocol):
    """The settings that decide where records go; :class:`ProducerConfig` has them."""

    @property
    def partitioner(self) -> object: ...
    @property
    def partitioner_ignore_keys(self) -> bool: ...
    @property
    def partitioner_adaptive_partitioning_enable(self) -> bool: ...
    @property
    def interval_sticky_ms(self) -> int: ...
    @property
    def partition_failover(self) -> str: ...
    @property
    def batch_bytes(self) -> int: ...


@dataclass(slots=True, eq=False)
class TopicState:
    """One topic. ``sticky_queue`` is where keyless records go right now; None: draw first."""

    name: str
    sticky: StickyPartition
    count: int = 0
    queues: list[PartitionQueue] = field(default_factory=list)
    sticky_queue: PartitionQueue | None = None
    keys: dict[bytes, int] = field(default_factory=dict)
    """Partitions of keys seen lately: murmur2 in Python costs more than all the rest of a send."""


class Topics:
    """The topics that were sent to. Callers hold the producer's lock, but for :meth:`ask`."""

    def __init__(
        self, config: PartitionerSettings, accumulator: RecordAccumulator, uniform: Callable[[], float]
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._uniform = uniform
        self._states: dict[str, TopicState] = {}
        self.get = self._states.get
        name = config.partitioner if isinstance(config.partitioner, str) else None
        self.custom = None if name is not None else custom(config.partitioner)
        self._hash = key_hash(name or "murmur2")
        self.wants_raw_keys = self._hash.raw or self.custom is not None
        """Whether the partition comes of the key as the user gave it, and not of its bytes."""
        self._interval_s = config.interval_sticky_ms / 1000 if name == INTERVAL_STICKY else None
        self.cluster = Cluster()

    def take_cluster(self, cluster: Cluster) -> None:
        """Take a new view of the cluster: partitions that were added are used from now on."""
        self.cluster = cluster
        for name, info in cluster.topics.items():
            if not info.partitions:
                continue
            state = self._states.get(name)
            if state is None:
                state = self._states[name] = TopicState(name, self._sticky())
            if state.count != len(info.partitions):
                self._resize(state, len(info.partitions))
            # Keyless records must not wait at a partition without a leader while others have one.
            current = state.sticky_queue
            if current is not None and cluster.leader_for(current.topic_partition) is None:
                state.sticky_queue = None
        # The client forgets a topic that nobody sends to any more; what stands here for it must go with it, unless a
        # batch of it is still on its way.
        gone = [name for name in self._states if name not in cluster.topics]
        for name in self._accumulator.forget_topics(gone) if gone else ():
            del self._states[name]

    def _sticky(self) -> StickyPartition:
        return StickyPartition(self._config.batch_bytes, self._interval_s)

    def _resize(self, state: TopicState, count: int) -> None:
        state.count = count
        state.keys.clear()  # with another count the hash of a key points to another partition
        state.queues = [self._accumulator.queue(TopicPartition(state.name, number)) for number in range(count)]
        state.sticky_queue = None

    def send_failed(self, topic: str) -> None:
        """Note that a try failed: the interval partitioner draws again."""
        state = self._states.get(topic)
        if state is not None and self._interval_s is not None:
            state.sticky.forget()
            state.sticky_queue = None

    def ask(self, topic: str, count: int, key: bytes | None, partition_key: object) -> int | None:
        """Return the choice of the user's partitioner; None when there is none.

        Called without the lock: it may be slow, and may call the producer.
        """
        if self.custom is None:
            return None
        return ask_custom(self.custom, topic, partition_key if partition_key is not None else key, count)

    def choose(self, state: TopicState, key: bytes | None, partition_key: object, now_s: float) -> PartitionQueue:
        """Return the queue of a record, where no user's partitioner decides."""
        if (key is None and partition_key is None) or self._config.partitioner_ignore_keys:
            return self.keyless(state, now_s)
        return state.queues[self._keyed(state, key, partition_key)]

    def keyless(self, state: TopicState, now_s: float) -> PartitionQueue:
        """Return the queue that keyless records stick to at the moment."""
        sticky = state.sticky
        if state.sticky_queue is None or sticky.left <= 0 or sticky.due(now_s):
            adaptive = self._config.partitioner_adaptive_partitioning_enable and self._interval_s is None
            queued = (lambda number: len(state.queues[number].batches)) if adaptive else None
            number = sticky.draw(self.cluster, state.name, state.count, queued, self._uniform(), now_s)
            state.sticky_queue = state.queues[number]
        return state.sticky_queue

    def _keyed(self, state: TopicState, key: bytes | None, partition_key: Any) -> int:  # Any: the user's
        if self._hash.raw or partition_key is not None:
            wanted = partition_key if partition_key is not None else key
            if not self._hash.raw and isinstance(wanted, str):
                wanted = wanted.encode()
            try:
                return self._hash.choose(wanted, state.count)
            except TypeError as err:
                raise PartitionerFailed(
                    f"The partitioner {self._hash.name} cannot hash the partition key {wanted!r} of a record for topic "
                    f"{state.name!r} ({err}). {'' if self._hash.raw else 'Give bytes or a str. '}"
                    "The record was not taken."
                ) from err
        assert key is not None
        number = state.keys.get(key)
        return self.keyed(state, key) if number is None else number

    def keyed(self, state: TopicState, key: bytes) -> int:
        """Return a key's partition by its hash, and remember it."""
        if len(state.keys) >= _MOST_KEYS:
            state.keys.clear()
        number = self._hash.choose(key, state.count)
        if len(key) <= _LONGEST_KEY:
            state.keys[key] = number
        return number

    def living(self, state: TopicState, queue: PartitionQueue) -> PartitionQueue:
        """Return another queue where every replica of this one's partition is down."""
        if not all_replicas_down(self.cluster, self.cluster.partition(queue.topic_partition)):
            return queue
        other = other_partition(self.cluster, state.name, self._uniform())
        return queue if other is None else state.queues[other]
