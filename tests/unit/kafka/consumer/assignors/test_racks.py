"""Shares by rack: range is Java's, the sticky ones are as near as Java's, and none is less balanced for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka import TopicPartition
from streamlet.kafka.consumer.assignors import (
    CooperativeStickyAssignor,
    PartitionAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from streamlet.kafka.consumer.assignors.base import Subscription
from streamlet.kafka.consumer.assignors.racks import bring_near, is_near
from tests.unit.kafka.consumer.assignors.random_groups import Shares, carried, check_complete, counts, plain, wishes

LINES = (Path(__file__).parents[2] / "golden" / "ranges.txt").read_text("utf-8").splitlines()
Racks = dict[TopicPartition, frozenset[str]]

some_racks = st.frozensets(st.sampled_from(["r0", "r1", "r2"]), max_size=2)
member_racks = st.lists(st.sampled_from([None, "r0", "r1", "r2", "r9"]), min_size=7, max_size=7)


def standing(subscriptions: dict[str, Subscription], racks: list[str | None]) -> dict[str, Subscription]:
    """The same members, each in a rack."""
    rows = zip(sorted(subscriptions), racks, strict=False)
    return {member: dataclasses.replace(subscriptions[member], rack_id=rack) for member, rack in rows}


def near(shares: Shares, subscriptions: dict[str, Subscription], racks: Racks) -> int:
    """How many partitions are read in the rack of their member."""
    return sum(
        is_near(subscriptions[member].rack_id, racks.get(tp, frozenset()))
        for member, share in shares.items()
        for tp in share
    )


def row_of(line: str) -> tuple[dict[str, int], Racks, dict[str, Subscription], Shares, int]:
    """A line of ``ranges.txt``, which ``Ranges.java`` wrote."""
    topics, members, told, count = line.split(" | ")
    counts_: dict[str, int] = {}
    racks: Racks = {}
    for text in topics.split(" "):
        name, _, parts = text.partition(":")
        places = parts.split("/") if parts else []
        counts_[name] = len(places)
        racks |= {TopicPartition(name, number): frozenset(place.split(",")) for number, place in enumerate(places)}
    subscriptions = {}
    for text in members.split(" "):
        member, rack, wanted = text.split(":")
        subscriptions[member] = Subscription(tuple(wanted.split(",")) if wanted else (), rack_id=rack or None)
    shares: Shares = {}
    for text in told.split(" "):
        member, _, given_ = text.partition(":")
        pairs = [one.rsplit("-", 1) for one in given_.split(",")] if given_ else []
        shares[member] = [TopicPartition(topic, int(number)) for topic, number in pairs]
    return counts_, racks, subscriptions, shares, int(count)


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_ranges_by_rack_are_javas_and_sticky_shares_as_near(line: str) -> None:
    counts_, racks, subscriptions, shares, count = row_of(line)
    found = RangeAssignor().assign_by_rack(counts_, subscriptions, racks)
    assert {member: sorted(share) for member, share in found.items()} == {
        member: sorted(share) for member, share in shares.items()
    }
    ours = CooperativeStickyAssignor().assign_by_rack(counts_, subscriptions, racks)
    assert near(ours, subscriptions, racks) >= count


@dataclasses.dataclass
class Group:
    """Topics with their racks, and members with theirs."""

    counts: dict[str, int]
    wanted: dict[str, list[str]]
    places: list[str | None]
    racks: Racks

    @property
    def members(self) -> dict[str, Subscription]:
        return standing(plain(self.wanted), self.places)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    found = draw(counts)
    racks = {TopicPartition(topic, n): draw(some_racks) for topic, count in found.items() for n in range(count)}
    return Group(found, draw(wishes), draw(member_racks), racks)


@given(groups(), st.sampled_from([StickyAssignor, CooperativeStickyAssignor]))
def test_a_sticky_share_comes_near_and_stays_as_balanced(group: Group, kind: type[PartitionAssignor]) -> None:
    """The sizes differ no more than without racks, and the next round moves nothing."""
    before = kind().assign(group.counts, group.members)
    shares = kind().assign_by_rack(group.counts, group.members, group.racks)
    check_complete(shares, group.counts, group.wanted)
    uneven = [sum(len(share) ** 2 for share in one.values()) for one in (shares, before)]
    assert uneven[0] <= uneven[1]
    if uneven[0] == uneven[1]:
        assert near(shares, group.members, group.racks) >= near(before, group.members, group.racks)
    again = standing(carried(kind(), group.wanted, shares), group.places)
    assert kind().assign_by_rack(group.counts, again, group.racks) == shares


@given(groups(), st.sampled_from([RangeAssignor, RoundRobinAssignor]))
def test_ranges_by_rack_have_the_sizes_of_ranges(group: Group, kind: type[PartitionAssignor]) -> None:
    """Of each topic by itself; round robin looks at no rack, as Java's."""
    before = kind().assign(group.counts, group.members)
    shares = kind().assign_by_rack(group.counts, group.members, group.racks)
    check_complete(shares, group.counts, group.wanted)
    for topic in group.counts:
        sizes = [sorted(sum(tp.topic == topic for tp in share) for share in one.values()) for one in (before, shares)]
        assert sizes[0] == sizes[1]
    assert kind is RangeAssignor or shares == before


def test_without_a_rack_that_matters_nothing_moves() -> None:
    """No member tells one, all stand elsewhere, or every rack has a copy of all."""
    a0, a1 = TopicPartition("a", 0), TopicPartition("a", 1)
    shares: Shares = {"m0": [a0], "m1": [a1]}
    split = {a0: frozenset({"r1"}), a1: frozenset({"r0"})}
    for racks, members in (
        (split, (None, None)),
        (split, ("r8", "r9")),
        ({a0: frozenset({"r0", "r1"}), a1: frozenset({"r0", "r1"})}, ("r0", "r1")),
    ):
        subscriptions = {f"m{n}": Subscription(("a",), rack_id=rack) for n, rack in enumerate(members)}
        bring_near(shares, subscriptions, racks)
        assert shares == {"m0": [a0], "m1": [a1]}
    bring_near(shares, {f"m{n}": Subscription(("a",), rack_id=f"r{n}") for n in range(2)}, split)
    assert shares == {"m0": [a1], "m1": [a0]}


def test_an_owner_in_the_rack_keeps_what_it_has() -> None:
    """Stickiness first: what moves is what was read from afar."""
    racks = {TopicPartition("a", n): frozenset({f"r{n % 2}"}) for n in range(4)}
    owned: Shares = {"m0": [TopicPartition("a", 0), TopicPartition("a", 2)], "m1": [TopicPartition("a", 1)]}
    wanted = {"m0": ["a"], "m1": ["a"]}
    members = standing(carried(StickyAssignor(), wanted, owned), ["r0", "r1"])
    found = StickyAssignor().assign_by_rack({"a": 4}, members, racks)
    assert {member: [tp.partition for tp in share] for member, share in found.items()} == {"m0": [0, 2], "m1": [1, 3]}
