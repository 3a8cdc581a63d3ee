"""What the append path knows of each topic: partitions, their queues, and where keyless records go. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamlet.kafka.metadata.cluster import Cluster, TopicPartition
from streamlet.kafka.producer.accumulator import PartitionQueue, RecordAccumulator
from streamlet.kafka.producer.errors import PartitionerFailed
from streamlet.kafka.producer.partitioners import (
    INTERVAL_STICKY,
    StickyPartition,
    all_replicas_down,
    ask_custom,
    custom,
    elsewhere,
    key_hash,
)
from streamlet.kafka.producer.producer_config import ProducerConfig

_MOST_KEYS = 16_384
_LONGEST_KEY = 64
"""In bytes: what is remembered stands outside of ``buffer_memory``, so that it must stay small."""


class TopicState:
    """One topic. ``sticky_queue`` is where keyless records go right now; None: draw first."""

    __slots__ = ("count", "keys", "name", "queues", "sticky", "sticky_queue")

    def __init__(self, name: str, sticky: StickyPartition) -> None:
        self.name = name
        self.count = 0
        self.queues: list[PartitionQueue] = []
        self.sticky = sticky
        self.sticky_queue: PartitionQueue | None = None
        self.keys: dict[bytes, int] = {}
        """Partitions of keys seen lately: murmur2 in Python costs more than all the rest of a send."""


class Topics:
    """All topics that were sent to; whoever holds the producer's lock calls, but for :meth:`ask`."""

    def __init__(self, config: ProducerConfig, accumulator: RecordAccumulator, uniform: Callable[[], float]) -> None:
        self._config = config
        self._accumulator = accumulator
        self._uniform = uniform
        self._states: dict[str, TopicState] = {}
        self.get = self._states.get
        name = config.partitioner if isinstance(config.partitioner, str) else None
        self.custom = None if name is not None else custom(config.partitioner)
        self._hash = key_hash(name or "murmur2")
        self._interval_s = config.interval_sticky_ms / 1000 if name == INTERVAL_STICKY else None
        self.cluster = Cluster()

    def take_cluster(self, cluster: Cluster) -> None:
        """A new view of the cluster: partitions that were added are used from now on (P7)."""
        self.cluster = cluster
        for name, info in cluster.topics.items():
            if not info.partitions:
                continue
            state = self._states.get(name)
            if state is None:
                state = self._states[name] = TopicState(name, self._sticky())
            if state.count != len(info.partitions):
                self._resize(state, len(info.partitions))
            current = state.sticky_queue
            if current is not None and cluster.leader_for(current.topic_partition) is None:
                state.sticky_queue = None
        gone = [name for name in self._states if name not in cluster.topics]
        for name in self._accumulator.forget_topics(gone) if gone else ():
            del self._states[name]

    def _sticky(self) -> StickyPartition:
        return StickyPartition(self._config.batch_bytes, self._interval_s)

    def _resize(self, state: TopicState, count: int) -> None:
        state.count = count
        state.keys.clear()
        state.queues = [self._accumulator.queue(TopicPartition(state.name, number)) for number in range(count)]
        state.sticky_queue = None

    def send_failed(self, topic: str) -> None:
        """A try failed: the interval partitioner draws again (P1)."""
        state = self._states.get(topic)
        if state is not None and self._interval_s is not None:
            state.sticky.forget()
            state.sticky_queue = None

    def ask(self, topic: str, count: int, key: bytes | None, partition_key: object) -> int | None:
        """What the user's partitioner says of a record that names no partition; None when there is no such partitioner.

        Without the lock: it may be slow, and may call the producer.
        """
        if self.custom is None:
            return None
        return ask_custom(self.custom, topic, partition_key if partition_key is not None else key, count)

    def choose(self, state: TopicState, key: bytes | None, partition_key: object, now_s: float) -> PartitionQueue:
        """The queue of a record that names no partition, where no partitioner of the user's decides."""
        if (key is None and partition_key is None) or self._config.partitioner_ignore_keys:
            return self.keyless(state, now_s)
        else:
            number = self._keyed(state, key, partition_key)
            if self._config.partition_failover == "all":
                number = self._living(state, number)
        return state.queues[number]

    def keyless(self, state: TopicState, now_s: float) -> PartitionQueue:
        """Where it sticks; drawn anew when enough went there."""
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
        """The partition of a key that is not remembered, by a hash of its bytes."""
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
        other = elsewhere(self.cluster, state.name, self._uniform())
        return number if other is None else other
