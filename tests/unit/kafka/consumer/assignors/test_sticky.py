"""Sticky and cooperative-sticky: balance, and no move that is not needed, over random groups."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlet.kafka import TopicPartition
from streamlet.kafka.consumer.assignors import (
    CooperativeStickyAssignor,
    PartitionAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from streamlet.kafka.consumer.assignors.base import Subscription
from tests.unit.kafka.consumer.assignors.random_groups import (
    Shares,
    carried,
    check_complete,
    counts,
    plain,
    same_wishes,
    wishes,
)


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


def test_c5_a_cooperative_claim_of_an_older_generation_or_of_none_takes_nothing_for_a_round() -> None:
    """The owner by the newest generation reads on; Java's assignor gives the same on this vector."""
    owned = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t2", 1))
    stale = (TopicPartition("t", 0), TopicPartition("t2", 1), TopicPartition("t", 2))
    assignor = CooperativeStickyAssignor()
    for generation in (9, -1):
        rows = {
            "c1": Subscription(("t", "t2"), assignor.user_data(owned, 10), owned, 10),
            "c2": Subscription(("t", "t2"), assignor.user_data(stale, generation), stale, generation),
        }
        shares = assignor.assign({"t": 3, "t2": 3}, rows)
        assert shares["c1"] == list(owned)
        assert shares["c2"] == [TopicPartition("t", 2), TopicPartition("t2", 0), TopicPartition("t2", 2)]


def test_c5_cooperative_gives_nobody_what_a_stale_or_a_leaving_reader_may_still_read() -> None:
    """A claim of one generation twice, and the newest one of a member that wants the topic no more, hold it back."""
    tp = TopicPartition("a", 0)
    assignor = CooperativeStickyAssignor()
    twice = {name: Subscription(("a",), None, (tp,), 5) for name in ("m1", "m2")}
    assert assignor.assign({"a": 1}, twice) == {"m1": [], "m2": []}
    leaving = {"old": Subscription(("a",), None, (tp,), 4), "new": Subscription(("b",), None, (tp,), 5)}
    assert assignor.assign({"a": 1, "b": 0}, leaving) == {"old": [], "new": []}


def test_c5_sticky_reads_user_data_of_the_first_format() -> None:
    """Members older than generations (Kafka before 2.3) keep what they have, and any newer claim counts for more."""
    tps = tuple(TopicPartition("a", number) for number in range(4))
    assignor = StickyAssignor()

    def first_format(member: str, *owned: TopicPartition) -> Subscription:
        data = assignor.user_data(owned, 7)
        assert data is not None
        return Subscription(("a",), data[:-4])

    rows = {"m1": first_format("m1", tps[3], tps[1]), "m2": first_format("m2", tps[2], tps[0])}
    assert assignor.assign({"a": 4}, rows) == {"m1": [tps[1], tps[3]], "m2": [tps[0], tps[2]]}
    rows["m3"] = Subscription(("a",), assignor.user_data((tps[1],), 0))
    assert assignor.assign({"a": 4}, rows)["m3"] == [tps[1]]
