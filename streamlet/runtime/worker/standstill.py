"""Finds times while the process stood still.

It was stopped, or code held the interpreter's lock: no call outside of that code could go on, and no thread could look.
"""

from __future__ import annotations

import math
import resource
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

MOST_KEPT = 16
"""Such times that are kept, the latest."""

WAKES, WAITS = 20, 50
"""Fewer wake-ups a second are of a process without a thread that waits for the lock, or of a thread that does not."""


def _woken() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def _thread_woken(thread: int) -> int:
    try:
        status = Path(f"/proc/self/task/{thread}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
    except (OSError, ValueError, IndexError):
        return 0


class Stood(NamedTuple):
    """A time while the process stood still."""

    began: float
    ended: float
    held: bool
    """Whether it was not stopped: threads waited for the interpreter's lock."""
    by_loop: bool
    """Whether the loop's thread was surely none of those."""


def gap_of(most_s: float, period_s: float, limit_s: float) -> float:
    """Return the seconds after which a look each ``period_s`` is missed: ``most_s``, less where a call hangs soon."""
    return min(most_s, max(2 * period_s, limit_s / 2))


class Standstill:
    """The latest times while nobody could look. Made on the loop's thread.

    Somebody looks often, and says so; others may look, too. ``stood`` takes beginning and end of each such time. Any
    thread.
    """

    def __init__(
        self,
        stood: Callable[[float, float], None] = lambda began, ended: None,
        woken: Callable[[], int] = _woken,
        loop_woken: Callable[[], int] | None = None,
    ) -> None:
        """Begin. ``woken`` and ``loop_woken`` count how often the process, and the loop's thread, woke up.

        They return 0 where the system does not count that.
        """
        self._stood = stood
        self._woken = woken
        self._loop_woken = loop_woken or partial(_thread_woken, threading.get_native_id())
        self._wakes = self._loop_wakes = 0
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
            looked, self._looked = self._looked, now
            before, self._wakes = self._wakes, self._woken()
            of_loop, self._loop_wakes = self._loop_wakes, self._loop_woken()
            if now - looked > self._gap_s:
                # Rule: a process that was stopped has done nothing meanwhile, and none of its calls is to blame. Where
                # the lock is held, a thread that waits for it wakes up two hundred times a second to ask for it.
                stopped = 0 < self._wakes < before + WAKES * (now - looked)
                by_loop = 0 < self._loop_wakes < of_loop + WAITS * (now - looked)
                self._times.append(Stood(looked, now, not stopped, by_loop and not stopped))
                self._stood(looked, now)
            if gap_s is not None:
                self._gap_s = gap_s

    def within(self, began: float, ended: float) -> list[tuple[float, float]]:
        """Return the parts of a time while the process stood still."""
        return [(max(one.began, began), min(one.ended, ended)) for one in self._among(began, ended)]

    def held_s(self, began: float, ended: float) -> tuple[float, bool]:
        """Return the seconds of a time while the interpreter's lock was held.

        And whether surely the loop's thread held it. Others waited for it, and nobody could look.
        """
        held = [one for one in self._among(began, ended) if one.held]
        seconds = sum(min(one.ended, ended) - max(one.began, began) for one in held)
        return seconds, all(one.by_loop for one in held)

    def _among(self, began: float, ended: float) -> list[Stood]:
        return [one for one in [*self._times] if one.began < ended and one.ended > began]
