"""Gives bolts under suspicion one tuple at a time: the next when the last is acked or failed.

A bolt that holds tuples works on them after ``process`` has returned: at a tick, or on threads of its own. If its
worker dies meanwhile, any of them may be why. So while one of the suspects holds a tuple, no suspect gets another, and
the next death has one possible cause. Pure but for the tasks it looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from streamlet.runtime.tasks.bolt_task import BoltTask

PATIENCE_S = 1.0
"""Seconds that a suspect may settle none of what it holds before it gets as many again."""


class OneByOne:
    """Chooses which of a worker's bolts wait. Lives on the loop's thread."""

    def __init__(self) -> None:
        self._suspects: dict[int, BoltTask] = {}
        self._until = 0.0
        self._settled = (0, 0.0)
        """How many tuples the suspects had settled when that was last more, and the time."""

    def __bool__(self) -> bool:
        return bool(self._suspects)

    def __contains__(self, task_id: int) -> bool:
        return task_id in self._suspects

    def suspect(self, tasks: Iterable[BoltTask], now: float, seconds: float) -> None:
        """Give these and the earlier suspects one tuple at a time."""
        found = {task.task_id: task for task in tasks}
        if not found:
            return
        self._suspects.update(found)
        self._until = now + seconds
        self._settled = (self._count(), now)
        for task in self._suspects.values():
            task.be_careful(self._until)
            task.may_hold = 1

    def waiting(self, now: float) -> Set[int]:
        """Return the suspects that get nothing for now."""
        if now >= self._until:
            for task in self._suspects.values():
                task.may_hold = task.max_unacked
            self._suspects.clear()
        holders = [task for task in self._suspects.values() if task.held]
        if not holders:
            return frozenset()
        self._widen(holders, now)
        may_go_on = {task.task_id for task in holders if len(holders) == 1 and len(task.held) < task.may_hold}
        return self._suspects.keys() - may_go_on

    def _widen(self, holders: list[BoltTask], now: float) -> None:
        # Rule: a bolt that settles no single tuple gets more, doubled each time. One that writes fifty at once, or
        # joins what belongs together, would else hold its one tuple until that has timed out, and so would all others.
        settled = self._count()
        if settled > self._settled[0]:
            self._settled = (settled, now)
        elif now - self._settled[1] >= PATIENCE_S:
            self._settled = (settled, now)
            for task in holders:
                task.may_hold = 2 * max(task.may_hold, len(task.held))

    def _count(self) -> int:
        return sum(task.stats.acked + task.stats.failed for task in self._suspects.values())
