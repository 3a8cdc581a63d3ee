"""From an emitted row to the turn of its receiver: what a task emits, and what waits for a bolt.

The way of a row: ``Emitter.routes`` finds the stream, ``Emitter.checked`` copies the values, the groupings of the
stream (``Pick``) choose the ``Outbox`` of each receiving task, and when the loop's turn ends an outbox becomes runs
(``Run``), which leave this worker in an ``Outgoing`` or wait in its ``Inbox`` as ``Work``.

This is the hottest code of all: it runs for every tuple. So all look-ups happen when a task's closure is built, a tuple
with plain values passes one loop of type tests, and a row goes into an outbox with one call. Deliberately absent here:
anchors, edges and roots, which are the tasks' (``bolt_task``, ``spout_task``), and any waiting in an emit: a full inbox
or link keeps a bolt or spout from its next turn.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, compress, cycle, islice, repeat
from operator import and_, itemgetter
from sys import getsizeof
from typing import Any, NamedTuple, TypeVar

from streamlet.base.chance import uniform
from streamlet.base.errors import BadEmit
from streamlet.components.columns import Columns, Rows
from streamlet.components.spout import FailureCause
from streamlet.components.tuples import CONTAINERS, NO_ROWS, value_bytes
from streamlet.model.grouping import Grouping
from streamlet.model.stream import DEFAULT_STREAM, Stream
from streamlet.runtime.tasks.values import INT_MAX, INT_MIN, PLAIN, key_hash, travelling
from streamlet.tracking.census import Answer, Ask
from streamlet.tracking.roots import LAST_TRY, is_last_try
from streamlet.tracking.shared_roots import Root

CACHED_KEYS = 65_536
"""Keys whose task a fields grouping remembers, before it forgets all and starts again."""

CACHED_KEY_BYTES = 256
"""Longest text or bytes that is remembered; a longer one is hashed each time."""

SAMPLED = 64
"""Rows of one kind from one measurement to the next."""

ROW_BYTES = 100
"""Root, edge, and the row's places in three columns."""

FAIR = 8
"""One run in so many is the one that has waited longest, also while the deepest come first."""

MOST_MERGED = 4096
"""Tuples in a run that is long enough: its columns are kept until all of them are done."""

MIXED_BYTES = 256 * 1024
"""Bytes that a sample misses, and a fifth of all at least, before each row of a kind is measured."""

ALIKE = 2
"""Rows that are up to so many times larger or smaller may be in one run."""

SHARES = 8
"""Most parts that the marks are divided into: tasks of a worker share them, and each may always hold some."""

WEIGH_AFTER_S = 0.001
"""Seconds of a turn after which what it has emitted is weighed, and again: fewer than fill a memory."""

MAKE_S = 2e-5
"""Seconds of a call that may have made a row of half a megabyte: what it emitted is weighed at once."""

NOT_WEIGHED = (0, 0, 0, 0)
"""Of an outbox: runs and their bytes, rows' places and their bytes that were measured."""

RowKind = tuple[int, str]
"""Rows of one task and stream."""

Extend = Callable[[tuple[Any, Any, Any]], None]
"""Adds one row (root, edge, values) to an outbox."""


