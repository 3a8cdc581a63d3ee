"""The future of a record: errors that many callers get, and what they say of another try."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

import pytest

from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.errors import BatchExpired, OutcomeUnknown
from streamlet.kafka.producer.producer_batch import BatchState, ProducerBatch
from streamlet.kafka.producer.record_future import (
    FailedRecords,
    FutureRecordMetadata,
    SentRecords,
    call_when_over,
    run_callbacks,
    split_batch,
)
from streamlet.kafka.records.appending import HEADER_SIZE, encode_plain


def failed(error: KafkaError, records: int = 2) -> list[FutureRecordMetadata]:
    batch = ProducerBatch(TopicPartition("t", 0), 0, 0.0)
    for _ in range(records):
        batch.append(b"record", 0)
    futures = [FutureRecordMetadata(batch, index, 0) for index in range(records)]
    batch.fail(error)
    run_callbacks(batch)
    return futures


def raised_by(future: FutureRecordMetadata) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        future.get()
    return caught.value


def test_each_caller_of_get_has_an_error_of_its_own() -> None:
    """With one object for all, each raise would add its frames, and keep the locals of every caller alive."""
    error = BatchExpired("too old")
    one, two = failed(error)
    caught = [raised_by(one), raised_by(two), raised_by(one)]
    assert len({id(each) for each in [error, *caught]}) == 4
    assert [(type(each), str(each)) for each in caught] == [(BatchExpired, "too old")] * 3
    depths = {len(traceback.extract_tb(each.__traceback__)) for each in caught}
    assert len(depths) == 1 and error.__traceback__ is None


def test_only_what_was_never_sent_may_be_sent_again() -> None:
    assert BatchExpired("").retriable and not OutcomeUnknown("").retriable


# -- records that are waited for together


def open_batch(records: int = 3, number: int = 0) -> tuple[ProducerBatch, list[FutureRecordMetadata]]:
    batch = ProducerBatch(TopicPartition("t", number), 0, 0.0)
    for _ in range(records):
        batch.append(encode_plain(None, b"x" * 20, 0, 0), 0)
    return batch, [FutureRecordMetadata(batch, index, 0) for index in range(records)]


def over(batch: ProducerBatch, error: KafkaError | None = None) -> None:
    batch.move(BatchState.IN_FLIGHT)
    batch.answered()
    assert batch.complete(0, -1) if error is None else batch.fail(error)
    run_callbacks(batch)


def sent(futures: Sequence[FutureRecordMetadata]) -> SentRecords:
    records = SentRecords(7)
    for future in futures:
        records.add(future)
    return records


Given = Callable[[Sequence[FutureRecordMetadata]], Sequence[FutureRecordMetadata]]
one_by_one_or_together = pytest.mark.parametrize("given", [list, sent])


@one_by_one_or_together
def test_one_call_is_made_when_all_records_of_a_list_are_over_whatever_the_order_of_their_batches(given: Given) -> None:
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        made = [open_batch(2, number) for number in range(3)]
        told: list[FailedRecords] = []
        error = KafkaError("no")
        futures = [future for pair in zip(*(rows for _, rows in made), strict=True) for future in pair]
        call_when_over(given(futures), told.append)
        for number in order:
            assert told == []
            over(made[number][0], error if number == 1 else None)
        assert told == [[(1, error), (4, error)]]


@one_by_one_or_together
def test_records_that_are_over_already_are_called_at_once(given: Given) -> None:
    told: list[FailedRecords] = []
    call_when_over(given([]), told.append)
    error = KafkaError("no")
    call_when_over(given(failed(error)), told.append)
    assert told == [[], [(0, error), (1, error)]]


@one_by_one_or_together
def test_a_batch_that_is_split_is_waited_for_in_its_parts(given: Given) -> None:
    batch, futures = open_batch(4)
    other, more = open_batch(1, 1)
    told: list[FailedRecords] = []
    call_when_over(given([*futures, *more]), told.append)
    batch.move(BatchState.IN_FLIGHT)
    batch.answered()
    parts = split_batch(batch, lambda one: one.split(HEADER_SIZE + 70))
    batch.move(BatchState.SPLIT)
    run_callbacks(batch)
    assert [part.count for part in parts] == [2, 2]
    over(other)
    error = KafkaError("no")
    over(parts[1], error)  # the one that has the callback
    assert told == []
    over(parts[0])
    assert told == [[(2, error), (3, error)]]


def test_the_futures_of_a_list_are_made_when_asked_for_and_are_each_the_same_one_from_then_on() -> None:
    batch, futures = open_batch(3)
    records = sent(futures)
    first, *_ = records
    assert records[0] is first and [*records] == records[:] and len(records) == 3 and records.index(records[2]) == 2
    over(batch)
    assert [future.get().offset for future in records] == [0, 1, 2]
    assert records[-1].get().timestamp == 7


def test_lists_of_futures_are_put_together() -> None:
    some, more = sent(open_batch(2)[1]), sent(open_batch(1, 1)[1])
    first, last = [*some], [*more]
    assert some + more == first + more == some + last == [*some, *more]
    first += more
    assert first == some + more
    assert sent([]) == [] and some != more and some == some[:] and some != 1
