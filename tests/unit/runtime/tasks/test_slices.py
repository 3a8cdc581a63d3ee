"""The size of a bolt's next slice: larger while it is quick, smaller when it was slow, one while that is careful."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from streamlet.runtime.tasks.slices import SLICE, SLICE_S, SliceSize

times = st.floats(0, 10, allow_nan=False)


def test_a_quick_bolt_gets_twice_as_many_each_time_up_to_the_most() -> None:
    slices, sizes = SliceSize(None, inf), []
    for now in range(8):
        sizes.append(slices.size)
        slices.grow(now)
    assert sizes == [1, 2, 4, 8, 16, 32, 64, 64] and SLICE == 64


def test_a_slow_slice_is_followed_by_as_many_as_fit_into_its_time_by_what_its_own_tuples_took() -> None:
    """The last slice of a run has fewer tuples than it might have, and each of them took the longer."""
    slices = SliceSize(None, inf)
    slices.was_slow(given=32, took_s=4 * SLICE_S, now=1.0)
    assert (slices.size, slices.notes_each) == (8, True)
    slices.was_slow(given=2, took_s=8 * SLICE_S, now=2.0)
    assert slices.size == 1 and not slices.is_slow, "one of the two may have been quick"
    slices.was_slow(given=1, took_s=8 * SLICE_S, now=3.0)
    assert slices.size == 1 and slices.is_slow
    slices.grow(4.0)
    assert slices.size == 2 and not slices.is_slow


def test_a_careful_time_has_slices_of_one_and_ends_by_itself() -> None:
    slices = SliceSize(None, inf)
    slices.grow(0.0)
    slices.be_careful(until=5.0)
    for now in (1.0, 4.9):
        slices.grow(now)
        assert slices.size == 1
    slices.grow(5.0)
    assert slices.careful_until is None
    slices.grow(5.1)
    assert slices.size == 2


def test_bytes_halve_a_slice_and_no_batch() -> None:
    slices, batch = SliceSize(None, inf), SliceSize(100, inf)
    slices.size = 3
    for _ in range(3):
        slices.halve()
        batch.halve()
    assert (slices.size, batch.size) == (1, 100)


def test_a_batch_begins_as_large_as_the_bolt_wants_it_and_fits_into_the_time_that_tuples_may_wait() -> None:
    slices = SliceSize(100, 8.0)  # a quarter of which one call may take
    assert slices.size == 100
    for tuples in (50, 100, 100, 100):
        slices.was_slow(tuples, 0.1 * tuples, now=1.0)
    assert slices.size == 20 and slices.batches.each_s < inf
    assert slices.call_s(0.1) == 10.0 and slices.call_s(0.001) == 0.1, "no longer than so many at the present pace"


@given(st.lists(st.tuples(times, times), max_size=40), st.none() | st.integers(1, 1000))
def test_a_size_is_never_below_one_or_above_the_most(steps: list[tuple[float, float]], batch_size: int | None) -> None:
    slices = SliceSize(batch_size, 30.0)
    for took_s, now in steps:
        if took_s > SLICE_S:
            slices.was_slow(slices.size, took_s, now)
        else:
            slices.grow(now)
        assert 1 <= slices.size <= (batch_size or SLICE)
