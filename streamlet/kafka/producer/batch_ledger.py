"""The one place where a batch is settled, sent again, or given up. Pure.

No thread, clock or socket. The sender's thread calls with its lock held, and tells the time and the answers; the
ledger moves batches from state to state (``producer_batch``) and writes down the work that needs no lock:

- ``ended``: batches whose callbacks are to be run,
- ``failures`` and ``notes``: lines for the log,

which the sender takes after each step. Callbacks and log handlers are the user's code, and may call the producer.

A batch fails for one of five reasons, and for no other:

1. its age passed ``delivery_timeout_ms``: queued (:class:`BatchExpired`, never sent) or in flight
   (:class:`OutcomeUnknown`; if an earlier try was sent, queued too) - :meth:`BatchLedger.expire`;
2. its answer has an error that is not worth another try, or no try or no time is left: then with the answer's own
   error, as in Java - :func:`decide`;
3. its transaction can only be aborted, and the batch is still queued - :meth:`BatchLedger.abort_queued`;
4. the producer has failed for good (fenced, or refused an id), and the batch is still queued - the same;
5. the producer was closed by force, or its thread died - :meth:`BatchLedger.abort_all`.

All are counted, and the log says so, but of the third: that is the end its user asked for, or hears of at the commit.

Deliberately absent: a batch is never given up because a connection broke, a leader moved or metadata is missing. These
cost a try at most; the age of the batch is the only limit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from streamlet.kafka.broker_errors import (
    DuplicateSequenceNumber,
    MessageTooLarge,
    RecordListTooLarge,
    error_class,
)
from streamlet.kafka.errors import KafkaError, copy_of, with_sentence
from streamlet.kafka.metadata.cluster import Broker, Cluster, TopicPartition
from streamlet.kafka.producer.accumulator import PartitionQueue, RecordAccumulator
from streamlet.kafka.producer.errors import BatchExpired, OutcomeUnknown, TransactionAborted
from streamlet.kafka.producer.metrics import ProducerMetrics
from streamlet.kafka.producer.producer_batch import BatchState, ProducerBatch, Sequences
from streamlet.kafka.producer.record_future import split_batch
from streamlet.kafka.producer.transaction import ProducerState, TransactionManager
from streamlet.kafka.protocol.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from streamlet.kafka.records.appending import HEADER_SIZE


class BatchVerdict(Enum):
    """The next step of a batch whose request has ended."""

    SUCCEEDED = "written"
    SPLIT = "sent again in smaller ones"
    RETRY = "sent again"
    FAILED = "given up"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a request for one batch. ``error`` None: written at ``base_offset``."""

    error: KafkaError | None
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    leader: tuple[int, int] | None = None
    """A newer leader, as (node id, epoch) (KIP-951)."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """``retries``, and ``delivery_timeout_ms`` in seconds."""

    retries: int
    delivery_timeout_s: float


class BatchLedger:
    """The batches of one producer between their queue and their end.

    ``failed_try`` hears the topic of each try that failed; ``memory_served`` is called when a thread that waits for
    memory has got it; ``connections`` describes the connections for an error's text; ``one_at_a_time``: a partition
    has one batch in flight, so that order holds without sequences.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        limits: RetryLimits,
        manager: TransactionManager | None = None,
        metrics: ProducerMetrics | None = None,
        failed_try: Callable[[str], None] = lambda _topic: None,
        memory_served: Callable[[], None] = lambda: None,
        connections: Callable[[], str] = lambda: "",
        one_at_a_time: bool = False,
    ) -> None:
        self._accumulator = accumulator
        self._sequences = accumulator.sequences
        self._manager = manager
        self._limits = limits
        self._metrics = metrics or ProducerMetrics()
        self._failed_try = failed_try
        self._memory_served = memory_served
        self._connections = connections
        self._one_at_a_time = one_at_a_time
        self.on_wire: dict[ProducerBatch, None] = {}
        """Batches with an open request (IN_FLIGHT or GIVEN_UP), as they were sent."""
        self.ended: list[ProducerBatch] = []
        """Batches that are over, with callbacks still to run. Filled here, emptied by the sender, one thread."""
        self.failures: list[tuple[str, int, KafkaError]] = []
        """(topic, records, error) of batches that failed, for the log."""
        self.notes: list[tuple[int, str, tuple[object, ...]]] = []
        """Other lines for the log, as (level, text, arguments)."""

    # -- sending

    def drain(self, queues: Iterable[PartitionQueue], cluster: Cluster) -> list[ProducerBatch]:
        """Take the batches of one request off their queues; they are in flight from here on."""
        batches = self._accumulator.drain(queues, cluster)
        if batches and self._manager is not None:
            self._manager.batch_leaves()
        for batch in batches:
            self.on_wire[batch] = None
            # Without sequences the broker cannot see the order: a batch sent again would land after a later one.
            if self._one_at_a_time:
                self._accumulator.mute(batch.topic_partition, True)
        return batches

    @property
    def is_settled(self) -> bool:
        """Whether no batch is queued, in flight or on the wire: only then may a transaction end."""
        # A batch that was given up counts as long as its request is open: records that arrive after the end would
        # belong to the next transaction.
        return not self.on_wire and all(batch.is_over for batch in self._accumulator.live)

    # -- answers

    def answered(self, batches: list[ProducerBatch], outcomes: Mapping[TopicPartition, Outcome], now_s: float) -> None:
        """Settle the batches of an ended request, or queue them again."""
        for batch in batches:
            # Off the wire first, whatever follows: from here on its memory may be freed.
            batch.answered()
            self.on_wire.pop(batch, None)
            if self._one_at_a_time:
                self._accumulator.mute(batch.topic_partition, False)
            outcome = outcomes[batch.topic_partition]
            if batch.is_over:
                self._late(batch, outcome)
            else:
                self._settle(batch, outcome, now_s)
            self._release(batch)

    def _settle(self, batch: ProducerBatch, outcome: Outcome, now_s: float) -> None:
        verdict = decide(batch, outcome, self._sequences, self._limits, now_s)
        if verdict is BatchVerdict.SUCCEEDED:
            batch.complete(outcome.base_offset if outcome.error is None else -1, outcome.log_append_time)
            if self._sequences is not None:
                self._sequences.acked(batch)
            self._metrics.records_sent += batch.count
            self.ended.append(batch)
            return
        error = outcome.error
        assert error is not None
        tp = batch.topic_partition
        self._failed_try(tp.topic)
        if verdict is BatchVerdict.RETRY:
            self._metrics.retries += 1
            self.notes.append((logging.DEBUG, "batch for %s is sent again after: %s", (tp, error.message)))
            self._accumulator.reenqueue(batch, now_s)
        elif verdict is BatchVerdict.SPLIT:
            self._metrics.splits += 1
            split_batch(batch, self._accumulator.split)
        else:
            # Copied: an error of the whole request is one object for all its batches.
            self._fail(batch, with_tries(with_size(copy_of(error), batch), batch), now_s)

    def _late(self, batch: ProducerBatch, outcome: Outcome) -> None:
        """Tell of a success that came after the batch was given up. Its futures have failed, and stay so."""
        if outcome.error is not None:
            return
        self._metrics.late_successes += 1
        text = (
            "%d record(s) for %s were written at offset %d after all: their futures had failed with outcome "
            "unknown before the answer came"
        )
        self.notes.append((logging.WARNING, text, (batch.count, batch.topic_partition, outcome.base_offset)))

    # -- ends without an answer

    def expire(self, cluster: Cluster, now_s: float) -> float:
        """Fail batches that have passed ``delivery_timeout_ms``; return the seconds until the next one does."""
        late = self._expired_in_flight(now_s) + self._accumulator.expired(now_s)
        for batch in _in_order(late):
            self._fail(batch, self.expired_error(batch, cluster, now_s), now_s)
        return min(self._accumulator.next_expiry_s(now_s), self._next_expiry_s(now_s))

    def _expired_in_flight(self, now_s: float) -> list[ProducerBatch]:
        # All of them are looked at, not the first alone: with retries the order of sending is not that of age.
        limit = self._limits.delivery_timeout_s
        late = [batch for batch in self.on_wire if now_s - batch.created_s >= limit]
        for batch in late:
            if not batch.on_wire:
                raise RuntimeError(f"{batch!r} is in flight and over at once")
        return [batch for batch in late if batch.state is BatchState.IN_FLIGHT]

    def _next_expiry_s(self, now_s: float) -> float:
        in_flight = (batch.created_s for batch in self.on_wire if batch.state is BatchState.IN_FLIGHT)
        return min(in_flight, default=float("inf")) + self._limits.delivery_timeout_s - now_s

    def expired_error(self, batch: ProducerBatch, cluster: Cluster, now_s: float) -> KafkaError:
        """Return the error of a batch that expires now: never sent, or of unknown outcome."""
        tp, took = batch.topic_partition, now_s - batch.created_s
        what = f"{batch.count} record(s) for topic {tp.topic!r}, partition {tp.partition}, expired {took:.3g} s after"
        limit = f"(delivery_timeout_ms = {self._limits.delivery_timeout_s * 1000:.0f})"
        if not batch.was_sent:
            cause = "" if cluster.leader_for(tp) else " The partition has no known leader."
            return BatchExpired(
                f"{what} their batch was begun {limit}; they were never sent, so they are not in the log.{cause} "
                f"{self._connections()}"
            )
        tries = _tries(batch, batch.attempts + batch.on_wire)
        return OutcomeUnknown(
            f"{what} their batch was begun {limit}; they had been sent ({tries}), and their outcome is unknown: they "
            "may be in the log, or may still be written. Sending them again can make a second copy, unless a "
            "transaction is aborted and repeated."
        )

    def abort_queued(self, now_s: float) -> None:
        """Abort all queued batches where no try would help.

        While the transaction can only be aborted, and once the producer has failed for good.
        """
        manager = self._manager
        if manager is None or manager.state not in (
            ProducerState.FATAL_ERROR,
            ProducerState.ABORTING,
            ProducerState.ABORTABLE_ERROR,
        ):
            return
        error = manager.error or TransactionAborted("The record's transaction was aborted.")
        for batch in self._accumulator.take_undrained():
            batch.abort(error)
            if self._sequences is not None:
                self._sequences.failed(batch, error)
            # A producer without transactions has no call that raises this: its user reads the log and the counters.
            if manager.state is ProducerState.FATAL_ERROR:
                self._count(batch, error, now_s)
            self._end(batch)

    def abort_all(self, error: KafkaError, now_s: float) -> list[ProducerBatch]:
        """Abort every batch without an outcome, wherever it is, and return these: the producer has ended."""
        aborted = self._accumulator.incomplete
        self._accumulator.take_undrained()
        for batch in aborted:
            batch.abort(error)
            self._metrics.failed(batch.topic_partition.topic, batch.count, now_s)  # its caller tells the log
            self._release(batch)
        # Those, and any whose callbacks a dying thread has left: a callback may have raised SystemExit.
        self.ended = _in_order(batch for batch in self._accumulator.live if not batch.fired)
        return aborted

    def release_all(self, batches: list[ProducerBatch]) -> None:
        """Give back the memory of aborted batches: every connection is closed."""
        for batch in batches:
            if batch.on_wire:
                self.on_wire.pop(batch, None)
                batch.answered()
            self._release(batch)

    def settle_sequences(self) -> None:
        """Look at gaps in the sequences; take a new epoch where one is needed and possible."""
        sequences, manager = self._sequences, self._manager
        if sequences is None or manager is None:
            return
        lost = sequences.settle_unresolved()
        if lost and manager.is_transactional:
            manager.sequences_lost()
            manager.batch_failed(OutcomeUnknown(f"Whether {lost[0]} has records that expired is not known."))
        if sequences.bump_wanted and not manager.is_transactional:
            sequences.bump_epoch()
            self._metrics.epoch_bumps += 1

    def _fail(self, batch: ProducerBatch, error: KafkaError, now_s: float) -> None:
        if self._manager is not None:
            error = self._manager.error_of_batch(batch.topic_partition, error)
        batch.fail(error)
        if self._sequences is not None:
            self._sequences.failed(batch, error)
        if self._manager is not None:
            self._manager.batch_failed(error)
        self._count(batch, error, now_s)
        self._failed_try(batch.topic_partition.topic)
        self._end(batch)

    def _count(self, batch: ProducerBatch, error: KafkaError, now_s: float) -> None:
        topic = batch.topic_partition.topic
        self._metrics.failed(topic, batch.count, now_s)
        self.failures.append((topic, batch.count, error))

    def _end(self, batch: ProducerBatch) -> None:
        self.ended.append(batch)
        self._release(batch)

    def _release(self, batch: ProducerBatch) -> None:
        if self._accumulator.release(batch):
            self._memory_served()


