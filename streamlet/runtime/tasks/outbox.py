"""Tuples on their way from one task to another, in rows until the loop's turn ends, then in columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Extend = Callable[[tuple[Any, Any, Any]], None]
"""Adds one row (root, edge, values) to an outbox."""


class Run(NamedTuple):
    """Tuples of one sender, stream and receiver, in order, as columns of equal length.

    ``multi`` marks tuples with several roots: their root and edge are then equally long lists.
    """

    target: int
    source: int
    stream: str
    multi: bool
    roots: list[Any]
    edges: list[Any]
    values: list[Any]


class Work:
    """A run that waits for its bolt: rows that can be taken a slice at a time, and how many are left."""

    __slots__ = ("left", "rows", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.left = len(run.roots)
        self.rows = zip(run.roots, run.edges, run.values, strict=True)


class Outbox:
    """From one task to one other. ``extend`` is bound once and stays valid: emit closures hold it.

    Rows lie flat (root, edge, values, root, ...), which is the cheapest thing to append to. A change of stream
    closes the rows at hand into a run, so the order between two tasks holds across streams.
    """

    __slots__ = ("_closed", "_rows", "extend", "multi", "source", "stream", "target")

    def __init__(self, source: int, target: int, stream: str) -> None:
        self.source = source
        self.target = target
        self.stream = stream
        self.multi = False
        self._rows: list[Any] = []
        self._closed: list[Run] = []
        self.extend: Extend = self._rows.extend

    def switch(self, stream: str, multi: bool = False) -> Extend:
        """What follows belongs to another stream, or is of another kind."""
        if stream != self.stream or multi != self.multi:
            self._close()
            self.stream, self.multi = stream, multi
        return self.extend

    def _close(self) -> None:
        rows = self._rows
        if rows:
            run = Run(self.target, self.source, self.stream, self.multi, rows[0::3], rows[1::3], rows[2::3])
            self._closed.append(run)
            rows.clear()

    def take(self) -> list[Run]:
        """All runs so far, in order; the outbox is empty afterwards."""
        self._close()
        taken, self._closed = self._closed, []
        return taken

    def __bool__(self) -> bool:
        return bool(self._rows or self._closed)
