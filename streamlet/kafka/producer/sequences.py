"""A producer's id, epoch and the sequence of each batch: what lets a broker refuse the second copy (idempotence).

Pure. Java: the idempotent half of ``TransactionManager`` with ``TxnPartitionMap``. Sequences are given when a batch is
drained and kept for every retry. A batch that failed (refused, or expired after it was sent, E5) leaves its partition
*unresolved*: nothing new goes out there until the others in flight have shown what the broker has.
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
"""Batches of a producer and partition that a broker knows again when they come twice."""


class PartitionSequences:
    """One partition: the next sequence, the last the broker has, and what is in flight, in order of sequence."""

    __slots__ = ("in_flight", "last_acked", "last_acked_offset", "next", "producer_epoch", "producer_id", "unresolved")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.in_flight: list[ProducerBatch] = []
        self.begin_anew(producer_id, producer_epoch)

    def begin_anew(self, producer_id: int, producer_epoch: int) -> None:
        """Count from 0 under this id and epoch; what is in flight is numbered again, in its order."""
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
        """Whether a batch may follow those in flight.

        Not before the first of an id and epoch is acknowledged: a broker that has no state of the producer takes *any*
        sequence, and would take the second one where it refused the first. Nor beyond what the broker knows again,
        which several connections could do between them while leaders move.
        """
        return not self.in_flight or (self.last_acked != _NONE_ACKED and len(self.in_flight) < _REMEMBERED)


class Sequences:
    """All partitions of one producer. Whoever holds the producer's lock calls."""

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
        """Without an id nothing is drained."""
        return self.producer_id != NO_ID

    @property
    def bump_wanted(self) -> bool:
        """Some partition can only go on under a new epoch, and all that it has on the wire is answered."""
        rows = [self._partitions[tp] for tp in self._to_bump if tp in self._partitions]
        wanted = self.has_id and bool(self._to_bump)
        return wanted and not any(batch.on_wire for row in rows for batch in row.in_flight)

    def set_id(self, producer_id: int, producer_epoch: int) -> None:
        """The broker's answer. Partitions begin anew, at once or when what they have in flight is done."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        if self.transactional:
            self._partitions.clear()
            self._to_bump.clear()
            self._unresolved.clear()
        self._restart(self._to_bump)

    def of(self, tp: TopicPartition) -> PartitionSequences:
        """The partition's row; made, and brought to the present epoch, when nothing is in flight there."""
        row = self._partitions.get(tp)
        if row is None:
            row = self._partitions[tp] = PartitionSequences(self.producer_id, self.producer_epoch)
        elif not row.in_flight and self._is_stale(row):
            row.begin_anew(self.producer_id, self.producer_epoch)
        return row

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Whether this batch, the head of its queue, may go out now."""
        if not self.has_id or batch.topic_partition in self._to_bump:
            return False
        row = self.of(batch.topic_partition)
        if not batch.has_sequence:
            return not row.unresolved and not self._is_stale(row) and row.takes_more
        # Retries go one at a time: the lowest sequence first, or the broker would refuse the ones behind it.
        return not row.in_flight or row.in_flight[0].base_sequence == batch.base_sequence

    def assign(self, batch: ProducerBatch) -> None:
        """The batch is drained: give it its place, unless it has one."""
        if batch.has_sequence:
            return
        row = self.of(batch.topic_partition)
        batch.set_producer_state(row.producer_id, row.producer_epoch, row.next)
        row.next = increment_sequence(row.next, batch.count)
        row.in_flight.append(batch)

    def replace(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """A batch was split; its parts bear its sequences."""
        row = self._partitions.get(batch.topic_partition)
        if row is not None and batch in row.in_flight:
            at = row.in_flight.index(batch)
            row.in_flight[at : at + 1] = list(parts)

    def acked(self, batch: ProducerBatch) -> None:
        """The broker has it."""
        row = self._partitions.get(batch.topic_partition)
        if row is None or not batch.has_sequence:
            return
        self._remove(row, batch)
        if (batch.producer_id, batch.producer_epoch) == (row.producer_id, row.producer_epoch):
            if row.last_acked == _NONE_ACKED or (batch.last_sequence - row.last_acked) & 0x7FFFFFFF < 1 << 30:
                row.last_acked = batch.last_sequence
            row.last_acked_offset = max(row.last_acked_offset, batch.base_offset + batch.count - 1)

    def failed(self, batch: ProducerBatch, error: KafkaError | None) -> None:
        """Given up. Its sequences are never given to others, which a broker that has it would take for its copies."""
        row = self._partitions.get(batch.topic_partition)
        if row is None or not batch.has_sequence:
            return
        self._remove(row, batch)
        if self._is_stale(row) and not row.in_flight:
            return  # the partition begins anew, under the epoch that another one has brought
        if isinstance(error, (OutOfOrderSequenceNumber, UnknownProducerId)) and not self.transactional:
            self._to_bump.add(batch.topic_partition)
            return
        row.unresolved = True
        self._unresolved[batch.topic_partition] = None

    def can_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        """Whether a batch that failed so is to be sent again; may ask for a new epoch first."""
        row = self._partitions.get(batch.topic_partition)
        if row is None:
            return error.retriable
        if isinstance(error, UnknownProducerId):
            return self._retry_unknown_id(row, batch, log_start_offset)
        if isinstance(error, OutOfOrderSequenceNumber):
            if row.in_flight and row.in_flight[0] is not batch:
                return True  # one before it is sent again first, which may be in the log: neither is numbered anew
            if self.transactional:
                return False
            # Nothing before it can come any more: the gap is real, and neither this nor what is behind is in the log.
            self._to_bump.add(batch.topic_partition)
            return True
        return error.retriable

    def _retry_unknown_id(self, row: PartitionSequences, batch: ProducerBatch, log_start_offset: int) -> bool:
        if log_start_offset == UNKNOWN_OFFSET or batch.sequence_was_reset:
            return True
        if row.last_acked_offset < log_start_offset:
            # Retention took the records by which the broker knew us: nothing is lost by counting anew.
            if self.transactional:
                row.begin_anew(row.producer_id, row.producer_epoch)
            else:
                self._to_bump.add(batch.topic_partition)
            return True
        if self.transactional:
            return False
        self._to_bump.add(batch.topic_partition)
        return True

    def settle_unresolved(self) -> list[TopicPartition]:
        """Look again at partitions with nothing in flight: those whose gap is real are returned.

        Without transactions they go on under a new epoch; with them, the transaction has failed.
        """
        lost = []
        for tp in list(self._unresolved):
            row = self._partitions.get(tp)
            if row is not None and row.unresolved and row.in_flight:
                continue
            del self._unresolved[tp]
            if row is None or not row.unresolved or self._is_stale(row):
                continue  # it has begun anew meanwhile, or will
            if increment_sequence(row.last_acked, 1) != row.next:
                lost.append(tp)
                if not self.transactional:
                    self._to_bump.add(tp)
            row.unresolved = False
        return lost

    def forget(self, topics: Container[str]) -> None:
        """Nothing of these topics is queued or on its way: drop the rows that no batch can need again.

        Those are the ones of an earlier epoch, which would begin anew. A row of the present one stays: the broker goes
        on checking, and a partition that counted from 0 again would have its records refused, or taken for copies.
        """
        for tp in [tp for tp in self._partitions if tp.topic in topics]:
            row = self._partitions[tp]
            if self._is_stale(row) and not row.in_flight and tp not in self._to_bump:
                del self._partitions[tp]

    def bump_epoch(self) -> bool:
        """Take the next epoch for the partitions that need it (KIP-360). False: none is left, a new id is needed."""
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
                row.begin_anew(self.producer_id, self.producer_epoch)
        self._to_bump = set()

    def _is_stale(self, row: PartitionSequences) -> bool:
        return (row.producer_id, row.producer_epoch) != (self.producer_id, self.producer_epoch)

    @staticmethod
    def _remove(row: PartitionSequences, batch: ProducerBatch) -> None:
        if batch in row.in_flight:
            row.in_flight.remove(batch)