# -- requests and answers


def produce_request(
    encoded: dict[TopicPartition, bytes],
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
    *,
    version_2: bool = False,
) -> ProduceRequest:
    """Return one request for batches of one leader, grouped by topic."""
    topics: dict[str, list[ProducePartition]] = {}
    for tp, records in encoded.items():
        topics.setdefault(tp.topic, []).append(ProducePartition(index=tp.partition, records=records))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(ProduceTopic(name=name, partition_data=tuple(rows)) for name, rows in topics.items()),
        version_2=version_2,
    )


def read_response(response: ProduceResponse) -> dict[TopicPartition, Outcome]:
    """Return the outcome of each partition in an answer."""
    return {
        TopicPartition(topic.name, row.index): _outcome(topic.name, row)
        for topic in response.responses
        for row in topic.partition_responses
    }


def endpoints(response: ProduceResponse) -> tuple[Broker, ...]:
    """Return the addresses of the leaders that the answer names."""
    return tuple(Broker(row.node_id, row.host, row.port, row.rack) for row in response.node_endpoints)


def _outcome(topic: str, row: ProducePartitionResponse) -> Outcome:
    fault = error_class(row.error_code)
    if fault is None:
        return Outcome(None, row.base_offset, row.log_append_time_ms, row.log_start_offset)
    said = [row.error_message] if row.error_message else []
    said += [f"record {one.batch_index}: {one.batch_index_error_message}" for one in row.record_errors[:3]]
    error = fault(f"Writing to topic {topic!r}, partition {row.index}", " ".join(said))
    leader = row.current_leader
    newer = (leader.leader_id, leader.leader_epoch) if leader.leader_id >= 0 else None
    return Outcome(error, row.base_offset, -1, row.log_start_offset, newer)


