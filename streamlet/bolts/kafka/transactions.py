"""A KafkaBolt's transactions: what ``epochs`` decides, done by the producer. On the worker's loop; nothing waits."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from streamlet.base.clock import Clock
from streamlet.base.errors import text_of
from streamlet.base.notices import Notices
from streamlet.bolts.kafka.epochs import BUSY, CommitPhase, Epochs, Told, Tuples
from streamlet.bolts.kafka.errors import (
    RecordNotMade,
    StaleTuple,
    TransactionalIdShared,
    TransactionsRefused,
    TransactionTimeoutRefused,
    TwoClusters,
    UntrackedTuple,
    outcome_is_unknown,
)
from streamlet.bolts.kafka.shared_producer import ProducerPlace
from streamlet.components.batch import Batch
from streamlet.components.epoch_tuples import EndOfEpoch
from streamlet.components.tuples import Tuple
from streamlet.kafka import broker_errors as e
from streamlet.kafka.broker_errors import ProducerFenced
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
from streamlet.kafka.errors import BrokerError, KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.errors import TransactionAborted, TransactionFailed
from streamlet.kafka.producer.transaction_steps import TransactionSteps

log = logging.getLogger(__name__)

FENCED_OFTEN = 5
"""Fencings of a producer that end the run ..."""

FENCED_OFTEN_S = 60.0
"""Seconds within which they count: two runs that fence each other would go on for ever."""


REFUSED_OFTEN = 5
"""Transactions in a row, refused for a reason that time does not change, that end the run."""

GONE_S = 15.0
"""Seconds that offsets of a topic which the brokers do not know are tried to be stored. Then it was deleted."""

DOOMED_S = 5.0
"""Seconds that a transaction waits for the question of the spout whose record failed; it comes within a moment."""

TELL_WAIT_S = 2.0
"""Seconds without an answer of Kafka's after which the log says so."""

TELL_AGAIN_S = 60.0
"""Seconds before a like warning is given again."""

_PASSES = (
    *(e.UnknownMemberId, e.IllegalGeneration, e.FencedInstanceId, e.StaleMemberEpoch, e.RebalanceInProgress),
    *(e.ProducerFenced, e.InvalidProducerEpoch, e.TransactionCoordinatorFenced, e.UnknownProducerId),
    *(e.InvalidProducerIdMapping, e.InvalidTransactionState, e.TransactionAbortable),
)
"""Refusals that another member of the group or another producer brings, and that the next attempt may not meet."""

_HINTS = {
    CommitPhase.OPENING: "A cluster of few brokers needs transaction.state.log.replication.factor (3 unless set) to be "
    "at most their number. ",
}
_UNKNOWN_THERE = (
    "Either it was deleted, or the KafkaBolt and the spouts have not the same cluster: compare their brokers. "
)
"""Remark about a topic that the bolt's brokers do not know."""


