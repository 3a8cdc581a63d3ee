"""The one source of time. Pure code is given numbers; shells are given a Clock; tests jump a ManualClock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds for intervals, wall milliseconds for what leaves the process."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""


class SystemClock:
    """The machine's clocks. Any thread."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to; for tests and for the deterministic ``inline`` backend."""

    def __init__(self, start_s: float = 0.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_s = start_s
        self._wall_offset_ms = wall_ms

    def monotonic(self) -> float:
        return self._now_s

    def wall_ms(self) -> int:
        return self._wall_offset_ms + int(self._now_s * 1000)

    def advance(self, seconds: float) -> None:
        """Move forward; a clock never goes back."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back ({seconds} s)")
        self._now_s += seconds
