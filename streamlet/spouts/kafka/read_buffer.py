"""What one partition has fetched and not yet emitted: whole answers, unpacked one batch at a time. Pure.

An answer is kept as bytes. A batch becomes *rows* (values of tuples) in one pass over its columns, or Records when the
scheme has no way with columns or it failed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from streamlet.base.errors import hurts_one_tuple
from streamlet.components.columns import Columns
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.fetch.truncation import LeaderEpochs
from streamlet.kafka.records.record_batch import RecordBatch
from streamlet.spouts.kafka.dead_letters.original_records import OriginalRecords
from streamlet.spouts.kafka.offset_ledger import OffsetLedger
from streamlet.spouts.kafka.offset_marks import OffsetMarks
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.schemes.scheme import Column, Record, RowOfEach

HEAVY_RECORD_BYTES = 16 * 1024
"""Size of a large record: its own bytes count while it is open, smaller ones count with their usual size until they
fail."""

USUAL_OVER = 4096
"""Records over which the mean of the smaller ones is taken, about."""

LOADED = 128
"""Records after which no further batch is unpacked; a larger batch is unpacked whole."""

LOADED_BYTES = 64 * 1024
"""Bytes of values after which no further batch is unpacked."""


class WaitingRecords:
    """Unpacked records on their way out, in order: offsets, and rows or Records."""

    # Two columns and a place in them: what leaves together is cut out, without a look at each. One batch is kept as it
    # came, mostly as a range of offsets and as Columns: a number and a list for each record are made if asked for.

    __slots__ = ("_at", "_offsets", "_rows")

    def __init__(self) -> None:
        self._offsets: Sequence[int] = ()
        self._rows: list[Any] | Columns = []
        self._at = 0

    def __len__(self) -> int:
        return len(self._offsets) - self._at

    def extend(self, offsets: Sequence[int], rows: Sequence[Any] | Columns) -> None:
        """Add records behind the others. The offsets and Columns belong to this object then."""
        if self._at == len(self._offsets):
            # A list is the scheme's, which may fill it again.
            self._offsets, self._rows, self._at = offsets, rows if isinstance(rows, Columns) else [*rows], 0
            return
        own = self._offsets if isinstance(self._offsets, list) else [*self._offsets]
        own.extend(offsets)
        self._offsets = own
        if isinstance(self._rows, Columns):
            if isinstance(rows, Columns):
                self._rows.extend(rows)
                return
            self._rows = [*self._rows]
        self._rows.extend(rows)

    def take(self, most: int) -> tuple[Sequence[int], list[Any] | Columns]:
        """Take the next records, up to ``most``; return offsets and rows."""
        some = slice(self._at, self._at + most)
        offsets, rows = self._offsets[some], self._rows[some]
        self._at += len(offsets)
        return offsets, rows

    def next(self) -> tuple[int, Any]:
        """Take the next record; return its offset and row."""
        at = self._at
        self._at = at + 1
        return self._offsets[at], self._rows[at]

    def put_back(self, count: int) -> None:
        """Undo the taking of the last ``count`` records."""
        self._at -= count

    def cut(self, end: int) -> Sequence[int]:
        """Drop the records from offset ``end`` on; return their offsets."""
        at = bisect_left(self._offsets, end, self._at)
        dropped = self._offsets[at:]
        self._offsets, self._rows = self._offsets[:at], self._rows[:at]
        return dropped

    def clear(self) -> None:
        """Drop all records."""
        self._offsets, self._rows, self._at = (), [], 0


class _BufferedAnswer(NamedTuple):
    """One fetch answer in the buffer."""

    batches: Iterator[RecordBatch]
    size_bytes: int
    first_offset: int
    next_offset: int
    time_ms: int = -1
    """The time of the first batch, as of its header; -1: not known."""
    lost: bool = False
    """True: nothing was fetched, the offsets below ``next_offset`` are gone from the log."""


class ReadBuffer:
    """Fetched and not yet emitted: whole answers, unpacked one batch at a time.

    ``columns`` is the scheme's way with whole columns, if it has one; otherwise rows are Records. Everything that gives
    no row moves the ledger on.
    """

    def __init__(
        self,
        partition: Partition,
        ledger: OffsetLedger[Any],
        columns: Callable[[Column, Column], RowOfEach] | None,
        end: int | None,
        originals: OriginalRecords | None = None,
    ) -> None:
        self.position = ledger.position
        """The next offset to ask a broker for."""
        self.leader_epoch = -1
        """The leader epoch of the record before ``position``; -1 unknown."""
        self.size_bytes = 0
        """Bytes of all answers here; each counts whole until its last record is out."""
        self.waiting = WaitingRecords()
        """The records of the batch that is being emitted. Never replaced: the manager holds it too."""
        self.heavy: dict[int, int] = {}
        """Offset -> bytes of large records, until they are emitted. Never replaced: the manager holds it too."""
        self.usual_bytes = 0.0
        """Mean size of the smaller records lately."""
        self._partition = partition
        self._ledger = ledger
        self._columns = columns
        self._originals = originals
        self._end = end
        self._fetched: deque[_BufferedAnswer] = deque()
        self._batch_end = ledger.position
        self._loaded_bytes = 0
        """Bytes of the values that the last ``load`` has unpacked."""
        self._epochs = LeaderEpochs()
        self.times_ms = OffsetMarks()
        """The time of the first record of each ``load``."""
        self._unpack = self._from_columns if columns is not None else self._one_by_one

    def __bool__(self) -> bool:
        """Return whether an answer is not used up yet."""
        return bool(self._fetched)

    @property
    def has_room(self) -> bool:
        """Whether another answer may be asked for: one at most waits after the one being emitted."""
        return len(self._fetched) < 2

    @property
    def unpacked_bytes(self) -> int:
        """Bytes of the values that are unpacked. All of them stay until the last is out."""
        return self._loaded_bytes if self.waiting else 0

    def starts_in(self, leader_epoch: int) -> None:
        """Note the leader epoch of the record before ``position``."""
        if leader_epoch >= 0:
            self.leader_epoch = leader_epoch
            self._epochs.restart(self.position - 1, leader_epoch)

    def add(
        self,
        batches: Iterator[RecordBatch],
        size_bytes: int,
        next_offset: int,
        leader_epoch: int = -1,
        time_ms: int = -1,
    ) -> None:
        """Take in an answer for ``position``; ``leader_epoch`` is the last batch's, -1 for no batch."""
        if next_offset > self.position:
            self._fetched.append(_BufferedAnswer(batches, size_bytes, self.position, next_offset, time_ms))
            self.position = next_offset
            self.size_bytes += size_bytes
            if leader_epoch >= 0:
                self.leader_epoch = leader_epoch

    def skip_to(self, log_start: int) -> None:
        """Read on at ``log_start``, once the answers before are emitted."""
        self._fetched.append(_BufferedAnswer(iter(()), 0, self.position, log_start, lost=True))
        self.position = log_start
        self.leader_epoch = -1

    def refetch(self) -> None:
        """Drop everything that is not emitted; read on from the ledger's position."""
        self.waiting.clear()
        self.heavy.clear()
        self._batch_end = self._ledger.position
        self._fetch_again_from(self._ledger.position)

    def _fetch_again_from(self, offset: int) -> None:
        self._fetched.clear()
        self.size_bytes = 0
        self.position = offset
        self.leader_epoch = self.leader_epoch_at(offset)

    def leader_epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record before ``offset``; -1 unknown."""
        return self._epochs.before(offset)

    def time_ms_at(self, offset: int) -> float | None:
        """Return about the time of a record, or of the one before; None: not known."""
        # A batch that waits to be unpacked may be far younger than the records before it: its header has its time.
        for answer in reversed(self._fetched):
            if self._batch_end <= answer.first_offset <= offset:
                return answer.time_ms if answer.time_ms >= 0 else None
        return self.times_ms.at(offset)

    def load(self) -> bool:
        """Unpack the next batches into ``waiting``, some records of them; False when none is at hand.

        Raises the KafkaError of an answer that cannot be unpacked; it is to be fetched again then.
        """
        # Several, since a producer that does not linger makes batches of one record: each would be a turn's emit, and
        # a run through all bolts, of its own. Few bytes: no bound counts records that wait here.
        self._loaded_bytes = 0
        # One time for all batches of this call: a producer that does not linger makes batches of one record.
        timed = False
        while self._fetched:
            answer = self._fetched[0]
            try:
                for batch in answer.batches:
                    if not timed and len(batch):
                        timed = self._note_time(batch)
                    self._take(batch)
                    # Rule: say that records wait only where some do. Of a batch behind the end none are left, however
                    # many bytes it has unpacked.
                    if self.waiting and (len(self.waiting) >= LOADED or self._loaded_bytes >= LOADED_BYTES):
                        return True
            except KafkaError:
                # A generator that raised is over: the rest of the answer must be fetched again, not taken for empty.
                if not self.waiting:
                    self.refetch()
                    raise
                self._fetch_again_from(self._batch_end)  # what came before the damage is emitted first
                return True
            if self.waiting:
                return True
            self._fetched.popleft()
            self.size_bytes -= answer.size_bytes
            # Pass all that is gone from the log. `PartitionOpener`, which finds a loss, counts it.
            self._ledger.pass_to(answer.next_offset if answer.lost else self._limited(answer.next_offset))
        return False

    def _note_time(self, batch: RecordBatch) -> bool:
        time_ms = batch.timestamp(0)
        if time_ms >= 0:  # there are records without a time
            self.times_ms.note(batch.base_offset, time_ms)
        return True

    def _take(self, batch: RecordBatch) -> None:
        self._batch_end = self._limited(batch.next_offset)
        if batch.leader_epoch != self._epochs.latest:
            self._epochs.forget_below(self._ledger.committed)
            self._epochs.note(batch.base_offset, batch.leader_epoch)
        # Rule: no scheme sees a batch that lies whole behind the fixed end (--until-caught-up, a stop). Its records,
        # and those behind the end of one that reaches over it, belong to a later run.
        if len(batch) and (self._end is None or batch.base_offset < self._end):
            if self._originals is not None:
                self._originals.add(batch)
            self.waiting.extend(*self._unpack(batch))
            if self._end is not None and batch.next_offset > self._end:
                for offset in self.waiting.cut(self._end):
                    self.heavy.pop(offset, None)
        if not self.waiting:
            self.batch_done()

    def batch_done(self) -> None:
        """Move the ledger past all unpacked records, gaps at its end included: its last record is out."""
        self.waiting.clear()  # else an idle partition would keep its last batch
        self._ledger.pass_to(self._batch_end)

    def _limited(self, offset: int) -> int:
        return offset if self._end is None else min(offset, max(self._end, self._ledger.position))

    def _from_columns(self, batch: RecordBatch) -> tuple[Sequence[int], Sequence[Any] | Columns]:
        try:
            assert self._columns is not None
            rows = self._columns(batch.keys, batch.values)
            if len(rows) != len(batch):
                raise ValueError(f"{len(rows)} rows of {len(batch)} records")  # which row is of which record is unknown
        except BaseException as error:  # a scheme is the user's code; one by one the bad record is named
            if not hurts_one_tuple(error):
                raise
            return self._one_by_one(batch)
        self._weigh(batch)
        return batch.offsets(), rows

    def _one_by_one(self, batch: RecordBatch) -> tuple[Sequence[int], Sequence[Any] | Columns]:
        topic, number = self._partition.topic, self._partition.number
        self._weigh(batch)
        columns = zip(batch.offsets(), batch.timestamps(), batch.keys, batch.values, strict=True)
        records = [
            Record(topic, number, offset, timestamp, key, value, batch.headers(index))
            for index, (offset, timestamp, key, value) in enumerate(columns)
        ]
        return batch.offsets(), records

    def _weigh(self, batch: RecordBatch) -> None:
        # Passes in C over the column do for the usual batch of small records.
        total, count = sum(map(len, filter(None, batch.values))), len(batch)
        self._loaded_bytes += total
        if total >= HEAVY_RECORD_BYTES and max(map(len, filter(None, batch.values))) >= HEAVY_RECORD_BYTES:
            for offset, value in zip(batch.offsets(), batch.values, strict=True):
                if value is not None and len(value) >= HEAVY_RECORD_BYTES:
                    self.heavy[offset] = len(value)
                    total -= len(value)
                    count -= 1
        if count:
            share = min(1.0, count / USUAL_OVER) if self.usual_bytes else 1.0
            self.usual_bytes += share * (total / count - self.usual_bytes)
