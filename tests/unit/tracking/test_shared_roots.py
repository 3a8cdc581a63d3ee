"""Several trees that share an edge."""

from __future__ import annotations

from streamlet.tracking.shared_roots import Root, SharedRoots, as_one_root, each_root, spread


def test_no_tree_one_tree_and_several() -> None:
    assert as_one_root([0, 0]) == 0
    assert as_one_root([]) == 0
    assert as_one_root([7, 0, 7]) == 7
    both = as_one_root([7, 9, 7, 0])
    assert isinstance(both, SharedRoots) and both.roots == (7, 9)


def test_a_tree_that_is_named_twice_through_two_batches_is_there_once() -> None:
    """Twice the same edge would cancel out: the tree would be acked while tuples of it are open."""
    both = as_one_root([SharedRoots((7, 9)), 9, SharedRoots((9, 11)), 0])
    assert isinstance(both, SharedRoots) and both.roots == (7, 9, 11)


def test_each_tree_that_is_meant() -> None:
    assert [*each_root([5, SharedRoots((7, 9)), 0])] == [5, 7, 9, 0]


def test_a_delta_of_several_trees_is_xored_into_each() -> None:
    deltas: dict[Root, int] = {7: 0b01, SharedRoots((7, 9)): 0b10, SharedRoots((9, 11)): 0b100}
    assert spread(deltas) == {7: 0b11, 9: 0b110, 11: 0b100}


def test_two_batches_of_the_same_trees_are_two() -> None:
    assert SharedRoots((1, 2)) != SharedRoots((1, 2))
