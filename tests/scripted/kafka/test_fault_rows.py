"""Faults of a cluster that a scripted broker, or librdkafka's mock, plays best (docs/evidence/reliability.md)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.consumer.errors import PositionOutOfRange
from streamlet.kafka.errors import DecompressedTooLarge
from streamlet.kafka.protocol.schema import ApiKey
from streamlet.kafka.records.compression import Compression
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import SILENCE, FakeBroker
from tests.scripted.fake_cluster import FakeCluster, Log
from tests.scripted.kafka.client.test_client import MockCluster
from tests.scripted.kafka.producer.scripted import both_versions, scripted
from tests.whole_batches import BatchFields, NewRecord, encode_batch

TP = TopicPartition("t", 0)
LOGS = Path(__file__).parents[2] / "unit/kafka/records/golden"
EXPECTED = json.loads((LOGS / "expected.json").read_text())


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """One that has topic t with one partition."""
    with FakeCluster({"t": 1}) as cluster:
        yield cluster.broker


@pytest.fixture
def serve(broker: FakeBroker) -> Callable[..., None]:
    """``serve(log, topic_id=None)``: the topic is this log from now on, under its topic id."""

    def put(log: Log, topic_id: str | None = None) -> None:
        broker.cluster.topics["t"] = [log]
        if topic_id is not None:
            broker.ranges[ApiKey.FETCH] = (10, 13)
            broker.cluster.topic_ids["t"] = topic_id

    return put


@pytest.fixture
def consumer_of(broker: FakeBroker) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        made.append(
            Consumer(
                bootstrap_servers=broker.address,
                **{"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20, **settings},
            )  # type: ignore[arg-type]
        )
        made[-1].assign([TP])
        return made[-1]

    yield make
    for one in made:
        one.close(2)


def poll_to(consumer: Consumer, position: int) -> list[int]:
    """Offsets of what came until the position stands there."""
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while consumer.position(TP) != position or not found:
        assert time.monotonic() < deadline, (consumer.position(TP), found)
        found += [row.offset for rows in consumer.poll(50).values() for row in rows]
    return found


def test_fault_f6_a_coordinator_that_moves_costs_neither_membership_nor_commit() -> None:
    """NOT_COORDINATOR when offsets are asked for, to a heartbeat, to a commit: it is looked for again, all goes on."""
    mock = MockCluster(3)
    mock.create_topic("t", 1)
    settings: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}
    try:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": mock.bootstrap_servers, "enable.idempotence": True})
        for number in range(20):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(20) == 0
        del producer
        mock.push_errors(ApiKey.OFFSET_FETCH, 16)
        with Consumer("t", bootstrap_servers=mock.bootstrap_servers, **settings) as consumer:
            found: list[bytes | None] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(found) < 20:
                assert time.monotonic() < deadline
                found += [row.value for rows in consumer.poll(50).values() for row in rows]
            assert found == [b"%d" % number for number in range(20)]
            generation = consumer.group_metadata().generation_id
            mock.push_errors(ApiKey.HEARTBEAT, 16, 16)
            mock.push_errors(ApiKey.OFFSET_COMMIT, 16, 15)
            consumer.commit()
            assert consumer.committed(TP)[TP].offset == 20
            assert consumer.group_metadata().generation_id == generation, "the same member of the same generation"
    finally:
        mock.close()


def test_fault_f9_sequences_go_on_while_a_broker_says_the_topic_is_unknown() -> None:
    """A broker that lags knows no such topic for a while: the same batch with the same number goes again, once."""
    with scripted(max_block_ms=20_000) as (_broker, log, producer):
        producer.send("t", b"0").get(10)
        log.answers = [3, 3, 100, 3]
        futures = [producer.send("t", b"%d" % number) for number in range(1, 6)]
        producer.flush(20)
        assert all(future.succeeded() for future in futures)
    assert log.values["t", 0] == [b"%d" % number for number in range(6)]
    ((producer_id, epoch),) = {(row[0], row[1]) for row in log.batches}
    assert (producer_id, epoch) == (7, 0)
    first = [row[2] for row in log.batches]
    assert first == sorted(set(first)) and first[0] == 0, "no number twice, none again"


OLD, NEW = "AAAAAAAAAAAAAAAAAAAACg", "AAAAAAAAAAAAAAAAAAAACw"


def records(count: int) -> bytes:
    return b"".join(
        encode_batch([NewRecord(b"%d" % n)], BatchFields(n, partition_leader_epoch=0)) for n in range(count)
    )


@pytest.mark.parametrize("length", [3, 10, 50])
def test_fault_f10_positions_in_a_deleted_topic_mean_nothing_in_the_one_made_again(
    length: int, serve: Callable[..., None], consumer_of: Callable[..., Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    """Shorter or longer than the old one: it is read from its beginning by the policy, and that is told."""
    serve(Log.of(records(10)), OLD)
    consumer = consumer_of(retry_backoff_ms=20)
    assert poll_to(consumer, 10) == list(range(10))
    serve(Log.of(records(length)), NEW)
    assert poll_to(consumer, length) == list(range(length))
    assert "'t' was deleted and created again" in caplog.text


def test_fault_f10_without_a_policy_it_is_an_error(
    serve: Callable[..., None], consumer_of: Callable[..., Consumer]
) -> None:
    """In each poll, until a seek says where the new one is read from."""
    serve(Log.of(records(10)), OLD)
    consumer = consumer_of(retry_backoff_ms=20, auto_offset_reset="none")
    consumer.seek(TP, 0)
    assert poll_to(consumer, 10) == list(range(10))
    serve(Log.of(records(50)), NEW)
    deadline = time.monotonic() + PATIENCE_S
    with pytest.raises(PositionOutOfRange, match=r"'t' was deleted and created again.*10") as caught:
        while True:
            assert time.monotonic() < deadline
            assert consumer.poll(50) == {}, "nothing of the new topic at an offset of the old one"
    assert caught.value.offsets == {TP: 10}
    with pytest.raises(PositionOutOfRange):
        consumer.poll(100)
    consumer.seek(TP, 0)
    assert poll_to(consumer, 50) == list(range(50))


@pytest.mark.parametrize("name", ["java-compacted", "java-transactions", "rdkafka-emptied"])
def test_fault_f12_offsets_without_a_record_hold_nothing_up(
    name: str, serve: Callable[..., None], consumer_of: Callable[..., Consumer]
) -> None:
    """Real brokers' logs with holes of compaction, control records, batches the cleaner emptied: read to the end."""
    log = Log.of((LOGS / f"{name}.log").read_bytes())
    serve(log)
    consumer = consumer_of(max_poll_records=7)
    assert poll_to(consumer, log.end) == [row["offset"] for row in EXPECTED[name]["all"]]
    assert consumer.end_offsets([TP]) == {TP: log.end}, "no lag is left"


