"""Records as they were read, kept until they are done: a dead letter is made of its record, not of its tuples. Pure.

Whole batches are kept, at one look a batch, and dropped from the oldest on. Where one record holds its batch for long,
the few that are open are taken out of it, and the batch goes; where most of a batch is open, those behind it go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from streamlet.kafka.records.record_batch import RecordBatch
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.schemes.scheme import Record

WHOLE_BYTES = 4 << 20
"""Bytes of whole batches that are kept in any case; above, those that are mostly done are thinned out."""

PRUNED_AT = 64
"""Single records kept before the first look whether some are done."""


class OpenOffsets(Protocol):
    """What the ledger knows of open records."""

    @property
    def position(self) -> int: ...

    def next_committable(self) -> int: ...

    def open_among(self, offsets: Sequence[int]) -> list[int]: ...


class NotEmitted:
    """Stands for a ledger whose emitted records are all done."""

    # With exactly once: a record that fails is read again, and its letter is made when it is passed over.

    __slots__ = ("_ledger",)

    def __init__(self, ledger: OpenOffsets) -> None:
        self._ledger = ledger

    @property
    def position(self) -> int:
        """The next offset to read."""
        return self._ledger.position

    def next_committable(self) -> int:
        """Return the read position."""
        return self._ledger.position

    def open_among(self, offsets: Sequence[int]) -> list[int]:
        """Return none of them."""
        return []


class Original(NamedTuple):
    """A record as it was read."""

    record: Record
    leader_epoch: int


class OriginalRecords:
    """The open records of one partition, and some done ones."""

    def __init__(self, partition: Partition, ledger: OpenOffsets) -> None:
        self._partition = partition
        self._ledger = ledger
        self._batches: list[tuple[RecordBatch, int]] = []
        """Batches with their bytes, oldest first; the end of one may stand behind it, fetched a second time."""
        self._bases: list[int] = []
        """Their first offsets. A record is found by bisection: where producers do not linger, each is a batch."""
        self._single: dict[int, Original] = {}
        self._last_single = -1
        """The highest offset among them."""
        self._prune_at = PRUNED_AT
        self._sweep_at = WHOLE_BYTES
        """Bytes of whole batches before the next look behind one that cannot be thinned out."""
        self._whole_bytes = 0
        self._single_bytes = 0

    @property
    def size_bytes(self) -> int:
        """About the bytes of everything kept."""
        return self._whole_bytes + self._single_bytes

    def add(self, batch: RecordBatch) -> None:
        """Keep a batch that is about to be emitted; drop done ones."""
        size = sum(map(len, filter(None, batch.values))) + sum(map(len, filter(None, batch.keys)))
        size += sum(map(len, batch.raw_headers.values()))
        bases = self._bases
        while bases and bases[-1] > batch.base_offset:  # fetched again, for it was not emitted
            bases.pop()
            self._whole_bytes -= self._batches.pop()[1]
        bases.append(batch.base_offset)
        self._batches.append((batch, size))
        self._whole_bytes += size
        self.drop_done()

    def drop_done(self) -> None:
        """Drop batches and records that are done."""
        low, position = self._ledger.next_committable(), self._ledger.position
        done = 0
        for batch, size in self._batches:
            # Rule: no batch is kept whole for a few open records. Poisoned ones are open for
            # minutes, and each batch may have some: the batches would take many times the memory of the open records.
            # But not before a batch was emitted whole: records that wait are not open yet, and would be lost.
            is_over = batch.next_offset <= low
            if not is_over and (self._whole_bytes <= WHOLE_BYTES or batch.next_offset > position):
                break
            if not is_over and not self._thin(batch):
                break
            self._whole_bytes -= size
            done += 1
        if done:
            del self._batches[:done], self._bases[:done]
        if self._whole_bytes > self._sweep_at:
            self._sweep(position)
        if self._single and self._last_single < low:
            self._single.clear()
            self._single_bytes = 0
        elif len(self._single) >= self._prune_at:
            self._prune()

    def _sweep(self, position: int) -> None:
        """Thin out every emitted batch, also behind one that stays."""
        # Rule: a batch that stays holds none behind it. Where producers do not linger each record is a batch, and one
        # that fails for minutes would hold all later ones. Not at each new batch: the next look is due at twice the
        # bytes that stay.
        staying = [one for one in self._batches if one[0].next_offset > position or not self._thin(one[0])]
        self._batches = staying
        self._bases = [batch.base_offset for batch, _ in staying]
        self._whole_bytes = sum(size for _, size in staying)
        self._sweep_at = max(WHOLE_BYTES, 2 * self._whole_bytes)

    def _thin(self, batch: RecordBatch) -> bool:
        """Take the open records out of a batch; False: too many of them are open."""
        offsets = batch.offsets()
        found = self._ledger.open_among(offsets)
        if 2 * len(found) > len(offsets):
            return False
        for offset in found:
            original = self._cut_out(batch, offset)
            if original is not None and offset not in self._single:
                self._single[offset] = original
                self._single_bytes += _bytes_of(original)
                self._last_single = max(self._last_single, offset)
        return True

    def _prune(self) -> None:
        still = self._ledger.open_among(sorted(self._single))
        self._single = {offset: self._single[offset] for offset in still}
        self._single_bytes = sum(map(_bytes_of, self._single.values()))
        self._prune_at = 2 * len(still) + PRUNED_AT

    def of(self, offset: int) -> Original:
        """Return an open record. Raises KeyError for one that was never read here."""
        if offset in self._single:
            return self._single[offset]
        # Of two batches with one first offset the later is the rest of the earlier: one fetch began inside of it.
        for at in range(bisect_right(self._bases, offset) - 1, -1, -1):
            original = self._cut_out(self._batches[at][0], offset)
            if original is not None:
                return original
        raise KeyError(offset)

    def _cut_out(self, batch: RecordBatch, offset: int) -> Original | None:
        offsets = batch.offsets()
        at = bisect_left(offsets, offset)
        if at == len(offsets) or offsets[at] != offset:
            return None
        key, value = batch.keys[at], batch.values[at]
        record = Record(
            self._partition.topic,
            self._partition.number,
            offset,
            batch.timestamp(at),
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            batch.headers(at),
        )
        return Original(record, batch.leader_epoch)


def _bytes_of(original: Original) -> int:
    record = original.record
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
