"""What was fetched of a partition and is not emitted yet: whole answers, unpacked a batch at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from streamlet.kafka.errors import KafkaError
from streamlet.kafka.records.batch import RecordBatch
from streamlet.spouts.kafka.offset_ledger import OffsetLedger
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.scheme import Column, Record, Row

HEAVY_RECORD_BYTES = 16 * 1024
"""Records from this size on are counted by their bytes while in flight; smaller ones by number alone."""


@dataclass(slots=True)
class Fetched:
    """One partition's part of a fetch answer: batches, unpacked when asked for, and where to read on."""

    batches: Iterator[RecordBatch]
    size_bytes: int
    next_offset: int
    leader_epoch: int = -1
    """Of the last batch; -1 where there is none."""
    lost: bool = False
    """Nothing was fetched: the offsets up to ``next_offset`` are gone."""


class ReadBuffer:
    """Takes in fetch answers, and makes rows of them when they are wanted. Does no I/O; one thread.

    ``columns`` is the scheme's way with whole columns, if it has one; otherwise rows are Records. What gives no row
    moves the ledger on.
    """

    def __init__(
        self,
        partition: Partition,
        ledger: OffsetLedger[Any],
        columns: Callable[[Column, Column], list[Row | None]] | None,
        end: int | None,
    ) -> None:
        self.position = ledger.position
        """The next offset to ask a broker for."""
        self.leader_epoch = -1
        """The leader epoch the record before ``position`` was written in; -1 unknown."""
        self.size_bytes = 0
        """Whole answers count until their last record is out."""
        self.damage: KafkaError | None = None
        self.waiting: deque[tuple[int, Any]] = deque()
        """(offset, row or Record) of the batch that is being emitted. The same object for good."""
        self.heavy: dict[int, int] = {}
        """Offset -> bytes of large records, until they are done. The same object for good."""
        self._partition = partition
        self._ledger = ledger
        self._columns = columns
        self._end = end
        self._fetched: deque[Fetched] = deque()
        self._batch_end = ledger.position
        self._epochs: list[tuple[int, int]] = []  # (first offset, leader epoch), ascending
        self._unpack = self._from_columns if columns is not None else self._one_by_one

    def __bool__(self) -> bool:
        """Whether there are answers that are not used up."""
        return bool(self._fetched)

    @property
    def has_room(self) -> bool:
        """At most one whole answer waits behind the one being emitted (T14)."""
        return len(self._fetched) < 2

    def starts_in(self, leader_epoch: int) -> None:
        """What is known of the record before the first one that is read."""
        if leader_epoch >= 0:
            self.leader_epoch = leader_epoch
            self._epochs = [(self.position - 1, leader_epoch)]

    def add(self, fetched: Fetched) -> None:
        """An answer for ``position`` came."""
        if fetched.next_offset > self.position:
            self._fetched.append(fetched)
            self.position = fetched.next_offset
            self.size_bytes += fetched.size_bytes
            if fetched.leader_epoch >= 0:
                self.leader_epoch = fetched.leader_epoch

    def skip_to(self, log_start: int) -> None:
        """The log begins at ``log_start`` now: read on there, once what was fetched before is out."""
        self._fetched.append(Fetched(iter(()), 0, log_start, lost=True))
        self.position = log_start
        self.leader_epoch = -1

    def refetch(self) -> None:
        """Forget what was fetched and not emitted; read on from the ledger's position."""
        self._fetched.clear()
        self.waiting.clear()
        self.size_bytes = 0
        for offset in [offset for offset in self.heavy if offset >= self._ledger.position]:
            del self.heavy[offset]
        self._batch_end = self.position = self._ledger.position
        self.leader_epoch = self.leader_epoch_at(self.position)

    def leader_epoch_at(self, offset: int) -> int:
        """The leader epoch the record before ``offset`` was written in; -1 unknown."""
        epoch = -1
        for first, known in self._epochs:
            if first >= offset:
                break
            epoch = known
        return epoch

    def load(self) -> bool:
        """Make the next batch with records the waiting one. False when nothing is at hand."""
        while self._fetched:
            fetched = self._fetched[0]
            try:
                for batch in fetched.batches:
                    if self._take(batch):
                        return True
            except KafkaError as error:
                # The iterator is spent: what it did not give must be fetched again, not taken for empty.
                self.refetch()
                self.damage = error
                return False
            self._fetched.popleft()
            self.size_bytes -= fetched.size_bytes
            if fetched.lost:
                self._ledger.lost(fetched.next_offset)
            else:
                self._ledger.pass_to(self._limited(fetched.next_offset))
        return False

    def _take(self, batch: RecordBatch) -> bool:
        self._batch_end = self._limited(batch.next_offset)
        if not self._epochs or self._epochs[-1][1] != batch.leader_epoch:
            self._note_epoch(batch.base_offset, batch.leader_epoch)
        if len(batch):
            self.waiting.extend(self._unpack(batch))
            if self._end is not None and batch.next_offset > self._end:
                while self.waiting and self.waiting[-1][0] >= self._end:
                    self.heavy.pop(self.waiting.pop()[0], None)
        if self.waiting:
            return True
        self.batch_done()
        return False

    def batch_done(self) -> None:
        """The last record of the batch is out: what it holds none of is passed, too."""
        self._ledger.pass_to(self._batch_end)

    def _limited(self, offset: int) -> int:
        return offset if self._end is None else min(offset, max(self._end, self._ledger.position))

    def _note_epoch(self, offset: int, epoch: int) -> None:
        # What lies wholly below the committed offset is never asked for again.
        while len(self._epochs) > 1 and self._epochs[1][0] < self._ledger.committed:
            self._epochs.pop(0)
        self._epochs.append((offset, epoch))

    def _from_columns(self, batch: RecordBatch) -> Iterator[tuple[int, Any]]:
        try:
            assert self._columns is not None
            rows: Sequence[Row | None] = self._columns(batch.keys, batch.values)
            if len(rows) != len(batch):
                raise ValueError(f"{len(rows)} rows of {len(batch)} records")  # which is whose is not known
        except Exception:  # noqa: BLE001 - a scheme is the user's code; one by one, the bad record gets named
            return self._one_by_one(batch)
        self._weigh(batch)
        return zip(batch.offsets(), rows, strict=True)

    def _one_by_one(self, batch: RecordBatch) -> Iterator[tuple[int, Any]]:
        topic, number = self._partition.topic, self._partition.number
        self._weigh(batch)
        columns = zip(batch.offsets(), batch.timestamps(), batch.keys, batch.values, strict=True)
        return (
            (offset, Record(topic, number, offset, timestamp, key, value, batch.headers(index)))
            for index, (offset, timestamp, key, value) in enumerate(columns)
        )

    def _weigh(self, batch: RecordBatch) -> None:
        if max(map(len, filter(None, batch.values)), default=0) < HEAVY_RECORD_BYTES:
            return
        for offset, value in zip(batch.offsets(), batch.values, strict=True):
            if value is not None and len(value) >= HEAVY_RECORD_BYTES:
                self.heavy[offset] = len(value)
