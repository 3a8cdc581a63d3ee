"""Sticky"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from streamlet.kafka.consumer.assignors.base import (
    PartitionAssignor,
    RebalanceProtocol,
    Subscription,
    TopicPartitions,
    partitions_of,
    sorted_members,
    topics_of,
)
from streamlet.kafka.errors import MalformedFrame
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.protocol.primitives import INT32 as INT32_BYTES
from streamlet.kafka.protocol.primitives import Reader
from streamlet.kafka.protocol.schema import INT32, Array, codec_of, message, wire

Claims = dict[str, tuple[int, tuple[TopicPartition, ...]]]
"""By member: the generation it speaks of, and what it owned then."""


@message
class StickyUserData:
    """Java's ``StickyAssignorUserDataV1``: what the member had, and in which generation."""

    previous_assignment: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))
    generation: int = wire(INT32, default=-1)


class StickyAssignor(PartitionAssignor):
    """Shares differ by one at most where all want the same topics, and no move would even out more where not."""

    name: ClassVar[str] = "sticky"

    def user_data(self, owned: tuple[TopicPartition, ...], generation_id: int) -> bytes | None:
        """What is owned; older members read it from here."""
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(owned):
            by_topic.setdefault(topic, []).append(number)
        rows = tuple(TopicPartitions(topic=topic, partitions=tuple(numbers)) for topic, numbers in by_topic.items())
        out = bytearray()
        row = StickyUserData(previous_assignment=rows, generation=generation_id)
        codec_of(StickyUserData, 0, False).encode(row, out)
        return bytes(out)

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See the class."""
        claims = {member: self.claim(row) for member, row in subscriptions.items()}
        return balance(partition_counts, subscriptions, claims)

    def claim(self, subscription: Subscription) -> tuple[int, tuple[TopicPartition, ...]]:
        """What a member says it owned; data that cannot be read claims nothing."""
        try:
            reader = Reader(subscription.user_data or b"")
            row: StickyUserData = codec_of(StickyUserData, 0, False).decode(reader)
        except MalformedFrame:
            return subscription.generation_id, subscription.owned
        owned = tuple(TopicPartition(one.topic, number) for one in row.previous_assignment for number in one.partitions)
        return row.generation, owned


def balance(
    partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription], claims: Claims
) -> dict[str, list[TopicPartition]]:
    """Keep what is rightly claimed, give the rest to those with least, then move from those with most.

    A move only happens where it lowers the difference, so it ends: with equal subscriptions when no two shares differ
    by more than one.
    """
    members = sorted_members(subscriptions)
    wants = {member: set(subscriptions[member].topics) for member in members}
    everything = [tp for topic in topics_of(subscriptions) for tp in partitions_of(topic, partition_counts)]
    shares = _rightful(set(everything), members, wants, claims)
    kept = {tp for share in shares.values() for tp in share}
    for tp in everything:
        if tp not in kept:
            able = [member for member in members if tp.topic in wants[member]]
            shares[min(able, key=lambda member: len(shares[member]))].append(tp)
    while _move_one(members, wants, shares, kept):
        pass
    return {member: sorted(share) for member, share in shares.items()}


def _rightful(
    everything: set[TopicPartition], members: list[str], wants: Mapping[str, set[str]], claims: Claims
) -> dict[str, list[TopicPartition]]:
    """Claims to partitions that exist and are still wanted. Of two claims the later generation counts; of two equal
    ones none does, for one of them is a zombie's and nobody can say which.
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        generation, owned = claims[member]
        for tp in owned:
            if tp not in everything or tp.topic not in wants[member]:
                continue
            known = best.get(tp)
            if known is None or generation > known[0]:
                best[tp] = (generation, member)
            elif generation == known[0] and known[1] != member:
                best[tp] = (generation, None)
    shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for tp, (_generation, owner) in best.items():
        if owner is not None:
            shares[owner].append(tp)
    return shares


def _move_one(
    members: list[str],
    wants: Mapping[str, set[str]],
    shares: dict[str, list[TopicPartition]],
    kept: set[TopicPartition],
) -> bool:
    """Move one partition from a member that has most to one that has at least two fewer; False when none can."""
    by_size = sorted(members, key=lambda member: len(shares[member]))
    for rich in reversed(by_size):
        for poor in by_size:
            if len(shares[rich]) - len(shares[poor]) < 2:
                break
            movable = [tp for tp in shares[rich] if tp.topic in wants[poor]]
            if movable:
                # What nobody owned yet moves before what somebody did.
                fresh = [tp for tp in movable if tp not in kept]
                tp = fresh[-1] if fresh else movable[-1]
                shares[rich].remove(tp)
                shares[poor].append(tp)
                return True
    return False


class CooperativeStickyAssignor(PartitionAssignor):
    """A partition that somebody else still owns is given to nobody in this round: its owner gives it back, which starts
    the round in which it is given away. So it never has two owners.
    """

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(
        {RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE}
    )

    def user_data(self, owned: tuple[TopicPartition, ...], generation_id: int) -> bytes | None:
        """The generation; what is owned stands in the subscription itself."""
        return INT32_BYTES.pack(generation_id)

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See the class."""
        claims = {member: (_generation(row), row.owned) for member, row in subscriptions.items()}
        shares = balance(partition_counts, subscriptions, claims)
        owners: dict[TopicPartition, set[str]] = {}
        for member, row in subscriptions.items():
            for tp in row.owned:
                owners.setdefault(tp, set()).add(member)
        return {
            member: [tp for tp in share if not owners.get(tp, set()) - {member}] for member, share in shares.items()
        }


def _generation(subscription: Subscription) -> int:
    """Of the user data where an older member has none in its subscription."""
    if subscription.generation_id >= 0 or len(subscription.user_data or b"") != INT32_BYTES.size:
        return subscription.generation_id
    generation: int = INT32_BYTES.unpack(subscription.user_data or b"")[0]
    return generation
