"""What was emitted of one partition, what became of it, and up to where it may be committed (SEEDMAP K5).

The one owner of per-offset state. Acked offsets are not kept at all: what is *open* is listed, and everything
below the lowest open offset is done. So gaps (compaction, transaction markers, aborted records) need no care,
and memory follows what is in flight, never the distance between the oldest open offset and the newest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")


class LedgerViolation(AssertionError):
    """The ledger was told something impossible: a bug of the caller, never of the input."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``first`` to ``end - 1``."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"[{self.first}, {self.end - 1}] ({self.end - self.first} offsets)"


class OffsetLedger(Generic[V]):
    """One partition's offsets. Pure: no clock, no I/O. Values (``V``, never None) are kept for a replay.

    An emitted offset is in exactly one of: ``_first`` (in flight, first try), ``_failed`` (waits for a retry),
    ``_again`` (in flight again). It leaves by an ack or by being given up. All other offsets below ``position``
    are done, were never there, or were reported lost.
    """

    __slots__ = (
        "_again",
        "_failed",
        "_first",
        "_position",
        "acked_count",
        "committed",
        "failed_count",
        "given_up_count",
        "ignored_count",
        "lost_count",
    )

    def __init__(self, start: int) -> None:
        self._first: dict[int, V] = {}  # ascending by construction: its first key is its least
        self._failed: dict[int, V] = {}
        self._again: dict[int, V] = {}
        self._position = start
        self.committed = start
        self.acked_count = 0
        self.failed_count = 0
        self.given_up_count = 0
        self.ignored_count = 0
        self.lost_count = 0

    @property
    def position(self) -> int:
        """The next offset to read: everything below was emitted, passed over or lost."""
        return self._position

    def emitted(self, offset: int, values: V) -> None:
        """A record is about to be emitted for the first time. Called *before* the emit: an ack may come inside it."""
        if offset < self._position:
            raise LedgerViolation(f"offset {offset} emitted below the read position {self._position}")
        self._first[offset] = values
        self._position = offset + 1

    def pass_to(self, next_offset: int) -> None:
        """Everything below ``next_offset`` was read; what was not emitted gave no tuple (K12) or is not there."""
        if next_offset > self._position:
            self._position = next_offset

    def lost(self, log_start: int) -> OffsetRange | None:
        """The log begins at ``log_start`` now. The unread range that went with it, or None.

        Open offsets are not touched: their values are here, so they can still be acked or replayed (T3, T8).
        """
        if log_start <= self._position:
            return None
        gone = OffsetRange(self._position, log_start)
        self._position = log_start
        self.lost_count += gone.end - gone.first
        return gone

    def acked(self, offset: int) -> bool:
        """The record's tree was processed. False, and counted, if it is not in flight (late, double, foreign)."""
        if self._first.pop(offset, None) is None and self._again.pop(offset, None) is None:
            self.ignored_count += 1
            return False
        self.acked_count += 1
        return True

    def failed(self, offset: int) -> bool:
        """The record's tree failed: it waits for a retry and holds the commit back. False if not in flight."""
        values = self._first.pop(offset, None)
        if values is None:
            values = self._again.pop(offset, None)
        if values is None:
            self.ignored_count += 1
            return False
        self._failed[offset] = values
        self.failed_count += 1
        return True

    def retried(self, offset: int) -> V:
        """A failed record is about to be emitted again; its values."""
        try:
            values = self._failed.pop(offset)
        except KeyError:
            raise LedgerViolation(f"offset {offset} retried, but it has not failed") from None
        self._again[offset] = values
        return values

    def given_up(self, offset: int) -> None:
        """A failed record will not be retried, by a named policy: it holds the commit back no longer."""
        if self._failed.pop(offset, None) is None:
            raise LedgerViolation(f"offset {offset} given up, but it has not failed")
        self.given_up_count += 1

    def passed_poison(self, offset: int) -> None:
        """A record that cannot be decoded is passed over, by a named policy."""
        if offset < self._position:
            raise LedgerViolation(f"offset {offset} passed over below the read position {self._position}")
        self._position = offset + 1
        self.given_up_count += 1

    def next_committable(self) -> int:
        """The offset a restart may begin at: the lowest open one, else the read position. O(what has failed)."""
        lowest = next(iter(self._first), self._position)
        if self._failed:
            lowest = min(lowest, min(self._failed))
        if self._again:
            lowest = min(lowest, min(self._again))
        return lowest

    def committed_to(self, offset: int) -> None:
        """The store holds ``offset`` now. It never goes back and never passes what is open."""
        if offset > self.next_committable():
            raise LedgerViolation(f"offset {offset} committed past the lowest open one {self.next_committable()}")
        if offset > self.committed:
            self.committed = offset

    @property
    def open_count(self) -> int:
        """Emitted and neither acked nor given up."""
        return len(self._first) + len(self._failed) + len(self._again)

    @property
    def waiting_count(self) -> int:
        """Failed and waiting for a retry."""
        return len(self._failed)

    def is_waiting(self, offset: int) -> bool:
        """Whether ``offset`` failed and waits for a retry."""
        return offset in self._failed