def test_fault_f16_a_batch_that_unpacks_to_gigabytes_is_refused_and_not_passed_over(
    serve: Callable[..., None], consumer_of: Callable[..., Consumer]
) -> None:
    """Some kilobytes for 256 MiB of zeros: named with its place, nothing behind it is read, and memory is bounded.

    The user may seek past it.
    """
    good = records(3)
    bomb = encode_batch([NewRecord(bytes(1 << 28))], BatchFields(3, Compression.ZSTD))
    log = Log.of(good + bomb + encode_batch([NewRecord(b"after")], BatchFields(4)))
    serve(log)
    consumer = consumer_of()
    found: list[int] = []
    with pytest.raises(DecompressedTooLarge, match="'t', partition 0, at offset 3"):
        while True:
            found += [row.offset for rows in consumer.poll(100).values() for row in rows]
    assert found == [0, 1, 2] and consumer.position(TP) == 3
    consumer.seek(TP, 4)
    assert poll_to(consumer, 5) == [4]


@both_versions
def test_fault_f20_the_end_of_a_transaction_whose_answer_is_lost_is_asked_for_until_it_is_known(version: int) -> None:
    """The same end of the same epoch, and nothing of the next transaction before it is answered."""
    settings: dict[str, Any] = {"request_timeout_ms": 400, "delivery_timeout_ms": 5000}
    with scripted(transaction_version=version, transactional_id="x", **settings) as (broker, log, producer):
        broker.on(ApiKey.END_TXN, SILENCE, log.end)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"first")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"second")
        producer.commit_transaction()
        told = ApiKey.ADD_PARTITIONS_TO_TXN if version == 1 else ApiKey.PRODUCE
        asked = [row for row in broker.requests if row.api_key in (ApiKey.END_TXN, told)]
        end = ApiKey.END_TXN
        assert [row.api_key for row in asked] == [told, end, end, told, end]
        assert asked[1].request == asked[2].request
    assert log.values["t", 0] == [b"first", b"second"]


def test_fault_f22_without_enough_replicas_records_wait_in_order() -> None:
    """Before the append and after it: sent again under their numbers, none lost, none twice, none out of order."""
    with scripted() as (_broker, log, producer):
        producer.send("t", b"0").get(10)
        log.answers = [19, 20, 19, 19]
        futures = [producer.send("t", b"%d" % number) for number in range(1, 50)]
        producer.flush(20)
        assert [future.get(0).offset for future in futures] == list(range(1, 50))
    assert log.values["t", 0] == [b"%d" % number for number in range(50)]
