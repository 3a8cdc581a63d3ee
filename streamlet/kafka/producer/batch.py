"""A batch of records for one partition, from its first append to its one final state (E3, E4; Java: ProducerBatch).

Pure: the accumulator fills it, the sender settles it, futures read it. What is fixed when it is over stands in the
batch; a record's future is only the batch and the record's place in it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import UNKNOWN_EPOCH, TopicPartition
from streamlet.kafka.records.appending import HEADER_SIZE, seal_batch, shifted_record, timestamp_delta_of
from streamlet.kafka.records.compression import Compression, compress


class Waiter(Protocol):
    """What wakes those who wait for a batch: an Event, made by the first of them."""

    def set(self) -> None:
        """It is over."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is over; False when ``timeout`` seconds came first."""
        ...


class Settler(Protocol):
    """Who settles a batch: the thread of its producer."""

    def check_wait(self) -> None:
        """IllegalProducerState where waiting for the batch, here and now, would keep it from being settled."""
        ...


NO_SEQUENCE = -1
UNKNOWN_OFFSET = -1


class FinalState(Enum):
    """How a batch can end."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"


Callback = tuple[int, int, Callable[..., object], bool]
"""Place in the batch, timestamp, whom to call, and whether for success."""


class ProducerBatch:
    """One batch. ``size`` counts its header; ``room`` is how far it may grow without asking; ``memory`` is what it
    holds of the buffer pool, 0 once given back.

    ``on_wire`` is true from the send until the answer came or the connection was closed: the socket may still send
    from it, whatever became of the batch meanwhile.
    """

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "callbacks",
        "children",
        "created_s",
        "drained_turn",
        "error",
        "final_state",
        "fired",
        "keyed",
        "last_attempt_s",
        "leader_epoch",
        "log_append_time",
        "max_timestamp",
        "memory",
        "on_wire",
        "packed",
        "parts",
        "pinned",
        "producer_epoch",
        "producer_id",
        "record_count",
        "retry",
        "room",
        "sequence_was_reset",
        "settler",
        "size",
        "topic_partition",
        "transactional",
        "waiter",
    )

    def __init__(
        self, topic_partition: TopicPartition, base_timestamp: int, created_s: float, memory: int = 0, room: int = 0
    ) -> None:
        self.topic_partition = topic_partition
        self.base_timestamp = base_timestamp
        self.max_timestamp = base_timestamp
        self.created_s = created_s
        self.memory = memory
        self.room = room
        self.size = HEADER_SIZE
        self.parts: list[bytes] = []
        self.record_count = 0
        """Set when the batch is closed for appends; until then ``len(parts)`` is the count."""
        self.packed: bytes | None = None
        self.pinned = False
        """A record in it names its partition: the batch never moves to another one (P8)."""
        self.keyed = False
        self.transactional = False
        self.attempts = 0
        self.last_attempt_s = 0.0
        self.leader_epoch = UNKNOWN_EPOCH
        self.drained_turn = 0
        """Its place among all that were drained: the order in which those without sequences are sent again."""
        self.retry = False
        """Sent before, and queued again."""
        self.on_wire = False
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.sequence_was_reset = False
        self.final_state: FinalState | None = None
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time = -1
        self.error: KafkaError | None = None
        self.callbacks: list[Callback] = []
        self.settler: Settler | None = None
        self.waiter: Waiter | None = None
        self.fired = False
        """Its callbacks have run: futures may be read without waiting."""
        self.children: list[tuple[int, ProducerBatch]] = []
        """After a split: (place of its first record, batch), in order."""

    def __repr__(self) -> str:
        state = self.final_state.value if self.final_state else "on the wire" if self.on_wire else "open"
        return f"<ProducerBatch {self.topic_partition} of {self.count}, attempt {self.attempts}: {state}>"

    @property
    def count(self) -> int:
        """How many records."""
        return self.record_count or len(self.parts)

    @property
    def has_sequence(self) -> bool:
        """Whether it has been given its place among the producer's records."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """Of its last record."""
        return increment_sequence(self.base_sequence, self.count - 1)

    @property
    def was_sent(self) -> bool:
        """A broker may have it."""
        return self.on_wire or self.attempts > 0

    def append(self, part: bytes, timestamp: int) -> int:
        """Take in a record encoded for this batch; its place."""
        index = len(self.parts)
        self.parts.append(part)
        self.size += len(part)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return index

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Its place among this producer's records; kept for every retry, unless the epoch changes."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence

    def encode(self, compression: Compression) -> bytes:
        """The bytes that go out; packed once, the header new for each try. Closes the batch for appends."""
        self.record_count = self.count
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

    # -- the end

    def complete(self, base_offset: int, log_append_time: int) -> bool:
        """Written. True the first time; False when it had failed before (a late success). See :meth:`_done`."""
        if not self._done(FinalState.SUCCEEDED):
            return False
        self.base_offset, self.log_append_time = base_offset, log_append_time
        return True

    def fail(self, error: KafkaError) -> bool:
        """Given up. True the first time."""
        return self._end(FinalState.FAILED, error)

    def abort(self, error: KafkaError) -> bool:
        """Given up because the producer closes, or its transaction does. True the first time."""
        return self._end(FinalState.ABORTED, error)

    def _end(self, state: FinalState, error: KafkaError) -> bool:
        if not self._done(state):
            return False
        self.error = error
        return True

    def _done(self, state: FinalState) -> bool:
        """The first state stays (E3). After a failure more is ignored; after success it is a mistake of ours."""
        if self.final_state is None:
            self.final_state = state
            self.record_count = self.count
            return True
        if self.final_state is FinalState.SUCCEEDED:
            raise RuntimeError(f"{self!r} has succeeded, and was to become {state.value}: its final state is set once")
        return False

    def forget_records(self) -> None:
        """Its bytes are no longer needed: neither for a retry nor by the socket."""
        self.record_count = self.count
        self.parts = []
        self.packed = None

    def split(self, target_size: int) -> list[ProducerBatch]:
        """Smaller batches of the same records, in order, with its creation time, sequences and callbacks.

        This one is over: its futures follow to the parts. Each part has at least one record.
        """
        made: list[ProducerBatch] = []
        current: ProducerBatch | None = None
        for index, record in enumerate(self.parts):
            timestamp = self.base_timestamp + timestamp_delta_of(record)
            moved = b""
            if current is not None:
                moved = shifted_record(record, self.base_timestamp - current.base_timestamp, len(current.parts))
            if current is None or current.size + len(moved) > target_size:
                current = ProducerBatch(self.topic_partition, timestamp, self.created_s)
                current.settler = self.settler
                current.pinned, current.keyed, current.transactional = self.pinned, self.keyed, self.transactional
                made.append(current)
                self.children.append((index, current))
                moved = shifted_record(record, self.base_timestamp - timestamp, 0)
            current.append(moved, timestamp)
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

    def child_of(self, index: int) -> tuple[int, ProducerBatch]:
        """After a split: where the record of this place is now, as (first place, batch)."""
        found = self.children[0]
        for row in self.children:
            if row[0] > index:
                break
            found = row
        return found


def increment_sequence(sequence: int, by: int) -> int:
    """Sequences go round after 2**31 - 1."""
    return (sequence + by) & 0x7FFFFFFF
