"""Decides who waits while what it feeds is full.

Full is a task with more in the inbox than its mark, until half of it is done; a link with more than its mark; and a
bolt that holds as many tuples as it may. Then all spouts pause, and bolts wait that emit to it, in other workers by a
``full`` in a frame. Lives on the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from itertools import chain

from streamlet.base.clock import Clock
from streamlet.model.plan import Plan
from streamlet.runtime.links.links import Departures
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.emitter import WHOLE, Inbox
from streamlet.runtime.worker.one_by_one import OneByOne

FULL_HERE = "this worker is full"


def full_there(worker: int) -> str:
    """Return the reason of a pause while another worker is full."""
    return f"worker {worker} is full"


class BackPressure:
    """The full tasks, here and elsewhere, and the bolts that wait.

    ``resting``: tasks of bolts that want no tuples, kept by their tasks. ``pause`` and ``resume`` take a reason.
    """

    def __init__(
        self,
        plan: Plan,
        worker: int,
        inbox: Inbox,
        departures: Departures,
        resting: Set[int],
        clock: Clock,
        pause: Callable[[str], None],
        resume: Callable[[str], None],
        bounded: list[BoltTask],
    ) -> None:
        self.bounded = bounded
        """The bolts with ``max_unacked``, and those that answer for untracked tuples."""
        self.suspects = OneByOne()
        self.behind_full: Set[int] = frozenset()
        """Those that emit to a full task or a clogged link."""
        self.full_elsewhere: dict[int, list[int]] = {}
        self._inbox = inbox
        self._departures = departures
        self._asked_to_rest = resting
        self._clock = clock
        self._pause, self._resume = pause, resume
        depths = plan.depths()
        self._ahead = {task.task_id: plan.ahead_of(task, depths) for task in plan.bolt_tasks if task.worker == worker}
        self._worker_of = {task.task_id: task.worker for task in plan.tasks}
        self._others = frozenset(range(plan.workers)) - {worker}
        self._full: list[int] = []
        self._rested: Set[int] = frozenset()
        """The bolts that rested when the order of the inbox was chosen."""

    def look(self) -> None:
        """Look at all marks; let spouts and bolts wait, or go on."""
        departures = self._departures
        if self.rests_changed:
            self.order()
        if not (self._inbox.grown or self._full or departures.waiting or departures.clogged):
            return
        # A worker reports each full task, not only itself: if bolts waited for whole workers, two workers that are full
        # of tuples for each other's bolts would wait for each other.
        tasks, above = self._inbox.weigh()
        changed = departures.look()
        full = sorted(tasks) + [WHOLE] * (above or bool(departures.clogged))
        if changed or full != self._full:
            self._full = full
            self._tell()
            self.order()

    def _tell(self) -> None:
        (self._pause if self._full else self._resume)(FULL_HERE)
        for worker in self._others:
            self._departures.to(worker).full = self._full

    def tell_again(self) -> None:
        """Tell the other workers again which tasks are full here."""
        if self._full:  # one with a new link does not know it
            self._tell()

    def heard(self, worker: int, full: list[int]) -> None:
        """Take over which tasks of another worker are full."""
        self.full_elsewhere[worker] = full
        (self._pause if full else self._resume)(full_there(worker))
        self.order()

    def forget(self, worker: int) -> None:
        """Forget which tasks were full in a worker whose link was lost."""
        # Rule: "I am full" may be the last word of a lost link, and "no longer full" may be lost with it: a pause that
        # nobody takes back would stop the run. So these marks are void, those just received too.
        self.full_elsewhere.pop(worker, None)
        self._resume(full_there(worker))

    def order(self) -> None:
        """Let bolts wait while they emit to full tasks or clogged links."""
        # A bolt waits for deeper ones only (`Plan.ahead_of`), never for one that its tuples go back to: two bolts of a
        # cycle that wait for each other would wait for ever. So the deepest bolt with work waits for nobody.
        full = {*self._full, *chain.from_iterable(self.full_elsewhere.values())}
        full.update(task for task, worker in self._worker_of.items() if worker in self._departures.clogged)
        full |= self._departures.held
        waits = {task for task, ahead in self._ahead.items() if not full.isdisjoint(ahead)}
        # One that rests waits for the world outside, which waits for none of our queues: nothing can lock by it.
        self.behind_full = waits
        self._rested = self._resting()
        self._inbox.order(waits | self._rested)

    @property
    def rests_changed(self) -> bool:
        """Whether other bolts rest now than when bolts were last ordered."""
        return self._resting() != self._rested

    def _resting(self) -> Set[int]:
        """Return the bolts that want, or may have, no tuples for now."""
        rests = frozenset(self._asked_to_rest)
        if not self.bounded and not self.suspects:
            return rests
        now = self._clock.monotonic()
        full = {bolt.task_id for bolt in self.bounded if bolt.held.is_full(now)}
        return rests | full | self.suspects.waiting(now)
