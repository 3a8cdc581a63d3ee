"""Members and partitions by rack (KIP-881): who stands where, and shares brought near without less balance. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from streamlet.kafka.consumer.assignors.base import Members, PartitionRacks, Shares, Subscription
from streamlet.kafka.metadata.cluster import TopicPartition


def is_near(rack: str | None, racks: Collection[str]) -> bool:
    """Return whether a member may read in its own rack; one without a rack is near to all."""
    return rack is None or rack in racks


def racks_matter(members: Iterable[str | None], partitions: Iterable[frozenset[str]]) -> bool:
    """Return whether racks make a difference: members' racks, and each partition's."""
    places = list(partitions)
    everywhere = frozenset[str]().union(*places)
    # With a copy of every partition in every rack each share is near: then it is the one that there is without racks.
    return any(rack in everywhere for rack in members) and any(place != everywhere for place in places)


def bring_near(shares: Shares, subscriptions: Members, racks: PartitionRacks) -> None:
    """Move partitions to members of their racks; all shares keep their sizes.

    A change is a chain: a partition goes to a member that is near to it, which passes one on, and so forth, until one
    comes back to the first member or stays with one that has one fewer. Each chain brings one partition more near, so
    this ends; shares that are near already stay as they are.
    """
    places = {tp: racks.get(tp, frozenset()) for share in shares.values() for tp in share}
    if not racks_matter((row.rack_id for row in subscriptions.values()), places.values()):
        return
    group = _Places(shares, subscriptions, places)
    # Partitions that are alike fail alike: without this a rack of too few members would be searched for each of its
    # partitions again.
    hopeless: set[tuple[str, frozenset[str]]] = set()
    changed = True
    while changed:
        changed = False
        for member in shares:
            for tp in [one for one in shares[member] if not group.near(member, one)]:
                able = group.able(tp)
                if (member, able) in hopeless or tp not in shares[member]:
                    continue
                if group.bring(tp, member, able):
                    changed = True
                    hopeless.clear()
                else:
                    hopeless.add((member, able))


class _Places:
    """Hold shares while they change, and the racks of members and partitions."""

    def __init__(
        self,
        shares: Shares,
        subscriptions: Mapping[str, Subscription],
        places: Mapping[TopicPartition, frozenset[str]],
    ) -> None:
        self._shares, self._places = shares, places
        self._wants = {member: frozenset(row.topics) for member, row in subscriptions.items()}
        self._racks = {member: row.rack_id for member, row in subscriptions.items()}

    def near(self, member: str, tp: TopicPartition) -> bool:
        return is_near(self._racks[member], self._places[tp])

    def able(self, tp: TopicPartition) -> frozenset[str]:
        """Return the members that want the partition, near to it."""
        return frozenset(one for one in self._shares if tp.topic in self._wants[one] and self.near(one, tp))

    def bring(self, tp: TopicPartition, owner: str, able: Collection[str]) -> bool:
        """Give a partition to a near member, by the shortest chain.

        Returns False where there is none.
        """
        reached: dict[str, tuple[TopicPartition, str]] = {one: (tp, owner) for one in self._shares if one in able}
        queue = deque(reached)
        while queue:
            member = queue.popleft()
            if len(self._shares[member]) == len(self._shares[owner]) - 1:
                self._pass_on(member, owner, reached)
                return True
            for other in self._shares[member]:
                back = self.near(owner, other) or not self.near(member, other)
                if back and other.topic in self._wants[owner]:
                    self._pass_on(member, owner, reached)
                    self._shares[member].remove(other)
                    self._shares[owner].append(other)
                    return True
            for other in self._shares[member]:
                for next_one in self._shares:
                    takes = other.topic in self._wants[next_one] and self.near(next_one, other)
                    if takes and next_one not in reached and next_one != owner:
                        reached[next_one] = (other, member)
                        queue.append(next_one)
        return False

    def _pass_on(self, member: str, owner: str, reached: Mapping[str, tuple[TopicPartition, str]]) -> None:
        """Move the partitions of a chain, from its end ``member`` on."""
        while member != owner:
            tp, giver = reached[member]
            self._shares[giver].remove(tp)
            self._shares[member].append(tp)
            member = giver
