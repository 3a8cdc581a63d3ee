"""Several trees that share an edge."""

from __future__ import annotations

from streamlet.tracking.roots import first_root, roots_of_set
from streamlet.tracking.shared_roots import Root, SharedRoots, as_one_root, each_entry, each_root, spread

FIRST, SECOND = roots_of_set(first_root(3, 1), 10), roots_of_set(first_root(3, 1) + 5000, 10)


def test_no_tree_one_tree_and_several() -> None:
    assert as_one_root([0, 0]) == 0
    assert as_one_root([]) == 0
    assert as_one_root([6, 0, 6]) == 6
    both = as_one_root([6, 8, 6, 0])
    assert isinstance(both, SharedRoots) and [*both.roots] == [6, 8]


def test_a_tree_that_is_named_twice_through_two_batches_is_there_once() -> None:
    """Twice the same edge would cancel out: the tree would be acked while tuples of it are open."""
    both = as_one_root([SharedRoots((6, 8)), 8, SharedRoots((8, 10)), 0])
    assert isinstance(both, SharedRoots) and [*both.roots] == [6, 8, 10]


def test_each_tree_that_is_meant() -> None:
    assert [*each_root([4, SharedRoots((6, 8)), 0])] == [4, 6, 8, 0]


def test_a_delta_of_several_trees_is_xored_into_each() -> None:
    deltas: dict[Root, int] = {6: 0b01, SharedRoots((6, 8)): 0b10, SharedRoots((8, 10)): 0b100}
    assert spread(deltas) == {6: 0b11, 8: 0b110, 10: 0b100}


def test_two_batches_of_the_same_trees_are_two() -> None:
    assert SharedRoots((1, 2)) != SharedRoots((1, 2))


def test_a_delta_is_xored_into_a_set_once_however_many_of_its_trees_are_meant() -> None:
    mixed = as_one_root([6, *FIRST[2:5], SECOND[4], 0])
    assert isinstance(mixed, SharedRoots)
    assert [*mixed.roots] == [6, *FIRST[2:5], SECOND[4]]
    assert spread({mixed: 5}) == {6: 5, FIRST.start: 5, SECOND.start: 5}
    assert [*each_entry([mixed, FIRST[9], 0, 8])] == [6, FIRST.start, SECOND.start, FIRST.start, 0, 8]


def test_trees_of_one_set_are_one_root_without_a_look_at_each() -> None:
    whole = as_one_root([*FIRST])
    assert isinstance(whole, SharedRoots)
    assert [*whole.roots] == [*FIRST] and [*whole.entries] == [FIRST.start]
    assert as_one_root([FIRST[3]] * 4) == FIRST[3]
