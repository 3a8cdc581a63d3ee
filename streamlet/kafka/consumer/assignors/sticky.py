"""Assignors that leave partitions where they were: sticky (KIP-54) and cooperative sticky (KIP-429).

Both keep rightful claims, give the rest to those with least, and then even out. They differ in what a partition that
moves goes through: sticky members are eager and own nothing during a rebalance; cooperative ones keep reading, so a
partition changes hands in two rounds, and has never two owners.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import ClassVar

from streamlet.kafka.consumer.assignors.base import (
    Members,
    PartitionAssignor,
    PartitionCounts,
    PartitionRacks,
    RebalanceProtocol,
    Shares,
    Subscription,
    TopicPartitions,
    flat,
    grouped,
    partitions_of,
    sorted_members,
    topics_of,
)
from streamlet.kafka.consumer.assignors.racks import bring_near
from streamlet.kafka.errors import MalformedFrame
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.protocol.schema import INT32, INT32_LAYOUT, Array, Reader, codec_of, message, wire

Claims = dict[str, tuple[int, tuple[TopicPartition, ...]]]
"""By member: a generation, and the partitions it owned in that."""


@message
class StickyUserData:
    """Partitions of a member in a generation: Java's ``StickyAssignorUserDataV0`` and ``V1``."""

    previous_assignment: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))
    generation: int = wire(INT32, default=-1, since=1)


class StickyAssignor(PartitionAssignor):
    """Sticky: balanced, and most partitions stay where they were.

    Where all members want the same topics, shares differ by one at most; else no move would even out more.
    """

    name: ClassVar[str] = "sticky"

    def user_data(self, owned: tuple[TopicPartition, ...], generation_id: int) -> bytes | None:
        """Return the owned partitions; older members read them from here."""
        out = bytearray()
        row = StickyUserData(previous_assignment=grouped(owned), generation=generation_id)
        codec_of(StickyUserData, 1, False).encode(row, out)
        return bytes(out)

    def assign(self, partition_counts: PartitionCounts, subscriptions: Members) -> Shares:
        return self.assign_by_rack(partition_counts, subscriptions, {})

    def assign_by_rack(
        self, partition_counts: PartitionCounts, subscriptions: Members, racks: PartitionRacks
    ) -> Shares:
        claims = {member: self.claim(row) for member, row in subscriptions.items()}
        return balance(partition_counts, subscriptions, claims, racks)

    def claim(self, subscription: Subscription) -> tuple[int, tuple[TopicPartition, ...]]:
        """Return a member's claim, by user data or else by its subscription."""
        # The data does not say its format. Newest first: the old one is the beginning of the new one.
        for version in (1, 0):
            with contextlib.suppress(MalformedFrame):
                reader = Reader(subscription.user_data or b"")
                row: StickyUserData = codec_of(StickyUserData, version, False).decode(reader)
                return row.generation, flat(row.previous_assignment)
        return subscription.generation_id, subscription.owned


def balance(
    partition_counts: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    claims: Claims,
    racks: PartitionRacks | None = None,
) -> dict[str, list[TopicPartition]]:
    """Return a balanced share for each member, near to its rack.

    Keeps rightful claims, gives the rest to those with least, then moves from those with most. A move only happens
    where it lowers the difference, so it ends: with equal subscriptions when no two shares differ by more than one.
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
    # Where members want different topics, what came near may leave room for another move; each lowers the difference.
    while True:
        while _move_one(members, wants, shares, kept):
            pass
        bring_near(shares, subscriptions, racks or {})
        if not _move_one(members, wants, shares, kept):
            break
    return {member: sorted(share) for member, share in shares.items()}


def _rightful(
    everything: set[TopicPartition], members: list[str], wants: Mapping[str, set[str]], claims: Claims
) -> dict[str, list[TopicPartition]]:
    """Return each member's claims to partitions that exist and are wanted."""
    # Rule: of two claims the later generation counts; of two of one generation neither does. One of those two members
    # is a zombie, and nobody can say which.
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
    """Move one partition to a member with at least two fewer; return False when none can."""
    by_size = sorted(members, key=lambda member: len(shares[member]))
    for rich in reversed(by_size):
        for poor in by_size:
            if len(shares[rich]) - len(shares[poor]) < 2:
                break
            movable = [tp for tp in shares[rich] if tp.topic in wants[poor]]
            if movable:
                # Partitions that nobody owned move first: nobody loses state for them.
                fresh = [tp for tp in movable if tp not in kept]
                tp = fresh[-1] if fresh else movable[-1]
                shares[rich].remove(tp)
                shares[poor].append(tp)
                return True
    return False


class CooperativeStickyAssignor(PartitionAssignor):
    """Cooperative sticky: a partition changes hands in two rounds, so nobody else need stop."""

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(
        {RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE}
    )

    def user_data(self, owned: tuple[TopicPartition, ...], generation_id: int) -> bytes | None:
        """Return the generation; owned partitions stand in the subscription itself."""
        return INT32_LAYOUT.pack(generation_id)

    def assign(self, partition_counts: PartitionCounts, subscriptions: Members) -> Shares:
        return self.assign_by_rack(partition_counts, subscriptions, {})

    def assign_by_rack(
        self, partition_counts: PartitionCounts, subscriptions: Members, racks: PartitionRacks
    ) -> Shares:
        claims = {member: (_generation(row), row.owned) for member, row in subscriptions.items()}
        shares = balance(partition_counts, subscriptions, claims, racks)
        # Rule: a partition that another member still owns is given to nobody in this round. Its owner finds it missing
        # in its share and gives it back, which starts the round that gives it away. A claim of an older generation
        # counts here, too: that member may still be reading. Only the member with the newest claim keeps what it has:
        # a zombie's memory, or a claim without a generation, takes nothing from the one that reads rightfully.
        generations: dict[TopicPartition, dict[str, int]] = {}
        for member, (generation, owned) in claims.items():
            for tp in owned:
                generations.setdefault(tp, {})[member] = generation
        return {
            member: [tp for tp in share if _free_for(member, generations.get(tp, {}))]
            for member, share in shares.items()
        }


def _free_for(member: str, generations: Mapping[str, int]) -> bool:
    """Return whether a partition may go to a member; ``generations``: of those that claim it."""
    others = [generation for other, generation in generations.items() if other != member]
    return not others or (member in generations and generations[member] > max(others))


def _generation(subscription: Subscription) -> int:
    """Return the claim's generation; older members have it in their user data alone."""
    if subscription.generation_id >= 0 or len(subscription.user_data or b"") != INT32_LAYOUT.size:
        return subscription.generation_id
    generation: int = INT32_LAYOUT.unpack(subscription.user_data or b"")[0]
    return generation
