"""What an assignor is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import ClassVar

from streamlet.kafka.consumer.group_protocol import Subscription
from streamlet.kafka.metadata.cluster import TopicPartition


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
