"""Where a record goes: hashes of keys, and the partition that keyless records stick to.

Pure: chance and time are passed in. A record that names its partition goes there. One with a key goes where the key's
hash points, among *all* partitions, with or without a leader. One without a key sticks: today's uniform sticky
partitioner (KIP-480, KIP-794) stays on a partition until a batch's worth of bytes went there; Kafka 0.8's stayed for
ten minutes. A partitioner of the user's decides both kinds.

To add a hash of keys: the function, and its row in ``_HASHES``. Results are cached by key
(``accumulator.Topics.keyed``), so a hash sees the key alone. What looks at time or load is a user's partitioner, or a
form of :class:`StickyPartition`.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct, unpack_from
from typing import Any, NamedTuple

from streamlet.base.errors import SettingError
from streamlet.kafka.metadata.cluster import Cluster, PartitionInfo
from streamlet.kafka.producer.errors import PartitionerFailed

KeyPartitioner = Callable[[Any, int], int]
"""A function of (key, number of partitions) that returns an index from 0.

The user's is called for records without a key too, with None. Any: the key before it is serialized.
"""

UNIFORM_STICKY = "uniform_sticky"
INTERVAL_STICKY = "interval_sticky"
FAILOVERS = ("off", "keyless", "all")


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

    PartitionerFailed names the partitioner, the index and the count. Without the lock: see ``accumulator.Topics.ask``.
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
