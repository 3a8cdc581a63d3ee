"""Where a record goes: hashes of keys, the partition that keyless records stick to, and each topic's queues.

Pure: chance and time are passed in. A record that names its partition goes there. One with a key goes where the key's
hash points, among *all* partitions, with or without a leader. One without a key sticks: today's uniform sticky
partitioner (KIP-480, KIP-794) stays on a partition until a batch's worth of bytes went there; Kafka 0.8's stayed for
ten minutes. A partitioner of the user's decides both kinds.

To add a hash of keys: the function, and its row in ``_HASHES``. Results are cached by key (``Topics.keyed``), so a hash
sees the key alone. What looks at time or load is a user's partitioner, or a form of :class:`StickyPartition`.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from struct import Struct, unpack_from
from typing import Any, NamedTuple, Protocol

from streamlet.base.errors import SettingError
from streamlet.kafka.metadata.cluster import Cluster, PartitionInfo, TopicPartition
from streamlet.kafka.producer.accumulator import PartitionQueue, RecordAccumulator
from streamlet.kafka.producer.errors import PartitionerFailed

KeyPartitioner = Callable[[Any, int], int]
"""A function of (key, number of partitions) that returns an index from 0.

The user's is called for records without a key too, with None. Any: the key before it is serialized.
"""

UNIFORM_STICKY = "uniform_sticky"
INTERVAL_STICKY = "interval_sticky"
FAILOVERS = ("off", "keyless", "all")


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


# -- hashes, equal to those of the clients that came before

# murmur2 is Java's default today, hashCode was that of Kafka 0.8, crc32 is librdkafka's. Where a key goes must not
# change when a program changes its client: order holds within a partition only.

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WORDS = {count: Struct(f"<{count}I") for count in range(1, 65)}


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 (Java: ``Utils.murmur2``), as an unsigned 32-bit number."""
    length = len(data)
    h = _SEED ^ length
    count = length >> 2
    if count:
        # The usual lengths unpack by a ready Struct: murmur2 in Python costs more than the rest of a send.
        words = _WORDS[count].unpack_from(data) if count <= 64 else unpack_from(f"<{count}I", data)
        for k in words:
            k = (k * 0x5BD1E995) & 0xFFFFFFFF
            k ^= k >> 24
            h = ((h * 0x5BD1E995) & 0xFFFFFFFF) ^ ((k * 0x5BD1E995) & 0xFFFFFFFF)
    rest = length & 3
    if rest:
        tail = length & ~3
        if rest == 3:
            h ^= data[tail + 2] << 16
        if rest >= 2:
            h ^= data[tail + 1] << 8
        h = ((h ^ data[tail]) * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def java_string_hash(text: str) -> int:
    """Return ``String.hashCode``: over UTF-16 units, as a signed 32-bit number."""
    raw = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in unpack_from(f"<{len(raw) // 2}H", raw):
        value = (value * 31 + unit) & _MASK
    return _signed(value)


def java_bytes_hash(data: bytes) -> int:
    """Return ``Arrays.hashCode(byte[])``, as a signed 32-bit number."""
    value = 1
    for byte in data:
        value = (value * 31 + (byte - 256 if byte > 127 else byte)) & _MASK
    return _signed(value)


def java_hash(key: object) -> int:
    """Return ``hashCode`` of Java's String, byte array, Integer or Long. TypeError for others."""
    if isinstance(key, str):
        return java_string_hash(key)
    if isinstance(key, (bytes, bytearray, memoryview)):
        return java_bytes_hash(bytes(key))
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int) and -(1 << 63) <= key < 1 << 63:
        if -(1 << 31) <= key < 1 << 31:
            return key
        return _signed((key ^ ((key & 0xFFFFFFFFFFFFFFFF) >> 32)) & _MASK)
    raise TypeError(f"Java's hashCode of {type(key).__name__} is not known: give a str, bytes or int as partition key")


def murmur2_partition(key: bytes, count: int) -> int:
    """Return Java's choice for a key among ``count`` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def java_hash_partition(key: object, count: int) -> int:
    """Return Kafka 0.8's choice: ``Utils.abs(key.hashCode) % count``, where abs clears the sign bit."""
    return (java_hash(key) & 0x7FFFFFFF) % count


def crc32_partition(key: bytes, count: int) -> int:
    """Return librdkafka's choice (``consistent``)."""
    return zlib.crc32(key) % count


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value


class KeyHash(NamedTuple):
    """A ready partitioner for keys: ``raw`` ones hash the user's key, the others its bytes."""

    name: str
    choose: KeyPartitioner
    raw: bool


_HASHES = {
    UNIFORM_STICKY: KeyHash("murmur2", murmur2_partition, False),
    "murmur2": KeyHash("murmur2", murmur2_partition, False),
    "java_hash": KeyHash("java_hash", java_hash_partition, True),
    "crc32": KeyHash("crc32", crc32_partition, False),
    INTERVAL_STICKY: KeyHash("java_hash", java_hash_partition, True),
}
NAMES = tuple(_HASHES)


