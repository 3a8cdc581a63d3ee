"""Finds times while the process stood still.

It was stopped, or code held the interpreter's lock: no call outside of that code could go on, and no thread could look.
"""

from __future__ import annotations

import math
import os
import resource
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

MOST_KEPT = 16
"""Such times that are kept, the latest."""

WAKES, WAITS = 20, 50
"""Fewer wake-ups a second are of a process without a thread that waits for the lock, or of a thread that does not."""


def _woken() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def _thread_woken(thread: int) -> int:
    try:
        file = os.open(f"/proc/self/task/{thread}/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.read(file, 4096)
        finally:
            os.close(file)
        return int(status.partition(b"\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
    except (OSError, ValueError, IndexError):
        return 0


class Stood(NamedTuple):
    """A time while the process stood still."""

    began: float
    ended: float
    held: bool
    """Whether it was not stopped: threads waited for the interpreter's lock."""
    waited: frozenset[int]
    """The threads that surely were among those, by their native ids."""

    def within_s(self, began: float, ended: float) -> float:
        """Return how much of it lies in a time."""
        return max(0.0, min(self.ended, ended) - max(self.began, began))


def gap_of(most_s: float, period_s: float, limit_s: float) -> float:
    """Return the seconds after which a look each ``period_s`` is missed: ``most_s``, less where a call hangs soon."""
    return min(most_s, max(2 * period_s, limit_s / 2))


class Standstill:
    """The latest times while nobody could look.

    Somebody looks often, and says so; others may look, too. ``stood`` takes each such time. Any thread.
    """

    def __init__(
        self,
        stood: Callable[[Stood], None] = lambda one: None,
        woken: Callable[[], int] = _woken,
        threads: Callable[[], Iterable[int]] = tuple,
        thread_woken: Callable[[int], int] = _thread_woken,
    ) -> None:
        """Begin. ``woken`` and ``thread_woken`` count how often the process, and each of the ``threads``, woke up.

        They return 0 where the system does not count that.
        """
        self._stood = stood
        self._woken = woken
        self._threads = threads
        self._thread_woken = thread_woken
        self._wakes = 0
        self._wakes_of: dict[int, int] = {}
        self._gap_s = math.inf
        self._looked = math.inf
        self._times: deque[Stood] = deque(maxlen=MOST_KEPT)
        self._looks = threading.Lock()

    def look(self, now: float, gap_s: float | None = None) -> None:
        """Look, and note a time that was long without one.

        ``gap_s``: the caller looks so often that a longer time without a look is one while the process stood still.
        """
        # Rule: from the first look of the one that looks often, and before any call is judged by its age. The first
        # thread that runs after the lock was held is seldom that one: it would name another who had a call under way.
        with self._looks:
            looked = self._looked if self._looked < math.inf else now
            before, self._wakes = self._wakes, self._woken()
            before_of, self._wakes_of = self._wakes_of, {one: self._thread_woken(one) for one in self._threads()}
            if now - looked > self._gap_s:
                # Rule: a process that was stopped has done nothing meanwhile, and none of its calls is to blame. Where
                # the lock is held, a thread that waits for it wakes up two hundred times a second to ask for it.
                stopped = 0 < self._wakes < before + WAKES * (now - looked)
                often = WAITS * (now - looked)
                waited = [one for one, wakes in self._wakes_of.items() if wakes >= before_of.get(one, 0) + often]
                self._times.append(one := Stood(looked, now, not stopped, frozenset(waited)))
                self._stood(one)
            if gap_s is not None:
                self._gap_s = gap_s
            # Rule: a look is over when it has been told. Who asks meanwhile whether one is missing waits for its end: a
            # call that held the lock would else be over before it is looked for.
            self._looked = max(now, looked)

    def look_if_missed(self, now: float) -> None:
        """Look where the one that looks often has not done so. At the price of a comparison."""
        if now - self._looked > self._gap_s:
            self.look(now)

    def kept_s(self, thread: int, began: float, ended: float) -> float:
        """Return the seconds while a thread surely could not go on.

        The process was stopped, or the thread waited for the lock.
        """
        return sum(one.within_s(began, ended) for one in [*self._times] if not one.held or thread in one.waited)
