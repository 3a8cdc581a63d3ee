"""What holds of every assignor's shares, and those of range and round robin, over random groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka.consumer.assignors import (
    CooperativeStickyAssignor,
    PartitionAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from tests.unit.kafka.consumer.assignors.random_groups import (
    TOPICS,
    Shares,
    check_complete,
    counts,
    plain,
    same_wishes,
    wishes,
)


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
