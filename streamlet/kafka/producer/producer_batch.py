"""A batch of records for one partition: its bytes, its state, its sequence, and how it ends.

Pure: the accumulator fills it, the ledger moves it from state to state, futures read it. A record's future is only the
batch and the record's place in it, so everything that is known about the outcome stands here (Java: ProducerBatch).

::

              drained                answered, or connection lost
    QUEUED -----------> IN_FLIGHT -------------------------------> ANSWERED ---> SUCCEEDED
     | | ^                  |                                       | | |
     | | |                  | expired, or closed by force           | | +------> SPLIT: goes on in smaller ones
     | | |                  v                                       | +--------> FAILED
     | | |               GIVEN_UP -- answered --> FAILED or ABORTED |
     | | +-------------------------- sent again <-------------------+
     | +---> FAILED: expired in its queue
     +-----> ABORTED: the producer was closed, or the transaction aborted

Two rules follow from the picture. The outcome is decided once: no arrow leads back from a final state. And the bytes
and memory of a batch stay while it is IN_FLIGHT or GIVEN_UP, because the socket may still send from them.

By a producer's id, its epoch and the sequence of each batch a broker refuses a second copy (idempotence; Java: that
half of ``TransactionManager``, with ``TxnPartitionMap``). The rules of :class:`Sequences`, each of them the answer to a
way of losing or doubling records:

1. A batch gets its sequence when it is drained, and keeps it for every try. A new number could make a second copy.
2. Until an epoch's first batch is acknowledged, it is alone in flight.
3. Retries go one at a time, lowest sequence first: the broker would refuse the later ones.
4. A batch that failed (refused, or expired after it was sent) leaves its partition *unresolved*: nothing new goes out
   there until the others in flight have shown which records the broker has. A gap that is real is closed by a new
   epoch; in a transaction, by its abort.
5. The sequences of a failed batch are never given to other records: a broker that has the batch after all would take
   them for its copies, and acknowledge records that are not in the log.
6. Nothing is numbered under a new epoch while it is on the wire under the old one: both could be written.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Protocol

from streamlet.kafka.broker_errors import OutOfOrderSequenceNumber, UnknownProducerId
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import UNKNOWN_EPOCH, TopicPartition
from streamlet.kafka.records.appending import HEADER_SIZE, seal_batch, shifted_record, timestamp_delta_of
from streamlet.kafka.records.compression import Compression, compress

# -- one batch -------------------------------------------------------------------------------------------------------


class Waiter(Protocol):
    """A wake-up for threads that wait for a batch: an Event."""

    def set(self) -> None:
        """Wake all of them."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the batch is over; False when ``timeout`` seconds came first."""


class WaitGuard(Protocol):
    """Refuses a wait that could never end."""

    def check_wait(self) -> None:
        """Raise IllegalProducerState where waiting would keep the batch from being settled."""


NO_SEQUENCE = -1
UNKNOWN_OFFSET = -1


class BatchState(Enum):
    """Where a batch stands; the module has the picture."""

    QUEUED = "queued"
    IN_FLIGHT = "in flight"
    ANSWERED = "answered"
    """Its request has ended, and the verdict is not given yet: only within one call of the ledger."""
    GIVEN_UP = "given up on the wire"
    """Over for its futures, and the request is still open."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"
    """To its futures as failed. By a transaction's abort it is neither counted nor told in the log."""
    SPLIT = "split"

    # Enum's own hash is a Python call, and the table of moves is asked several times a batch.
    __hash__ = object.__hash__


_S = BatchState
MOVES: dict[BatchState, tuple[BatchState, ...]] = {
    _S.QUEUED: (_S.IN_FLIGHT, _S.FAILED, _S.ABORTED),
    _S.IN_FLIGHT: (_S.ANSWERED, _S.GIVEN_UP),
    # ABORTED only where a mistake of ours ended the sender's thread between the answer and the verdict.
    _S.ANSWERED: (_S.QUEUED, _S.SUCCEEDED, _S.FAILED, _S.SPLIT, _S.ABORTED),
    _S.GIVEN_UP: (_S.FAILED, _S.ABORTED),
    _S.SUCCEEDED: (),
    _S.FAILED: (),
    _S.ABORTED: (),
    _S.SPLIT: (),
}
"""The states that may follow each state. Any other move is a mistake of ours, and raises RuntimeError."""
_OVER = (_S.GIVEN_UP, _S.SUCCEEDED, _S.FAILED, _S.ABORTED, _S.SPLIT)
_ON_WIRE = (_S.IN_FLIGHT, _S.GIVEN_UP)
Callback = tuple[int, int, Callable[..., object], bool]
"""Place in the batch, timestamp, function to call, and whether it is for success."""


