"""Which trees of dead workers have not come again, and which may not have: each task of a spout by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlet.backends.trees_owed import TreesOwed

numbers = st.integers(0, 500)


def test_a_second_death_before_anything_came_owes_both() -> None:
    owed = TreesOwed()
    owed.died(1, trees=4, sent=20)
    owed.died(1, trees=0, sent=0)
    assert (owed.owed(1, 0), owed.in_doubt(1, 0)) == (4, 0)


def test_a_short_life_settles_no_doubt_of_a_longer_one_before_it() -> None:
    """Each begins at its first message: 300 were sent, then 120, then 20."""
    owed = TreesOwed()
    owed.died(1, trees=100, sent=300)
    owed.died(1, trees=0, sent=120)
    assert (owed.owed(1, 20), owed.in_doubt(1, 20)) == (0, 100)
    assert owed.in_doubt(1, 300) == 0


def test_as_many_as_the_longest_life_are_enough_and_not_their_sum() -> None:
    owed = TreesOwed()
    owed.died(1, trees=10, sent=1000)
    owed.died(1, trees=10, sent=1000)
    assert owed.in_doubt(1, 999) == 10 and owed.in_doubt(1, 1000) == 0


def test_lives_that_are_over_before_they_tell_owe_the_same_messages_once() -> None:
    """Four messages failed in each of four short lives, and sixteen were said to be open."""
    owed = TreesOwed()
    for _ in range(4):
        owed.died(1, trees=4, sent=0)
    assert (owed.owed(1, 0), owed.in_doubt(1, 1)) == (4, 4) and owed.in_doubt(1, 4) == 0


def test_what_one_task_emits_says_nothing_of_another() -> None:
    owed = TreesOwed()
    owed.died(1, trees=5, sent=50)
    owed.died(2, trees=7, sent=50)
    assert (owed.owed(1, 60), owed.in_doubt(1, 60), owed.owed(2, 0)) == (0, 0, 7)


@given(st.lists(st.tuples(numbers, numbers), max_size=8), numbers)
def test_no_tree_counts_twice_and_none_of_the_last_death_is_forgotten(deaths: list[tuple[int, int]], sent: int) -> None:
    owed = TreesOwed()
    for trees, before in deaths:
        owed.died(1, trees, before)
    told = owed.owed(1, sent) + owed.in_doubt(1, sent)
    assert told <= sum(trees for trees, _ in deaths)
    if deaths and not sent:
        assert told >= deaths[-1][0]
