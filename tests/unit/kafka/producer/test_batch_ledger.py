"""The ledger of batches, without a thread: the table of states, and where each answer leads."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import InvalidRecord, MessageTooLarge, NotLeaderOrFollower
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import Broker, Cluster, PartitionInfo, TopicInfo, TopicPartition
from streamlet.kafka.producer.accumulator import AccumulatorSettings, BufferPool, RecordAccumulator
from streamlet.kafka.producer.batch_ledger import BatchLedger, Outcome, RetryLimits
from streamlet.kafka.producer.errors import BatchExpired, OutcomeUnknown
from streamlet.kafka.producer.metrics import ProducerMetrics
from streamlet.kafka.producer.producer_batch import MOVES, BatchState, ProducerBatch
from streamlet.kafka.producer.record_future import FutureRecordMetadata, run_callbacks
from streamlet.kafka.records.appending import encode_record

TP = TopicPartition("t", 0)
CLUSTER = Cluster.of([Broker(1, "h", 1)], [TopicInfo("t", None, {0: PartitionInfo("t", 0, 1, 0)})])
GONE = KafkaError("gone")


class Books:
    """A ledger over one partition; no try is repeated more than twice, and nothing grows older than 10 s."""

    def __init__(self, **settings: Any) -> None:
        self.accumulator = RecordAccumulator(
            AccumulatorSettings(200, 0.0, 10.0, Backoff(0.1, 1.0)), BufferPool(4000), None, lambda: 0.5
        )
        self.metrics = ProducerMetrics()
        self.ledger = BatchLedger(self.accumulator, RetryLimits(2, 10.0), metrics=self.metrics, **settings)

    def batch(self, records: int = 1) -> ProducerBatch:
        queue = self.accumulator.queue(TP)
        assert self.accumulator.pool.try_take(200)
        batch = self.accumulator.open_batch(queue, 200, 0, 0.0)
        for place in range(records):
            batch.append(encode_record(None, b"x" * 20, (), 0, place), 0)
        return batch

    def sent(self, records: int = 1) -> ProducerBatch:
        batch = self.batch(records)
        assert self.ledger.drain([self.accumulator.queue(TP)], CLUSTER) == [batch]
        return batch

    def answer(self, batch: ProducerBatch, error: KafkaError | None, now_s: float = 0.0) -> None:
        self.ledger.answered([batch], {TP: Outcome(error, 7)}, now_s)


@pytest.mark.parametrize(("start", "end"), list(itertools.product(BatchState, repeat=2)))
def test_a_move_that_is_not_in_the_table_is_refused(start: BatchState, end: BatchState) -> None:
    """And changes nothing."""
    batch = ProducerBatch(TP, 0, 0.0)
    batch.state = start
    if end in MOVES[start]:
        batch.move(end)
        assert batch.state is end
        return
    with pytest.raises(RuntimeError, match=f"cannot become {end.value}"):
        batch.move(end)
    assert batch.state is start


def test_the_table_has_every_state_and_no_final_one_is_left() -> None:
    """Only what is given up on the wire changes once more, when its request ends."""
    assert set(MOVES) == set(BatchState)
    for state in BatchState:
        batch = ProducerBatch(TP, 0, 0.0)
        batch.state = state
        assert bool(MOVES[state]) == (not batch.is_over or batch.on_wire)


def test_what_was_never_sent_cannot_be_written() -> None:
    """An answer needs a request."""
    batch = ProducerBatch(TP, 0, 0.0)
    with pytest.raises(RuntimeError, match="cannot become succeeded"):
        batch.complete(0, -1)
    with pytest.raises(RuntimeError, match="cannot become answered"):
        batch.answered()


def test_a_batch_that_was_written_ends_and_gives_its_memory_back() -> None:
    """It stays alive until its callbacks have run."""
    books = Books()
    batch = books.sent()
    books.answer(batch, None)
    assert batch.state is BatchState.SUCCEEDED and batch.base_offset == 7
    assert books.ledger.ended == [batch] and not books.ledger.on_wire
    assert books.accumulator.pool.in_use == 0 and list(books.accumulator.live) == [batch]
    assert not books.accumulator.incomplete and books.ledger.is_settled


def test_a_batch_is_sent_again_until_its_tries_are_used_up() -> None:
    """Each failed try is told of; the last one is the batch's end."""
    heard: list[str] = []
    books = Books(failed_try=heard.append)
    batch = books.sent()
    for _ in range(2):
        books.answer(batch, NotLeaderOrFollower())
        assert batch.state is BatchState.QUEUED and not books.ledger.ended
        assert books.ledger.drain([books.accumulator.queue(TP)], CLUSTER) == [batch]
    books.answer(batch, NotLeaderOrFollower())
    assert batch.state is BatchState.FAILED and books.ledger.ended == [batch]
    assert books.ledger.failures == [("t", 1, batch.error)] and set(heard) == {"t"}


def test_an_error_that_no_try_mends_ends_the_batch_at_once() -> None:
    """As does an age beyond the limit, whatever the error."""
    books = Books()
    batch, old = books.sent(), books.sent()
    books.answer(batch, InvalidRecord())
    books.answer(old, NotLeaderOrFollower(), 10.0)
    assert batch.state is old.state is BatchState.FAILED


