"""The untracked tuples of one worker, by task, in memory that outlives its process.

Behind the page of ``in_hand`` in the same file: for each task of the run how many tuples this worker has worked off as
that task, how many it has emitted to that task, and how many its own threads have handed over that are not emitted
yet. What a dead worker took along is what went to it less what it had worked off, and what it emitted less what others
had read (``backends.untracked_losses``). Pure: a buffer in, numbers out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamlet.runtime.tasks.in_hand import PAGE_BYTES

_COLUMNS = 3


class Counted(NamedTuple):
    """One look at a worker's counts, by task; zeros left out."""

    done: dict[int, int]
    emitted: dict[int, int]
    handed: dict[int, int]


def page_size(tasks: int) -> int:
    """Return the bytes of a page and of the counts behind it."""
    return PAGE_BYTES + 8 * _COLUMNS * tasks


class UntrackedCounts:
    """Three numbers a task, at its id less 1. Each is changed by one thread at a time, and read by any."""

    def __init__(self, tasks: int, page: Any = None) -> None:
        """Take the memory behind a page; without one, memory of this process."""
        room = bytearray(8 * _COLUMNS * tasks) if page is None else memoryview(page)[PAGE_BYTES : page_size(tasks)]
        words = memoryview(room).cast("Q")
        self.done, self.emitted, self.handed = (words[at * tasks : (at + 1) * tasks] for at in range(_COLUMNS))

    def look(self) -> Counted:
        """Return all numbers as they are. Any thread."""
        return Counted(*({at + 1: count for at, count in enumerate(column) if count} for column in self._columns()))

    def _columns(self) -> tuple[memoryview, memoryview, memoryview]:
        return self.done, self.emitted, self.handed
