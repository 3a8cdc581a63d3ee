"""The untracked tuples of one worker, by task, in memory that outlives its process; and what its tasks lost.

Behind the page of ``in_hand`` in the same file: for each task of the run how many tuples this worker has worked off as
that task, how many it has emitted to that task, and how many emits of the task have returned that are not among these
yet: handed over by its threads, or in outboxes that the loop has not emptied. What a dead worker took along is what
went to it less what it had worked off, and what it emitted less what others had read (``backends.untracked_losses``).
Beside them stands what the task has given up, kept elsewhere and lost, how many emits of its threads were refused that
are not counted there yet, and a spout's open trees. Pure: a buffer in, numbers out.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from streamlet.runtime.tasks.in_hand import PAGE_BYTES

_COLUMNS = 9


class Counted(NamedTuple):
    """One look at a worker's counts, by task; zeros left out."""

    done: dict[int, int]
    emitted: dict[int, int]
    handed: dict[int, int]


class FinalCounts(NamedTuple):
    """What nobody sends again, by task; zeros left out."""

    given_up: dict[int, int]
    """Refused emits among them."""
    kept: dict[int, int]
    """Of those given up, the ones that a spout keeps elsewhere."""
    lost: dict[int, int]


def page_size(tasks: int) -> int:
    """Return the bytes of a page and of the counts behind it."""
    return PAGE_BYTES + 8 * _COLUMNS * tasks


class TaskCells(NamedTuple):
    """The numbers of one task that it notes itself, a cell each."""

    handed: memoryview
    """Untracked rows that its threads have handed over and the loop has not collected. Changed under their lock."""
    in_outboxes: memoryview
    """Untracked rows in its outboxes, but for those of threads; of a bolt, those that no tuple in hand covers."""
    refused: memoryview
    """Rows of threads that were refused for good and are counted nowhere else yet. Changed under their lock."""


class UntrackedCounts:
    """Nine numbers a task, at its id less 1. Each is changed by one thread at a time, and read by any."""

    def __init__(self, tasks: int, page: Any = None) -> None:
        """Take the memory behind a page; without one, memory of this process."""
        room = bytearray(8 * _COLUMNS * tasks) if page is None else memoryview(page)[PAGE_BYTES : page_size(tasks)]
        words = memoryview(room).cast("Q")
        columns = [words[at * tasks : (at + 1) * tasks] for at in range(_COLUMNS)]
        self.done, self.emitted, self.handed, self.in_outboxes = columns[:4]
        self.given_up, self.kept, self.lost, self.refused, self.open = columns[4:]

    def cells_of(self, task_id: int) -> TaskCells:
        """Return the cells that a task writes itself."""
        own = slice(task_id - 1, task_id)
        return TaskCells(self.handed[own], self.in_outboxes[own], self.refused[own])

    def look(self) -> Counted:
        """Return the numbers of untracked tuples as they are. Any thread."""
        waiting = Counter(_by_task(self.handed)) + Counter(_by_task(self.in_outboxes))
        return Counted(_by_task(self.done), _by_task(self.emitted), dict(waiting))

    def note_final(self, task_id: int, given_up: int, kept: int, lost: int) -> None:
        """Note a task's messages that nobody sends again."""
        # Rule: those that are kept elsewhere first. A death in between must leave none that looks as if it was not.
        at = task_id - 1
        self.kept[at] = kept
        self.given_up[at], self.lost[at] = given_up, lost

    def look_at_final(self) -> FinalCounts:
        """Return what nobody sends again, as it is. Any thread."""
        given_up = Counter(_by_task(self.given_up)) + Counter(_by_task(self.refused))
        return FinalCounts(dict(given_up), _by_task(self.kept), _by_task(self.lost))

    def note_open(self, task_id: int, messages: int) -> None:
        """Note how many messages of a task are unfinished."""
        self.open[task_id - 1] = messages

    def look_at_open(self) -> dict[int, int]:
        """Return the open messages of each spout's task, zeros left out. Any thread."""
        return _by_task(self.open)


def cells_apart() -> TaskCells:
    """Return cells on no page."""
    return UntrackedCounts(1).cells_of(1)


def _by_task(column: memoryview) -> dict[int, int]:
    return {at + 1: count for at, count in enumerate(column) if count}
