"""A producer's id, epoch and the sequence of each batch: by these a broker refuses a second copy (idempotence).

Pure; the caller holds the producer's lock. Java: the idempotent half of ``TransactionManager`` with
``TxnPartitionMap``. The rules, each of them the answer to a way of losing or doubling records:

1. A batch gets its sequence when it is drained, and keeps it for every try. A new number could make a second copy.
2. Until an epoch's first batch is acknowledged, it is alone in flight.
3. Retries go one at a time, lowest sequence first: the broker would refuse the ones behind it.
4. A batch that failed (refused, or expired after it was sent) leaves its partition *unresolved*: nothing new goes out
   there until the others in flight have shown which records the broker has. A gap that is real is closed by a new
   epoch; in a transaction, by its abort.
5. The sequences of a failed batch are never given to other records: a broker that has the batch after all would take
   them for its copies, and acknowledge records that are not in the log.
6. Nothing is numbered under a new epoch while it is on the wire under the old one: both could be written.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from streamlet.kafka.broker_errors import OutOfOrderSequenceNumber, UnknownProducerId
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.batch import UNKNOWN_OFFSET, ProducerBatch, increment_sequence

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
    """The id and epoch of one producer, and its partitions' sequences."""

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
        """Take the broker's id. Partitions begin at 0 again when nothing is in flight there."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        if self.transactional:
            self._partitions.clear()
            self._to_bump.clear()
            self._unresolved.clear()
        self._restart(self._to_bump)

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
            row.last_acked_offset = max(row.last_acked_offset, batch.base_offset + batch.count - 1)

    def failed(self, batch: ProducerBatch, error: KafkaError | None) -> None:
        """Note that a batch is given up: it leaves a gap, and its sequences are not used again."""
        row = self._partitions.get(batch.topic_partition)
        if row is None or not batch.has_sequence:
            return
        self._remove(row, batch)
        # Another partition may have brought a new epoch meanwhile. With nothing else in flight this partition begins
        # at 0 under it. Otherwise the gap is one like any other, and the batch behind it keeps its old number until
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
            # Nothing before it can come any more: the gap is real: neither this one nor those behind are in the log.
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
        self._restart(self._to_bump)
        return True

    def _restart(self, partitions: set[TopicPartition]) -> None:
        for tp in partitions:
            row = self._partitions.get(tp)
            if row is not None:
                row.restart(self.producer_id, self.producer_epoch)
        self._to_bump = set()

    def _is_stale(self, row: PartitionSequences) -> bool:
        return (row.producer_id, row.producer_epoch) != (self.producer_id, self.producer_epoch)

    @staticmethod
    def _remove(row: PartitionSequences, batch: ProducerBatch) -> None:
        if batch in row.in_flight:
            row.in_flight.remove(batch)
