"""Assignors"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from streamlet.kafka.errors import MalformedFrame
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.protocol.primitives import INT16, Reader
from streamlet.kafka.protocol.schema import BYTES, INT32, STRING, Array, codec_of, message, wire

PROTOCOL_TYPE = "consumer"
_NEWEST_SUBSCRIPTION = 3


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message
class ConsumerProtocolSubscription:
    """A member's subscription, as it goes over the wire behind two bytes of version."""

    topics: tuple[str, ...] = wire(Array(STRING))
    user_data: bytes | None = wire(BYTES, default=None, nullable_since=0)
    owned_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions), default=(), since=1, ignorable=True)
    generation_id: int = wire(INT32, default=-1, since=2, ignorable=True)
    rack_id: str | None = wire(STRING, default=None, since=3, nullable_since=3, ignorable=True)


@message
class ConsumerProtocolAssignment:
    """A member's assignment."""

    assigned_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))
    user_data: bytes | None = wire(BYTES, default=None, nullable_since=0)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member asks for: topics, what it owned in which generation, and data for its assignor."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None
    group_instance_id: str | None = None
    """Not in the bytes: the coordinator tells it beside them."""

    def encode(self) -> bytes:
        """In the newest version we know."""
        row = ConsumerProtocolSubscription(
            topics=tuple(sorted(self.topics)),
            user_data=self.user_data,
            owned_partitions=_grouped(self.owned),
            generation_id=self.generation_id,
            rack_id=self.rack_id,
        )
        return _encode(row, _NEWEST_SUBSCRIPTION)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """A member's subscription. Raises MalformedFrame."""
    reader = Reader(data)
    version = _version(reader, _NEWEST_SUBSCRIPTION)
    row: ConsumerProtocolSubscription = codec_of(ConsumerProtocolSubscription, version, False).decode(reader)
    return Subscription(
        row.topics, row.user_data, _flat(row.owned_partitions), row.generation_id, row.rack_id, group_instance_id
    )


def encode_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    """One member's assignment."""
    return _encode(ConsumerProtocolAssignment(assigned_partitions=_grouped(partitions), user_data=user_data), 0)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; no bytes at all are an empty one. Raises MalformedFrame."""
    if not data:
        return ()
    reader = Reader(data)
    _version(reader, 0)
    row: ConsumerProtocolAssignment = codec_of(ConsumerProtocolAssignment, 0, False).decode(reader)
    return _flat(row.assigned_partitions)


def _encode(row: object, version: int) -> bytes:
    out = bytearray(INT16.pack(version))
    codec_of(type(row), version, False).encode(row, out)
    return bytes(out)


def _version(reader: Reader, newest: int) -> int:
    version = reader.fixed(INT16)
    if version < 0:
        raise MalformedFrame(f"a version of {version} in the data of a group's member")
    return min(version, newest)


def _grouped(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return tuple(TopicPartitions(topic=topic, partitions=tuple(rows)) for topic, rows in by_topic.items())


def _flat(rows: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(row.topic, number) for row in rows for number in row.partitions)


class RebalanceProtocol(IntEnum):
    """Eager: everyone gives everything back before a rebalance. Cooperative: only what moves, after it (KIP-429)."""

    EAGER = 0
    COOPERATIVE = 1


class PartitionAssignor(ABC):
    """Shares the partitions of a group out. It runs in the leader's group thread and must not keep state of its own:
    what it wants to know of earlier rounds comes with the subscriptions.
    """

    name: ClassVar[str]
    """What members agree on; Java's names for Java's ways."""
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, owned: tuple[TopicPartition, ...], generation_id: int) -> bytes | None:
        """What this member tells the leader beside its topics, in terms of the assignor."""
        return None

    @abstractmethod
    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Partitions by member id, for every member. Topics without a count are not there (yet)."""


def sorted_members(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """In an order that survives restarts of static members: by instance id, then by member id (as Java's)."""

    def order(member: str) -> tuple[bool, str]:
        instance = subscriptions[member].group_instance_id
        return (instance is None, instance if instance is not None else member)

    return sorted(subscriptions, key=order)


def topics_of(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """All topics that any member wants, sorted."""
    return sorted({topic for row in subscriptions.values() for topic in row.topics})


def partitions_of(topic: str, partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    """The partitions of a topic; none when it is not there."""
    return [TopicPartition(topic, number) for number in range(partition_counts.get(topic, 0))]
