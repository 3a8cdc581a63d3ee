"""Finds the call that held the interpreter's lock while the process stood still.

Afterwards: nobody could look meanwhile. Pure but for what it asks: which calls are under way, whom to tell. Any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamlet.components.tuples import Tuple
from streamlet.runtime.tasks.in_hand import shortened
from streamlet.runtime.tasks.user_errors import held_lock, someone_held_lock
from streamlet.runtime.worker.held_watch import TellOfTask
from streamlet.runtime.worker.standstill import MOST_KEPT, Stood


class UserCall(NamedTuple):
    """A call of user code that is under way."""

    thread: int
    """The native id of its thread."""
    task: int
    name: str
    since: float
    tup: Tuple | None = None
    """What it is about, where it is on a thread of a bolt's own."""


def suspects(stood: Stood, calls: Sequence[UserCall]) -> list[UserCall]:
    """Return the calls that may have held the lock: those of threads that did not wait for it."""
    # One that began while others could run again is younger than most of that time.
    long_s = (stood.ended - stood.began) / 2
    found = [call for call in calls if call.thread not in stood.waited]
    return [call for call in found if stood.within_s(call.since, stood.ended) >= long_s]


class LockWatch:
    """Names who held the interpreter's lock for as long as a hang.

    A call on the loop tells so itself when it is over, and asks here. ``under_way`` is called as soon as somebody could
    look, ``tell`` on that thread.
    """

    def __init__(
        self,
        loop_thread: int,
        limit_s: float,
        under_way: Callable[[], Sequence[UserCall]],
        name: Callable[[int], str],
        tell: TellOfTask,
    ) -> None:
        self._loop_thread = loop_thread
        self._limit_s = limit_s
        self._under_way = under_way
        self._name = name
        self._tell = tell
        self._by_loop: deque[Stood] = deque(maxlen=MOST_KEPT)

    def stood(self, one: Stood) -> int | None:
        """Note a standstill; return the task whose call held the lock, None where that is not known."""
        if not one.held:
            return None
        found = suspects(one, self._under_way())
        # Rule: name only a call whose thread alone did not ask for the lock. A call that waits for an answer asks for
        # nothing either: of two such calls one would be blamed for the other.
        if len({call.thread for call in found}) != 1:
            self._tell_of_several(one, found)
            return None
        if found[0].thread == self._loop_thread:
            self._by_loop.append(one)
        else:
            self._tell_of_thread(one, found)
        return found[0].task

    def by_loop_s(self, began: float, ended: float) -> float:
        """Return the seconds while a call of the loop held the lock."""
        return sum(one.within_s(began, ended) for one in [*self._by_loop])

    def _tell_of_thread(self, one: Stood, calls: Sequence[UserCall]) -> None:
        first = min(calls, key=lambda call: call.since)
        held_s = one.within_s(first.since, one.ended)
        if held_s < self._limit_s:
            return
        tup, took_s, on = first.tup, held_s, f" on one of {len(calls):,} tuples"
        if len(calls) == 1 and tup is not None:
            took_s, on = one.ended - first.since, f" on a tuple from {tup.component}, {shortened(tup.values)}"
        name = self._name(first.task)
        self._tell("warning", held_lock(name, first.task, first.name, took_s, on, held_s), name, first.task)

    def _tell_of_several(self, one: Stood, calls: Sequence[UserCall]) -> None:
        if one.ended - one.began >= self._limit_s:
            under_way = [*dict.fromkeys(f"{call.name} of {self._name(call.task)} (task {call.task})" for call in calls)]
            self._tell("warning", someone_held_lock(one.ended - one.began, under_way), "", 0)
