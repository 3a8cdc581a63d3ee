"""One partition's open offsets, and up to where it may be committed. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from operator import lt
from typing import Generic, TypeVar

from streamlet.spouts.kafka.partition_counters import PartitionCounters

V = TypeVar("V")


class LedgerViolation(AssertionError):
    """An impossible call: a bug of the caller, never of the input."""


class OffsetLedger(Generic[V]):
    """One partition's open offsets, and up to where it may be committed.

    The one owner of per-offset state. Values (``V``, never None) are kept while an offset is open: a retry emits them
    from memory. An emitted offset is in exactly one of these; all other offsets below ``position`` are done, were
    never there, or were reported lost:

        all_emitted -> _sets (in flight, first try) --all_acked--> done
                       | stand_alone               \
                       v                            | ack or fail of one of them
        emitted --> _first (in flight, first try) --+-ack--> done
                       | fail                       v ^
                       v                            | | ack
                    _failed (waits) --retried--> _again (in flight)
                       |        ^------fail---------/
                       v given_up, letter_written: done
    """

    # Acked offsets are not kept: only open ones are listed, and everything below the lowest open offset is done. So
    # gaps (compaction, transaction markers, aborted records) need no care, and memory follows the number in flight,
    # never the distance between the oldest open offset and the newest.

    __slots__ = (
        "_again",
        "_failed",
        "_first",
        "_in_sets",
        "_low",
        "_sets",
        "committed",
        "counts",
        "position",
    )

    def __init__(self, start: int, counts: PartitionCounters | None = None) -> None:
        # Offsets are emitted in ascending order, so the first key of _first is its lowest: next_committable is cheap.
        self._first: dict[int, V] = {}
        self._failed: dict[int, V] = {}
        self._again: dict[int, V] = {}
        # First offset of a set -> its offsets and values: what was emitted together costs one entry.
        self._sets: dict[int, tuple[Sequence[int], Iterable[V]]] = {}
        self._in_sets = 0
        # Heap of all offsets in _failed and _again, and of some that are done: these are dropped when they come up. A
        # scan of half a million failed offsets at each commit would take the loop's time.
        self._low: list[int] = []
        self.position = start
        """The next offset to read: everything below was emitted, passed over or lost."""
        self.committed = start
        self.counts = PartitionCounters() if counts is None else counts

    def emitted(self, offset: int, values: V) -> None:
        """Note a record's first emit."""
        # Before the emit: one that is refused fails here, and several are taken back (`not_emitted`).
        if offset < self.position:
            raise LedgerViolation(f"offset {offset} emitted below the read position {self.position}")
        self._first[offset] = values
        self.position = offset + 1

    def all_emitted(self, offsets: Sequence[int], values: Iterable[V]) -> None:
        """Note the first emit of records, in ascending order. For what no emit took back: ``not_emitted``.

        ``values``: as many, to be read when a record comes to stand alone.
        """
        if offsets[0] < self.position or not _rise(offsets):
            raise LedgerViolation(
                f"offsets {offsets[0]} to {offsets[-1]} emitted below {self.position} or not in order"
            )
        self._sets[offsets[0]] = offsets, values
        self._in_sets += len(offsets)
        self.position = offsets[-1] + 1

    def not_emitted(self, offsets: Sequence[int], position: int) -> None:
        """Undo ``all_emitted``: an emit refused all of them. ``position``: where it stood before."""
        del self._sets[offsets[0]]
        self._in_sets -= len(offsets)
        self.position = position

    def all_acked(self, offsets: Sequence[int]) -> bool:
        """Close records that were emitted together; False: not as a whole, for their set is parted or closed."""
        found = self._sets.get(offsets[0])
        if found is None or found[0] is not offsets:
            return False
        del self._sets[offsets[0]]
        self._in_sets -= len(offsets)
        return True

    def stand_alone(self, offsets: Sequence[int]) -> None:
        """Let the records that were emitted last stand each for itself: they will be acked one by one."""
        _, values = self._sets.pop(offsets[0])
        self._in_sets -= len(offsets)
        self._first.update(zip(offsets, values, strict=True))

    def _part(self, offset: int) -> bool:
        """Let the records of an offset's set stand each for itself; False: it is in none."""
        for first, (offsets, values) in self._sets.items():
            if first <= offset <= offsets[-1]:
                if offset not in offsets:  # it was never there, or gave no tuple
                    return False
                del self._sets[first]
                self._in_sets -= len(offsets)
                # Into `_again`, whose lowest offset the heap knows: in `_first` they would stand behind later ones.
                self._again.update(zip(offsets, values, strict=True))
                for one in offsets:
                    heapq.heappush(self._low, one)
                return True
        return False

    def pass_to(self, next_offset: int) -> None:
        """Pass everything below ``next_offset``: records without tuples, and gaps, of lost records too."""
        # Open offsets stay: their values are here, so they can still be acked or replayed.
        if next_offset > self.position:
            self.position = next_offset

    def acked(self, offset: int) -> bool:
        """Close a processed record; False, and counted: it is not in flight (late, double, foreign)."""
        if self._first.pop(offset, None) is not None or self._again.pop(offset, None) is not None:
            return True
        if self._part(offset):
            del self._again[offset]
            return True
        self.counts.ignore()
        return False

    def first_acked(self, offsets: Iterable[int]) -> list[int]:
        """Close processed records that are in their first try; return the other offsets."""
        pop = self._first.pop
        return [offset for offset in offsets if pop(offset, None) is None]

    def failed(self, offset: int) -> bool:
        """Let a failed record wait for a retry; False: it is not in flight."""
        values = self._first.pop(offset, None)
        if values is not None:
            heapq.heappush(self._low, offset)
        elif offset in self._again or self._part(offset):
            values = self._again.pop(offset)
        if values is None:
            self.counts.ignore()
            return False
        self._failed[offset] = values
        self.counts.fail()
        return True

    def values_of(self, offset: int) -> V:
        """Return the values of a record that has failed and waits."""
        return self._failed[offset]

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
        self.counts.give_up(offset)

    def awaits_letter(self, offset: int, values: V) -> None:
        """Note a record that is open until its dead letter is written."""
        if offset < self.position:
            raise LedgerViolation(f"offset {offset} passed over below the read position {self.position}")
        self._failed[offset] = values
        heapq.heappush(self._low, offset)
        self.position = offset + 1

    def letter_written(self, offset: int) -> None:
        """Close a record whose dead letter is written; the commit counts it."""
        if self._failed.pop(offset, None) is None:
            raise LedgerViolation(f"offset {offset} has a dead letter, but it does not wait for one")
        self.counts.letters.add(offset)

    def passed_poison(self, offset: int) -> None:
        """Pass over a record that cannot be decoded, by a named policy."""
        if offset < self.position:
            raise LedgerViolation(f"offset {offset} passed over below the read position {self.position}")
        self.position = offset + 1
        self.counts.give_up(offset)

    def waits(self, offset: int | None) -> bool:
        """Return whether a record has failed and waits for its retry."""
        return offset in self._failed

    def open_among(self, offsets: Sequence[int]) -> list[int]:
        """Return those of ascending offsets that are open, in order."""
        if not offsets:
            return []
        first, last = offsets[0], offsets[-1]
        in_sets: set[int] = set()
        for own, _ in self._sets.values():
            if own[0] <= last and first <= own[-1]:
                in_sets.update(own)
        kept = (in_sets, self._first, self._failed, self._again)
        return [offset for offset in offsets if any(offset in some for some in kept)]

    def next_committable(self) -> int:
        """Return the lowest open offset, else the read position."""
        low = self._low
        while low and low[0] not in self._failed and low[0] not in self._again:
            heapq.heappop(low)
        lowest = min(next(iter(self._first), self.position), next(iter(self._sets), self.position))
        return min(lowest, low[0]) if low else lowest

    def committed_to(self, offset: int) -> None:
        """Note that the store holds ``offset``; it never goes back and never passes an open offset."""
        if offset > self.next_committable():
            raise LedgerViolation(f"offset {offset} committed past the lowest open one {self.next_committable()}")
        if offset > self.committed:
            self.committed = offset
            self.counts.committed_to(offset)

    @property
    def open_count(self) -> int:
        """Offsets emitted and neither acked nor given up."""
        return self._in_sets + len(self._first) + len(self._failed) + len(self._again)

    @property
    def waiting_count(self) -> int:
        """Offsets that failed and wait for a retry."""
        return len(self._failed)


def _rise(offsets: Sequence[int]) -> bool:
    """Tell whether each is above the one before."""
    # Those of a batch without holes are a range, and are not looked at one by one.
    return offsets.step > 0 if isinstance(offsets, range) else all(map(lt, offsets, offsets[1:]))
