"""The instructions of a supervisor, one class each, as data."""

from __future__ import annotations

from dataclasses import dataclass

from streamlet.runtime.links.dialing import Address


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker process (or slot) of this epoch."""

    worker: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Leave nothing alive of this worker's epoch, and close its channel."""

    worker: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SendBook:
    """Send the address book to every worker that listens."""

    version: int
    workers: dict[int, tuple[int, Address]]


@dataclass(frozen=True, slots=True)
class SendLost:
    """Tell every worker that this one is gone: all open trees have failed."""

    worker: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SendCut:
    """Tell every worker that a pair's link broke: all trees have failed.

    Links of the pair that were made before ``version`` are void.
    """

    pair: tuple[int, int]
    version: int


@dataclass(frozen=True, slots=True)
class SendWhole:
    """Tell every worker that all are linked."""

    version: int


@dataclass(frozen=True, slots=True)
class Replaced:
    """Tuples flow again through a replacement: its components began anew."""

    worker: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SendPause:
    """Tell every worker that its spouts emit no more: the run is ending."""


@dataclass(frozen=True, slots=True)
class SendStop:
    """Tell every worker to close."""

    clean: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The run has failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tell:
    """A line for a person to read."""

    level: str
    text: str


Instruction = Start | Kill | SendBook | SendLost | SendCut | SendWhole | Replaced | SendPause | SendStop | GiveUp | Tell
