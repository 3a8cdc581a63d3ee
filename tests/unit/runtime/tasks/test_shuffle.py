"""How a shuffle follows the load of workers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from streamlet.runtime.tasks.shuffle import PARTS, Shuffle

loads = st.fixed_dictionaries({worker: st.floats(0, 1) for worker in range(3)})


def two_workers(here: int = 0) -> Shuffle[str]:
    return Shuffle([(0, "a"), (1, "b")], here)


def after(shuffle: Shuffle[str], rounds: int, *loads: float) -> dict[str, int]:
    """Places with their turns, after so many measurements of the same loads."""
    for _ in range(rounds):
        shuffle.measured(dict(enumerate(loads)))
    return Counter(shuffle.order)


def test_it_begins_even_and_alternates() -> None:
    shuffle = Shuffle([(0, "a"), (1, "b"), (0, "c")], 0)
    assert Counter(shuffle.order) == {"a": PARTS, "b": PARTS, "c": PARTS}
    assert all({*shuffle.order[at : at + 4]} == {"a", "b", "c"} for at in range(len(shuffle.order) - 4))


def test_a_calm_worker_keeps_its_tuples() -> None:
    """At any load of the other: what leaves costs both of them."""
    assert after(two_workers(), 20, 0.3, 0.0) == after(two_workers(), 20, 0.3, 0.9) == {"a": 2 * PARTS}


def test_a_busy_worker_gives_to_the_idlest_until_their_loads_are_near() -> None:
    shuffle = two_workers()
    assert after(shuffle, 20, 1.0, 0.5) == {"b": 2 * PARTS}
    assert after(shuffle, 1, 0.9, 1.0) == {"b": 2 * PARTS}, "so small a difference is chance"
    assert after(shuffle, 1, 0.7, 1.0)["a"] > 0
    three = Shuffle([(0, "a"), (1, "b"), (2, "c")], 0)
    assert after(three, 1, 1.0, 0.9, 0.2)["c"] > PARTS


def test_between_calm_and_busy_nothing_moves() -> None:
    assert after(two_workers(), 20, 0.7, 0.0) == {"a": PARTS, "b": PARTS}


def test_without_a_place_here_only_the_load_counts() -> None:
    shuffle = Shuffle([(1, "b"), (2, "c")], 0)
    assert after(shuffle, 20, 0.0, 0.3, 0.1) == {"b": PARTS, "c": PARTS}
    assert after(shuffle, 20, 0.0, 1.0, 0.1) == {"c": 2 * PARTS}


def test_a_worker_that_has_not_said_its_load_changes_nothing() -> None:
    shuffle = two_workers()
    shuffle.measured({0: 0.0})
    assert Counter(shuffle.order) == {"a": PARTS, "b": PARTS}


@given(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=1, max_size=8), st.lists(loads, max_size=30))
def test_all_turns_are_always_given_away(workers: list[int], measured: list[dict[int, float]]) -> None:
    """Emit closures keep the list and a place in it: it is one and the same, and as long as before."""
    shuffle = Shuffle([(worker, f"{n}") for n, worker in enumerate(workers)], 0)
    order, length = shuffle.order, len(shuffle.order)
    for each in measured:
        shuffle.measured(each)
        assert shuffle.order is order and len(order) == length
        turns = Counter(order)
        for worker in set(workers):
            own = [turns[f"{n}"] for n, other in enumerate(workers) if other == worker]
            assert max(own) - min(own) <= 1, "the tasks of a worker have equal parts"
