"""Periodic acts of a loop, by due time. Pure: the loop brings the clock."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


class Timers:
    """Acts that run every so many seconds. A late one runs once, however late."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, float, Callable[[], None], bool]] = []
        self._order = 0

    def every(self, period_s: float, act: Callable[[], None], now: float, aligned: bool = False) -> None:
        """Run ``act`` each ``period_s``, first one period from now.

        ``aligned``: at the clock's multiples of the period instead, which are the same moments in every process of a
        machine. Raises ValueError for a period that is no time at all.
        """
        # Due again at the same moment, for ever: a period of 0 would hold the loop.
        if not period_s > 0:
            raise ValueError(f"a timer's period is more than 0 s, and not {period_s!r}")
        self._order += 1
        heapq.heappush(self._heap, (_next(now, period_s, aligned), self._order, period_s, act, aligned))

    def once(self, due: float, act: Callable[[], None]) -> None:
        """Run ``act`` one time, at ``due`` or later."""
        self._order += 1
        heapq.heappush(self._heap, (due, self._order, math.inf, act, False))

    def run_due(self, now: float) -> None:
        """Run every act that is due at ``now``, earliest first."""
        while self._heap and self._heap[0][0] <= now:
            _, order, period_s, act, aligned = heapq.heappop(self._heap)
            # Due again from now on, not from when it was due: after a long turn an act runs once, not once for each
            # period missed. Entered before it runs, so that an act that raises is not lost.
            if period_s < math.inf:
                heapq.heappush(self._heap, (_next(now, period_s, aligned), order, period_s, act, aligned))
            act()

    def next_due(self) -> float:
        """Return the next due time (seconds, monotonic), infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf


def next_multiple(now: float, period_s: float) -> float:
    """Return the first multiple of the period after ``now``."""
    return (math.floor(now / period_s) + 1) * period_s


def _next(now: float, period_s: float, aligned: bool) -> float:
    return next_multiple(now, period_s) if aligned else now + period_s