# -- tuples on their way ---------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Tuples of one sender, stream and receiver, as columns of equal length.

    In order. ``multi`` marks tuples with several roots: their root and edge are then equally long lists.
    """

    target: int
    source: int
    stream: str
    multi: bool
    roots: list[Any]
    """Ints, 0 for an untracked tuple, or SharedRoots for a tuple that was emitted for a whole batch."""
    edges: list[Any]
    values: Rows
    has_untracked: bool = True
    """Whether some of its tuples may belong to no tree: those are counted."""

    def part(self, first: int, end: int) -> Run:
        """Return its tuples from ``first`` up to ``end``."""
        at = slice(first, end)
        return self._replace(roots=self.roots[at], edges=self.edges[at], values=self.values[at])

    @property
    def untracked_count(self) -> int:
        """How many of its tuples belong to no tree."""
        # Cheap, for it is asked of every run: where all emits were tracked, it is not searched.
        return self.roots.count(0) if self.has_untracked and not self.multi else 0

    def untracked(self) -> Run:
        """Return those of its tuples that belong to no tree."""
        if self.multi or not self.has_untracked:
            return self._replace(roots=[], edges=[], values=[])
        values = [value for root, value in zip(self.roots, self.values, strict=True) if not root]
        return self._replace(roots=[0] * len(values), edges=[0] * len(values), values=values)


WHOLE = 0
"""Stands for a whole worker among the ids of its tasks that are full: only spouts wait for it."""


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
        """Rows from the first on that no longer belong to a block (``settling.part_blocks``)."""
        self.rows = zip(run.roots, run.edges, run.values, strict=True)

    def batch_of(self, size: int) -> int:
        """Return how many of the next ``size`` tuples make a batch: one of a last try is alone."""
        if self.run.multi:  # a bolt has joined it with others by itself
            return size
        first = len(self.run.roots) - self.left
        ahead = self.run.roots[first : first + size]
        if not _may_have_last_try(ahead):
            return size
        return next((place for place, root in enumerate(ahead) if is_last_try(root)), size) or 1

    def stop_at(self, left: int) -> None:
        """Have so many rows left, whatever was taken."""
        run, first = self.run, len(self.run.roots) - left
        self.left = left
        self.rows = zip(run.roots[first:], run.edges[first:], run.values[first:], strict=True)


def _may_have_last_try(roots: Sequence[Any]) -> bool:
    # The cheapest questions, for every batch there is. Rows that were emitted for one batch have one root; where that
    # is of several trees, it is no number, and never a last try.
    if roots[0].__class__ is not int and roots.count(roots[0]) == len(roots):
        return False
    try:
        return any(map(and_, roots, repeat(LAST_TRY)))
    except TypeError:
        return any(map(is_last_try, {*roots}))


class Outbox:
    """The tuples from one task to another during one turn.

    Rows lie flat (root, edge, values, root, ...), which is the cheapest thing to append to.
    """

    __slots__ = ("_closed", "_rows", "_weighed", "extend", "has_untracked", "multi", "source", "stream", "target")

    def __init__(self, source: int, target: int, stream: str) -> None:
        self.source = source
        self.target = target
        self.stream = stream
        self.multi = False
        self.has_untracked = False
        """Whether a row that waits here belongs to no tree: who puts one in says so."""
        self._rows: list[Any] = []
        self._closed: list[Run] = []
        self._weighed = NOT_WEIGHED
        # Bound once: emit closures keep this method, so `_rows` is emptied in place and never replaced.
        self.extend: Extend = self._rows.extend

    def switch(self, stream: str, multi: bool = False) -> Extend:
        """Return ``extend`` for rows of a stream and kind."""
        # A change closes the present rows into a run, so the order between two tasks holds across streams.
        if stream != self.stream or multi != self.multi:
            self._close()
            self.stream, self.multi = stream, multi
        return self.extend

    def put_block(self, stream: str, root: Root, edge: int, rows: Columns) -> None:
        """Put in rows that share one edge, in order."""
        # Rule: rows of a block have edge 0, but the last one. They are done in order, so the tree is complete with the
        # last, and a failure is brought to the ledger before acks of the same turn. For bolts that ack in any order see
        # `settling.part_blocks`.
        count = len(rows)
        edges = [0] * count
        edges[-1] = edge
        self.put_run(stream, [root] * count, edges, rows, has_untracked=not root)

    def put_run(
        self, stream: str, roots: list[Any], edges: list[int], rows: Columns, has_untracked: bool = False
    ) -> None:
        """Put in rows, in order, with a root and an edge each."""
        self.switch(stream)
        self._close()
        self._closed.append(Run(self.target, self.source, stream, False, roots, edges, rows, has_untracked))

    def mark(self) -> int:
        """Return a place for ``withdraw``."""
        self._close()
        return len(self._closed)

    def withdraw(self, mark: int) -> None:
        """Take back all rows put in since a mark."""
        self._rows.clear()
        self.has_untracked = False
        del self._closed[mark:]
        self._weighed = NOT_WEIGHED

    def _close(self) -> None:
        rows = self._rows
        if rows:
            columns = rows[0::3], rows[1::3], rows[2::3]
            self._closed.append(Run(self.target, self.source, self.stream, self.multi, *columns, self.has_untracked))
            rows.clear()
            self.has_untracked = False

    def take(self) -> list[Run]:
        """Return all runs so far, in order, and leave the outbox empty."""
        self._close()
        taken, self._closed = self._closed, []
        self._weighed = NOT_WEIGHED
        return taken

    def weigh(self) -> int:
        """Return about the bytes of its rows.

        One of those that came since the last call is measured.
        """
        # One by chance: what a bolt emits for each tuple may be a large row, and then a small one.
        runs, runs_bytes, rows, rows_bytes = self._weighed
        if runs < len(self._closed):
            run = self._closed[runs + int(uniform() * (len(self._closed) - runs))]
            size = row_bytes(run.values[int(uniform() * len(run.values))]) if run.values else 0
            runs_bytes += (len(self._closed) - runs) * len(run.values) * size
            rows = rows_bytes = 0  # those that lay here are in a run now
        new = (len(self._rows) - rows) // 3
        if new:
            rows_bytes += new * row_bytes(self._rows[rows + 3 * int(uniform() * new) + 2])
        self._weighed = len(self._closed), runs_bytes, len(self._rows), rows_bytes
        return runs_bytes + rows_bytes

    def measure(self, sizes: SampledSizes) -> int:
        """Return the bytes of its rows, all measured; ``sizes`` learns from them."""
        self._close()
        size = sizes.learn(self._closed)
        self._weighed = len(self._closed), size, 0, 0
        return size

    def __bool__(self) -> bool:
        return bool(self._rows or self._closed)


@dataclass(slots=True)
class Outgoing:
    """Everything that one turn of the loop sends to one other worker."""

    runs: list[Run] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    deltas: list[int] = field(default_factory=list)
    """Ack deltas, by root: two columns of equal length."""
    fails: list[int] = field(default_factory=list)
    full: list[int] | None = None
    """The tasks of this worker that hold too much, WHOLE for all of it; None: as said before. See ``Inbox``."""
    ask: Ask | None = None
    answer: Answer | None = None
    """A question about queues, and the answer to the receiver's."""
    causes: dict[int, FailureCause] = field(default_factory=dict)
    """What bolts said of ``fails``, where they said anything."""
    read: dict[int, int] | None = None
    """After a lost link: task -> untracked tuples that had been read for it by then, of all that the receiver sent."""

    def __bool__(self) -> bool:
        return (
            bool(self.runs or self.roots or self.fails)
            or self.full is not None
            or self.ask is not None
            or self.answer is not None
            or self.read is not None
        )


