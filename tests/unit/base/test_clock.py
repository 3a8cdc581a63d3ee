"""The clock of deadlines of others: time in which this process stood still is nobody's silence."""

from __future__ import annotations

import time

import pytest

from streamlet.base.clock import AwakeClock, BootClock, ManualClock, SystemClock, through_suspend

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


def test_the_clock_of_leases_counts_the_time_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two clocks of Linux as they are after a night with the lid shut."""
    clock = through_suspend(SystemClock())
    before = clock.monotonic()
    now = {time.CLOCK_MONOTONIC: 1.0, time.CLOCK_BOOTTIME: before + 8 * 3600}
    monkeypatch.setattr(time, "monotonic", lambda: now[time.CLOCK_MONOTONIC])
    monkeypatch.setattr(time, "clock_gettime", now.__getitem__)
    assert clock.monotonic() - before == pytest.approx(8 * 3600)
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert clock.monotonic() == 1.0


def test_a_clock_that_was_given_stays() -> None:
    clock = ManualClock()
    assert through_suspend(clock) is clock and isinstance(through_suspend(SystemClock()), BootClock)
