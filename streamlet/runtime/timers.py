"""Periodic acts of a loop, by due time. Pure: the loop brings the clock."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


class Timers:
    """Acts that run every so many seconds. A late one runs once, however many periods it missed."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, float, Callable[[], None]]] = []
        self._order = 0

    def every(self, period_s: float, act: Callable[[], None], now: float) -> None:
        """Run ``act`` each ``period_s``, first one period from now."""
        self._order += 1
        heapq.heappush(self._heap, (now + period_s, self._order, period_s, act))

    def run_due(self, now: float) -> None:
        """Run what is due at ``now``, earliest first."""
        while self._heap and self._heap[0][0] <= now:
            _, order, period_s, act = heapq.heappop(self._heap)
            heapq.heappush(self._heap, (now + period_s, order, period_s, act))
            act()

    def next_due(self) -> float:
        """When to come back (seconds, monotonic); infinity if there is nothing to come back for."""
        return self._heap[0][0] if self._heap else math.inf
