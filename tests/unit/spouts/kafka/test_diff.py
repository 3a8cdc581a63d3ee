"""A refresh's outcome as values: opened, closed, moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlet.spouts.kafka.coordinator import LeaderMove, partition_changes
from streamlet.spouts.kafka.partition import Broker, Partition

A, B = Broker("a"), Broker("b")
LEADERS = st.dictionaries(st.integers(0, 8).map(lambda n: Partition("t", n)), st.sampled_from([A, B, None]))


def test_k1_a_leader_move_is_a_move_and_not_another_partition() -> None:
    """Partition's identity excludes the leader, so the manager, and with it the ledger, stays."""
    p = Partition("t", 0)
    changes = partition_changes({p: A}, {p: B})
    assert changes.moved == (LeaderMove(p, A, B),)
    assert changes.opened == changes.closed == ()


@given(LEADERS, LEADERS)
def test_applying_the_changes_gives_what_was_wanted(
    have: dict[Partition, Broker | None], want: dict[Partition, Broker | None]
) -> None:
    changes = partition_changes(have, want)
    result = dict(have)
    for partition in changes.closed:
        del result[partition]
    for move in changes.moved:
        assert result[move.partition] == move.old
        result[move.partition] = move.new
    for partition in changes.opened:
        assert partition not in have
        result[partition] = want[partition]
    assert result == want
    assert bool(changes) == (have != want)
