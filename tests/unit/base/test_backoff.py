"""Delays that grow up to a cap, with jitter that is given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.base.backoff import Backoff


def test_each_failure_doubles_the_delay_up_to_the_cap() -> None:
    assert [Backoff(0.1, 1.0).delay(n) for n in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [Backoff(1.0, 100.0, multiplier=3.0).delay(n) for n in (1, 2, 3)] == [1.0, 3.0, 9.0]


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 0.16), (0.5, 0.2), (0.75, 0.22)])
def test_jitter_moves_a_delay_by_a_fifth_at_most(chance: float, expected: float) -> None:
    assert Backoff(0.1, 1.0).delay(2, lambda: chance) == pytest.approx(expected)


@given(attempt=st.integers(1, 10**9), chance=st.floats(0.0, 1.0, exclude_max=True))
def test_no_delay_is_beyond_the_cap_however_many_failures(attempt: int, chance: float) -> None:
    """The power does not overflow, either."""
    assert 0 < Backoff(0.1, 1.0).delay(attempt, lambda: chance) <= 1.0


def test_before_the_first_failure_and_without_a_first_delay_there_is_none() -> None:
    assert Backoff(0.1, 1.0).delay(0) == 0.0
    assert Backoff(0.0, 1.0).delay(5) == 0.0


def test_a_delay_that_never_grows_asks_for_no_jitter_beyond_its_cap() -> None:
    assert Backoff(1.0, 1.0).delay(1, lambda: 0.99) == 1.0
