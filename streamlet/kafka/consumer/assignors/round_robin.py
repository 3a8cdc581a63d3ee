"""Round robin: all partitions of all topics in one row, dealt out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from streamlet.kafka.consumer.assignors.base import PartitionAssignor, partitions_of, sorted_members, topics_of
from streamlet.kafka.consumer.group_protocol import Subscription
from streamlet.kafka.metadata.cluster import TopicPartition


class RoundRobinAssignor(PartitionAssignor):
    """Dealt to the members in turn; one that does not want the topic is passed over."""

    name: ClassVar[str] = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See the class."""
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
