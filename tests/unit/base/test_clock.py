"""The clock of deadlines of others: time in which this process stood still is nobody's silence."""

from __future__ import annotations

import pytest

from streamlet.base.clock import AwakeClock, ManualClock

DAY_S = 86_400.0


@pytest.mark.parametrize("stood_still_s", [48.0, DAY_S])
def test_time_between_two_looks_counts_up_to_a_bound(stood_still_s: float) -> None:
    clock = ManualClock(start_s=7.0)
    awake = AwakeClock(clock, longest_s=0.5)
    began = awake.monotonic()
    for _ in range(10):
        clock.advance(0.25)
        awake.monotonic()
    assert awake.monotonic() - began == 2.5
    clock.advance(stood_still_s)
    assert awake.monotonic() - began == 3.0
    assert awake.monotonic() - began == 3.0, "a second look at the same moment adds nothing"
