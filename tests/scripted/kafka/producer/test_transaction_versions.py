"""Transactions of version 1 and of version 2 (KIP-890), as the brokers offer them. Against a scripted cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from streamlet.kafka import TopicPartition
from streamlet.kafka.broker_errors import TransactionAbortable, UnknownTopicOrPartition
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.errors import TransactionFailed
from streamlet.kafka.protocol.messages.transactions import (
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import FakeBroker
from tests.scripted.fake_cluster import FakeCluster
from tests.scripted.kafka.producer.scripted import scripted

ABORTABLE, CONCURRENT = 120, 51
OF_A_TRANSACTION = (
    *(ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.ADD_OFFSETS_TO_TXN),
    *(ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN),
)


def asked(broker: FakeBroker) -> list[tuple[str, int]]:
    """Return the requests of transactions since the last call, with their versions."""
    found = [(row.api_key.name, row.version) for row in broker.requests if row.api_key in OF_A_TRANSACTION]
    broker.requests.clear()
    return found


def transact(producer: Producer, value: bytes = b"x") -> None:
    producer.begin_transaction()
    producer.send("t", value).get(PATIENCE_S)
    producer.commit_transaction()


def test_a_transaction_of_version_2_is_its_records_its_offsets_and_its_end() -> None:
    """Each of its requests has the version by which the broker does the rest; the next one asks for nothing first."""
    with scripted(transaction_version=2, transactional_id="x") as (broker, cluster, producer):
        producer.init_transactions()
        asked(broker)
        for number in (0, 1):
            producer.begin_transaction()
            producer.send("t", b"x").get(PATIENCE_S)
            producer.send_offsets_to_transaction({TopicPartition("t", 0): 17 + number}, "g")
            producer.commit_transaction()
            assert asked(broker) == [("PRODUCE", 12), ("TXN_OFFSET_COMMIT", 5), ("END_TXN", 5)]
            assert cluster.committed["g", "t", 0].committed_offset == 17 + number
        assert [(epoch, sequence) for _, epoch, sequence, _ in cluster.batches] == [(0, 0), (1, 0)]


def roll(cluster: FakeCluster, version: int) -> None:
    """Restart the broker, which offers another version from now on."""
    cluster.finalize(version)
    cluster.broker.drop_connections()


def test_a_transaction_that_is_open_ends_as_it_began_and_the_next_has_the_version_that_is_offered_then() -> None:
    """Rolled forward and back while records are in it; version 2 begins with an epoch of its own."""
    with scripted(transactional_id="x") as (broker, cluster, producer):
        producer.init_transactions()
        for offered, last in ((2, 3), (1, 5)):
            producer.begin_transaction()
            producer.send("t", b"before").get(PATIENCE_S)
            roll(cluster, offered)
            producer.send("t", b"after").get(PATIENCE_S)
            asked(broker)
            producer.commit_transaction()
            producer.begin_transaction()
            ends = [("END_TXN", 3), ("INIT_PRODUCER_ID", 4)] if last == 3 else [("END_TXN", 5)]
            assert asked(broker) == ends
            producer.abort_transaction()
        transact(producer)
        assert [name for name, _ in asked(broker)] == ["ADD_PARTITIONS_TO_TXN", "PRODUCE", "END_TXN"]
    epochs = [epoch for _, epoch, _, _ in cluster.batches]
    assert epochs == [0, 0, 1, 1, 2]


def test_a_leader_that_waits_for_the_transaction_before_is_asked_again() -> None:
    """It says so of a record: the markers of the last commit are not all written yet."""
    with scripted(transaction_version=2, transactional_id="x") as (_broker, cluster, producer):
        producer.init_transactions()
        cluster.answers = [CONCURRENT, CONCURRENT]
        transact(producer)
        assert producer.metrics()["retries"] == 2
    assert cluster.values["t", 0] == [b"x"]


def test_a_record_that_can_only_be_aborted_costs_no_more_than_its_transaction() -> None:
    """The abort's answer has the epoch of the next one, whose sequences begin at 0."""
    with scripted(transaction_version=2, transactional_id="x") as (broker, cluster, producer):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a").get(PATIENCE_S)
        cluster.answers = [ABORTABLE]
        with pytest.raises(TransactionAbortable):
            producer.send("t", b"b").get(PATIENCE_S)
        with pytest.raises(TransactionFailed, match=r"abort_transaction\(\)"):
            producer.commit_transaction()
        asked(broker)
        producer.abort_transaction()
        transact(producer, b"c")
        assert asked(broker) == [("END_TXN", 5), ("PRODUCE", 12), ("END_TXN", 5)]
    assert [(epoch, sequence) for _, epoch, sequence, _ in cluster.batches] == [(0, 0), (1, 0)]


def test_an_id_whose_epochs_are_used_up_is_followed_by_another() -> None:
    """The end of its last transaction gives it, with epoch 0."""
    with scripted(transaction_version=2, transactional_id="x") as (broker, cluster, producer):
        producer.init_transactions()
        broker.on(ApiKey.END_TXN, EndTxnResponse(error_code=0, producer_id=4711, producer_epoch=0), cluster.end)
        for _ in range(3):
            transact(producer)
    assert [row[:3] for row in cluster.batches[1:]] == [(4711, 0, 0), (4711, 1, 0)]
    assert cluster.batches[0][0] != 4711


def test_a_producer_without_transactions_writes_as_ever_where_version_2_is_offered() -> None:
    """Produce 12 would have the leader look for a transaction."""
    with scripted(transaction_version=2) as (broker, _cluster, producer):
        producer.send("t", b"x").get(PATIENCE_S)
        assert [row.version for row in broker.seen(ApiKey.PRODUCE)] == [10]


def test_a_commit_whose_offsets_cannot_be_stored_is_given_up_and_aborted() -> None:
    """Their topic was deleted: they were asked to be stored without an end."""
    with scripted(transaction_version=2, transactional_id="x") as (broker, _cluster, producer):

        def unknown(request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
            return TxnOffsetCommitResponse(
                topics=tuple(
                    TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=tuple(
                            TxnOffsetCommitResponsePartition(
                                partition_index=row.partition_index, error_code=3 if topic.name == "gone" else 0
                            )
                            for row in topic.partitions
                        ),
                    )
                    for topic in request.topics
                )
            )

        steps = producer.transaction_steps(lambda: None)
        steps.initialize()
        until(lambda: steps.ended() is not None)
        steps.begin()
        producer.send("t", b"x").get(PATIENCE_S)
        broker.on(ApiKey.TXN_OFFSET_COMMIT, unknown)
        rows = {TopicPartition("t", 0): OffsetAndMetadata(5), TopicPartition("gone", 0): OffsetAndMetadata(7)}
        steps.commit([(rows, ConsumerGroupMetadata("g", 1, "m"))])
        until(lambda: isinstance(steps.trouble, UnknownTopicOrPartition))
        asked(broker)
        assert steps.trouble is not None
        steps.give_up_offsets(steps.trouble)
        failed = steps.ended()
        assert failed is not None and isinstance(failed.error, TransactionFailed)
        steps.abort()
        until(lambda: steps.ended() is not None)
        (end,) = [row.request for row in broker.requests if row.api_key is ApiKey.END_TXN]
        assert not end.committed and not steps.is_lost
        steps.begin()


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)
