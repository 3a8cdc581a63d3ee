"""Tuples on their way between two tasks, and all that one turn of the loop sends to another worker.

A task puts rows into an ``Outbox``, one for each task that it sends to. When the turn ends an outbox becomes runs
(``Run``), which leave this worker in an ``Outgoing`` or wait in its ``Inbox``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamlet.components.columns import Columns, Rows
from streamlet.components.spout import FailureCause
from streamlet.tracking.census import Answer, Ask
from streamlet.tracking.shared_roots import Root

WHOLE = 0
"""Stands for a whole worker among the ids of its tasks that are full: only spouts wait for it."""

Extend = Callable[[tuple[Any, Any, Any]], None]
"""Adds one row (root, edge, values) to an outbox."""


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

    def part(self, first: int, end: int) -> Run:
        """Return its tuples from ``first`` up to ``end``."""
        at = slice(first, end)
        return self._replace(roots=self.roots[at], edges=self.edges[at], values=self.values[at])

    def untracked(self) -> Run:
        """Return those of its tuples that belong to no tree."""
        if self.multi:
            return self._replace(roots=[], edges=[], values=[])
        values = [value for root, value in zip(self.roots, self.values, strict=True) if not root]
        return self._replace(roots=[0] * len(values), edges=[0] * len(values), values=values)


class Outbox:
    """The tuples from one task to another during one turn.

    Rows lie flat (root, edge, values, root, ...), which is the cheapest thing to append to.
    """

    __slots__ = ("_closed", "_rows", "extend", "multi", "source", "stream", "target")

    def __init__(self, source: int, target: int, stream: str) -> None:
        self.source = source
        self.target = target
        self.stream = stream
        self.multi = False
        self._rows: list[Any] = []
        self._closed: list[Run] = []
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
        # `BoltTask._give_each_row_an_edge`.
        count = len(rows)
        edges = [0] * count
        edges[-1] = edge
        self.put_run(stream, [root] * count, edges, rows)

    def put_run(self, stream: str, roots: list[Any], edges: list[int], rows: Columns) -> None:
        """Put in rows, in order, with a root and an edge each."""
        self.switch(stream)
        self._close()
        self._closed.append(Run(self.target, self.source, stream, False, roots, edges, rows))

    def mark(self) -> int:
        """Return a place for ``withdraw``."""
        self._close()
        return len(self._closed)

    def withdraw(self, mark: int) -> None:
        """Take back all rows put in since a mark."""
        self._rows.clear()
        del self._closed[mark:]

    def _close(self) -> None:
        rows = self._rows
        if rows:
            run = Run(self.target, self.source, self.stream, self.multi, rows[0::3], rows[1::3], rows[2::3])
            self._closed.append(run)
            rows.clear()

    def take(self) -> list[Run]:
        """Return all runs so far, in order, and leave the outbox empty."""
        self._close()
        taken, self._closed = self._closed, []
        return taken

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

    def __bool__(self) -> bool:
        return (
            bool(self.runs or self.roots or self.fails)
            or self.full is not None
            or self.ask is not None
            or self.answer is not None
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
