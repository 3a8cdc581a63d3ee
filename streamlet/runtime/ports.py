"""The contract between a worker's loop and what carries tuples to other workers."""

from __future__ import annotations

import selectors
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamlet.runtime.tasks.outbox import Run


@dataclass(slots=True)
class Outgoing:
    """What one turn of the loop has for one other worker."""

    runs: list[Run] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    deltas: list[int] = field(default_factory=list)
    """Ack deltas, by root: two columns of equal length."""
    fails: list[int] = field(default_factory=list)
    full: bool | None = None
    """This worker crossed its high-water mark (True), or came back below it (False): spouts elsewhere pause."""

    def __bool__(self) -> bool:
        return bool(self.runs or self.roots or self.fails) or self.full is not None


@dataclass(slots=True)
class Incoming:
    """One frame of another worker, decoded; see Outgoing."""

    runs: list[Run]
    roots: list[int]
    deltas: list[int]
    fails: list[int]
    full: bool | None = None
    worker: int = -1


Traffic = tuple[Mapping[int, int], Mapping[int, int]]
"""Two counts of frames by worker: sent, and received."""


class Links(Protocol):
    """Ordered, at-most-once, never blocking. All methods are the loop's, on its thread.

    What was handed to ``send`` is either delivered once or lost together with the link; nothing is resent.
    Deliberately not in it: how links come to be (the control thread brings them), and any waiting.
    """

    def attach(self, selector: selectors.BaseSelector) -> None:
        """Sockets are registered in the loop's selector, with a callable as data."""
        ...

    def send(self, worker: int, outgoing: Outgoing) -> list[Run] | None:
        """Queue frames; runs of one tuple each that fit in none, and were not sent. None without a link to that
        worker: nothing was sent and nothing will be.
        """
        ...

    def received(self) -> list[Incoming]:
        """Frames that have arrived since the last call, in order per link."""
        ...

    def unsent_bytes(self) -> int:
        """The longest queue of any link, in bytes."""
        ...

    def traffic(self) -> Traffic:
        """Frames sent to and received from each worker over the link there is now."""
        ...

    def close(self) -> None:
        """Close all links. Never blocks."""
        ...


class NoLinks:
    """The whole topology is in this worker: nothing ever leaves it."""

    def attach(self, selector: selectors.BaseSelector) -> None:
        pass

    def send(self, worker: int, outgoing: Outgoing) -> list[Run] | None:
        raise AssertionError(f"a plan of one worker sent to worker {worker}")

    def received(self) -> list[Incoming]:
        return []

    def unsent_bytes(self) -> int:
        return 0

    def traffic(self) -> Traffic:
        return {}, {}

    def close(self) -> None:
        pass