@dataclass(slots=True)
class Incoming:
    """One decoded frame of another worker; see Outgoing."""

    runs: list[Run]
    roots: list[int]
    deltas: list[int]
    fails: list[int]
    full: list[int] | None = None
    worker: int = -1
    ask: Ask | None = None
    answer: Answer | None = None
    causes: dict[int, FailureCause] = field(default_factory=dict)
    read: dict[int, int] | None = None


# -- tuples that wait ------------------------------------------------------------------------------------------------


def row_bytes(values: Sequence[Any]) -> int:
    """Return about how many bytes a row takes between two tasks."""
    return ROW_BYTES + getsizeof(values) + sum(map(value_bytes, values))


def mean_bytes(rows: Rows) -> int:
    """Measure all rows; return about how many bytes one takes."""
    if not rows:
        return ROW_BYTES
    # Passes in C over flat values, which most are; without a list of all of them, for rows may be millions.
    if isinstance(rows, Columns):
        return ROW_BYTES + sum(map(value_bytes, rows.by_field)) // len(rows)
    if CONTAINERS.isdisjoint(map(type, chain.from_iterable(rows))):
        return ROW_BYTES + (sum(map(getsizeof, rows)) + sum(map(getsizeof, chain.from_iterable(rows)))) // len(rows)
    return sum(map(row_bytes, rows)) // len(rows)