@dataclass(slots=True, eq=False, repr=False)
class ProducerBatch:
    """One batch, and the outcome of its records.

    Written under the producer's lock, but for ``callbacks``, ``waiter`` and ``fired`` (see ``record_future``).
    """

    topic_partition: TopicPartition
    base_timestamp: int
    created_s: float
    memory: int = 0
    """Bytes that it holds of the buffer pool; 0 once given back."""
    room: int = 0
    """The size that it may grow to without asking."""
    _: KW_ONLY
    transactional: bool = False
    wait_guard: WaitGuard | None = None
    state: BatchState = BatchState.QUEUED
    ends_as: BatchState = BatchState.FAILED
    """What GIVEN_UP becomes when the request ends: FAILED or ABORTED."""
    max_timestamp: int = -1
    size: int = HEADER_SIZE
    """Bytes with its header, before compression."""
    parts: list[bytes] = field(default_factory=list)
    """Its records, encoded."""
    record_count: int = 0
    """Set when the batch is closed for appends; until then ``len(parts)`` is the count."""
    packed: bytes | None = None
    pinned: bool = False
    """A record in it names its partition: the batch never moves to another one."""
    keyed: bool = False
    attempts: int = 0
    last_attempt_s: float = 0.0
    correlation_ids: tuple[int, int] | None = None
    """Those of the first and of the last request that carried it."""
    leader_epoch: int = UNKNOWN_EPOCH
    drained_turn: int = 0
    """Its place among all that were drained: batches without sequences are sent again in this order."""
    retry: bool = False
    """Queued again, or made of a batch that was sent: it goes before undrained ones, and does not linger."""
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    sequence_was_reset: bool = False
    base_offset: int = UNKNOWN_OFFSET
    log_append_time: int = -1
    error: KafkaError | None = None
    callbacks: list[Callback] = field(default_factory=list)
    waiter: Waiter | None = None
    fired: bool = False
    """Its callbacks have run: futures may be read without waiting."""
    children: list[tuple[int, ProducerBatch]] = field(default_factory=list)
    """After a split: (place of its first record, batch), in order."""

    def __repr__(self) -> str:
        return f"<ProducerBatch {self.topic_partition} of {self.count}, attempt {self.attempts}: {self.state.value}>"

    @property
    def count(self) -> int:
        """The number of its records."""
        return self.record_count or len(self.parts)

    def sent_as(self, correlation_id: int) -> None:
        """Note the request that carries it; -1: none was written."""
        if correlation_id >= 0:
            first = correlation_id if self.correlation_ids is None else self.correlation_ids[0]
            self.correlation_ids = first, correlation_id

    @property
    def has_sequence(self) -> bool:
        """Whether it has its place among the producer's records."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record."""
        return increment_sequence(self.base_sequence, self.count - 1)

    @property
    def was_sent(self) -> bool:
        """Whether any broker may hold this batch."""
        return self.state in _ON_WIRE or self.attempts > 0

    # -- states

    def move(self, state: BatchState) -> None:
        """Enter a state; RuntimeError for a move that is not in :data:`MOVES`."""
        if state not in MOVES[self.state]:
            why = "its final state is set once" if self.is_over else "no such move is in the table"
            raise RuntimeError(f"{self!r} cannot become {state.value}: {why}")
        self.state = state

    @property
    def is_over(self) -> bool:
        """Whether its outcome is decided, or is left to its parts."""
        return self.state in _OVER

    @property
    def on_wire(self) -> bool:
        """Whether the socket may still send from it."""
        return self.state in _ON_WIRE

    def answered(self) -> None:
        """Note the end of its request: an answer, or a lost connection."""
        self.move(self.ends_as if self.state is BatchState.GIVEN_UP else BatchState.ANSWERED)

    def complete(self, base_offset: int, log_append_time: int) -> bool:
        """Note that it is written. False, and no change, after a failure."""
        if self._has_failed():
            return False
        self.move(BatchState.SUCCEEDED)
        self.record_count = self.count
        self.base_offset, self.log_append_time = base_offset, log_append_time
        return True

    def fail(self, error: KafkaError) -> bool:
        """Give it up. False, and no change, when that was done before."""
        return self._give_up(BatchState.FAILED, error)

    def abort(self, error: KafkaError) -> None:
        """Give it up without a fault of its own: the producer closes, or its transaction ends.

        RuntimeError for one that is over.
        """
        # Unlike ``fail``, as in Java: only batches without an outcome are aborted, so that a second abort is a mistake.
        if self.is_over:
            raise RuntimeError(f"{self!r} cannot be aborted: its final state is set once")
        self._give_up(BatchState.ABORTED, error)

    def _give_up(self, state: BatchState, error: KafkaError) -> bool:
        if self._has_failed():
            return False
        self.ends_as = state
        self.move(BatchState.GIVEN_UP if self.state is BatchState.IN_FLIGHT else state)
        self.record_count = self.count
        self.error = error
        return True

    def _has_failed(self) -> bool:
        # The first outcome stays. An answer may come after the batch was given up, so that is no mistake; a second
        # outcome after success is one, and ``move`` refuses it.
        return self.error is not None

    # -- bytes

    def append(self, part: bytes, timestamp: int) -> int:
        """Take in a record encoded for this batch; return its place."""
        index = len(self.parts)
        self.parts.append(part)
        self.size += len(part)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return index

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Give it its number, kept for every try, unless the epoch changes."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence

    def encode(self, compression: Compression) -> bytes:
        """Return the bytes that go out. Closes the batch for appends.

        Called without the producer's lock: packing takes long, and nobody changes a batch that is in flight.
        """
        self.record_count = self.count
        # Packed once and kept for every retry; only the header is new each time, since the epoch may have changed.
        if self.packed is None:
            body = b"".join(self.parts)
            self.packed = compress(compression, body) if compression is not Compression.NONE else body
        return seal_batch(
            self.packed,
            self.record_count,
            self.base_timestamp,
            self.max_timestamp,
            compression,
            (self.producer_id, self.producer_epoch, self.base_sequence),
            self.transactional,
        )

    def forget_records(self) -> None:
        """Drop its bytes: neither a retry nor the socket needs them."""
        self.record_count = self.count
        self.parts = []
        self.packed = None

    # -- split

    def split(self, target_size: int) -> list[ProducerBatch]:
        """Return smaller batches of the same records, which its futures follow to.

        In order, with its age, sequences and callbacks. Each has at least one record, even where that is larger.
        """
        # At once, when all are made: a future that looks for its part meanwhile takes no lock.
        self.children = self._parts_of(target_size)
        made = [part for _first, part in self.children]
        sequence = self.base_sequence
        for part in made:
            part.record_count = len(part.parts)
            part.room = 0
            part.retry = True
            part.attempts, part.last_attempt_s = self.attempts, self.last_attempt_s
            part.drained_turn = self.drained_turn
            if self.has_sequence:
                part.set_producer_state(self.producer_id, self.producer_epoch, sequence)
                sequence = increment_sequence(sequence, part.count)
        for index, timestamp, call, on_success in self.callbacks:
            start, child = self.child_of(index)
            child.callbacks.append((index - start, timestamp, call, on_success))
        self.callbacks = []
        self.forget_records()
        return made

    def _parts_of(self, target_size: int) -> list[tuple[int, ProducerBatch]]:
        """Return parts, each with the place of its first record."""
        made: list[tuple[int, ProducerBatch]] = []
        current: ProducerBatch | None = None
        for index, record in enumerate(self.parts):
            timestamp = self.base_timestamp + timestamp_delta_of(record)
            moved = b""
            if current is not None:
                moved = shifted_record(record, self.base_timestamp - current.base_timestamp, len(current.parts))
            if current is None or current.size + len(moved) > target_size:
                current = ProducerBatch(
                    self.topic_partition,
                    timestamp,
                    self.created_s,
                    transactional=self.transactional,
                    wait_guard=self.wait_guard,
                )
                current.pinned, current.keyed = self.pinned, self.keyed
                made.append((index, current))
                moved = shifted_record(record, self.base_timestamp - timestamp, 0)
            current.append(moved, timestamp)
        return made

    def child_of(self, index: int) -> tuple[int, ProducerBatch]:
        """Return (place of its first record, part) for this record's part."""
        found = self.children[0]
        for row in self.children:
            if row[0] > index:
                break
            found = row
        return found


