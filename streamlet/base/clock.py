"""The one source of time. Pure code is given numbers; shells are given a Clock; tests jump a ManualClock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds for intervals, wall milliseconds for what leaves the process."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; they never go back."""

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""


class SystemClock:
    """The machine's clocks. Any thread."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class BootClock(SystemClock):
    """Count the seconds while the machine is suspended, too.

    Where the platform can. For leases: who granted one counts on meanwhile.
    """

    # Rule: a lease is counted by this one. Linux' CLOCK_MONOTONIC goes on while a process stands still (SIGSTOP), but
    # stops while the machine sleeps. One that wakes after hours would take its lease for valid, and emit beside the run
    # that has its place by then. Not for the deadlines within a run: its processes sleep together.

    def monotonic(self) -> float:
        return _boot_s()


def _boot_s() -> float:
    which = getattr(time, "CLOCK_BOOTTIME", None)  # Linux has it
    return time.monotonic() if which is None else time.clock_gettime(which)


def through_suspend(clock: Clock) -> Clock:
    """Return a clock that counts suspended time; a given one stays."""
    return BootClock() if type(clock) is SystemClock else clock


class AwakeClock:
    """Count the seconds while this process was awake.

    The time between two looks counts for ``longest_s`` at most. For deadlines of others: a process that was stopped
    (Ctrl-Z, a lid that was shut) could not hear them meanwhile. One thread.
    """

    def __init__(self, clock: Clock, longest_s: float) -> None:
        self._clock = clock
        self._longest_s = longest_s
        self._awake_s = self._looked_s = clock.monotonic()

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; they never go back."""
        now = self._clock.monotonic()
        self._awake_s += min(now - self._looked_s, self._longest_s)
        self._looked_s = now
        return self._awake_s


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