_UNKNOWN = (0, 0)


class SampledSizes:
    """The usual size of rows, by kind: every 64th row is measured, of mixed kinds each."""

    __slots__ = ("_known", "mixed")

    def __init__(self) -> None:
        self._known: dict[RowKind, list[int]] = {}  # kind -> [bytes a row, rows until the next measurement]
        self.mixed: set[RowKind] = set()
        """Kinds whose rows are too different for a sample."""

    def learn(self, runs: Iterable[Run]) -> int:
        """Measure all rows; return about their bytes.

        From now on each row is measured of a kind that takes more than its usual size says.
        """
        counted: Counter[RowKind] = Counter()
        taken: Counter[RowKind] = Counter()
        for run in runs:
            kind, count = (run.source, run.stream), len(run.roots)
            counted[kind] += count * self._known.get(kind, _UNKNOWN)[0]
            taken[kind] += count * mean_bytes(run.values)
        self.compare(counted, taken)
        return taken.total()

    def compare(self, counted: Mapping[RowKind, int], taken: Mapping[RowKind, int]) -> None:
        """Measure each row of kinds that take more than counted."""
        for kind, size in taken.items():
            if 4 * size > 5 * counted[kind] and size > counted[kind] + MIXED_BYTES:
                self.mixed.add(kind)

    def of(self, kind: RowKind, rows: Rows) -> int:
        """Return the usual bytes of a row of this kind; ``rows`` are new ones."""
        if self.mixed and kind in self.mixed:
            return mean_bytes(rows)
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = [0, 0]
        known[1] -= len(rows)
        if known[1] < 0:
            known[1] = SAMPLED
            size = row_bytes(rows[len(rows) // 2])
            # Up at once and down slowly: an estimate that is too high costs speed, one that is too low, memory.
            known[0] = size if size > known[0] else known[0] - (known[0] - size) // 8
        return known[0]


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

    Three orders. Usually runs are worked off as they came. While a bolt is slow, each bolt has its turn: what the slow
    one has done is not held up by what waits for it. When more is held than may be, or a bolt must wait because those
    it emits to hold too much, the deepest bolt comes first: what it works off makes room, while a bolt before it would
    only add. Every eighth turn goes to the run that has waited longest, so that a cycle starves nobody.

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
        self.sizes = SampledSizes()
        self._waiting = {task: BoltQueue() for task in by_depth}
        self._full: set[int] = set()
        self._above = False
        self.slow: set[int] = set()
        """Tasks whose latest call took long; forgotten when the inbox is empty."""
        self._deepest_first = False
        self._served: dict[int, int] = {}
        """The latest turn of each task, while each has its own."""
        self._in_order: deque[Work] = deque()
        self._of_task: dict[int, deque[Work]] = {}
        """Work by task, while they are not worked off as they came; ``_in_order`` is empty then."""
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
        return self._deepest_first

    @property
    def ready(self) -> bool:
        """Whether something waits that may run now."""
        return bool(self._in_order) or any(queue and task not in self.waits for task, queue in self._of_task.items())

    def add(self, run: Run) -> None:
        """Take in a run for a bolt of this worker."""
        count = len(run.roots)
        # Before it is merged: a run is measured however it is taken in.
        measured = self.sizes.of((run.source, run.stream), run.values)
        work = self._merge_into_latest(run, measured) if self._last else None
        is_new = work is None
        if work is None:
            work = Work(run, measured, self._number)
            self._number += 1
        size = count * measured
        if not is_new:  # all rows of a work count alike
            before = (work.left - count) * work.row_bytes
            work.row_bytes = (before + size) // work.left
            size = work.left * work.row_bytes - before
        waiting = self._waiting[run.target]
        waiting.tuples += count
        waiting.bytes += size
        self.tuples += count
        self.bytes += size
        # The whole has marks of its own: with more tasks than shares none need be above its share.
        if (
            waiting.tuples > self._share_tuples
            or waiting.bytes > self._share_bytes
            or self.tuples > self._most_tuples
            or self.bytes > self._most_bytes
        ):
            self.grown = True
        if is_new:
            if run.target in self._last:
                self._last[run.target] = work
            (self._of_task[run.target] if self._of_task else self._in_order).append(work)

    def _merge_into_latest(self, run: Run, measured: int) -> Work | None:
        """Append a run to its task's latest, and return that.

        None where they are not of one sender and stream, or their rows (``measured``: bytes of one) not alike in size.
        """
        # Only to the latest: what a task receives keeps its order.
        last = self._last.get(run.target)
        if last is None or last.left <= 0:
            return None
        # All rows of a work count alike: 4000 large ones behind a small one would be held and not counted.
        if not last.row_bytes <= ALIKE * measured <= ALIKE * ALIKE * last.row_bytes:
            return None
        before = last.run
        alike = before.source, before.stream, before.multi, before.has_untracked
        if len(before.roots) >= MOST_MERGED or alike != (run.source, run.stream, run.multi, run.has_untracked):
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
        if not self._deepest_first:
            work = min(able, key=lambda work: self._served.get(work.run.target, 0))
            self._served[work.run.target] = self._turns
            return work
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
        if self.slow and not self.tuples:
            self.slow.clear()
            self.order(self.waits)

    def note_pace(self, task: int, slow: bool) -> None:
        """Note whether a task's latest call took long: while any task's did, each has its turn."""
        # Rule: what a slow bolt has done goes on before its next tuple. In order of arrival the sixty that wait for it
        # came first: a bolt behind it got nothing for half a minute, and a drain left what was done.
        if slow == (task in self.slow):
            return
        if slow:
            self.slow.add(task)
        else:
            self.slow.discard(task)
        self.order(self.waits)

    def recount(self) -> None:
        """Measure every row that waits.

        From now on also each row of a kind that takes more than was counted.
        """
        # Rule: done whenever the process takes more memory than before (`MemoryGrowth`). One row in 64 does not see
        # rare large ones, and to measure each would cost every tuple; but rows that fill the memory make it grow.
        counted: Counter[RowKind] = Counter()
        taken: Counter[RowKind] = Counter()
        for waiting in self._waiting.values():
            waiting.bytes = 0
        self.bytes = 0
        for work in self:
            run, left = work.run, max(work.left, 0)
            kind = run.source, run.stream
            counted[kind] += left * work.row_bytes
            if left:
                work.row_bytes = mean_bytes(run.values[len(run.roots) - left :])
            taken[kind] += left * work.row_bytes
            self._waiting[run.target].bytes += left * work.row_bytes
            self.bytes += left * work.row_bytes
        self.sizes.compare(counted, taken)
        self.grown = True

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
        self._deepest_first = self._above or bool(waits)
        by_task = self._deepest_first or bool(self.slow)
        if by_task and not self._of_task:
            self._of_task = {task: deque() for task in self._by_depth}
            for work in self._in_order:
                self._of_task[work.run.target].append(work)
            self._in_order.clear()
        elif self._of_task and not by_task:
            self._in_order.extend(sorted(chain(*self._of_task.values()), key=lambda work: work.number))
            self._of_task = {}


# -- groupings: which outbox -----------------------------------------------------------------------------------------

Pick = Callable[[Sequence[Any]], Outbox]
"""Chooses the one outbox of a row."""

Select = Callable[[list[Any]], list[Any]]
"""Takes out of a column what belongs to one share of its rows."""

FEW_BOXES = 8
"""Most outboxes that rows are shared out to by a mask each; to more of them, by number."""

_IS = tuple(bytes(number == one for number in range(256)) for one in range(FEW_BOXES))
"""Tables for ``bytes.translate``: 1 for one number, 0 for all others."""


@dataclass(frozen=True, slots=True)
class Target:
    """One consumer of a stream: its grouping, the outboxes of its tasks by index, the local ones."""

    grouping: Grouping
    key: tuple[int, ...]
    boxes: tuple[Outbox, ...]
    local: tuple[Outbox, ...]
    order: Sequence[Outbox] = ()
    """The outboxes in turn, as a ``Shuffle`` has them now; empty for each once."""


C = TypeVar("C")


class KeyCache(dict[Any, C]):
    """Key -> its task's outbox, or that one's number: a bounded cache in front of the hash."""

    __slots__ = ("_choices",)

    def __init__(self, choices: Sequence[C]) -> None:
        super().__init__()
        self._choices = choices

    def __missing__(self, key: Any) -> C:
        choice = self.choose((key,))
        if _is_short(key):
            if len(self) >= CACHED_KEYS:
                self.clear()
            self[key] = choice
        return choice

    def choose(self, key: Sequence[Any]) -> C:
        """Return the choice for a key without the cache: a list or dict cannot be looked up."""
        return self._choices[key_hash(key) % len(self._choices)]


def _is_short(key: Any) -> bool:
    """Tell whether a key is worth remembering: one value, or several as a tuple."""
    if isinstance(key, (str, bytes)):
        return len(key) <= CACHED_KEY_BYTES
    return not isinstance(key, tuple) or all(map(_is_short, key))


@dataclass(frozen=True, slots=True)
class Picker:
    """Chooses one outbox for each row."""

    one: Pick
    of_value: Callable[[Any], Outbox]
    """``one`` for a stream of one field: from that field's value (hashable), not the row."""
    shares: Callable[[Columns], Iterable[tuple[Outbox, Select]]]
    """``one`` for many rows at once: the outboxes, and what selects the rows of each, in order."""


def picker(target: Target, uniform: Callable[[], float]) -> Picker:
    """Make what chooses a row's outbox. Not for ``all`` and ``direct``."""
    kind = target.grouping.kind
    if kind == "global" or len(target.boxes) == 1:
        first = target.boxes[0]
        return Picker(lambda values: first, lambda value: first, lambda columns: [(first, list)])
    if kind == "fields":
        return _fields_picker(target)
    if kind == "local_or_shuffle" and target.local:
        return _shuffle_picker(target.local, target.local, uniform)
    if kind in ("shuffle", "none", "local_or_shuffle"):
        return _shuffle_picker(target.boxes, target.order or target.boxes, uniform)
    # A kind without its branch must not go on as shuffle: its tuples would reach the wrong tasks in silence.
    raise NotImplementedError(f"nothing picks a task for the grouping {kind!r}")


def _shuffle_picker(boxes: Sequence[Outbox], order: Sequence[Outbox], uniform: Callable[[], float]) -> Picker:
    # In turn, as Storm does, without a random number for each tuple. Only the start is random, so that several senders
    # do not all begin at the same task. A `Shuffle` changes the order meanwhile, never its length.
    size = len(order)
    position = int(uniform() * size)
    last = size - 1
    number_of = {box: number for number, box in enumerate(boxes)}.__getitem__

    def one(values: Sequence[Any]) -> Outbox:
        nonlocal position
        position = 0 if position >= last else position + 1
        return order[position]

    def shares(columns: Columns) -> Iterable[tuple[Outbox, Select]]:
        nonlocal position
        count, first = len(columns), position + 1
        position = (position + count) % size
        if size == len(boxes):
            return [(order[(first + at) % size], itemgetter(slice(at, None, size))) for at in range(min(count, size))]
        return _share_out(boxes, map(number_of, islice(cycle(order), first % size, first % size + count)))

    return Picker(one, one, shares)


def _fields_picker(target: Target) -> Picker:
    """Make what chooses by the key of a row: the value itself for one field, a tuple for several."""
    boxes, fields, key_of = target.boxes, target.key, itemgetter(*target.key)
    cache, number_of = KeyCache(boxes), KeyCache(range(len(boxes))).__getitem__

    def one(values: Sequence[Any]) -> Outbox:
        key = key_of(values)
        try:
            return cache[key]
        except TypeError:  # a list or dict cannot be a dictionary key
            return cache.choose((key,))

    def shares(columns: Columns) -> Iterable[tuple[Outbox, Select]]:
        by_field = columns.by_field
        keys = by_field[fields[0]] if len(fields) == 1 else zip(*map(by_field.__getitem__, fields), strict=True)
        return _share_out(boxes, map(number_of, keys))

    return Picker(one, cache.__getitem__, shares)


def _share_out(boxes: Sequence[Outbox], numbers: Iterable[int]) -> Iterator[tuple[Outbox, Select]]:
    """Return the outboxes chosen by number, and what selects their rows."""
    return _by_mask(boxes, numbers) if len(boxes) <= FEW_BOXES else _by_number(boxes, numbers)


def _by_mask(boxes: Sequence[Outbox], numbers: Iterable[int]) -> Iterator[tuple[Outbox, Select]]:
    """Yield the chosen outboxes, and what selects the rows of each."""
    # As bytes: a mask of each box is made, and read, without a call or an object for each row.
    chosen = bytearray(numbers)  # which is filled faster than bytes are
    for number in set(chosen):
        yield boxes[number], partial(_masked, chosen.translate(_IS[number]))


def _by_number(boxes: Sequence[Outbox], numbers: Iterable[int]) -> Iterator[tuple[Outbox, Select]]:
    """Do the same for many outboxes: a mask each would read all rows as often."""
    rows_of: dict[int, list[int]] = defaultdict(list)
    for at, number in enumerate(numbers):
        rows_of[number].append(at)
    for number, rows in rows_of.items():
        yield boxes[number], partial(_numbered, rows)


def _masked(mask: bytearray, column: list[Any]) -> list[Any]:
    return [*compress(column, mask)]


def _numbered(rows: list[int], column: list[Any]) -> list[Any]:
    return [*map(column.__getitem__, rows)]


# -- streams: what a task may emit -----------------------------------------------------------------------------------


ROWS = frozenset({list, tuple})
"""Types of rows that many are emitted of in one call."""


def _is_plain(column: list[Any]) -> bool:
    """Tell whether all values travel as they are."""
    kinds = [*map(type, column)]
    # Nearly always all are of one type, and to count it takes less than to gather the types in a set.
    if kinds and kinds.count(kinds[0]) == len(kinds) and kinds[0] in PLAIN:
        return True
    others = set(kinds) - PLAIN
    if not others:
        return True
    ints = [value for value in column if value.__class__ is int]
    return others == {int} and min(ints) >= INT_MIN and max(ints) <= INT_MAX


class StreamRoutes:
    """One declared stream of one task, with everything an emit needs."""

    __slots__ = ("direct", "fields", "is_direct", "name", "picks", "spreads", "targets", "width")

    def __init__(self, stream: Stream, targets: Sequence[Target], uniform: Callable[[], float]) -> None:
        self.name = stream.name
        self.fields = stream.fields
        self.is_direct = stream.direct
        self.width = len(stream.fields)
        self.targets = tuple(targets)
        self.picks: tuple[Picker, ...] = tuple(
            picker(target, uniform) for target in targets if target.grouping.kind not in ("all", "direct")
        )
        self.spreads = tuple(box for target in targets if target.grouping.kind == "all" for box in target.boxes)
        self.direct: dict[int, Outbox] = {
            box.target: box for target in targets if target.grouping.kind == "direct" for box in target.boxes
        }

    def boxes(self, values: Sequence[Any], direct_task: int | None) -> list[Outbox]:
        """Return every outbox this tuple goes into."""
        if direct_task is not None:
            return [self.direct[direct_task]] if direct_task in self.direct else []
        return [*(pick.one(values) for pick in self.picks), *self.spreads]

    def plain_columns(self, rows: Sequence[Any] | Columns) -> Columns | None:
        """Return rows as columns for its one reader.

        None for a stream with several readers, or where a row is not plain: each is looked at by ``checked`` then.
        """
        if self.single is None or not self.width:  # without a field, columns do not say how many rows there are
            return None
        if not isinstance(rows, Columns):
            if not set(map(type, rows)) <= ROWS or set(map(len, rows)) != {self.width}:
                return None
            rows = Columns([[*map(itemgetter(at), rows)] for at in range(self.width)])
        return rows if len(rows.by_field) == self.width and all(map(_is_plain, rows.by_field)) else None

    def shares(self, columns: Columns) -> Iterable[tuple[Outbox, Select]]:
        """Share the rows of ``plain_columns`` out: the outboxes, and what selects the rows of each."""
        return self.picks[0].shares(columns)

    @property
    def single(self) -> Pick | None:
        """The one picker of a stream read by one grouping: the case worth a closure of its own."""
        return self.picks[0].one if len(self.picks) == 1 and not self.spreads and not self.direct else None

    @property
    def single_value(self) -> Callable[[Any], Outbox]:
        """``single`` for a stream of one field: from that field's value (hashable), not the row."""
        assert self.single is not None
        return self.picks[0].of_value


class Emitter:
    """The declared streams of one task, by name."""

    __slots__ = ("component", "default", "one_stream", "streams")

    def __init__(self, component: str, streams: Sequence[StreamRoutes]) -> None:
        self.component = component
        self.streams = {routes.name: routes for routes in streams}
        self.default = self.streams.get(DEFAULT_STREAM)
        self.one_stream = len(streams) == 1

    def routes(self, stream: str | None, direct_task: int | None) -> StreamRoutes:
        """Return the stream an emit names. Raises BadEmit if undeclared or not direct."""
        routes = self.default if stream is None else self.streams.get(stream)
        if routes is None:
            declared = ", ".join(map(repr, self.streams)) or "none"
            raise BadEmit(
                f"{self.component} emitted on stream {stream or DEFAULT_STREAM!r}, which it does not declare "
                f"(declared: {declared}). Add it to the class's `outputs`, or name one of these."
            )
        # A direct stream needs a task: without one the tuple reaches nobody, and a tree without receivers is acked.
        if direct_task is None and routes.is_direct:
            raise BadEmit(
                f"{self.component} emitted on the direct stream {routes.name!r} without direct_task, so it would reach "
                f"nobody. Name one of the tasks that read it: {sorted(routes.direct) or 'none'}."
            )
        if direct_task is not None and routes.targets and direct_task not in routes.direct:
            raise BadEmit(
                f"{self.component} emitted on stream {routes.name!r} with direct_task={direct_task}, but the tasks "
                f"that read it with Grouping.DIRECT are {sorted(routes.direct) or 'none'}."
            )
        return routes

    def checked(self, values: Sequence[Any], routes: StreamRoutes) -> list[Any]:
        """Return a copy of the values as they travel. Raises BadEmit or ValueCannotTravel."""
        # A str is a sequence of its letters: emit("no") on a stream of two fields would pass as ["n", "o"].
        try:
            fits = not isinstance(values, NO_ROWS) and len(values) == routes.width
        except TypeError:  # a number, an iterator
            fits = False
        if not fits:
            raise BadEmit(
                f"{self.component} emitted {values!r:.120} on stream {routes.name!r}, which declares "
                f"{routes.width} field(s): {', '.join(routes.fields)}. Emit a list with one value per field."
            )
        for value in values:
            if value.__class__ not in PLAIN:
                return travelling(values, self.component, routes.name, routes.fields)
        return [*values]
