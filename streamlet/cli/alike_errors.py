"""Errors that are alike, folded for a person who watches: the first ones are shown, the others counted.

A spout that gives up 16 000 tuples has 16 000 lines for a log file. In a terminal they would hide the one that matters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from streamlet.backends.contract import RunRequest, RunStatus
from streamlet.base.log_line import LogLine
from streamlet.cli.show import WrittenView

MOST_SHOWN = 50
"""Errors that are alike and shown one by one, in a window of time."""

WINDOW_S = 10.0
"""Seconds after the first of them, when the others' number is shown."""

MOST_KINDS = 200
"""Kinds of errors that are counted at a time."""


@dataclass(slots=True)
class _Kind:
    since_s: float
    count: int = 0
    left_out: int = 0
    last: LogLine | None = None


class AlikeErrors:
    """Counts errors of a component that begin with the same words.

    The same logger, too, and two words. Pure.
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}
        """In the order of ``since_s``."""

    def pass_on(self, line: LogLine, now_s: float) -> list[LogLine]:
        """Return the lines to show now: this one, or none; and those that are due."""
        out = self.over(now_s)
        if line.level != "error":
            return [*out, line]
        name = line.origin.logger, line.origin.component, tuple(line.text.split(None, 2)[:2])
        kind = self._kinds.get(name)
        if kind is None:
            if len(self._kinds) >= MOST_KINDS:
                out += self._drop(next(iter(self._kinds)))
            kind = self._kinds[name] = _Kind(now_s)
        kind.count += 1
        if kind.count <= MOST_SHOWN:
            return [*out, line]
        kind.left_out, kind.last = kind.left_out + 1, line
        return out

    def over(self, now_s: float = math.inf) -> list[LogLine]:
        """Return the lines for windows that have ended by then: what each has left out."""
        out: list[LogLine] = []
        while self._kinds:
            name, kind = next(iter(self._kinds.items()))
            if now_s - kind.since_s < WINDOW_S:
                break
            out += self._drop(name)
        return out

    def _drop(self, name: Hashable) -> list[LogLine]:
        kind = self._kinds.pop(name)
        if kind.last is None:
            return []
        if kind.left_out == 1:
            return [kind.last]
        more = f"(and {kind.left_out - 1:,} more like it, not shown here: --log-file has each)"
        return [kind.last._replace(text=f"{kind.last.text} {more}")]


class FoldingView:
    """A view that shows only the first of errors that are alike."""

    def __init__(self, view: WrittenView) -> None:
        self._view = view
        self._alike = AlikeErrors()
        self.start: Callable[[RunRequest, str], None] = view.start
        self.notice: Callable[[str], None] = view.notice
        self.killed: Callable[[int, RunStatus | None], None] = view.killed
        self.close: Callable[[], None] = view.close
        self.on_status, self.finish, self.failed = view.on_status, view.finish, view.failed
        self.on_errors = view.on_errors

    def on_event(self, line: LogLine) -> None:
        """Show a line, unless many like it came before."""
        for shown in self._alike.pass_on(line, time.monotonic()):
            self._view.on_event(shown)

    def log(self, line: LogLine) -> None:
        """Show a log line, unless many like it came before."""
        for shown in self._alike.pass_on(line, time.monotonic()):
            self._view.log(shown)

    def show_due(self, over: bool) -> None:
        """Show the numbers of lines whose time has come; all of them when the run is over."""
        for line in self._alike.over(math.inf if over else time.monotonic()):
            self._view.log(line)