# -- verdicts


def decide(
    batch: ProducerBatch, outcome: Outcome, sequences: Sequences | None, limits: RetryLimits, now_s: float
) -> BatchVerdict:
    """Decide about a batch whose request has ended; may ask ``sequences`` for a new epoch. In Java's order."""
    error = outcome.error
    # The broker has this very batch from an earlier try: written, at an offset that it does not tell.
    if error is None or isinstance(error, DuplicateSequenceNumber):
        return BatchVerdict.SUCCEEDED
    # Before the limits are looked at: a split uses up no try, and smaller batches have not been refused yet.
    if isinstance(error, (MessageTooLarge, RecordListTooLarge)) and batch.count > 1:
        return BatchVerdict.SPLIT
    if now_s - batch.created_s >= limits.delivery_timeout_s or batch.attempts >= limits.retries:
        return BatchVerdict.FAILED
    # Asked last: with sequences the answer may take a new epoch, which only a batch that is sent again needs.
    if sequences is not None and batch.has_sequence:
        return (
            BatchVerdict.RETRY if sequences.can_retry(batch, error, outcome.log_start_offset) else BatchVerdict.FAILED
        )
    return BatchVerdict.RETRY if error.retriable else BatchVerdict.FAILED


def with_tries(error: KafkaError, batch: ProducerBatch) -> KafkaError:
    """Add tries, topic and correlation ids to a final error."""
    tp = batch.topic_partition
    return with_sentence(
        error,
        f"Given up: {batch.count} record(s) for topic {tp.topic!r}, partition {tp.partition}, after "
        f"{_tries(batch, batch.attempts + 1)}.",
    )


