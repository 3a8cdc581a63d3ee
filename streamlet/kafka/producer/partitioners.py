"""Which partition a record goes to (P1, P2, P8, P9). Pure: chance and time are passed in.

A record that names its partition goes there. One with a key goes where the key's hash points, among *all* partitions.
One without a key sticks: today's uniform sticky partitioner (KIP-480, KIP-794) stays on a partition until a batch's
worth of bytes went there; Kafka 0.8's stayed for ten minutes. A partitioner of the user's decides both kinds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol

from streamlet.base.errors import SettingError
from streamlet.kafka.metadata.cluster import Cluster, PartitionInfo
from streamlet.kafka.producer.errors import PartitionerFailed
from streamlet.kafka.producer.hashing import crc32_partition, java_hash_partition, murmur2_partition

KeyPartitioner = Callable[[Any, int], int]
"""(key, number of partitions) to an index from 0; called for records without a key too, with None, when it is the
user's. Any: a key is whatever the user's records have, before it is serialized."""

UNIFORM_STICKY = "uniform_sticky"
INTERVAL_STICKY = "interval_sticky"
NAMES = (UNIFORM_STICKY, "murmur2", "java_hash", "crc32", INTERVAL_STICKY)
FAILOVERS = ("off", "keyless", "all")


class Partitioner(Protocol):
    """The object form of a user's partitioner."""

    def partition(self, key: Any, count: int) -> int:
        """An index from 0, below ``count``; ``key`` is the partition key, or None."""
        ...


class KeyHash:
    """A ready partitioner for keys: ``raw`` ones hash the user's key, the others its bytes."""

    __slots__ = ("choose", "name", "raw")

    def __init__(self, name: str, choose: KeyPartitioner, raw: bool) -> None:
        self.name, self.choose, self.raw = name, choose, raw


_HASHES = {
    UNIFORM_STICKY: KeyHash("murmur2", murmur2_partition, False),
    "murmur2": KeyHash("murmur2", murmur2_partition, False),
    "java_hash": KeyHash("java_hash", java_hash_partition, True),
    "crc32": KeyHash("crc32", crc32_partition, False),
    INTERVAL_STICKY: KeyHash("java_hash", java_hash_partition, True),
}


def key_hash(name: str) -> KeyHash:
    """The hash that goes with a partitioner's name."""
    return _HASHES[name]


def check_partitioner(partitioner: object) -> None:
    """SettingError for what is neither a name of ours nor a partitioner of the user's."""
    if partitioner not in NAMES if isinstance(partitioner, str) else not callable(custom(partitioner)):
        raise SettingError(
            f"partitioner = {partitioner!r} is no partitioner: choose from {', '.join(NAMES)}, or give a function of "
            "(key, number of partitions), or an object with such a method `partition`."
        )


def custom(partitioner: object) -> KeyPartitioner:
    """A user's partitioner, function or object, as a function."""
    method = getattr(partitioner, "partition", None)
    return method if callable(method) else partitioner  # type: ignore[return-value]  # check_partitioner looked at it


def ask_custom(choose: KeyPartitioner, topic: str, key: object, count: int) -> int:
    """The index a user's partitioner gives. PartitionerFailed names the partitioner, the index and the count (P9)."""
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


class StickyPartition:
    """Where a topic's keyless records go at the moment.

    ``left`` is how many bytes may still go there before the next one is drawn; infinity for the interval.
    """

    __slots__ = ("interval_s", "left", "number", "sticky_bytes", "until_s")

    def __init__(self, sticky_bytes: int, interval_s: float | None = None) -> None:
        self.sticky_bytes = sticky_bytes
        self.interval_s = interval_s
        self.number = -1
        self.left = 0.0
        self.until_s = 0.0

    def due(self, now_s: float) -> bool:
        """Time to move on (only the interval form asks the clock)."""
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
        """Choose anew, by one random number, among those with a leader, else all ``count``.

        ``queued`` (batches waiting at a partition) leans it to short queues.
        """
        numbers = available(cluster, topic) or range(count)
        self.number = weighted(numbers, queued, uniform)
        self.left = float("inf") if self.interval_s is not None else self.sticky_bytes
        self.until_s = now_s + (self.interval_s or 0.0)
        return self.number

    def forget(self) -> None:
        """After a send error the interval form draws again (P1)."""
        if self.interval_s is not None:
            self.number, self.left = -1, 0.0


def weighted(numbers: Sequence[int], queued: Callable[[int], int] | None, uniform: float) -> int:
    """One of them, by chance; a long queue makes it less likely (KIP-794: longest + 1 - own)."""
    if queued is None or len(numbers) < 2:
        return numbers[int(uniform * len(numbers)) % len(numbers)]
    lengths = [queued(number) for number in numbers]
    longest = max(lengths)
    table = list(accumulate(longest + 1 - length for length in lengths))
    return numbers[bisect_right(table, int(uniform * table[-1]))]


def available(cluster: Cluster, topic: str) -> list[int]:
    """Partitions that have a leader."""
    return [info.partition for info in cluster.available_partitions_for(topic)]


def all_replicas_down(cluster: Cluster, info: PartitionInfo | None) -> bool:
    """No broker that holds the partition is there (P8): waiting would only help if one came back."""
    if info is None or info.leader in cluster.brokers:
        return False
    living = [node for node in info.replicas if node in cluster.brokers and node not in info.offline_replicas]
    return not living


def elsewhere(cluster: Cluster, topic: str, uniform: float) -> int | None:
    """Another partition with a leader, by chance; None when there is none."""
    numbers = available(cluster, topic)
    return weighted(numbers, None, uniform) if numbers else None
