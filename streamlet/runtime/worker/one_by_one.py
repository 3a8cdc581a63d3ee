"""Gives bolts under suspicion one tuple at a time: the next when the last is acked or failed.

A bolt that holds tuples works on them after ``process`` has returned: at a tick, or on threads of its own. If its
worker dies meanwhile, any of them may be why. So while one of the suspects holds a tuple, no suspect gets another, and
the next death has one possible cause. Pure but for the tasks it looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from streamlet.runtime.tasks.bolt_task import BoltTask

PATIENCE_S = 0.25
"""Seconds without a settled tuple after which suspects get as many again, at first ..."""

LONGEST_PATIENCE_S = 10.0
"""Seconds of the same at most, where a single tuple takes so long."""


class OneByOne:
    """Chooses which of a worker's bolts wait. Lives on the loop's thread."""

    def __init__(self) -> None:
        self._suspects: dict[int, BoltTask] = {}
        self._until = 0.0
        self._room = 1
        """Tuples that all suspects together may hold."""
        self._patience_s = PATIENCE_S
        self._settled = 0
        self._since = 0.0
        """When a suspect last settled something, held nothing, or got more room."""

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
        self._until, self._since = now + seconds, now
        self._room, self._settled = 1, self._count()
        for task in self._suspects.values():
            task.slices.be_careful(self._until)
            task.held.allowed = 1 if task.works_elsewhere else task.held.most

    def waiting(self, now: float) -> Set[int]:
        """Return the suspects that get nothing for now."""
        if now >= self._until:
            for task in self._suspects.values():
                task.held.allowed = task.held.most
            self._suspects.clear()
        # Rule: only those that work outside of `process` wait. One that keeps tuples until it has fifty is in no danger
        # meanwhile, and might wait for them for ever.
        elsewhere = [task for task in self._suspects.values() if task.works_elsewhere]
        held = sum(len(task.held) for task in elsewhere)
        self._set_room(held, now)
        for task in elsewhere:  # in case that it gets all that is left
            task.held.allowed = max(1, len(task.held) + self._room - held)
        return frozenset() if held < self._room else self._suspects.keys()

    def _set_room(self, held: int, now: float) -> None:
        # Rule: where no single tuple is settled all suspects get more, doubled each time. One that writes fifty at
        # once, or joins what belongs together, would hold its tuples for the whole time, and no other got any. Where
        # one is settled by itself it was only slow: they go back to one, with more patience.
        settled = self._count() - self._settled
        self._settled += settled
        if settled == 1 and self._room > 1:
            self._room = 1
            self._patience_s = min(2 * max(now - self._since, self._patience_s), LONGEST_PATIENCE_S)
        if settled or not held:
            self._since = now
        elif held >= self._room and now - self._since >= self._patience_s:
            self._room, self._since = 2 * max(self._room, held), now

    def _count(self) -> int:
        """Count what those have settled that wait: another acks one tuple after the other, and that says nothing."""
        waiting = [task.stats for task in self._suspects.values() if task.works_elsewhere]
        return sum(stats.acked + stats.failed for stats in waiting)
