"""Assignors that look at no earlier round: range and round robin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from streamlet.kafka.consumer.assignors.base import (
    Members,
    PartitionAssignor,
    PartitionCounts,
    PartitionRacks,
    Shares,
    Subscription,
    partitions_of,
    sorted_members,
    topics_of,
)
from streamlet.kafka.consumer.assignors.racks import is_near, racks_matter
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

    def assign_by_rack(
        self, partition_counts: PartitionCounts, subscriptions: Members, racks: PartitionRacks
    ) -> Shares:
        """Return ranges again, of near partitions first (Java: ``RangeAssignor``).

        Topics of equal size for the same members are matched together, so that they stay co-partitioned.
        """
        members = sorted_members(subscriptions)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        topics = []
        for name in topics_of(subscriptions):
            wanting = {
                member: subscriptions[member].rack_id for member in members if name in subscriptions[member].topics
            }
            if partitions := partitions_of(name, partition_counts):
                topics.append(_TopicRanges(wanting, partitions, racks))
        if not any(topic.needs_racks for topic in topics):
            return self.assign(partition_counts, subscriptions)
        alike: dict[tuple[tuple[str, ...], int], list[_TopicRanges]] = {}
        for topic in topics:
            alike.setdefault((tuple(topic.members), len(topic.partitions)), []).append(topic)
        for together in alike.values():
            if len(together) > 1:
                _match_together(together, shares)
            elif together[0].needs_racks:
                together[0].give_ranges(shares, near_only=True)
        for topic in topics:
            topic.give_ranges(shares, near_only=False)
        return {member: sorted(share) for member, share in shares.items()}


class _TopicRanges:
    """One topic while its partitions are given away; ``members``: those that want it, with their racks."""

    def __init__(
        self, members: Mapping[str, str | None], partitions: Sequence[TopicPartition], racks: PartitionRacks
    ) -> None:
        self.members = members
        self.partitions = partitions
        self._places = {tp: racks.get(tp, frozenset()) for tp in partitions}
        self._left = dict.fromkeys(partitions)
        self._each, self._more = divmod(len(partitions), len(members))
        self._given = dict.fromkeys(members, 0)
        self.needs_racks = racks_matter(members.values(), self._places.values())

    def room(self, member: str) -> int:
        """Return how many more the member may get."""
        return max(self._each + (self._more > 0) - self._given[member], 0)

    def near(self, member: str, number: int) -> bool:
        """Return whether the member is near to the partition with this number."""
        return is_near(self.members[member], self._places[self.partitions[number]])

    def give(self, member: str, chosen: Sequence[TopicPartition], shares: Mapping[str, list[TopicPartition]]) -> None:
        """Give a member partitions, at most its room."""
        self._given[member] += len(chosen)
        if self._given[member] > self._each:
            self._more -= 1
        for tp in chosen:
            del self._left[tp]
        shares[member].extend(chosen)

    def give_ranges(self, shares: Mapping[str, list[TopicPartition]], *, near_only: bool) -> None:
        """Give each member the first partitions left, up to its room."""
        for member, rack in self.members.items():
            fits = [tp for tp in self._left if not near_only or is_near(rack, self._places[tp])]
            if chosen := fits[: self.room(member)]:
                self.give(member, chosen, shares)


def _match_together(topics: Sequence[_TopicRanges], shares: Mapping[str, list[TopicPartition]]) -> None:
    """Give partitions of one number to a member near to all."""
    members = list(topics[0].members)
    for number in range(len(topics[0].partitions)):
        for member in members:
            if all(topic.near(member, number) and topic.room(member) for topic in topics):
                for topic in topics:
                    topic.give(member, [topic.partitions[number]], shares)
                break


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
