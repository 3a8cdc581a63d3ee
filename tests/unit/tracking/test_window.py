"""The window of open trees: quick where bolts are fast, narrow where they are slow, never shut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.tracking.window import GROWTH, PendingWindow


def test_a_fast_bolt_gets_the_whole_window_in_a_dozen_rounds() -> None:
    """Each round all that is open is done, and nothing waits."""
    window = PendingWindow(2000, target_s=7.5)
    rounds = 0
    while window.size < 2000:
        window.measured(0, 0.0, starved=False)
        window.done(window.size, window.size)
        rounds += 1
    assert rounds <= 12


@pytest.mark.parametrize(("each_s", "wanted"), [(0.03, 250), (1.0, 7), (10.0, 1)])
def test_what_may_be_open_waits_no_longer_than_the_target(each_s: float, wanted: int) -> None:
    """One task, and a measurement a second."""
    window = PendingWindow(2000, target_s=7.5)
    done = 0.0
    for _ in range(600):
        done += 1 / each_s
        window.done(int(done), window.size)
        done -= int(done)
        window.measured(window.size, window.size * each_s, starved=False)
        assert window.size * each_s <= 7.5 or window.size == 1
    assert window.size == wanted


def test_a_bolt_that_becomes_slow_narrows_the_window_at_once() -> None:
    window = PendingWindow(2000, target_s=7.5)
    window.size = 2000
    window.measured(2000, 0.0, starved=False)
    assert window.measured(2000, 60.0, starved=False) is False
    assert window.size == 250
    window.done(100, 1900)
    assert window.size == 250, "it grew though the queue is as long as it may be"


def test_what_is_fast_beside_something_slow_grows_no_further_than_was_measured() -> None:
    """Acks of fast tasks come by the thousand before the slow one's first tuple is done."""
    window = PendingWindow(2000, target_s=7.5)
    for _ in range(5000):
        window.done(1, window.size)
    assert window.size == GROWTH


def test_a_bolt_that_holds_tuples_for_a_batch_gets_more() -> None:
    window = PendingWindow(2000, target_s=7.5)
    rounds = 0
    while window.size < 2000:
        assert window.measured(window.size, 0.0, starved=True) or window.size > 500, "the next round may wait"
        rounds += 1
    assert rounds == 11


def test_a_window_that_is_not_used_does_not_grow() -> None:
    """A slow source says nothing about how many trees its bolts can take."""
    window = PendingWindow(2000, target_s=7.5)
    window.size = 100
    for _ in range(100):
        window.measured(2, 0.0, starved=False)
        window.done(1, 2)
    assert window.size == 100


@given(
    st.integers(1, 10_000),
    st.floats(0.001, 100),
    st.lists(
        st.one_of(
            st.tuples(st.just("done"), st.integers(0, 5000), st.integers(0, 5000)),
            st.tuples(st.just("measured"), st.integers(0, 10_000), st.floats(0, 1e6), st.booleans()),
        ),
        max_size=50,
    ),
)
def test_its_size_stays_between_one_and_the_maximum(
    most: int, target_s: float, steps: list[tuple[object, ...]]
) -> None:
    window = PendingWindow(most, target_s)
    for kind, *values in steps:
        getattr(window, str(kind))(*values)
        assert 1 <= window.size <= most
