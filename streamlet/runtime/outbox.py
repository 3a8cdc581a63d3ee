"""Tuples on their way from one task to another, in rows until the loop's turn ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Extend = Callable[[tuple[Any, Any, Any]], None]
"""Adds one row (root, edge, values) to an outbox."""


class Run(NamedTuple):
    """Tuples of one sender, stream and receiver, in order. ``rows`` gives (root, edge, values), once.

    ``multi`` marks rows of tuples with several roots: root and edge are then equally long sequences.
    """

    target: int
    source: int
    stream: str
    multi: bool
    size: int
    rows: Iterator[tuple[Any, Any, Any]]


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

    def named(self, stream: str) -> Outbox:
        """The same outbox, empty as it still is, expecting this stream first."""
        self.stream = stream
        return self

    def switch(self, stream: str, multi: bool = False) -> Extend:
        """What follows belongs to another stream, or is of another kind."""
        if stream != self.stream or multi != self.multi:
            self._close()
            self.stream, self.multi = stream, multi
        return self.extend

    def _close(self) -> None:
        rows = self._rows
        if rows:
            flat = iter(rows[:])
            run = Run(
                self.target, self.source, self.stream, self.multi, len(rows) // 3, zip(flat, flat, flat, strict=True)
            )
            self._closed.append(run)
            rows.clear()

    def take(self) -> list[Run]:
        """All runs so far, in order; the outbox is empty afterwards."""
        self._close()
        taken, self._closed = self._closed, []
        return taken

    def __bool__(self) -> bool:
        return bool(self._rows or self._closed)
