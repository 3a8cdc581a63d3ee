"""Several trees that share an edge."""

from __future__ import annotations

from streamlet.tracking.joint import Joint, Root, each_root, joined, spread


def test_no_tree_one_tree_and_several() -> None:
    assert joined([0, 0]) == 0
    assert joined([]) == 0
    assert joined([7, 0, 7]) == 7
    both = joined([7, 9, 7, 0])
    assert isinstance(both, Joint) and both.roots == (7, 9)


def test_a_tree_that_is_named_twice_through_two_batches_is_there_once() -> None:
    """Twice the same edge would cancel out: the tree would be acked while tuples of it are open."""
    both = joined([Joint((7, 9)), 9, Joint((9, 11)), 0])
    assert isinstance(both, Joint) and both.roots == (7, 9, 11)


def test_each_tree_that_is_meant() -> None:
    assert [*each_root([5, Joint((7, 9)), 0])] == [5, 7, 9, 0]


def test_a_delta_of_several_trees_is_xored_into_each() -> None:
    deltas: dict[Root, int] = {7: 0b01, Joint((7, 9)): 0b10, Joint((9, 11)): 0b100}
    assert spread(deltas) == {7: 0b11, 9: 0b110, 11: 0b100}


def test_two_batches_of_the_same_trees_are_two() -> None:
    assert Joint((1, 2)) != Joint((1, 2))
