"""A batch of records for one partition: its bytes, its state, and how it ends (Java: ProducerBatch).

Pure: the accumulator fills it, the ledger moves it from state to state, futures read it. A record's future is only the
batch and the record's place in it, so everything that is known about the outcome stands here.

::

              drained                answered, or connection lost
    QUEUED -----------> IN_FLIGHT -------------------------------> ANSWERED ---> SUCCEEDED
     | | ^                  |                                       | | |
     | | |                  | expired, or closed by force           | | +------> SPLIT: goes on in smaller ones
     | | |                  v                                       | +--------> FAILED
     | | |               GIVEN_UP ---- answered ----> FAILED        |
     | | +-------------------------- sent again <-------------------+
     | +---> FAILED: expired in its queue
     +-----> ABORTED: the producer was closed, or the transaction aborted

Two rules follow from the picture. The outcome is decided once: no arrow leads back from a final state. And the bytes
and memory of a batch stay while it is IN_FLIGHT or GIVEN_UP, because the socket may still send from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Protocol

from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import UNKNOWN_EPOCH, TopicPartition
from streamlet.kafka.records.appending import HEADER_SIZE, seal_batch, shifted_record, timestamp_delta_of
from streamlet.kafka.records.compression import Compression, compress


class Waiter(Protocol):
    """A wake-up for threads that wait for a batch: an Event."""

    def set(self) -> None:
        """Wake all of them."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the batch is over; False when ``timeout`` seconds came first."""


class Settler(Protocol):
    """The thread that settles a batch."""

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
    SPLIT = "split"

    # Enum's own hash is a Python call, and the table of moves is asked several times a batch.
    __hash__ = object.__hash__


_S = BatchState
MOVES: dict[BatchState, tuple[BatchState, ...]] = {
    _S.QUEUED: (_S.IN_FLIGHT, _S.FAILED, _S.ABORTED),
    _S.IN_FLIGHT: (_S.ANSWERED, _S.GIVEN_UP),
    # ABORTED only where a mistake of ours ended the sender's thread between the answer and the verdict.
    _S.ANSWERED: (_S.QUEUED, _S.SUCCEEDED, _S.FAILED, _S.SPLIT, _S.ABORTED),
    _S.GIVEN_UP: (_S.FAILED,),
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
    settler: Settler | None = None
    state: BatchState = BatchState.QUEUED
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
    leader_epoch: int = UNKNOWN_EPOCH
    drained_turn: int = 0
    """Its place among all that were drained: batches without sequences are sent again in this order."""
    retry: bool = False
    """Sent before, and queued again."""
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
        self.move(BatchState.FAILED if self.state is BatchState.GIVEN_UP else BatchState.ANSWERED)

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

    def abort(self, error: KafkaError) -> bool:
        """Give it up without a fault of its own: the producer closes, or its transaction ends."""
        return self._give_up(BatchState.ABORTED, error)

    def _give_up(self, state: BatchState, error: KafkaError) -> bool:
        if self._has_failed():
            return False
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
        made = self._parts_of(target_size)
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

    def _parts_of(self, target_size: int) -> list[ProducerBatch]:
        made: list[ProducerBatch] = []
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
                    settler=self.settler,
                )
                current.pinned, current.keyed = self.pinned, self.keyed
                made.append(current)
                self.children.append((index, current))
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
