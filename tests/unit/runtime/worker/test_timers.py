"""When the acts of a loop run."""

from __future__ import annotations

import pytest

from streamlet.runtime.worker.timers import Timers, next_multiple


def ran_at(timers: Timers, ran: list[float], times: list[float]) -> list[float]:
    out = []
    for now in times:
        before = len(ran)
        timers.run_due(now)
        out += [now] * (len(ran) - before)
    return out


def test_periods_follow_one_another_and_a_late_one_fires_once() -> None:
    timers, ran = Timers(), []
    timers.every(1.0, lambda: ran.append(0), 0.3)
    assert timers.next_due() == 1.3
    assert ran_at(timers, ran, [1.2, 1.3, 2.2, 2.3, 9.9, 10.0]) == [1.3, 2.3, 9.9]


def test_aligned_ones_run_at_the_clocks_multiples_whenever_they_began() -> None:
    """So that workers of one machine look at their numbers at the same moments, and late ones come back to them."""
    timers, ran = Timers(), []
    timers.every(1.0, lambda: ran.append(0), 0.3, aligned=True)
    assert ran_at(timers, ran, [0.9, 1.0, 1.9, 2.7, 3.0, 3.1]) == [1.0, 2.7, 3.0]
    assert timers.next_due() == 4.0


def test_the_next_multiple_is_always_ahead() -> None:
    assert [next_multiple(now, 0.5) for now in (0.0, 0.4, 0.5, 7.2)] == [0.5, 0.5, 1.0, 7.5]


@pytest.mark.parametrize("period_s", [0, 0.0, -1, float("nan")])
def test_a_period_that_is_no_time_is_refused(period_s: float) -> None:
    """It would be due again at once, for ever, and hold the loop."""
    with pytest.raises(ValueError, match="more than 0 s"):
        Timers().every(period_s, lambda: None, 0.0)
