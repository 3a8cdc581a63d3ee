"""The open offsets of one partition, and up to where it may be committed.

The one owner of per-offset state. Acked offsets are not kept: only *open* ones are listed, and everything below the
lowest open offset is done. So gaps (compaction, transaction markers, aborted records) need no care, and memory follows
the number in flight, never the distance between the oldest open offset and the newest.

An emitted offset is in exactly one of three dicts; all other offsets below ``position`` are done, were never there, or
were reported lost:

    emitted --> _first (in flight, first try) --ack--> done
                   | fail                        ^
                   v                             | ack
                _failed (waits) --retried--> _again (in flight again)
                   |        ^------fail---------/
                   v given_up: done, counted
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")


class LedgerViolation(AssertionError):
    """An impossible call: a bug of the caller, never of the input."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``first`` to ``end - 1``."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"[{self.first}, {self.end - 1}] ({self.end - self.first} offsets)"


class OffsetLedger(Generic[V]):
    """One partition's offsets. Pure: no clock, no I/O.

    Values (``V``, never None) are kept while an offset is open: a retry emits them from memory.
    """

    __slots__ = (
        "_again",
        "_failed",
        "_first",
        "acked_count",
        "committed",
        "failed_count",
        "given_up_count",
        "ignored_count",
        "lost_count",
        "position",
    )

    def __init__(self, start: int) -> None:
        # Offsets are emitted in ascending order, so the first key of _first is its lowest: next_committable is cheap.
        self._first: dict[int, V] = {}
        self._failed: dict[int, V] = {}
        self._again: dict[int, V] = {}
        self.position = start
        """The next offset to read: everything below was emitted, passed over or lost."""
        self.committed = start
        self.acked_count = 0
        self.failed_count = 0
        self.given_up_count = 0
        self.ignored_count = 0
        self.lost_count = 0

    def emitted(self, offset: int, values: V) -> None:
        """Note a record's first emit."""
        # Called before the emit: a tree without receivers is acked inside it.
        if offset < self.position:
            raise LedgerViolation(f"offset {offset} emitted below the read position {self.position}")
        self._first[offset] = values
        self.position = offset + 1

    def pass_to(self, next_offset: int) -> None:
        """Pass everything below ``next_offset``: records without tuples, and gaps."""
        if next_offset > self.position:
            self.position = next_offset

    def lost(self, log_start: int) -> OffsetRange | None:
        """Skip to ``log_start``; return the unread range that is gone, or None."""
        # Open offsets stay: their values are here, so they can still be acked or replayed.
        if log_start <= self.position:
            return None
        gone = OffsetRange(self.position, log_start)
        self.position = log_start
        self.lost_count += gone.end - gone.first
        return gone

    def acked(self, offset: int) -> bool:
        """Close a processed record; False, and counted: it is not in flight (late, double, foreign)."""
        if self._first.pop(offset, None) is None and self._again.pop(offset, None) is None:
            self.ignored_count += 1
            return False
        self.acked_count += 1
        return True

    def failed(self, offset: int) -> bool:
        """Let a failed record wait for a retry; False: it is not in flight."""
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
        """Return a failed record's values: it is about to be emitted again."""
        try:
            values = self._failed.pop(offset)
        except KeyError:
            raise LedgerViolation(f"offset {offset} retried, but it has not failed") from None
        self._again[offset] = values
        return values

    def given_up(self, offset: int) -> None:
        """Close a failed record without a retry, by a named policy."""
        if self._failed.pop(offset, None) is None:
            raise LedgerViolation(f"offset {offset} given up, but it has not failed")
        self.given_up_count += 1

    def passed_poison(self, offset: int) -> None:
        """Pass over a record that cannot be decoded, by a named policy."""
        if offset < self.position:
            raise LedgerViolation(f"offset {offset} passed over below the read position {self.position}")
        self.position = offset + 1
        self.given_up_count += 1

    def next_committable(self) -> int:
        """Return the lowest open offset, else the read position. O(failed offsets)."""
        # A scan of the failed and retried ones only: they are few, and in no order.
        lowest = next(iter(self._first), self.position)
        if self._failed:
            lowest = min(lowest, min(self._failed))
        if self._again:
            lowest = min(lowest, min(self._again))
        return lowest

    def committed_to(self, offset: int) -> None:
        """Note that the store holds ``offset``; it never goes back and never passes an open offset."""
        if offset > self.next_committable():
            raise LedgerViolation(f"offset {offset} committed past the lowest open one {self.next_committable()}")
        if offset > self.committed:
            self.committed = offset

    @property
    def open_count(self) -> int:
        """Offsets emitted and neither acked nor given up."""
        return len(self._first) + len(self._failed) + len(self._again)

    @property
    def waiting_count(self) -> int:
        """Offsets that failed and wait for a retry."""
        return len(self._failed)
