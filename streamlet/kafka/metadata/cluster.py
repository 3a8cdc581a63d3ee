"""The cluster as last seen: an immutable value that readers may keep for as long as they like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from streamlet.base.errors import WrongArgument
from streamlet.kafka.errors import BrokerError

NO_LEADER = -1
UNKNOWN_EPOCH = -1
UNKNOWN_NODE = -1


class Address(NamedTuple):
    """What a connection is known by: host, port, and what it is kept apart for ("" for the common one)."""

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
        """A partition from a topic and a number, in any tuple. Raises WrongArgument for what is none."""
        match value:
            case (str(topic), int(number)) if topic and number >= 0 and not isinstance(number, bool):
                return cls(topic, number)
        raise WrongArgument(f"{value!r} is no partition: write TopicPartition(topic, number), numbered from 0.")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker. One known by address alone (bootstrap, static hosts) has the id UNKNOWN_NODE.

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
        """The same broker over a connection of its own, shared by all who name the same purpose.

        A heartbeat then never queues behind a fetch that the broker holds (Java reaches coordinators under the
        node id ``Integer.MAX_VALUE - id`` for that).
        """
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
        """Its name."""
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
    """Brokers by id and topics by name, with the lookups that clients need. Never changed once made."""

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
        """A cluster of these parts."""
        return cls(
            MappingProxyType({broker.node_id: broker for broker in brokers}),
            MappingProxyType({topic.name: topic for topic in topics}),
            cluster_id,
            controller_id,
        )

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """What is known of a partition; None when nothing is."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def leader_for(self, tp: TopicPartition) -> Broker | None:
        """The leader, when it is known and among the living brokers."""
        info = self.partition(tp)
        return None if info is None else self.brokers.get(info.leader)

    def leader_epoch(self, tp: TopicPartition) -> int:
        """The partition's leader epoch, UNKNOWN_EPOCH when not known."""
        info = self.partition(tp)
        return UNKNOWN_EPOCH if info is None else info.leader_epoch

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """All partitions of a topic, by number; empty when the topic is not known."""
        info = self.topics.get(topic)
        return () if info is None else tuple(info.partitions[number] for number in sorted(info.partitions))

    def available_partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Those that have a living leader."""
        return tuple(info for info in self.partitions_for(topic) if info.leader in self.brokers)

    def partition_count(self, topic: str) -> int | None:
        """How many partitions the topic has; None when the topic is not known."""
        info = self.topics.get(topic)
        return len(info.partitions) if info is not None and info.partitions else None

    def has(self, topic: str, partition: int | None = None) -> bool:
        """Whether the topic's partitions are known, and this one is among them."""
        info = self.topics.get(topic)
        return info is not None and bool(info.partitions) and (partition is None or partition in info.partitions)

    def partitions_led_by(self, node_id: int) -> tuple[PartitionInfo, ...]:
        """What a broker leads."""
        return self._by_leader.get(node_id, ())

    def topic_id(self, topic: str) -> str | None:
        """The topic's id, None when it is not known or the brokers have none."""
        info = self.topics.get(topic)
        return None if info is None else info.topic_id

    @cached_property
    def _by_leader(self) -> dict[int, tuple[PartitionInfo, ...]]:
        led: dict[int, list[PartitionInfo]] = {}
        for topic in self.topics.values():
            for info in topic.partitions.values():
                led.setdefault(info.leader, []).append(info)
        return {node_id: tuple(infos) for node_id, infos in led.items()}