def test_a_split_batch_is_over_and_its_parts_are_queued() -> None:
    """Its futures follow; the memory is theirs."""
    books = Books()
    batch = books.sent(records=4)
    future = FutureRecordMetadata(batch, 3, 0)
    books.answer(batch, MessageTooLarge())
    parts = list(books.accumulator.queue(TP).batches)
    assert batch.state is BatchState.SPLIT and not books.ledger.ended
    assert len(parts) > 1 and {part.state for part in parts} == {BatchState.QUEUED}
    assert future._place()[0] is parts[-1] and list(books.accumulator.live) == parts
    assert sum(part.memory for part in parts) == books.accumulator.pool.in_use == 200


def test_e2_what_expires_in_flight_keeps_its_memory_until_its_request_has_ended() -> None:
    """Its futures fail at once; a late success changes nothing but a count."""
    books = Books()
    batch = books.sent()
    books.ledger.expire(CLUSTER, 10.0)
    assert batch.state is BatchState.GIVEN_UP and isinstance(batch.error, OutcomeUnknown)
    assert books.accumulator.pool.in_use == 200 and batch.parts and not books.ledger.is_settled
    run_callbacks(batch)
    books.answer(batch, None, 11.0)
    assert batch.state is BatchState.FAILED and isinstance(batch.error, OutcomeUnknown)
    assert books.accumulator.pool.in_use == 0 and not batch.parts and books.ledger.is_settled
    assert "after all" in books.ledger.notes[-1][1]


def test_e1_what_expires_in_its_queue_was_never_sent() -> None:
    """Its memory is free at once."""
    books = Books()
    batch = books.batch()
    books.ledger.expire(CLUSTER, 10.0)
    assert batch.state is BatchState.FAILED and type(batch.error) is BatchExpired
    assert books.accumulator.pool.in_use == 0


def test_e4_batches_that_expire_in_one_turn_end_in_the_order_of_their_records() -> None:
    """One in flight before what is queued behind it, and one that waits for another try before both."""
    books = Books()
    again, flying = books.sent(), books.sent()
    books.answer(again, NotLeaderOrFollower())
    queued = [books.batch(), books.batch()]
    books.ledger.expire(CLUSTER, 10.0)
    assert books.ledger.ended == [again, flying, *queued]


def test_the_end_of_the_producer_ends_every_batch_wherever_it_is() -> None:
    """Queued, on the wire, or over with callbacks that have not run."""
    books = Books()
    done, flying = books.sent(), books.sent()
    books.answer(done, None)
    queued = books.batch()
    assert books.ledger.abort_all(GONE, 0.0) == [flying, queued]
    assert books.ledger.ended == [done, flying, queued]
    assert (flying.state, queued.state) == (BatchState.GIVEN_UP, BatchState.ABORTED)
    assert books.metrics.failed_by_topic == {"t": 2}
    assert books.accumulator.pool.in_use == 200, "the socket may still send from the one on the wire"
    books.ledger.release_all([flying, queued])
    assert flying.state is BatchState.ABORTED and books.accumulator.pool.in_use == 0 and not books.ledger.on_wire


def test_e4_at_the_end_the_parts_of_a_split_batch_come_before_younger_ones_in_flight() -> None:
    """They were made later, of older records."""
    books = Books()
    large, flying = books.sent(records=4), books.sent()
    books.answer(large, MessageTooLarge())
    parts = list(books.accumulator.queue(TP).batches)
    queued = books.batch()
    books.ledger.abort_all(GONE, 0.0)
    assert books.ledger.ended == [*parts, flying, queued]


def test_e3_a_success_after_an_abort_is_told_of_and_counted_and_changes_nothing() -> None:
    """``done`` twice by abort: the future failed when the producer was closed, and stays so."""
    books = Books()
    batch = books.sent(2)
    future = FutureRecordMetadata(batch, 1, 0)
    assert books.ledger.abort_all(GONE, 0.0) == [batch]
    run_callbacks(batch)
    books.answer(batch, None)
    assert batch.state is BatchState.ABORTED and batch.error is GONE and batch.base_offset == -1
    assert future.exception is GONE and books.accumulator.pool.in_use == 0
    (level, text, arguments) = books.ledger.notes[-1]
    assert level == logging.WARNING and "2 record(s) for t-0 were written at offset 7 after all" in text % arguments
    assert books.metrics.late_successes == 1


def test_one_at_a_time_keeps_the_partition_until_the_answer() -> None:
    """Order without sequences."""
    books = Books(one_at_a_time=True)
    first = books.sent()
    books.batch()
    assert books.ledger.drain([books.accumulator.queue(TP)], CLUSTER) == []
    books.answer(first, None)
    assert len(books.ledger.drain([books.accumulator.queue(TP)], CLUSTER)) == 1


def test_p4_the_final_error_names_tries_topic_and_the_range_of_correlation_ids() -> None:
    """Each batch's own, though one error of a broken connection ends them all."""
    books = Books()
    first, second = books.sent(3), books.sent()
    lost = NotLeaderOrFollower()
    for correlation_id in (11, 15, 19):
        if correlation_id > 11:
            assert books.ledger.drain([books.accumulator.queue(TP)], CLUSTER) == [first]
        first.sent_as(correlation_id)
        books.answer(first, lost)
    assert first.error is not None and second.error is None
    assert first.error.message.endswith(
        "Given up: 3 record(s) for topic 't', partition 0, after 3 tries, correlation ids 11 to 19."
    )
    second.sent_as(12)
    second.sent_as(-1)
    books.answer(second, InvalidRecord())
    assert second.error is not None and second.error.message.endswith("after 1 try, correlation id 12.")
    assert "Given up" not in lost.message
    late = books.sent()
    late.sent_as(23)
    books.ledger.expire(CLUSTER, 11.0)
    assert isinstance(late.error, OutcomeUnknown) and "(1 try, correlation id 23)" in late.error.message
