"""Sequences against a broker that checks them, in any order of events: no second copy, and nothing stands still."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamlet.kafka.broker_errors import (
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidRecord,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
)
from streamlet.kafka.errors import Disconnected, KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.batch_ledger import BatchVerdict, Outcome, RetryLimits, decide
from streamlet.kafka.producer.errors import OutcomeUnknown
from streamlet.kafka.producer.producer_batch import BatchState, ProducerBatch, Sequences

PLACES = [TopicPartition("t", number) for number in range(2)]
LIMITS = RetryLimits(10_000, 1e9)


class Leader:
    """What a broker knows of the one producer in a partition: as Kafka's ProducerStateManager."""

    def __init__(self) -> None:
        self.log: list[ProducerBatch] = []
        self.epoch = -1
        self.recent: deque[tuple[int, int]] = deque(maxlen=5)

    def take(self, batch: ProducerBatch, epoch: int, base: int) -> KafkaError | None:
        last = base + batch.count - 1
        if epoch < self.epoch:
            return InvalidProducerEpoch()
        if epoch == self.epoch and (base, last) in self.recent:
            return DuplicateSequenceNumber()
        if self.recent and base != (self.recent[-1][1] + 1 if epoch == self.epoch else 0):
            return OutOfOrderSequenceNumber()
        if epoch > self.epoch:
            self.recent.clear()
        self.epoch = epoch
        self.recent.append((base, last))
        self.log.append(batch)
        return None


class SequenceLife(RuleBasedStateMachine):
    """Sends, answers, lost answers, refusals for good and expiries, in two partitions that share the epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.sequences = Sequences(False)
        self.sequences.set_id(7, 0)
        self.leaders = {tp: Leader() for tp in PLACES}
        self.queued: dict[TopicPartition, list[ProducerBatch]] = {tp: [] for tp in PLACES}
        self.wire: dict[TopicPartition, list[tuple[ProducerBatch, int, int]]] = {tp: [] for tp in PLACES}
        self.made: list[ProducerBatch] = []
        for tp in PLACES:  # the first batch of all goes alone, and what comes behind it is what is to be tried
            for _ in range(5):
                self.put(tp, 1)
            self.drain(tp, 1)
            self.answer(tp)

    @rule(tp=st.sampled_from(PLACES), count=st.integers(1, 3))
    def put(self, tp: TopicPartition, count: int) -> None:
        batch = ProducerBatch(tp, 0, 0.0)
        batch.record_count = count
        self.made.append(batch)
        self.queued[tp].append(batch)

    @rule(tp=st.sampled_from(PLACES), most=st.integers(1, 5))
    def drain(self, tp: TopicPartition, most: int) -> None:
        for _ in range(most):
            head = next(iter(self.queued[tp]), None)
            if head is None or len(self.wire[tp]) >= 5 or not self.sequences.may_drain(head):
                return
            self.queued[tp].remove(head)
            self.sequences.assign(head)
            head.move(BatchState.IN_FLIGHT)
            self.wire[tp].append((head, head.producer_epoch, head.base_sequence))

    def _settle(self, batch: ProducerBatch, error: KafkaError | None) -> None:
        batch.answered()
        if batch.is_over:
            return
        tp = batch.topic_partition
        verdict = decide(batch, Outcome(error, 0), self.sequences, LIMITS, 0.0)
        if verdict is BatchVerdict.SUCCEEDED:
            batch.complete(0, -1)
            self.sequences.acked(batch)
        elif verdict is BatchVerdict.RETRY:
            batch.move(BatchState.QUEUED)
            batch.attempts += 1
            row = self.sequences.of(tp).in_flight
            again = [other for other in self.queued[tp] if other.has_sequence]
            fresh = [other for other in self.queued[tp] if not other.has_sequence]
            self.queued[tp] = sorted([*again, batch], key=row.index) + fresh
        else:
            assert error is not None
            batch.fail(error)
            self.sequences.failed(batch, error)

    def _look(self) -> None:
        self.sequences.settle_unresolved()
        if self.sequences.bump_wanted:
            self.sequences.bump_epoch()

    def _arrive(self, tp: TopicPartition) -> tuple[ProducerBatch, KafkaError | None]:
        batch, epoch, base = self.wire[tp].pop(0)
        if not batch.is_over:
            assert (epoch, base) == (batch.producer_epoch, batch.base_sequence), "numbered again while on the wire"
        return batch, self.leaders[tp].take(batch, epoch, base)

    @rule(tp=st.sampled_from(PLACES))
    def answer(self, tp: TopicPartition) -> None:
        if self.wire[tp]:
            self._settle(*self._arrive(tp))
            self._look()

    @rule(tp=st.sampled_from(PLACES), for_good=st.booleans())
    def refuse(self, tp: TopicPartition, for_good: bool) -> None:
        if self.wire[tp]:
            batch, _epoch, _base = self.wire[tp].pop(0)
            self._settle(batch, InvalidRecord() if for_good else NotLeaderOrFollower())
            self._look()

    @rule(tp=st.sampled_from(PLACES), taken=st.integers(0, 5))
    def hang_up(self, tp: TopicPartition, taken: int) -> None:
        """The broker read so many of what is on the wire; of none there is an answer."""
        lost = [batch for batch, _epoch, _base in self.wire[tp]]
        for _ in range(min(taken, len(lost))):
            self._arrive(tp)
        self.wire[tp].clear()
        for batch in lost:
            self._settle(batch, Disconnected("gone"))
        self._look()

    @rule(tp=st.sampled_from(PLACES))
    def expire(self, tp: TopicPartition) -> None:
        """The oldest of those without an end; its request may be on the wire yet."""
        open_ones = [batch for batch in self.made if not batch.is_over and batch.topic_partition == tp]
        if open_ones and open_ones[0].has_sequence:
            batch = open_ones[0]
            if batch in self.queued[tp]:
                self.queued[tp].remove(batch)
            batch.fail(OutcomeUnknown("expired"))
            self.sequences.failed(batch, OutcomeUnknown("expired"))
            self._look()

    @invariant()
    def nothing_is_written_twice(self) -> None:
        for leader in self.leaders.values():
            assert len(set(leader.log)) == len(leader.log)
            order = [self.made.index(batch) for batch in leader.log]
            assert order == sorted(order)

    def teardown(self) -> None:
        """With brokers that answer, everything open gets its end."""
        for _ in range(100):
            for tp in PLACES:
                self.drain(tp, 5)
                while self.wire[tp]:
                    self.answer(tp)
            self._look()
        assert all(batch.is_over for batch in self.made)
        for batch in self.made:
            written = batch in self.leaders[batch.topic_partition].log
            assert written or batch.error is not None
        self.nothing_is_written_twice()


TestSequenceLife = SequenceLife.TestCase
TestSequenceLife.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
