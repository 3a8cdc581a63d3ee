"""Properties of all four assignors, over random groups."""

from __future__ import annotations

from hypothesis import given, settings
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

TOPICS = ["a", "b", "c", "d"]
Shares = dict[str, list[TopicPartition]]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
wishes = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(7)]),
    st.lists(st.sampled_from(TOPICS), unique=True),
    min_size=1,
)
same_wishes = st.tuples(st.integers(1, 7), st.lists(st.sampled_from(TOPICS), unique=True, min_size=1)).map(
    lambda row: {f"m{number}": row[1] for number in range(row[0])}
)


def plain(wanted: dict[str, list[str]]) -> dict[str, Subscription]:
    return {member: Subscription(tuple(topics)) for member, topics in wanted.items()}


def carried(
    assignor: PartitionAssignor, wanted: dict[str, list[str]], owned: Shares, generation: int = 3
) -> dict[str, Subscription]:
    """Subscriptions as members send them that own this."""
    return {
        member: Subscription(
            tuple(topics),
            assignor.user_data(tuple(owned.get(member, ())), generation if member in owned else -1),
            tuple(owned.get(member, ())),
            generation if member in owned else -1,
        )
        for member, topics in wanted.items()
    }


def check_complete(shares: Shares, counts_: dict[str, int], wanted: dict[str, list[str]]) -> None:
    """Every partition that somebody wants has one owner, who wants it; nobody is left out of the answer."""
    given_ = [tp for share in shares.values() for tp in share]
    all_wanted = {topic for topics in wanted.values() for topic in topics}
    there = {TopicPartition(topic, n) for topic in all_wanted for n in range(counts_.get(topic, 0))}
    assert len(given_) == len(set(given_))
    assert set(given_) == there
    assert set(shares) == set(wanted)
    for member, share in shares.items():
        assert all(tp.topic in wanted[member] for tp in share)


@given(counts, wishes, st.sampled_from([RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor]))
def test_c5_every_partition_has_exactly_one_owner_who_wants_it(
    counts_: dict[str, int], wanted: dict[str, list[str]], kind: type[PartitionAssignor]
) -> None:
    """For any topics and members."""
    check_complete(kind().assign(counts_, plain(wanted)), counts_, wanted)


@given(counts, same_wishes)
def test_c5_range_differs_by_one_a_topic_and_gives_runs(counts_: dict[str, int], wanted: dict[str, list[str]]) -> None:
    """Each topic by itself; neighbours stay together."""
    for topic in TOPICS:
        numbers = [
            [tp.partition for tp in share if tp.topic == topic]
            for share in RangeAssignor().assign(counts_, plain(wanted)).values()
        ]
        sizes = [len(row) for row in numbers]
        assert max(sizes) - min(sizes) <= 1
        assert all(row == list(range(row[0], row[0] + len(row))) for row in numbers if row)


def test_c5_range_and_round_robin_are_javas() -> None:
    """The example of Java's documentation: two topics of three partitions, two members."""
    members = plain({"C0": ["t0", "t1"], "C1": ["t0", "t1"]})
    both = {"t0": 3, "t1": 3}

    def names(shares: Shares) -> dict[str, list[str]]:
        return {member: [f"{tp.topic}p{tp.partition}" for tp in share] for member, share in shares.items()}

    assert names(RangeAssignor().assign(both, members)) == {
        "C0": ["t0p0", "t0p1", "t1p0", "t1p1"],
        "C1": ["t0p2", "t1p2"],
    }
    assert names(RoundRobinAssignor().assign(both, members)) == {
        "C0": ["t0p0", "t0p2", "t1p1"],
        "C1": ["t0p1", "t1p0", "t1p2"],
    }


@given(counts, same_wishes, st.sampled_from([RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor]))
def test_c5_equal_subscriptions_are_balanced(
    counts_: dict[str, int], wanted: dict[str, list[str]], kind: type[PartitionAssignor]
) -> None:
    """No two shares differ by more than one."""
    sizes = [len(share) for share in kind().assign(counts_, plain(wanted)).values()]
    assert max(sizes) - min(sizes) <= 1


@given(counts, wishes)
def test_c5_sticky_leaves_no_move_that_would_even_out(counts_: dict[str, int], wanted: dict[str, list[str]]) -> None:
    """With unequal subscriptions, too."""
    shares = StickyAssignor().assign(counts_, plain(wanted))
    for rich, share in shares.items():
        for poor in shares:
            if any(tp.topic in wanted[poor] for tp in share):
                assert len(share) - len(shares[poor]) <= 1, (rich, poor)


@given(counts, same_wishes)
def test_c5_sticky_changes_nothing_when_nothing_changed(counts_: dict[str, int], wanted: dict[str, list[str]]) -> None:
    """The same members and topics: the same shares."""
    for assignor in (StickyAssignor(), CooperativeStickyAssignor()):
        first = assignor.assign(counts_, plain(wanted))
        assert assignor.assign(counts_, carried(assignor, wanted, first)) == first


@given(counts, same_wishes)
def test_c5_sticky_moves_only_what_a_leaver_had(counts_: dict[str, int], wanted: dict[str, list[str]]) -> None:
    """One goes: the others keep everything."""
    for assignor in (StickyAssignor(), CooperativeStickyAssignor()):
        first = assignor.assign(counts_, plain(wanted))
        if len(wanted) < 2:
            return
        left = dict(list(wanted.items())[1:])
        second = assignor.assign(counts_, carried(assignor, left, {m: first[m] for m in left}))
        assert all(set(first[member]) <= set(second[member]) for member in left)


@given(counts, same_wishes)
def test_c5_sticky_takes_no_more_for_a_joiner_than_its_share(
    counts_: dict[str, int], wanted: dict[str, list[str]]
) -> None:
    """Nothing moves between the old ones."""
    assignor = StickyAssignor()
    first = assignor.assign(counts_, plain(wanted))
    more = wanted | {"z": next(iter(wanted.values()))}
    second = assignor.assign(counts_, carried(assignor, more, first))
    for member in wanted:
        assert set(second[member]) <= set(first[member])


@given(counts, st.lists(wishes, min_size=2, max_size=5))
@settings(deadline=None)
def test_c5_cooperative_never_gives_what_another_still_owns(
    counts_: dict[str, int], rounds: list[dict[str, list[str]]]
) -> None:
    """Through any joins, leaves and changes of mind: between two rounds no partition has two owners, and without
    further change the group comes to rest with everything given out.
    """
    assignor = CooperativeStickyAssignor()
    owned: Shares = {}
    for generation, wanted in enumerate(rounds + [rounds[-1]] * 3):
        owned = {m: [tp for tp in owned[m] if tp.topic in wanted[m]] for m in owned if m in wanted}
        shares = assignor.assign(counts_, carried(assignor, wanted, owned, generation))
        for member, share in shares.items():
            for other, have in owned.items():
                assert other == member or not set(share) & set(have)
        owned = shares
    check_complete(owned, counts_, rounds[-1])


def test_c5_of_two_claims_the_later_generation_counts_and_equal_ones_void_each_other() -> None:
    """A zombie's memory of what it had takes nothing from its owner."""
    assignor = StickyAssignor()
    tps = tuple(TopicPartition("a", number) for number in range(2))
    rows = {
        "old": Subscription(("a",), assignor.user_data(tps, 4)),
        "new": Subscription(("a",), assignor.user_data(tps[:1], 5)),
    }
    assert assignor.assign({"a": 2}, rows) == {"old": [tps[1]], "new": [tps[0]]}
