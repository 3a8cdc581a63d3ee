"""Runs that wait for a worker's bolts: whose turn is next, and how much is held."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from streamlet.runtime.tasks.runs import Run
from streamlet.runtime.tasks.sizes import SampledSizes

FAIR = 8
"""One run in so many is the one that has waited longest, also while the deepest come first."""

MOST_MERGED = 4096
"""Tuples in a run that is long enough: its columns are kept until all of them are done."""

SHARES = 8
"""Most parts that the marks are divided into: tasks of a worker share them, and each may always hold some."""


class Work:
    """A run that waits for its bolt: rows to take slice by slice, and how many are left.

    ``row_bytes``: about what a row takes; ``number``: its place among all runs that came.
    """

    __slots__ = ("left", "number", "parted", "row_bytes", "rows", "run")

    def __init__(self, run: Run, row_bytes: int = 0, number: int = 0) -> None:
        self.run = run
        self.row_bytes = row_bytes
        self.number = number
        self.left = len(run.roots)
        self.parted = 0
        """Rows from the first on that no longer belong to a block (``BoltTask._give_each_row_an_edge``)."""
        self.rows = zip(run.roots, run.edges, run.values, strict=True)


class BoltQueue:
    """What waits for one bolt."""

    __slots__ = ("bytes", "tuples")

    def __init__(self) -> None:
        self.tuples = 0
        self.bytes = 0


class Inbox:
    """Runs that wait for a worker's bolts, and whose turn is next.

    ``most_tuples`` and ``most_bytes`` are the marks of all tasks together. ``by_depth``: the worker's bolt tasks,
    deepest first.

    Two orders. Usually runs are worked off as they came. When more is held than may be, or a bolt must wait because
    those it emits to hold too much, the deepest bolt comes first: what it works off makes room, while a bolt before it
    would only add. Every eighth turn goes to the run that has waited longest, so that a cycle starves nobody.

    Why no topology can lock. A bolt waits only for bolts that lie deeper than it (``Plan.depths``), never for one that
    its tuples go back to. So of all bolts that have something to do, the deepest waits for nobody: those after it hold
    nothing. News from other workers may be late, but each worker reads its links also while its bolts wait.
    """

    def __init__(
        self, by_depth: Sequence[int], most_tuples: int, most_bytes: int, merged: Collection[int] = ()
    ) -> None:
        self.tuples = 0
        self.bytes = 0
        self.grown = False
        """True after an ``add`` that went above a mark, until the next ``weigh``."""
        self.waits: Collection[int] = ()
        """Tasks that may not run now: those they emit to hold too much, a link is clogged, or they rest."""
        self._by_depth = by_depth
        self._most_tuples, self._most_bytes = most_tuples, most_bytes
        shares = min(max(len(by_depth), 1), SHARES)
        self._share_tuples, self._share_bytes = most_tuples // shares, most_bytes // shares
        self._sizes = SampledSizes()
        self._waiting = {task: BoltQueue() for task in by_depth}
        self._full: set[int] = set()
        self._above = False
        self._in_order: deque[Work] = deque()
        self._of_task: dict[int, deque[Work]] = {}
        """Work by task, while the deepest come first; ``_in_order`` is empty then."""
        self._turns = 0
        self._number = 0
        self._last: dict[int, Work | None] = dict.fromkeys(merged)
        """The latest work of each task whose runs are merged."""

    def __bool__(self) -> bool:
        return self.tuples > 0

    def __iter__(self) -> Iterator[Work]:
        """Yield the runs that wait, in no particular order. The rows that are left of each are its last ``left``."""
        return chain(self._in_order, *self._of_task.values())

    @property
    def deepest_first(self) -> bool:
        """Whether the deepest bolts come first, slice by slice."""
        return bool(self._of_task)

    @property
    def ready(self) -> bool:
        """Whether something waits that may run now."""
        return bool(self._in_order) or any(queue and task not in self.waits for task, queue in self._of_task.items())

    def add(self, run: Run) -> None:
        """Take in a run for a bolt of this worker."""
        count = len(run.roots)
        work = self._merge_into_latest(run) if self._last else None
        is_new = work is None
        if work is None:
            work = Work(run, self._sizes.of((run.source, run.stream), run.values), self._number)
            self._number += 1
        size = count * work.row_bytes
        waiting = self._waiting[run.target]
        waiting.tuples += count
        waiting.bytes += size
        self.tuples += count
        self.bytes += size
        if waiting.tuples > self._share_tuples or waiting.bytes > self._share_bytes or self.bytes > self._most_bytes:
            self.grown = True
        if is_new:
            if run.target in self._last:
                self._last[run.target] = work
            (self._of_task[run.target] if self._of_task else self._in_order).append(work)

    def _merge_into_latest(self, run: Run) -> Work | None:
        """Append a run to its task's latest, and return that.

        None where they are not of one sender and stream.
        """
        # Only to the latest: what a task receives keeps its order.
        last = self._last.get(run.target)
        if last is None or last.left <= 0:
            return None
        before = last.run
        if len(before.roots) >= MOST_MERGED or (before.source, before.stream, before.multi) != (
            run.source,
            run.stream,
            run.multi,
        ):
            return None
        before.roots.extend(run.roots)
        before.edges.extend(run.edges)
        before.values.extend(run.values)
        last.left += len(run.roots)
        return last

    def next(self) -> Work | None:
        """Return the run whose turn it is, or None: nothing waits, or all that do must wait for others."""
        if not self._of_task:
            return self._in_order[0] if self._in_order else None
        able = [self._of_task[task][0] for task in self._by_depth if self._of_task[task] and task not in self.waits]
        if not able:
            return None
        self._turns += 1
        return able[0] if self._turns % FAIR else min(able, key=lambda work: work.number)

    def ran(self, work: Work, before: int) -> None:
        """Note that a run was worked on, which had ``before`` tuples left; forget it if none is left now."""
        done = before - max(work.left, 0)
        waiting = self._waiting[work.run.target]
        waiting.tuples -= done
        waiting.bytes -= done * work.row_bytes
        self.tuples -= done
        self.bytes -= done * work.row_bytes
        if work.left <= 0:
            (self._of_task[work.run.target] if self._of_task else self._in_order).popleft()

    def weigh(self) -> tuple[frozenset[int], bool]:
        """Return the full tasks, and whether the inbox is full: from above a mark until half of it."""
        for task, waiting in self._waiting.items():
            over = 2 if task in self._full else 1
            if waiting.tuples * over > self._share_tuples or waiting.bytes * over > self._share_bytes:
                self._full.add(task)
            else:
                self._full.discard(task)
        over = 2 if self._above else 1
        self._above = self.tuples * over > self._most_tuples or self.bytes * over > self._most_bytes
        self.grown = False
        return frozenset(self._full), self._above

    def order(self, waits: Collection[int]) -> None:
        """Choose the order again: ``waits`` are the tasks that may not run now."""
        self.waits = waits
        deepest_first = self._above or bool(waits)
        if deepest_first and not self._of_task:
            self._of_task = {task: deque() for task in self._by_depth}
            for work in self._in_order:
                self._of_task[work.run.target].append(work)
            self._in_order.clear()
        elif self._of_task and not deepest_first:
            self._in_order.extend(sorted(chain(*self._of_task.values()), key=lambda work: work.number))
            self._of_task = {}
