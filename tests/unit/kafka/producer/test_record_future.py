"""The future of a record: errors that many callers get, and what they say of another try."""

from __future__ import annotations

import traceback

import pytest

from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.errors import BatchExpired, OutcomeUnknown
from streamlet.kafka.producer.producer_batch import ProducerBatch
from streamlet.kafka.producer.record_future import FutureRecordMetadata, run_callbacks


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
