"""The instructions of a supervisor, one class each, as data.

A message of the control protocol (``worker.messages``) is an instruction, too: send it to every worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamlet.runtime.worker.messages import Book, Close, Cut, Lost, Pause, Quiet, TickNow, Whole


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker process (or slot) of this epoch."""

    worker: int
    epoch: int


@dataclass(frozen=True, slots=True)
class AskWhy:
    """Ask the launcher why started workers have not begun."""

    workers: frozenset[tuple[int, int]]
    """Index and epoch."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Leave nothing alive of this worker's epoch, and close its channel."""

    worker: int
    epoch: int


@dataclass(frozen=True, slots=True)
class NoteDeadly:
    """A worker is ended for ``why``: if one tuple is to blame, the end of the run names it."""

    worker: int
    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """Tuples flow again through a replacement: its components started over."""

    worker: int
    epoch: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The run has failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class TellUser:
    """A line for a person to read."""

    level: str
    text: str
    worker: int | None = None
    """The worker that it is about, and its epoch; None: several, or none."""
    epoch: int = 0


ToWorkers = Book | Whole | Pause | TickNow | Quiet | Lost | Cut | Close
Instruction = Start | AskWhy | Kill | NoteDeadly | Replaced | GiveUp | TellUser | ToWorkers
