"""Finds times while the process stood still.

It was stopped, or code held the interpreter's lock: no call outside of that code could go on, and no thread could look.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

MOST_KEPT = 16
"""Such times that are kept, the latest."""

WAKES, WAITS = 20, 50
"""Fewer wake-ups a second are of a process without a thread that waits for the lock, or of a thread that does not."""


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
    """Return the seconds after which a look each ``period_s`` is missed: ``most_s``, less where a call hangs soon.

    Two periods at least.
    """
    return min(most_s, max(2 * period_s, limit_s / 2))


class Standstill:
    """The latest times while nobody could look.

    Somebody looks often, and says so; others may look, too. ``stood`` takes each such time. Any thread.
    """

    def __init__(
        self,
        stood: Callable[[Stood], None] = lambda one: None,
        threads: Callable[[], Iterable[int]] = tuple,
        thread_woken: Callable[[int], int] = _thread_woken,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Begin. ``thread_woken`` counts how often one of the ``threads``, or the one that looks often, woke up.

        It returns 0 where the system does not count that. ``clock`` is the one that looks are timed by.
        """
        self._clock = clock
        self._stood = stood
        self._threads = threads
        self._thread_woken = thread_woken
        self._looker = 0
        """The native id of the thread that looks often."""
        self._wakes = 0
        """How often that had woken up at the last look."""
        self._wakes_of: dict[int, int] = {}
        self._then: tuple[float, dict[int, int]] = (math.inf, {})
        """When the one that looks often did so last, and the wakes of each thread by then."""
        self._rates: dict[int, float] = {}
        """Wakes a second of each thread at work: between two such looks."""
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
            before, before_of = self._wakes, self._wakes_of
            now = self._count_wakes(now)
            if now - looked > self._gap_s:
                # Rule: a process that was stopped has done nothing meanwhile, and none of its calls is to blame. Where
                # the lock is held, a thread that waits for it wakes up two hundred times a second to ask for it. Asked
                # of the thread that looks often: all others may have woken up for work before that time began.
                stopped = 0 < self._wakes < before + WAKES * (now - looked)
                self._times.append(one := Stood(looked, now, not stopped, self._waited(before_of, now - looked)))
                self._stood(one)
            if gap_s is not None:
                self._gap_s = gap_s
                self._note_rates(now)
            # Rule: a look is over when it has been told. Who asks meanwhile whether one is missing waits for its end: a
            # call that held the lock would else be over before it is looked for.
            self._looked = max(now, looked)

    def _count_wakes(self, now: float) -> float:
        """Count wakes again; return the time that they are of."""
        # Rule: the counts are of the time of the look. To read one lets others run, and one of these may take the lock:
        # with its time still to come and its wakes counted, the process looked as if it had been stopped.
        while True:
            self._wakes = self._thread_woken(self._looker)
            self._wakes_of = {one: self._thread_woken(one) for one in self._threads()}
            later = now if self._clock is None else self._clock()
            if later - now <= self._gap_s:
                return now
            now = later

    def _waited(self, before: Mapping[int, int], stood_s: float) -> frozenset[int]:
        """Return the threads that woke up far more often than for work."""
        # Rule: allow each thread what it wakes up for its work between two looks, for it may have done so before the
        # process stood. A loop that asks a service for each tuple was cleared of the lock that it held itself.
        often, work_s = WAITS * stood_s, self._gap_s / 2
        found = [(one, wakes - before.get(one, 0)) for one, wakes in self._wakes_of.items()]
        return frozenset(one for one, wakes in found if wakes >= often + work_s * self._rates.get(one, 0.0))

    def _note_rates(self, now: float) -> None:
        """Note how often threads wake up between two looks. On the thread that looks often."""
        began, then = self._then
        if began < now <= began + self._gap_s:  # else they woke up to ask for the lock
            wakes = {one: wakes - then[one] for one, wakes in self._wakes_of.items() if one in then}
            self._rates = {one: woken / (now - began) for one, woken in wakes.items()}
        self._then = (now, self._wakes_of)
        if self._looker != (me := threading.get_native_id()):
            self._looker, self._wakes = me, self._thread_woken(me)

    def look_if_missed(self, now: float) -> None:
        """Look where the one that looks often has not done so. At the price of a comparison."""
        if now - self._looked > self._gap_s:
            self.look(now)

    def kept_s(self, thread: int, began: float, ended: float) -> float:
        """Return the seconds while a thread surely could not go on.

        The process was stopped, or the thread waited for the lock.
        """
        return sum(one.within_s(began, ended) for one in [*self._times] if not one.held or thread in one.waited)
