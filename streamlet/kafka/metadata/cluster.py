"""The cluster as last seen: an immutable value that readers may keep for as long as they like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from streamlet.base.errors import WrongArgument
from streamlet.kafka.broker_errors import TopicAuthorizationFailed
from streamlet.kafka.errors import BrokerError

NO_LEADER = -1
UNKNOWN_EPOCH = -1
UNKNOWN_NODE = -1


class Address(NamedTuple):
    """The key of a connection: host, port, and its purpose ("" for the common one)."""

    host: str
    port: int
    purpose: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" + (f" ({self.purpose})" if self.purpose else "")


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def of(cls, value: Any) -> TopicPartition:  # Any: what a user takes for a partition
        """Return a partition from any tuple of topic and number. Raises WrongArgument."""
        # Any tuple of the two will do, so that kafka-python's TopicPartition does, too.
        match value:
            case (str(topic), int(number)) if topic and number >= 0 and not isinstance(number, bool):
                return cls(topic, number)
        raise WrongArgument(f"{value!r} is not a partition: write TopicPartition(topic, number), numbered from 0.")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker; with UNKNOWN_NODE one known by address alone.

    Connections are keyed by :attr:`address`: a broker first met as a bootstrap address and later by its id is
    reached over one connection, and a broker whose address changes gets a new one. ``purpose`` is part of the key:
    see :meth:`dedicated`.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = field(default=None, compare=False)
    purpose: str = ""

    @property
    def address(self) -> Address:
        """Host, port and purpose."""
        return Address(self.host, self.port, self.purpose)

    def dedicated(self, purpose: str) -> Broker:
        """Return the same broker over the connection for one purpose."""
        # A broker answers the requests of a connection in order: a heartbeat after a fetch that the broker holds would
        # come too late. Java reaches coordinators under the node id ``Integer.MAX_VALUE - id`` for the same reason.
        return replace(self, purpose=purpose)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        notes = [] if self.node_id == UNKNOWN_NODE else [f"id {self.node_id}"]
        notes += [self.purpose] if self.purpose else []
        return f"{host}:{self.port}" + (f" ({', '.join(notes)})" if notes else "")


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: broker ids of leader (NO_LEADER for none) and replicas; ``error`` where it has one."""

    topic: str
    partition: int
    leader: int = NO_LEADER
    leader_epoch: int = UNKNOWN_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error: type[BrokerError] | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Its topic and number."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic: its partitions by number, its id (None before Kafka 2.8), or its error."""

    name: str
    topic_id: str | None = None
    partitions: Mapping[int, PartitionInfo] = field(default_factory=lambda: MappingProxyType({}))
    error: type[BrokerError] | None = None
    is_internal: bool = False


@dataclass(frozen=True)
class Cluster:
    """Brokers by id and topics by name; immutable."""

    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicInfo] = field(default_factory=lambda: MappingProxyType({}))
    cluster_id: str | None = None
    controller_id: int = UNKNOWN_NODE

    @classmethod
    def of(
        cls,
        brokers: Iterable[Broker],
        topics: Iterable[TopicInfo] = (),
        cluster_id: str | None = None,
        controller_id: int = UNKNOWN_NODE,
    ) -> Cluster:
        """Return a cluster of these brokers and topics."""
        return cls(
            MappingProxyType({broker.node_id: broker for broker in brokers}),
            MappingProxyType({topic.name: topic for topic in topics}),
            cluster_id,
            controller_id,
        )

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """Return a partition, None for an unknown one."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def leader_for(self, tp: TopicPartition) -> Broker | None:
        """Return the leader, None for none among the living brokers."""
        info = self.partition(tp)
        return None if info is None else self.brokers.get(info.leader)

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the partition's leader epoch, or UNKNOWN_EPOCH."""
        info = self.partition(tp)
        return UNKNOWN_EPOCH if info is None else info.leader_epoch

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic by number; () if it is unknown."""
        info = self.topics.get(topic)
        return () if info is None else tuple(info.partitions[number] for number in sorted(info.partitions))

    def available_partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions with a living leader."""
        return tuple(info for info in self.partitions_for(topic) if info.leader in self.brokers)

    def partition_racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """Return the racks that have a copy of each partition."""
        return {
            part.topic_partition: frozenset(
                rack for node in part.replicas if node in self.brokers and (rack := self.brokers[node].rack)
            )
            for topic in topics
            if topic in self.topics
            for part in self.topics[topic].partitions.values()
        }

    def partition_count(self, topic: str) -> int | None:
        """Return the topic's number of partitions, None of an unknown topic."""
        info = self.topics.get(topic)
        return len(info.partitions) if info is not None and info.partitions else None

    def has(self, topic: str, partition: int | None = None) -> bool:
        """Return whether the topic, and this partition of it, is known."""
        info = self.topics.get(topic)
        return info is not None and bool(info.partitions) and (partition is None or partition in info.partitions)

    @property
    def is_bootstrap_configured(self) -> bool:
        """Whether no broker has told anything yet: only the bootstrap addresses are known."""
        return not self.brokers

    @property
    def unauthorized_topics(self) -> frozenset[str]:
        """The topics that this client's user may not see."""
        return self._names(lambda topic: topic.error is TopicAuthorizationFailed)

    @property
    def internal_topics(self) -> frozenset[str]:
        """The topics that Kafka itself keeps, as ``__consumer_offsets``."""
        return self._names(lambda topic: topic.is_internal)

    def _names(self, condition: Callable[[TopicInfo], bool]) -> frozenset[str]:
        return frozenset(name for name, topic in self.topics.items() if condition(topic))

    def partitions_led_by(self, node_id: int) -> tuple[PartitionInfo, ...]:
        """Return the partitions that a broker leads."""
        return self._by_leader.get(node_id, ())

    def topic_id(self, topic: str) -> str | None:
        """Return the topic's id, None if it is unknown."""
        info = self.topics.get(topic)
        return None if info is None else info.topic_id

    # Built on first use and kept: most clusters in a stream of updates are never asked for it.
    @cached_property
    def _by_leader(self) -> dict[int, tuple[PartitionInfo, ...]]:
        led: dict[int, list[PartitionInfo]] = {}
        for topic in self.topics.values():
            for info in topic.partitions.values():
                led.setdefault(info.leader, []).append(info)
        return {node_id: tuple(infos) for node_id, infos in led.items()}
