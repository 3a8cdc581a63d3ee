"""Numbers of trees: whose they are, and which are one set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlet.tracking.roots import (
    SET_TREES,
    STEP,
    are_one_set,
    end_of,
    entry_of,
    first_root,
    owner_task,
    place_in_set,
    roots_of_set,
)


def test_roots_name_their_owner_and_never_meet_across_epochs() -> None:
    """A restarted spout task issues other roots, and both name the same task."""
    assert owner_task(first_root(7, 1)) == owner_task(first_root(7, 2)) == 7
    assert first_root(7, 1) != first_root(7, 2)
    assert first_root(65535, 63) < 1 << 64


@given(st.lists(st.integers(0, SET_TREES), max_size=20), st.integers(1, 1000))
def test_no_two_trees_have_one_root_and_a_set_is_told_by_any_of_its_roots(kinds: list[int], task: int) -> None:
    """0: a tree of its own; otherwise a set of so many."""
    next_root, seen = first_root(task, 1), set[int]()
    for trees in kinds:
        if trees:
            roots = roots_of_set(next_root, trees)
            assert {entry_of(root) for root in roots} == {roots.start} and are_one_set([*roots])
            assert [place_in_set(root) for root in roots] == [*range(trees)]
            assert end_of(roots.start) > roots[-1]
            next_root = end_of(roots.start)
        else:
            roots = range(next_root, next_root + STEP, STEP)
            assert entry_of(next_root) == next_root and not are_one_set([next_root])
            next_root += STEP
        assert next_root > roots[-1] >= roots[0] >= max(seen, default=0)
        assert {owner_task(root) for root in roots} == {task} and not seen & {*roots}
        seen.update(roots)


def test_what_is_of_several_sets_or_of_none_is_not_one_set() -> None:
    one = roots_of_set(first_root(1, 1), 100)
    other = roots_of_set(end_of(one.start), 100)
    for roots in (
        [*one, other[0]],
        [one[0], other[50], one[1]],
        [one[0], 0],
        [one[0], one.start + 1],
        [one[0], object()],
    ):
        assert not are_one_set(roots), roots