def increment_sequence(sequence: int, by: int) -> int:
    """Return the sequence so many further on; it goes round after 2**31 - 1."""
    return (sequence + by) & 0x7FFFFFFF


# -- the sequences of all batches ------------------------------------------------------------------------------------

NO_ID = -1
MAX_EPOCH = 0x7FFF
_NONE_ACKED = -1
_REMEMBERED = 5
"""Batches of a producer and partition that a broker recognizes when they come twice."""


class PartitionSequences:
    """One partition: the next sequence, the last one acknowledged, and the batches in flight."""

    __slots__ = ("in_flight", "last_acked", "last_acked_offset", "next", "producer_epoch", "producer_id", "unresolved")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.in_flight: list[ProducerBatch] = []
        """Batches with a sequence and no outcome, in order of sequence: on the wire, or queued for another try."""
        self.restart(producer_id, producer_epoch)

    def restart(self, producer_id: int, producer_epoch: int) -> None:
        """Count from 0 under this id and epoch; renumber the batches in flight."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.next = 0
        self.last_acked = _NONE_ACKED
        self.last_acked_offset = UNKNOWN_OFFSET
        self.unresolved = False
        for batch in self.in_flight:
            batch.set_producer_state(producer_id, producer_epoch, self.next)
            batch.sequence_was_reset = True
            self.next = increment_sequence(self.next, batch.count)

    @property
    def takes_more(self) -> bool:
        """Whether a batch may follow those in flight."""
        # Not before the first of an id and epoch is acknowledged: a broker that has no state of the producer takes
        # *any* sequence, and would take the second batch where it refused the first. Nor more than the broker
        # recognizes, a number that several connections could pass between them while leaders move.
        return not self.in_flight or (self.last_acked != _NONE_ACKED and len(self.in_flight) < _REMEMBERED)


class Sequences:
    """The id and epoch of one producer, and its partitions' sequences.

    The caller holds the producer's lock.
    """

    def __init__(self, transactional: bool) -> None:
        self.transactional = transactional
        self.producer_id = NO_ID
        self.producer_epoch = NO_ID
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._to_bump: set[TopicPartition] = set()
        self._unresolved: dict[TopicPartition, None] = {}
        """The rows that :meth:`settle_unresolved` looks at, so that idle partitions cost nothing."""

    @property
    def has_id(self) -> bool:
        """Whether the broker has given an id: without one nothing is drained."""
        return self.producer_id != NO_ID

    @property
    def bump_wanted(self) -> bool:
        """Whether a new epoch is needed, and possible now."""
        # Not while a batch that would be numbered again is on the wire: it could be written under both numbers.
        rows = [self._partitions[tp] for tp in self._to_bump if tp in self._partitions]
        wanted = self.has_id and bool(self._to_bump)
        return wanted and not any(batch.on_wire for row in rows for batch in row.in_flight)

    def set_id(self, producer_id: int, producer_epoch: int) -> None:
        """Take the broker's id; sequences begin at 0 again, of a partition in flight at its next batch."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        if self.transactional:
            self._partitions.clear()
            self._to_bump.clear()
            self._unresolved.clear()
        self._restart_bumped()

    def of(self, tp: TopicPartition) -> PartitionSequences:
        """Return the partition's row, of this epoch unless something is in flight."""
        row = self._partitions.get(tp)
        if row is None:
            row = self._partitions[tp] = PartitionSequences(self.producer_id, self.producer_epoch)
        elif not row.in_flight and self._is_stale(row):
            row.restart(self.producer_id, self.producer_epoch)
        return row

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Return whether this batch, its queue's head, may go out now."""
        if not self.has_id or batch.topic_partition in self._to_bump:
            return False
        row = self.of(batch.topic_partition)
        if not batch.has_sequence:
            return not row.unresolved and not self._is_stale(row) and row.takes_more
        # Retries go one at a time, the lowest sequence first: the broker refuses any other.
        return not row.in_flight or row.in_flight[0].base_sequence == batch.base_sequence

    def assign(self, batch: ProducerBatch) -> None:
        """Give a batch that is drained its sequence, unless it has one."""
        if batch.has_sequence:
            return
        row = self.of(batch.topic_partition)
        batch.set_producer_state(row.producer_id, row.producer_epoch, row.next)
        row.next = increment_sequence(row.next, batch.count)
        row.in_flight.append(batch)

    def replace(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Put the parts of a batch in its place; they bear its sequences."""
        row = self._partitions.get(batch.topic_partition)
        if row is not None and batch in row.in_flight:
            at = row.in_flight.index(batch)
            row.in_flight[at : at + 1] = list(parts)

    def acked(self, batch: ProducerBatch) -> None:
        """Note that the broker has the batch."""
        row = self._partitions.get(batch.topic_partition)
        if row is None or not batch.has_sequence:
            return
        self._remove(row, batch)
        if (batch.producer_id, batch.producer_epoch) == (row.producer_id, row.producer_epoch):
            if row.last_acked == _NONE_ACKED or (batch.last_sequence - row.last_acked) & 0x7FFFFFFF < 1 << 30:
                row.last_acked = batch.last_sequence
            if batch.base_offset != UNKNOWN_OFFSET:  # a duplicate is acknowledged without its place
                row.last_acked_offset = max(row.last_acked_offset, batch.base_offset + batch.count - 1)

    def failed(self, batch: ProducerBatch, error: KafkaError | None) -> None:
        """Note that a batch is given up: it leaves a gap, and its sequences are not used again."""
        row = self._partitions.get(batch.topic_partition)
        if row is None or not batch.has_sequence:
            return
        self._remove(row, batch)
        # Another partition may have brought a new epoch meanwhile. With nothing else in flight this partition begins
        # at 0 under it. Otherwise the gap is one like any other, and the batch after it keeps its old number until
        # the broker refuses that: it may be in the log already, and under a new number it would be a copy.
        if self._is_stale(row) and not row.in_flight:
            return
        if isinstance(error, (OutOfOrderSequenceNumber, UnknownProducerId)) and not self.transactional:
            self._to_bump.add(batch.topic_partition)
            return
        row.unresolved = True
        self._unresolved[batch.topic_partition] = None

    def can_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        """Return whether a batch with this error is sent again; may ask for a new epoch first."""
        row = self._partitions.get(batch.topic_partition)
        if row is None:
            return error.retriable
        if isinstance(error, UnknownProducerId):
            return self._retry_unknown_id(row, batch, log_start_offset)
        if isinstance(error, OutOfOrderSequenceNumber):
            if row.in_flight and row.in_flight[0] is not batch:
                return True  # one before it comes first, and may be in the log: neither gets a new number
            if self.transactional:
                return False
            # Nothing before it can come any more: the gap is real: neither this one nor later ones are in the log.
            self._to_bump.add(batch.topic_partition)
            return True
        return error.retriable

    def _retry_unknown_id(self, row: PartitionSequences, batch: ProducerBatch, log_start_offset: int) -> bool:
        if log_start_offset == UNKNOWN_OFFSET or batch.sequence_was_reset:
            return True
        if row.last_acked_offset < log_start_offset:
            # Retention took the records by which the broker knew us: nothing is lost by counting from 0 again.
            if self.transactional:
                row.restart(row.producer_id, row.producer_epoch)
            else:
                self._to_bump.add(batch.topic_partition)
            return True
        if self.transactional:
            return False
        self._to_bump.add(batch.topic_partition)
        return True

    def settle_unresolved(self) -> list[TopicPartition]:
        """Look at unresolved partitions with nothing in flight; return those whose gap is real.

        Without transactions they go on under a new epoch; with them, the transaction has failed.
        """
        lost = []
        for tp in list(self._unresolved):
            row = self._partitions.get(tp)
            if row is not None and row.unresolved and row.in_flight:
                continue
            del self._unresolved[tp]
            if row is None or not row.unresolved or self._is_stale(row):
                continue  # it counts from 0 under another epoch, or will
            if increment_sequence(row.last_acked, 1) != row.next:
                lost.append(tp)
                if not self.transactional:
                    self._to_bump.add(tp)
            row.unresolved = False
        return lost

    def forget(self, topics: Container[str]) -> None:
        """Drop the rows of idle topics that no batch can need again: those of an earlier epoch."""
        # A row of the present epoch stays. The broker goes on checking its sequences for a day, and a partition that
        # counted from 0 again would have its records refused, or taken for copies.
        for tp in [tp for tp in self._partitions if tp.topic in topics]:
            row = self._partitions[tp]
            if self._is_stale(row) and not row.in_flight and tp not in self._to_bump:
                del self._partitions[tp]

    def bump_epoch(self) -> bool:
        """Take the next epoch (KIP-360). False: none is left, and a new id is needed."""
        if self.producer_epoch >= MAX_EPOCH:
            self.producer_id = self.producer_epoch = NO_ID
            return False
        self.producer_epoch += 1
        self._restart_bumped()
        return True

    def _restart_bumped(self) -> None:
        """Begin the sequences of partitions that asked for it at 0 again."""
        for tp in self._to_bump:
            row = self._partitions.get(tp)
            if row is not None:
                row.restart(self.producer_id, self.producer_epoch)
        self._to_bump.clear()

    def _is_stale(self, row: PartitionSequences) -> bool:
        return (row.producer_id, row.producer_epoch) != (self.producer_id, self.producer_epoch)

    @staticmethod
    def _remove(row: PartitionSequences, batch: ProducerBatch) -> None:
        if batch in row.in_flight:
            row.in_flight.remove(batch)
