"""Assignors that look at no earlier round: range and round robin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from streamlet.kafka.consumer.assignors.base import (
    PartitionAssignor,
    Subscription,
    partitions_of,
    sorted_members,
    topics_of,
)
from streamlet.kafka.metadata.cluster import TopicPartition


class RangeAssignor(PartitionAssignor):
    """Range: member i of n gets the i-th run of each topic.

    The first members get one more where it does not divide.

    Partitions with the same number of topics of equal size meet at the same member (co-partitioning); with many
    topics the first members get more in sum.
    """

    name: ClassVar[str] = "range"

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        members = sorted_members(subscriptions)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        for topic in topics_of(subscriptions):
            wanting = [member for member in members if topic in subscriptions[member].topics]
            partitions = partitions_of(topic, partition_counts)
            each, more = divmod(len(partitions), len(wanting))
            start = 0
            for index, member in enumerate(wanting):
                stop = start + each + (index < more)
                shares[member] += partitions[start:stop]
                start = stop
        return shares


class RoundRobinAssignor(PartitionAssignor):
    """Round robin: all partitions in one row, dealt to the members that want them."""

    name: ClassVar[str] = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        members = sorted_members(subscriptions)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        turn = 0
        for topic in topics_of(subscriptions):
            for tp in partitions_of(topic, partition_counts):
                while topic not in subscriptions[members[turn % len(members)]].topics:
                    turn += 1
                shares[members[turn % len(members)]].append(tp)
                turn += 1
        return shares