def _in_order(batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
    """Return batches in the order of each partition's records."""
    # Rule: callbacks run in this order, that of ``ended``. As they were drained first: a batch that is queued for
    # another try, and the parts of one that was split, come before younger ones in flight; then what never was drained.
    return sorted(batches, key=lambda batch: batch.drained_turn or float("inf"))


def _tries(batch: ProducerBatch, count: int) -> str:
    """Return tries in words, with their correlation ids."""
    tries = "1 try" if count == 1 else f"{count} tries"
    if batch.correlation_ids is None:
        return tries
    first, last = batch.correlation_ids
    return f"{tries}, correlation id {first}" if first == last else f"{tries}, correlation ids {first} to {last}"


def with_size(error: KafkaError, batch: ProducerBatch) -> KafkaError:
    """Return the error of a failed batch; for a record that is too large it names size and settings."""
    if not isinstance(error, (MessageTooLarge, RecordListTooLarge)):
        return error
    topic = batch.topic_partition.topic
    size = batch.size if batch.packed is None else HEADER_SIZE + len(batch.packed)
    return with_sentence(
        error,
        f"It was one record, {size} bytes with its batch's header as sent: write a smaller one, compress it "
        f"(compression_type), or raise max.message.bytes of topic {topic!r} (message.max.bytes of the brokers, where "
        "the topic has none of its own). The producer's own limit is max_request_size.",
    )
