"""The interface of assignors, and the data that members exchange for them (protocol type ``consumer``). Pure.

The coordinator passes these bytes on without reading them. They are those of Java's ``ConsumerProtocol``, so that a
group may have members of other clients. A newer version only adds fields at the end: it is read as far as we know it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from streamlet.kafka.errors import MalformedFrame
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.protocol.schema import BYTES, INT16_LAYOUT, INT32, STRING, Array, Reader, codec_of, message, wire

PROTOCOL_TYPE = "consumer"
_NEWEST_SUBSCRIPTION = 3


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message
class ConsumerProtocolSubscription:
    """A member's subscription on the wire, after two bytes of version."""

    topics: tuple[str, ...] = wire(Array(STRING))
    user_data: bytes | None = wire(BYTES, default=None, nullable_since=0)
    owned_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions), default=(), since=1, ignorable=True)
    generation_id: int = wire(INT32, default=-1, since=2, ignorable=True)
    rack_id: str | None = wire(STRING, default=None, since=3, nullable_since=3, ignorable=True)


@message
class ConsumerProtocolAssignment:
    """A member's assignment on the wire."""

    assigned_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))
    user_data: bytes | None = wire(BYTES, default=None, nullable_since=0)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's topics, owned partitions with generation, and assignor data."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None
    group_instance_id: str | None = None
    """Not in the bytes: the coordinator sends it beside them."""

    def encode(self) -> bytes:
        """Return the bytes, in the newest version we know."""
        row = ConsumerProtocolSubscription(
            topics=tuple(sorted(self.topics)),
            user_data=self.user_data,
            owned_partitions=grouped(self.owned),
            generation_id=self.generation_id,
            rack_id=self.rack_id,
        )
        return _encode(row, _NEWEST_SUBSCRIPTION)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """Return a member's subscription. Raises MalformedFrame."""
    reader = Reader(data)
    version = _version(reader, _NEWEST_SUBSCRIPTION)
    row: ConsumerProtocolSubscription = codec_of(ConsumerProtocolSubscription, version, False).decode(reader)
    return Subscription(
        row.topics, row.user_data, flat(row.owned_partitions), row.generation_id, row.rack_id, group_instance_id
    )


def encode_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    """Return the bytes of one member's assignment; ``user_data``: what its assignor tells it."""
    return _encode(ConsumerProtocolAssignment(assigned_partitions=grouped(partitions), user_data=user_data), 0)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment. Raises MalformedFrame."""
    return decode_told_assignment(data)[0]


def decode_told_assignment(data: bytes) -> tuple[tuple[TopicPartition, ...], bytes | None]:
    """Return the partitions of an assignment, and what the assignor told. Raises MalformedFrame."""
    # A leader with nothing to give may send no bytes at all.
    if not data:
        return (), None
    reader = Reader(data)
    _version(reader, 0)
    row: ConsumerProtocolAssignment = codec_of(ConsumerProtocolAssignment, 0, False).decode(reader)
    return flat(row.assigned_partitions), row.user_data


def _encode(row: object, version: int) -> bytes:
    out = bytearray(INT16_LAYOUT.pack(version))
    codec_of(type(row), version, False).encode(row, out)
    return bytes(out)


def _version(reader: Reader, newest: int) -> int:
    version = reader.fixed(INT16_LAYOUT)
    if version < 0:
        raise MalformedFrame(f"a version of {version} in the data of a group's member")
    return min(version, newest)


def grouped(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """Return partitions as the wire has them: by topic, in order."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return tuple(TopicPartitions(topic=topic, partitions=tuple(rows)) for topic, rows in by_topic.items())


def flat(rows: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    """Return the partitions of rows from the wire."""
    return tuple(TopicPartition(row.topic, number) for row in rows for number in row.partitions)


PartitionCounts = Mapping[str, int]
"""Partitions by topic."""
Members = Mapping[str, Subscription]
"""Subscriptions by member id."""
PartitionRacks = Mapping[TopicPartition, frozenset[str]]
"""The racks that have a copy of each partition."""
Shares = dict[str, list[TopicPartition]]
"""Partitions by member id."""


class RebalanceProtocol(IntEnum):
    """When a member gives partitions back.

    Eager: all of them, before a rebalance. Cooperative: those that move, after it (KIP-429).
    """

    EAGER = 0
    COOPERATIVE = 1


class PartitionAssignor(ABC):
    """Base of assignors, which share the partitions of a group out.

    One runs in the leader's group thread and must keep no state: the next leader may be another member. Knowledge of
    earlier rounds comes with the subscriptions.
    """

    name: ClassVar[str]
    """Name that members agree on; Java's names for Java's assignors."""
    quiet: ClassVar[bool] = False
    """Whether its shares are told at the level of debugging alone."""
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, owned: tuple[TopicPartition, ...], generation_id: int) -> bytes | None:
        """Return what this member tells the leader's assignor beside its topics."""
        return None

    @abstractmethod
    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return partitions by member id, for every member. Topics without a count do not exist."""

    def assign_by_rack(
        self, partition_counts: PartitionCounts, subscriptions: Members, racks: PartitionRacks
    ) -> Shares:
        """Return the same with the racks of the partitions known (KIP-881).

        Called in place of :meth:`assign` when a member has told its rack. By default it looks at no rack.
        """
        return self.assign(partition_counts, subscriptions)

    def encode(
        self, shares: Mapping[str, Iterable[TopicPartition]], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, bytes]:
        """Return each member's share as it is sent to it."""
        return {member: encode_assignment(partitions) for member, partitions in shares.items()}


def sorted_members(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Return members in Java's order: by instance id, then the others by member id."""

    # A restarted static member has a new member id and the old instance id: its place, and so its share, stay.
    def order(member: str) -> tuple[bool, str]:
        instance = subscriptions[member].group_instance_id
        return (instance is None, instance if instance is not None else member)

    return sorted(subscriptions, key=order)


def topics_of(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Return all topics that any member wants, sorted."""
    return sorted({topic for row in subscriptions.values() for topic in row.topics})


def partitions_of(topic: str, partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return the partitions of a topic; none when it does not exist."""
    return [TopicPartition(topic, number) for number in range(partition_counts.get(topic, 0))]