def key_hash(name: str) -> KeyHash:
    """Return the hash that goes with a partitioner's name."""
    return _HASHES[name]


def check_partitioner(partitioner: object) -> None:
    """Raise SettingError unless it is one of ours or a user's partitioner."""
    if partitioner not in NAMES if isinstance(partitioner, str) else not callable(custom(partitioner)):
        raise SettingError(
            f"partitioner = {partitioner!r} is not a partitioner: choose from {', '.join(NAMES)}, or give a function "
            "of (key, number of partitions), or an object with such a method `partition`."
        )


def custom(partitioner: object) -> KeyPartitioner:
    """Return a user's partitioner, function or object, as a function."""
    method = getattr(partitioner, "partition", None)
    return method if callable(method) else partitioner  # type: ignore[return-value]  # check_partitioner looked at it


def ask_custom(choose: KeyPartitioner, topic: str, key: object, count: int) -> int:
    """Return the index that a user's partitioner gives.

    PartitionerFailed names the partitioner, the index and the count. Without the lock: see :meth:`Topics.ask`.
    """
    name = getattr(choose, "__qualname__", None) or type(choose).__name__
    try:
        index = choose(key, count)
    except Exception as err:  # the user's code may raise anything
        raise PartitionerFailed(
            f"The partitioner {name} raised {type(err).__name__}: {err}; it was asked for a partition of topic "
            f"{topic!r} ({count} partitions). The record was not taken."
        ) from err
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
        raise PartitionerFailed(
            f"The partitioner {name} gave {index!r} for topic {topic!r}, which has {count} partitions: it must give "
            f"an index from 0 to {count - 1}. The record was not taken."
        )
    return index


@dataclass(slots=True, eq=False)
class StickyPartition:
    """The partition that a topic's keyless records go to at the moment.

    ``left`` is how many bytes may still go there before the next one is drawn; infinity for the interval.
    """

    sticky_bytes: int
    interval_s: float | None = None
    number: int = -1
    left: float = 0.0
    until_s: float = 0.0

    def due(self, now_s: float) -> bool:
        """Return whether it is time to move on. Only the interval form asks the clock."""
        return self.number < 0 or (self.interval_s is not None and now_s >= self.until_s)

    def draw(
        self,
        cluster: Cluster,
        topic: str,
        count: int,
        queued: Callable[[int], int] | None,
        uniform: float,
        now_s: float,
    ) -> int:
        """Choose another partition by chance.

        Among those with a leader, else among all ``count``. ``queued``, the batches at a partition, makes short
        queues likelier.
        """
        numbers = available(cluster, topic) or range(count)
        self.number = weighted(numbers, queued, uniform)
        self.left = float("inf") if self.interval_s is not None else self.sticky_bytes
        self.until_s = now_s + (self.interval_s or 0.0)
        return self.number

    def forget(self) -> None:
        """Have the interval form draw again, after a send error."""
        if self.interval_s is not None:
            self.number, self.left = -1, 0.0


def weighted(numbers: Sequence[int], queued: Callable[[int], int] | None, uniform: float) -> int:
    """Return one of them by chance.

    A long queue makes it less likely (KIP-794: its weight is longest + 1 - own).
    """
    if queued is None or len(numbers) < 2:
        return numbers[int(uniform * len(numbers)) % len(numbers)]
    lengths = [queued(number) for number in numbers]
    longest = max(lengths)
    table = list(accumulate(longest + 1 - length for length in lengths))
    return numbers[bisect_right(table, int(uniform * table[-1]))]


def available(cluster: Cluster, topic: str) -> list[int]:
    """Return the partitions that have a leader."""
    return [info.partition for info in cluster.available_partitions_for(topic)]


def all_replicas_down(cluster: Cluster, info: PartitionInfo | None) -> bool:
    """Return whether no broker that holds the partition is there."""
    if info is None or info.leader in cluster.brokers:
        return False
    living = [node for node in info.replicas if node in cluster.brokers and node not in info.offline_replicas]
    return not living


def other_partition(cluster: Cluster, topic: str, uniform: float) -> int | None:
    """Return another partition with a leader, by chance; None when there is none."""
    numbers = available(cluster, topic)
    return weighted(numbers, None, uniform) if numbers else None


# -- topics

_MOST_KEYS = 16_384
_LONGEST_KEY = 64
"""Bytes of a key that is still remembered: this memory is no part of ``buffer_memory``, and must stay small."""


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
        number = self._keyed(state, key, partition_key)
        if self._config.partition_failover == "all":
            number = self._living(state, number)
        return state.queues[number]

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

    def _living(self, state: TopicState, number: int) -> int:
        info = self.cluster.partition(TopicPartition(state.name, number))
        if not all_replicas_down(self.cluster, info):
            return number
        other = other_partition(self.cluster, state.name, self._uniform())
        return number if other is None else other
