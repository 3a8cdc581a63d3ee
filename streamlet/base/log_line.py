"""A line of a run's log, with where it comes from: as text, as JSON, and repeats counted. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

from streamlet.base.printable import printable

T = TypeVar("T")

RUN_LOGGER = "streamlet.run"
"""Logger of the coordinating process's own lines."""

INDENT = "    "
"""Before each further line of a text: none can be taken for a line of its own."""

MOST_HELD = 1000
"""Different lines whose repeats are counted at a time."""

MOST_HELD_BYTES = 1 << 20
"""Bytes of text of such lines at a time."""


class Origin(NamedTuple):
    """Where a line was logged; None, 0 or empty where nobody knows."""

    logger: str = RUN_LOGGER
    component: str = ""
    task: int = 0
    worker: int | None = None
    epoch: int = 0


RUN = Origin()


class LogLine(NamedTuple):
    """One line: ``level`` as in ``logging``, in small letters; ``time_s`` since 1970."""

    level: str
    text: str
    time_s: float
    origin: Origin = RUN
    trace: str = ""
    printed: bool = False
    """A program wrote it to a standard stream, where it stands already."""
    repeated: int = 0
    """How many lines like an earlier one this one stands for."""
    left_out: int = 0
    """How many lines are missing in its place, if it is a notice of that."""

    @property
    def size(self) -> int:
        """Return about how many bytes the line takes."""
        return len(self.text) + len(self.trace) + 100

    @property
    def lines(self) -> int:
        """Return how many lines are missing where this one is dropped."""
        # Rule: a notice of missing lines that is dropped counts as those lines. As one line it hid thousands.
        return self.left_out or 1


def as_text(line: LogLine) -> str:
    """Return ``TIME LEVEL worker=1 epoch=2 component=count task=3 LOGGER: TEXT``, further lines indented."""
    origin = line.origin
    worker = "-" if origin.worker is None else origin.worker
    where = f"worker={worker} epoch={origin.epoch or '-'} component={origin.component or '-'} task={origin.task or '-'}"
    often = "once" if line.repeated == 1 else f"{line.repeated:,} times"
    text = f"{line.text} (repeated {often})" if line.repeated else line.text
    said = f"{text}\n{line.trace}" if line.trace else text
    head = f"{_moment(line.time_s)} {line.level.upper()} {where} {origin.logger}: "
    return printable(head).replace("\n", " ") + printable(said).rstrip("\n").replace("\n", f"\n{INDENT}")


def as_json(line: LogLine) -> str:
    """Return an object in one line of ASCII; null where nobody knows."""
    return json.dumps(fields(line))


def fields(line: LogLine) -> dict[str, Any]:
    """Return the line as values that JSON has."""
    origin = line.origin
    return {
        "time": _moment(line.time_s),
        "level": line.level,
        "logger": whole(origin.logger),
        "component": whole(origin.component) or None,
        "task": origin.task or None,
        "worker": origin.worker,
        "epoch": origin.epoch or None,
        "text": whole(line.text),
        "traceback": whole(line.trace) or None,
        "repeated": line.repeated or None,
    }


def whole(text: str) -> str:
    """Return a text with halves of characters written out.

    Many readers of JSON refuse them.
    """
    return text.encode("utf-8", "backslashreplace").decode()


def _moment(time_s: float) -> str:
    moment = datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


def kind_of(line: LogLine) -> Hashable:
    """Return the logger, component, level and text, which repeats have in common."""
    if line.left_out:  # two of these with one number are other lines each
        return object()
    return line.origin.logger, line.origin.component, line.level, line.text


def together(before: LogLine, line: LogLine) -> LogLine:
    """Return the line that stands for both.

    Where they differ it names no task, or no worker.
    """
    if line.origin == before.origin:
        return line
    ours, theirs = line.origin, before.origin
    same_worker = ours[3:] == theirs[3:]
    origin = ours._replace(
        task=ours.task if ours.task == theirs.task else 0,
        worker=ours.worker if same_worker else None,
        epoch=ours.epoch if same_worker else 0,
    )
    return line._replace(origin=origin)


@dataclass(slots=True)
class _Held(Generic[T]):
    item: T
    since_s: float
    size: int
    count: int = 0


class Repeats(Generic[T]):
    """Repeats of lines, which are counted and not passed on. One thread.

    ``together`` makes one item of two repeats. The caller brings the time, in seconds.
    """

    def __init__(self, window_s: float, together: Callable[[T, T], T], most: int = MOST_HELD) -> None:
        self._window_s = window_s
        self._together = together
        self._most = most
        self._held: dict[Hashable, _Held[T]] = {}
        """In the order of ``since_s``."""
        self._size = 0

    def pass_on(self, kind: Hashable, item: T, size: int, now_s: float) -> list[tuple[T, int]]:
        """Return items to be written now, each with its count.

        The count says how often the item came after the first one; 0 for a first one.
        """
        out = self.over(now_s)
        held = self._held.get(kind)
        if held is not None:
            held.item = self._together(held.item, item) if held.count else item
            held.count += 1
            return out
        if self._window_s > 0:
            self._hold(kind, _Held(item, now_s, size))
            while len(self._held) > self._most or self._size > MOST_HELD_BYTES:
                out += self._drop(next(iter(self._held)))
        return [*out, (item, 0)]

    def over(self, now_s: float) -> list[tuple[T, int]]:
        """Return the repeats of windows that have ended; count on from there."""
        out: list[tuple[T, int]] = []
        while self._held:
            kind, held = next(iter(self._held.items()))
            if now_s - held.since_s < self._window_s:
                break
            told = self._drop(kind)
            if told:
                self._hold(kind, _Held(held.item, now_s, held.size))
            out += told
        return out

    def flush(self) -> list[tuple[T, int]]:
        """Return all repeats, and forget everything."""
        return [told for kind in list(self._held) for told in self._drop(kind)]

    def _hold(self, kind: Hashable, held: _Held[T]) -> None:
        self._held[kind] = held
        self._size += held.size

    def _drop(self, kind: Hashable) -> list[tuple[T, int]]:
        held = self._held.pop(kind)
        self._size -= held.size
        return [(held.item, held.count)] if held.count else []
