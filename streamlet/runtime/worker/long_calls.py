"""Finds what a loop's components are at for too long, on the loop and beside it, and who kept others from going on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from streamlet.components.tuples import Tuple
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.building import LiveTask, WorkerContext
from streamlet.runtime.tasks.held_tuples import LONG_S
from streamlet.runtime.tasks.in_hand import CallWatch
from streamlet.runtime.tasks.user_errors import held_lock
from streamlet.runtime.worker.hang_watch import present_call
from streamlet.runtime.worker.held_watch import LOOKS, HeldWatch, TellOfTask
from streamlet.runtime.worker.lock_watch import LockWatch, UserCall
from streamlet.runtime.worker.standstill import Standstill, Stood
from streamlet.runtime.worker.timers import Timers


class LongCalls:
    """The calls of one loop's components. Made on the loop's thread; any thread may look.

    ``bounded``: the bolts that may have calls on threads of their own, added as they are built.
    """

    def __init__(
        self,
        shared: WorkerContext,
        tasks: Mapping[int, LiveTask],
        bounded: Sequence[BoltTask],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """Begin. ``post`` runs a call on the loop's thread, soon."""
        self._shared, self._tasks, self._bounded = shared, tasks, bounded
        self._thread = threading.get_native_id()
        self._limit_s: float = shared.conf["streamlet.task.hang.secs"]
        self.watch = CallWatch(min(LONG_S, self._limit_s), self.look_back, self._look_if_missed)
        self.standstill = Standstill(self._stood, threads=self._threads, clock=shared.clock.monotonic)
        self._locks = LockWatch(
            self._thread,
            self._limit_s,
            self._under_way,
            self._component_of,
            # Soon, on that thread: in one process nobody else may tell.
            lambda *told: post(partial(shared.tell, *told)),
        )
        self._held: HeldWatch | None = None
        self._at_end: list[dict[str, Any]] | None = None
        """The rows of the moment when components began to be closed."""

    def begin(self, timers: Timers, now: float) -> None:
        """Look from the loop, too, now that all bolts are built."""
        answering = [bolt for bolt in self._bounded if bolt.bolt.answers_for_untracked]
        if answering:
            self._held = HeldWatch(answering, self._limit_s, self._shared.tell, self.standstill)
            timers.every(self._limit_s / LOOKS, self._look_from_loop, now)

    def _look_from_loop(self) -> None:
        assert self._held is not None
        self._held.look_if_due(self._shared.clock.monotonic())
        self._held.note_stuck()

    def look(self, gap_s: float, tell: TellOfTask | None = None) -> None:
        """Look beside the loop. Any thread; of those beside it, more often than each ``gap_s``."""
        now = self._shared.clock.monotonic()
        # Rule: the loop's thread is never the one that looks often. It may hold the lock itself, and a thread that does
        # not wait for it makes the process look as if it had been stopped.
        self.standstill.look(now, None if threading.get_native_id() == self._thread else gap_s)
        if self._held is not None:
            self._held.look_if_due(now, tell)

    def _look_if_missed(self) -> None:
        """Look if the thread that looks often has not done so. Any thread."""
        self.standstill.look_if_missed(self._shared.clock.monotonic())

    def is_over(self, task: int, call: str, began: float) -> None:
        """Look back at a call of the loop, if it took long."""
        if self._shared.clock.monotonic() - began >= self.watch.long_s:
            self.look_back(task, call, began, "")

    def look_back(self, task: int, call: str, began: float, on: str) -> float:
        """Look back at a long call; return its seconds of no progress."""
        now, name = self._shared.clock.monotonic(), self._component_of(task)
        self.standstill.look(now)
        for other in self._bounded:
            if other.task_id != task:
                other.held.note_behind(began, now)
        # Rule: who holds the interpreter's lock for as long as a hang is named by the loop itself, afterwards. While it
        # lasts no thread can look, and who looks first would find somebody else, or the stack of another call.
        held_s = self._locks.by_loop_s(began, now)
        if held_s >= self._limit_s:
            self._shared.tell("warning", held_lock(name, task, call, now - began, on, held_s), name, task)
        return self.standstill.kept_s(self._thread, began, now)

    def rows(self) -> list[dict[str, Any]]:
        """Return the tuples that bolts work on elsewhere for too long. Any thread."""
        if self._at_end is not None:
            return self._at_end
        return [] if self._held is None else self._held.rows(self._shared.clock.monotonic())

    def close(self) -> None:
        """Keep the rows as they are, before components are closed."""
        # Rule: the close of an AsyncBolt cancels a coroutine that awaits for ever, and nothing hangs any more. It is
        # what the drain waited for all the same, and the last words name it.
        self._at_end = self.rows()

    def stuck(self) -> tuple[int, Tuple, float] | None:
        """Return a task whose threads all hang, its oldest tuple, since when."""
        return None if self._held is None else self._held.noted_stuck()

    def _stood(self, one: Stood) -> None:
        """Count a standstill for no call elsewhere and no bolt. Any thread."""
        holder = self._locks.stood(one)
        for live in [*self._tasks.values()]:
            if isinstance(live.task, BoltTask):
                live.task.held.note_stood(one.began, one.ended, by_own_call=live.task.task_id == holder)

    def _threads(self) -> set[int]:
        """Return the threads that may hold the interpreter's lock. Any thread."""
        return {self._thread, *chain.from_iterable([*bolt.held.threads] for bolt in [*self._bounded])}

    def _under_way(self) -> list[UserCall]:
        """Return the calls under way, here and on threads of bolts. Any thread."""
        look, _ = present_call(self._shared.in_hand, self._tasks)
        calls = [UserCall(self._thread, look.task, look.call, look.began)] if look.task else []
        for bolt in [*self._bounded]:
            calls += [
                UserCall(call.thread, bolt.task_id, "process", call.since, tup)
                for tup, call in [*bolt.held.calls.items()]
            ]
        return calls

    def _component_of(self, task_id: int) -> str:
        return self._shared.plan.tasks[task_id - 1].component
