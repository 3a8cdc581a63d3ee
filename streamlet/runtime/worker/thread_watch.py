"""Tells of emits of components' own threads that were refused. On the loop's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from streamlet.base.errors import text_of
from streamlet.components.bolt import Bolt
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.building import LiveTask
from streamlet.runtime.tasks.other_threads import ENDED, FULL, RefusedEmits
from streamlet.runtime.worker.held_watch import TellOfTask

LOOK_S = 1.0
"""Seconds between two looks."""

TELL_AGAIN = 10
"""Factor on the refused rows from one line of a kind to the next."""


class ThreadWatch:
    """Tells of refused emits of threads, and of work nobody waits for."""

    def __init__(self, tell: TellOfTask, counted: Callable[[LiveTask], None] = lambda live: None) -> None:
        """Begin. ``counted`` is called for a task when its refused emits are in its counters."""
        self._tell = tell
        self._counted = counted
        self._warned: set[int] = set()
        """Tasks with a warning to settle their tuples by hand."""
        self._rows: dict[tuple[int, str], int] = {}
        """By task and kind of reason, the rows that have been refused."""
        self._told: dict[tuple[int, str], int] = {}
        """The rows of those that were told last."""

    def look(self, tasks: Iterable[LiveTask]) -> None:
        """Tell of new refusals, and of new bolts whose threads emit."""
        for live in tasks:
            if live.task.calls.used:
                self._look_at(live)

    def _look_at(self, live: LiveTask) -> None:
        bolt = live.component if isinstance(live.component, Bolt) else None
        if bolt is not None and live.task.calls.emitted and bolt.auto_ack and not bolt.answers_for_untracked:
            self._warn(live)
        taken = live.task.calls.take_refused()
        for refused in taken:
            if bolt is None:
                if refused.kind != ENDED:  # that is how a spout's thread learns of the end
                    self._tell_refused(live, refused)
            elif refused.kind == ENDED:
                live.task.stats.lost += refused.gone
                self._tell_refused(live, refused)
            elif refused.kind == FULL:
                self._tell_refused(live, refused)
            elif not bolt.answers_for_untracked:  # one that does has failed the tuple of the call
                cast(BoltTask, live.task).bolt_emits.give_up_refused(refused)
        if taken:
            self._counted(live)
            live.task.calls.note_refused_taken()

    def _warn(self, live: LiveTask) -> None:
        if live.plan.task_id in self._warned:
            return
        self._warned.add(live.plan.task_id)
        self._say(
            live,
            f"{self._name(live)} emits on a thread of its own, and auto_ack acks its tuples when process returns. A "
            "run waits for no work that goes on after that, and sends none of it again. If those threads work on what "
            "process was given, set auto_ack = False and ack there, or make it a ThreadedBolt: `streamlet docs "
            "slow-bolts`.",
        )

    def _tell_refused(self, live: LiveTask, refused: RefusedEmits) -> None:
        kind = live.plan.task_id, refused.kind
        rows = self._rows[kind] = self._rows.get(kind, 0) + refused.rows
        if rows < TELL_AGAIN * self._told.get(kind, 0):
            return
        self._told[kind] = rows
        self._say(
            live,
            f"{self._name(live)}: {rows:,} tuple(s) that it emitted on threads of its own were refused; the caller was "
            f"told so, though a pool keeps that to itself. The latest: {text_of(refused.error)}",
        )

    def _name(self, live: LiveTask) -> str:
        return f"{live.plan.component} (task {live.plan.task_id})"

    def _say(self, live: LiveTask, text: str) -> None:
        self._tell("warning", text, live.plan.component, live.plan.task_id)