class _Answers:
    """A spout's batch, acked when each tuple has its answer."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.left = len(batch)


class Transactions:
    """The transactions of one task.

    ``write`` writes a batch but for some places of it, ``drop`` fails all that is under way.
    """

    def __init__(
        self,
        bolt: str,
        where: str,
        clock: Clock,
        place: ProducerPlace,
        heard: Callable[[], None],
        write: Callable[[Batch, Sequence[int]], None],
        drop: Callable[[], None],
        ack: Callable[[Any], None],
        fail: Callable[[Any], None],
    ) -> None:
        self.epochs = Epochs(self)
        self._bolt = bolt
        self._where = where
        self._clock = clock
        self._place = place
        self._heard = heard
        self._write = write
        self._drop = drop
        self._ack = ack
        self._fail = fail
        self._steps: TransactionSteps | None = None
        self._refusal: Exception | None = None
        self._fenced_at: deque[float] = deque(maxlen=FENCED_OFTEN)
        self._failed_at_once = False
        self._asked_s = 0.0
        """When the session, commit or abort under way was asked for."""
        self._began_s = 0.0
        """When the last transaction, or the session, began."""
        self._told: Notices[str] = Notices(TELL_AGAIN_S)
        self._refused_in_a_row = 0
        self._doomed_s: float | None = None
        """Since when a record's failure waits for its spout's question."""

    @property
    def busy(self) -> bool:
        """Whether an answer of Kafka's is waited for."""
        return self.epochs.phase in BUSY

    @property
    def has_session(self) -> bool:
        """Whether there is a producer, or one is being taken."""
        return self.epochs.phase is not CommitPhase.CLOSED

    # -- what comes

    def take(self, batch: Batch) -> None:
        """Take in tuples to write. Raises UntrackedTuple, and other errors that end a run."""
        self.raise_refusal()
        self.epochs.take(Tuples(batch.roots, batch))
        self.raise_refusal()

    def told(self, batch: Batch) -> None:
        """Take in what a spout says of its epochs."""
        self.raise_refusal()
        answers = _Answers(batch)
        for tup in batch.tuples:
            kind, told = tup.values
            self.epochs.take(Told(kind, batch.task, tup.root, (answers, tup), told))

    def poll(self) -> None:
        """Look whether Kafka has answered."""
        steps = self._steps
        if steps is None:
            return
        if self._failed_at_once:
            self._failed_at_once = False
            self._ended(failed=True)
        elif (result := steps.ended()) is not None:
            if result.error is not None and not steps.is_lost:
                self._refused(result.error)
            self._ended(failed=result.error is not None)
        if steps is self._steps and steps.is_lost and self.epochs.phase is not CommitPhase.CLOSED:
            self._lost(steps.error)
        self._end_waits(steps)
        self._tell_wait()

    def _end_waits(self, steps: TransactionSteps) -> None:
        """Abort what nothing would end: it is begun again, with what there is then."""
        # Rule: a transaction waits for nobody without a bound. Offsets of a deleted topic can never be stored. A spout
        # that has heard of its record's end from another bolt asks nothing, and waits for tuples that are held here.
        now, phase = self._clock.monotonic(), self.epochs.phase
        trouble, waits_s = steps.trouble, now - self._asked_s
        if phase is CommitPhase.COMMITTING and waits_s >= GONE_S and isinstance(trouble, e.UnknownTopicOrPartition):
            steps.give_up_offsets(trouble)
            self._heard()
        if phase is not CommitPhase.DOOMED:
            self._doomed_s = None
        elif self._doomed_s is None:
            self._doomed_s = now
        elif now - self._doomed_s >= DOOMED_S:
            self.epochs.give_up()

    def _tell_wait(self) -> None:
        """Warn that Kafka does not answer, with its last refusal."""
        waits_s = self._clock.monotonic() - self._asked_s
        if not self.busy or waits_s < TELL_WAIT_S or self._told.due("wait", self._clock.monotonic()) is None:
            return
        assert self._steps is not None
        trouble = self._steps.trouble
        log.warning(
            "%s: %s, for %.0f s without an end; nothing is written before it, and nothing is lost. %s%s%s",
            *(self._where, self.epochs.phase.value, waits_s),
            "" if trouble is None else f"{text_of(trouble)} ",
            _UNKNOWN_THERE if isinstance(trouble, e.UnknownTopicOrPartition) else _HINTS.get(self.epochs.phase, ""),
            self._place.producer.connections(),
        )

    def _refused(self, error: Exception) -> None:
        """Say why a transaction is aborted; end the run where the next one must meet the same."""
        cause = error.__cause__ or error
        if self._told.due(type(cause).__name__, self._clock.monotonic()) is not None:
            another = isinstance(cause, (e.UnknownMemberId, e.IllegalGeneration))
            log.warning(
                "a transaction of %s is aborted, and its records are read again. %s%s",
                *(self._where, text_of(cause)),
                " If this goes on: do spout and bolt have the same cluster?" if another else "",
            )
        if isinstance(cause, BrokerError) and not cause.retriable and not isinstance(cause, _PASSES):
            self._refused_in_a_row += 1
            if self._refused_in_a_row == REFUSED_OFTEN:
                self._refusal = self._refusal or TransactionsRefused(
                    f"{self._where}: {REFUSED_OFTEN} transactions in a row were refused. {text_of(cause)}"
                )

    def _ended(self, failed: bool) -> None:
        assert self._steps is not None
        # Whatever the answer says: it may have failed for good since, and could begin no transaction.
        if self._steps.is_lost or (failed and self.epochs.phase is not CommitPhase.COMMITTING):
            self._lost(self._steps.error)
        else:
            if not failed and self.epochs.phase is CommitPhase.COMMITTING:
                self._refused_in_a_row = 0
            self.epochs.ended(failed)

    def record_failed(self, error: Exception) -> None:
        """Note why a record was not written; its tuple has failed."""
        if self._steps is not None and self._steps.is_lost:
            self._lost(self._steps.error)
        elif is_records_own(error):
            self.epochs.record_failed()
        else:
            if self.epochs.phase in (CommitPhase.OPEN, CommitPhase.DOOMED):
                self._refused((self._steps and self._steps.error) or error)
            self.epochs.give_up()

    def _lost(self, error: Exception | None) -> None:
        if isinstance(error, ProducerFenced):
            now = self._clock.monotonic()
            timeout_s = self._place.producer.config.transaction_timeout_ms / 1e3
            # An older one was aborted by Kafka, which fences its producer: that is no other program.
            if now - self._began_s < timeout_s:
                self._fenced_at.append(now)
            log.warning(
                "the producer of %s was fenced, and begins again: its worker stood still for longer than "
                "transaction_timeout_ms, or another producer has its transactional id. %s",
                self._where,
                text_of(error),
            )
            if len(self._fenced_at) == FENCED_OFTEN and now - self._fenced_at[0] < FENCED_OFTEN_S:
                self._refusal = TransactionalIdShared(self._where, FENCED_OFTEN, FENCED_OFTEN_S, timeout_s)
        elif isinstance(error, e.InvalidTransactionTimeout):
            timeout_ms = self._place.producer.config.transaction_timeout_ms
            self._refusal = TransactionTimeoutRefused(self._bolt, self._where, timeout_ms)
        else:
            said = "it has failed" if error is None else text_of(error)
            self._refusal = TransactionsRefused(
                f"The KafkaBolt {self._bolt} ({self._where}): its producer cannot write in transactions: {said}"
            )
        self.epochs.lost()

    def raise_refusal(self) -> None:
        """Raise what ends the run, if anything does."""
        if self._refusal is not None:
            raise self._refusal

    def refuse(self, error: Exception) -> None:
        """End the run: ``raise_refusal`` raises this, if nothing came before it."""
        self._refusal = self._refusal or error

    # -- the port of Epochs

    def open_session(self) -> None:
        producer = self._place.take().producer
        self._asked_s = self._began_s = self._clock.monotonic()
        self._steps = producer.transaction_steps(self._heard)
        self._steps.initialize()

    def close_session(self) -> None:
        self._drop()
        self._steps = None
        self._place.leave(0)

    def begin(self) -> None:
        assert self._steps is not None
        self._began_s = self._clock.monotonic()
        try:
            self._steps.begin()
        except KafkaError:
            if not self._steps.is_lost:
                raise
            self._heard()  # what is written now fails, and the next look finds why

    def commit(self, ends: Sequence[EndOfEpoch]) -> None:
        assert self._steps is not None
        self._asked_s = self._clock.monotonic()
        # Rule: asked before the first offset is sent. The brokers of another cluster would refuse it as that of an
        # unknown member, over and over.
        ours = self._steps.cluster_id
        if ours is not None and (far := next((end for end in ends if end.cluster not in (None, ours)), None)):
            self.refuse(TwoClusters(self._where, far.group, str(far.cluster), ours))
            self._failed_at_once = True
            self._heard()
            return
        try:
            self._steps.commit([_offsets(end) for end in ends])
        except KafkaError as error:
            # It failed before it was asked for. The answer comes with the next look, as all answers do.
            if not self._steps.is_lost:
                self._refused(error)
            self._failed_at_once = True
            self._heard()

    def abort(self) -> None:
        assert self._steps is not None
        self._asked_s = self._clock.monotonic()
        self._drop()
        try:
            self._steps.abort()
        except KafkaError:  # it has failed for good, which the next look finds
            self._failed_at_once = True
            self._heard()

    def write(self, tuples: Tuples, refused: Sequence[int]) -> None:
        self._write(tuples.batch, refused)

    def untracked(self, tuples: Tuples) -> None:
        batch = tuples.batch
        # Not raised: it may have been held, and what follows it would be held for ever.
        self.refuse(UntrackedTuple(self._where, batch.component, batch.stream))

    def ack(self, token: Hashable) -> None:
        self._answer(token, self._ack)

    def fail(self, token: Hashable) -> None:
        self._answer(token, self._fail)

    def _answer(self, token: Any, answer: Callable[[Tuple], None]) -> None:
        answers, tup = token
        answer(tup)
        answers.left -= 1
        if not answers.left:
            self._ack(answers.batch)  # each of its tuples has an answer: this only lets go of it


def _offsets(end: EndOfEpoch) -> tuple[dict[TopicPartition, OffsetAndMetadata], ConsumerGroupMetadata]:
    rows = {
        TopicPartition(topic, number): OffsetAndMetadata(offset, leader_epoch, metadata)
        for topic, number, offset, leader_epoch, metadata in end.rows
    }
    return rows, ConsumerGroupMetadata(end.group, end.generation, end.member, end.instance)


def is_records_own(error: Exception) -> bool:
    """Tell whether an error is a record's own: that record will fail again."""
    if isinstance(error, (StaleTuple, TransactionAborted, TransactionFailed, *_PASSES)):
        return False
    # Of the broker and of the producer's numbers: no record brings them about, whichever meets them.
    if isinstance(error, (e.UnknownServerError, e.OutOfOrderSequenceNumber)):
        return False
    # Rule: where nobody knows whether it was written, the brokers did not answer. That is no fault of a record, and an
    # outage must not have records passed over.
    if outcome_is_unknown(error):
        return False
    return isinstance(error, RecordNotMade) or not getattr(error, "retriable", False)
