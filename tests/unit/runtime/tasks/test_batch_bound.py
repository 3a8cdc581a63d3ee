"""How large a slow bolt's batches are: as its tuples cost, and not as its calls do."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamlet.runtime.tasks.batch_bound import CALL_SHARE, TRY_AFTER, BatchBound


def sizes(bound: BatchBound, each_s: float, call_s: float = 0.0, waiting: int = 2000, calls: int = 40) -> list[int]:
    """The batches of a bolt for which so many tuples always wait."""
    found = []
    for _ in range(calls):
        found.append(min(bound.size, waiting))
        bound.took(found[-1], call_s + each_s * found[-1])
    return found


@pytest.mark.parametrize(("each_s", "wanted"), [(0.03, 62), (0.2, 9), (1.0, 1), (10.0, 1)])
def test_a_batch_takes_a_quarter_of_the_time_that_tuples_may_wait(each_s: float, wanted: int) -> None:
    """The first is what waits: nobody knows yet what a tuple costs."""
    first, *_, last = sizes(BatchBound(1024, target_s=7.5), each_s)
    assert (first, last) == (1024, wanted)
    bound = BatchBound(1024, target_s=7.5)
    bound.took(1, each_s)
    assert sizes(bound, each_s, calls=3)[-1] == wanted, "what begins with a single tuple should soon be there, too"


def test_cheap_tuples_come_in_batches_as_large_as_may_be() -> None:
    assert set(sizes(BatchBound(1024, target_s=7.5), each_s=0.0001)) == {1024}


@pytest.mark.parametrize("waiting", [1, 10, 2000])
@pytest.mark.parametrize("call_s", [0.5, 1.875, 5.0, 20.0])
def test_a_call_that_costs_the_same_for_any_batch_is_given_all_that_waits(call_s: float, waiting: int) -> None:
    """One request for all of them, which takes longer than a call should: for smaller ones it would take as long."""
    bound = BatchBound(1024, target_s=7.5)
    sizes(bound, 0.0, call_s, waiting=waiting)
    assert sizes(bound, 0.0, call_s)[-1] == 1024


@pytest.mark.parametrize("each_s", [0.0, 0.1])
def test_after_a_lull_batches_are_as_large_as_before(each_s: float) -> None:
    """A few tuples came one by one, or two by two: what is known of larger batches holds."""
    bound = BatchBound(1024, target_s=7.5)
    before = sizes(bound, each_s, 2.5)[-1]
    for few in (1, 1, 2, 4, 1):
        sizes(bound, each_s, 2.5, waiting=few, calls=1)
        assert bound.size >= before
    assert sizes(bound, each_s, 2.5, calls=1)[-1] >= before


def test_where_the_call_costs_most_of_it_a_batch_is_worth_the_call() -> None:
    """Of 3 s and 10 ms a tuple: 300 tuples take no longer than their call by itself."""
    assert sizes(BatchBound(1024, target_s=7.5), 0.01, 3.0)[-1] == 300


def test_what_one_more_tuple_costs_is_told_once_two_sizes_are_known() -> None:
    bound = BatchBound(1024, target_s=7.5)
    assert bound.each_s == math.inf
    for tuples, known in ((1, math.inf), (2, 0.25), (4, 0.25)):
        bound.took(tuples, 3.0 + 0.25 * tuples)
        assert bound.each_s == pytest.approx(known)
    bound.took(1024, 0.005)
    assert bound.each_s == math.inf, "a fast one is measured as any bolt is"


def test_a_few_tuples_that_took_far_longer_than_many_tell_that_the_bolt_has_changed() -> None:
    """Each of 30 ms, and then of 10 s: the call of before says nothing of what they cost now."""
    bound = BatchBound(1024, target_s=15.0)
    bound.took(125, 3.75)
    assert bound.took(3, 30.0) == 1
    assert sizes(bound, 10.0)[-1] == 1


def test_a_hiccup_in_a_small_batch_makes_no_batch_smaller() -> None:
    """One request for all of them: now and then it takes three times as long."""
    bound = BatchBound(1024, target_s=0.4)
    sizes(bound, 0.0, 0.15, calls=6)
    assert bound.took(40, 0.45) >= 80


def test_a_bolt_that_becomes_slow_or_fast_is_known_after_a_few_calls() -> None:
    bound = BatchBound(1024, target_s=4.0)
    assert sizes(bound, 0.0005)[-1] == 1024
    assert sizes(bound, 0.1, calls=6)[-1] <= 10
    assert sizes(bound, 1.0, calls=6)[-1] == 1
    assert sizes(bound, 0.0005, calls=15)[-1] == 1024


@given(st.integers(1, 5000), st.floats(0.01, 100), st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 1000))))
def test_a_bound_is_never_less_than_one_nor_more_than_the_bolts_own(
    most: int, target_s: float, calls: list[tuple[int, float]]
) -> None:
    bound = BatchBound(most, target_s)
    for tuples, seconds in calls:
        assert 1 <= bound.took(min(tuples, most), seconds) <= most


@pytest.mark.parametrize(("keys", "call_s"), [(10, 0.5), (100, 0.05), (4, 0.2)])
def test_a_bolt_that_asks_once_for_each_key_is_given_batches_of_many_tuples_a_key(keys: int, call_s: float) -> None:
    """Few tuples have a key each: what one more of them costs there says nothing of a thousand."""
    bound, done, took_s, chance = BatchBound(1024, target_s=7.5), 0, 0.0, random.Random(1)
    bound.took(1, call_s)
    while done < 10_000:
        tuples = bound.size
        asked = len({chance.randrange(keys) for _ in range(tuples)})
        bound.took(tuples, asked * call_s)
        done, took_s = done + tuples, took_s + asked * call_s
    assert bound.size == 1024
    assert took_s < 0.2 * done * call_s, "each tuple had a request of its own"


def test_a_larger_batch_is_tried_within_the_time_that_tuples_may_wait_and_kept_only_where_it_pays() -> None:
    found = sizes(BatchBound(1024, target_s=7.5), 0.2, calls=200)[2:]
    assert max(found) * 0.2 <= 7.5 and found.count(9) > 190, found
    assert set(sizes(BatchBound(1024, target_s=7.5), 10.0)[2:]) == {1}, "a second one would take longer than that"


def test_a_try_that_is_due_gives_a_bolt_that_becomes_slow_no_second_large_batch() -> None:
    """One that is due would be no larger by far, within the time that tuples may wait."""
    bound = BatchBound(1024, target_s=7.5)
    for _ in range(TRY_AFTER - 1):
        bound.took(256, 2.5)
    assert bound.took(512, 100.0) < 256


def test_a_try_under_way_and_a_batch_that_paid_are_void_once_fewer_tuples_take_longer() -> None:
    bound = BatchBound(1024, target_s=7.5)
    bound.took(1, 0.2)
    for _ in range(TRY_AFTER - 1):
        bound.took(bound.size, 0.2 * bound.size)
    assert bound.size == 4 * 9, "a larger batch should be tried by now"
    assert bound.took(8, 80.0) == 1
    bound = BatchBound(1024, target_s=7.5)
    bound.took(1, 0.2)
    for _ in range(12):  # four keys, 0.2 s each
        bound.took(bound.size, 0.2 * min(bound.size, 4))
    assert bound.size == 1024
    assert bound.took(8, 80.0) < 8


# Fewer that took longer look as if tuples cost nothing; each step up is a little quicker a tuple than the last one.
STEPS_UP = (0.5, 0.75, 2.0, 1.1, 0.667, 0.5, 2.0, 1.2, 0.75, 0.5, 0.9, 0.5, 1.5, 0.8, 0.5)


@given(st.lists(st.floats(0.5, 2.0), min_size=40, max_size=40))
@example([*STEPS_UP, *STEPS_UP, *STEPS_UP])
@example([1.0, 1.0, 1.0, 1.0, 0.5, 0.75, 1.0, 0.5, 0.5, 2.0, 0.875, 0.625, 1.0, 0.5, *[1.0] * 26])
def test_times_that_scatter_make_no_batch_many_times_too_large(factors: list[float]) -> None:
    """Each call takes between half and twice of what it usually does."""
    bound = BatchBound(100_000, target_s=4.0)
    bound.took(1, 0.1)
    for factor in factors:
        assert bound.size * 0.1 <= 16 * CALL_SHARE * 4.0
        bound.took(bound.size, factor * 0.1 * bound.size)
