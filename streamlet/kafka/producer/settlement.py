"""What becomes of batches: their answers, their expiry, and their one end (E1-E4). The lower half of the sender.

All state that the sender's thread shares with callers stands behind one lock, :attr:`Settlement.lock`. Callbacks run
without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.errors import KafkaError, MalformedFrame
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Broker
from streamlet.kafka.producer.accumulator import (
    AccumulatorSettings,
    RecordAccumulator,
)
from streamlet.kafka.producer.batch import FinalState, ProducerBatch
from streamlet.kafka.producer.buffer_pool import BufferPool
from streamlet.kafka.producer.errors import BatchExpired, OutcomeUnknown
from streamlet.kafka.producer.in_flight_batches import InFlightBatches
from streamlet.kafka.producer.metrics import ProducerMetrics
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.kafka.producer.record_future import fire, split_batch
from streamlet.kafka.producer.responses import (
    Outcome,
    RetryLimits,
    Verdict,
    decide,
    endpoints,
    read_response,
    with_size,
)
from streamlet.kafka.producer.sequences import Sequences
from streamlet.kafka.producer.transaction_manager import TransactionManager
from streamlet.kafka.protocol.messages.produce import ProduceResponse

_log = logging.getLogger(__name__)


class Settlement:
    """The state of one producer's sender, and how batches end. Methods say who holds the lock."""

    def __init__(self, config: ProducerConfig, clock: Clock, uniform: Callable[[], float]) -> None:
        self.config = config
        self.clock = clock
        self.uniform = uniform
        self.lock = threading.RLock()
        """Reentrant for one reason: it knows who holds it. No call takes it twice (:attr:`holds_lock`)."""
        self.holds_lock: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # Condition's, too
        """Whether this very thread does: a signal handler, or a ``__del__``, that interrupts a call of ours."""
        self.changed = threading.Condition(self.lock)
        """Told of whatever a caller may wait for: metadata, memory, batches, transactions."""
        self.metrics = ProducerMetrics()
        self.untold: list[tuple[str, int, KafkaError]] = []
        """Records that failed, and of which the log does not know yet: a handler of it may be our user's code."""
        self.unlogged: list[tuple[int, str, tuple[object, ...]]] = []
        """Other lines for the log (level, text, arguments), which wait for the same reason."""
        retry = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self.sequences = Sequences(config.transactional_id is not None) if config.idempotent else None
        self.manager = (
            None
            if self.sequences is None
            else TransactionManager(
                self.sequences, config.transactional_id, config.transaction_timeout_ms, retry, uniform
            )
        )
        self.accumulator = RecordAccumulator(
            AccumulatorSettings(
                batch_size=config.batch_bytes,
                linger_s=config.linger_ms / 1000,
                delivery_timeout_s=config.delivery_timeout_s,
                retry=retry,
                max_request_size=config.max_request_size,
            ),
            BufferPool(config.buffer_memory),
            self.sequences,
            uniform,
        )
        if self.manager is not None:
            manager = self.manager
            self.accumulator.may_send = lambda batch: manager.may_send_to(batch.topic_partition)
        self.in_flight = InFlightBatches(config.delivery_timeout_s)
        self._on_wire: set[ProducerBatch] = set()
        self.unfired: set[ProducerBatch] = set()
        """Over, with callbacks still to run."""
        self.limits = RetryLimits(config.retries, config.delivery_timeout_s)
        self.client = KafkaClient(
            config,
            clock,
            uniform,
            topic_idle_s=config.metadata_max_idle_ms / 1000,
            allow_auto_topic_creation=config.allow_auto_create_topics,
        )
        self.on_send_error: Callable[[str], None] = lambda topic: None
        """Told the topic of each failed try (P1: the interval partitioner draws again)."""
        self._poked = False
        """Something happened that the next turn must look at before it sleeps."""

    def _expire(self, now: float) -> float:
        """Fail what has passed its delivery time-out (E1, E2); seconds until the next one does."""
        with self.lock:
            ended = self.accumulator.expired(now)
            ended += self.in_flight.expired(now)
            for batch in ended:
                error = self._expired_error(batch, now)
                self._fail(batch, error, now)
            wait = min(self.accumulator.next_expiry_s(now), self.in_flight.next_expiry_s(now))
        self._fire(ended)
        return wait

    def _expired_error(self, batch: ProducerBatch, now: float) -> KafkaError:
        tp, took = batch.topic_partition, now - batch.created_s
        what = f"{batch.count} record(s) for topic {tp.topic!r}, partition {tp.partition}, expired {took:.3g} s after"
        limit = f"(delivery_timeout_ms = {self.config.delivery_timeout_s * 1000:.0f})"
        if not batch.was_sent:
            cause = "" if self.client.cluster.leader_for(tp) else " The partition has no known leader."
            return BatchExpired(
                f"{what} their batch was begun {limit}; they were never sent, so they are not in the log.{cause} "
                f"{self.client.connections()}"
            )
        return OutcomeUnknown(
            f"{what} their batch was begun {limit}; they had been sent (try {batch.attempts + batch.on_wire}), and "
            "their outcome is unknown: they may be in the log, or may still be written. Sending them again can make "
            "a second copy, unless a transaction is aborted and repeated."
        )

    # -- answers

    def _answered(self, batches: list[ProducerBatch], broker: Broker, future: RequestFuture[ProduceResponse]) -> None:
        """A produce request has ended, one way or another: every batch in it is settled or queued again."""
        now = self.clock.monotonic()
        outcomes = {}
        if future.exception is None and future.value is not None:
            outcomes = read_response(future.value)
        ended: list[ProducerBatch] = []
        with self.lock:
            for batch in batches:
                batch.on_wire = False
                self._on_wire.discard(batch)
                self.in_flight.remove(batch)
                self.accumulator.unmute(batch.topic_partition)
                outcome = self._outcome(batch, broker, future, outcomes.get(batch.topic_partition))
                if self._settle(batch, outcome, now):
                    ended.append(batch)
                self._learn(batch, outcome, future)
                self._release(batch)
            self._poked = True
        self._fire(ended)

    def _outcome(
        self, batch: ProducerBatch, broker: Broker, future: RequestFuture[ProduceResponse], row: Outcome | None
    ) -> Outcome:
        if future.exception is not None:
            return Outcome(future.exception)
        if self.config.acks_number == 0:
            return Outcome(None)
        return row or Outcome(MalformedFrame(f"{broker} answered nothing about {batch.topic_partition}."))

    def _settle(self, batch: ProducerBatch, outcome: Outcome, now: float) -> bool:
        """True when the batch has its final state by this."""
        if batch.final_state is not None:
            self._late(batch, outcome)
            return False
        verdict = decide(batch, outcome, self.sequences, self.limits, now)
        if verdict is Verdict.SUCCEEDED:
            batch.complete(outcome.base_offset if outcome.error is None else -1, outcome.log_append_time)
            if self.sequences is not None:
                self.sequences.acked(batch)
            self.metrics.records_sent += batch.count
            self._forget(batch)
            return True
        error = outcome.error
        assert error is not None
        tp = batch.topic_partition
        self.on_send_error(tp.topic)
        if verdict is Verdict.RETRY:
            self.metrics.retries += 1
            self.unlogged.append((logging.DEBUG, "batch for %s is sent again after: %s", (tp, error.message)))
            self.accumulator.reenqueue(batch, now)
            return False
        if verdict is Verdict.SPLIT:
            self.metrics.splits += 1
            split_batch(batch, self.accumulator.split)
            return False
        self._fail(batch, with_size(error, batch), now)
        return True

    def _late(self, batch: ProducerBatch, outcome: Outcome) -> None:
        """An answer for a batch that was given up meanwhile (E3)."""
        if outcome.error is None and batch.final_state is not FinalState.SUCCEEDED:
            batch.complete(outcome.base_offset, outcome.log_append_time)
            self.metrics.late_successes += 1
            text = (
                "%d record(s) for %s were written at offset %d after all: their futures had failed with outcome "
                "unknown before the answer came"
            )
            self.unlogged.append((logging.WARNING, text, (batch.count, batch.topic_partition, outcome.base_offset)))

    def _learn(self, batch: ProducerBatch, outcome: Outcome, future: RequestFuture[ProduceResponse]) -> None:
        """What an error says about the cluster: its new leader, or that what we know is out of date."""
        if outcome.error is None or not outcome.error.stale_metadata:
            return
        metadata = self.client.metadata
        if outcome.leader is not None and future.exception is None:
            metadata.update_leader(batch.topic_partition, *outcome.leader, endpoints(future.value))
        metadata.request_update(reset_equivalent=False)

    # -- ends, with the lock held

    def _fail(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        batch.fail(error)
        if self.sequences is not None:
            self.sequences.failed(batch, error)
        if self.manager is not None:
            self.manager.batch_failed(error)
        self.metrics.failed(batch.topic_partition.topic, batch.count, now)
        self.untold.append((batch.topic_partition.topic, batch.count, error))
        self.on_send_error(batch.topic_partition.topic)
        self._forget(batch)

    def _forget(self, batch: ProducerBatch) -> None:
        self.unfired.add(batch)
        self.accumulator.forget(batch)
        self._release(batch)

    def _release(self, batch: ProducerBatch) -> None:
        if self.accumulator.release(batch):
            self.changed.notify_all()

    def _fire(self, ended: Iterable[ProducerBatch]) -> None:
        """Without the lock: callbacks in order, then who waits."""
        raised = 0
        ended = list(ended)
        for batch in ended:
            raised += fire(batch)
        if ended:
            with self.lock:
                self.unfired.difference_update(ended)
                self.metrics.callback_errors += raised
                self.changed.notify_all()

    def _tell_failures(self) -> None:
        """Once a turn and topic: whoever looks at no future must hear of it somewhere. Without the lock, as all that
        goes to the log: a handler of it may send with this very producer, or wait for one who does.
        """
        if not self.untold and not self.unlogged:
            return
        with self.lock:
            untold, self.untold = self.untold, []
            unlogged, self.unlogged = self.unlogged, []
        for level, text, values in unlogged:
            _log.log(level, text, *values)
        for topic in dict.fromkeys(name for name, _count, _error in untold):
            failed = [(count, error) for name, count, error in untold if name == topic]
            records = sum(count for count, _error in failed)
            _log.warning("%d records for topic %r failed: %s", records, topic, failed[0][1].message)
