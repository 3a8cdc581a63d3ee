"""The sender's thread: what wakes its callers, what a mistake costs, and what users cannot break."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from streamlet.kafka.broker_errors import InvalidTopic, TopicAuthorizationFailed
from streamlet.kafka.errors import AuthenticationFailed, KafkaError
from streamlet.kafka.metadata.cluster import Broker, Cluster, PartitionInfo, TopicInfo, TopicPartition
from streamlet.kafka.net.selector import Wakeup
from streamlet.kafka.producer import record_future
from streamlet.kafka.producer.errors import BufferExhausted, ProducerClosed
from streamlet.kafka.producer.producer_batch import BatchState, ProducerBatch
from streamlet.kafka.producer.record_future import FutureRecordMetadata, run_callbacks, split_batch
from streamlet.kafka.protocol.messages.metadata import MetadataResponse
from streamlet.kafka.protocol.schema import ApiKey
from streamlet.kafka.records.appending import encode_record
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import SILENCE, FakeBroker
from tests.scripted.kafka.producer.scripted import both_versions, scripted, until


def answered(batch: ProducerBatch) -> ProducerBatch:
    """Send a batch, and have its request end."""
    batch.move(BatchState.IN_FLIGHT)
    batch.answered()
    return batch


@pytest.mark.parametrize("topic", [5, None, b"t", "", "\ud800", "x" * 300, "a/b", ("t",)])
def test_a_wrong_topic_name_is_refused_and_the_producer_goes_on(topic: Any) -> None:
    """The sender never sees what it could not write into a request."""
    with scripted(max_block_ms=10_000) as (_broker, _log, producer):
        with pytest.raises(InvalidTopic, match="topic = "):
            producer.send(topic, b"x")
        with pytest.raises(InvalidTopic, match="topic = "):
            producer.send_many(topic, [b"x"])
        with pytest.raises(InvalidTopic, match="topic = "):
            producer.partitions_for(topic)
        assert producer.send("t", b"y").get(10).offset == 0


@both_versions
def test_the_end_of_an_empty_transaction_is_told_at_once(version: int) -> None:
    """It asks nobody anything, so no answer wakes who waits."""
    with scripted(transaction_version=version, transactional_id="x", max_block_ms=60_000) as (_, _log, producer):
        producer.init_transactions()
        start = time.monotonic()
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            end()
        assert time.monotonic() - start < 30


@both_versions
@pytest.mark.parametrize("records", [0, 1])
def test_closing_in_an_open_transaction_ends_as_soon_as_it_is_aborted(records: int, version: int) -> None:
    """Nobody waits for that abort, and no answer may come that would wake the thread: it must not sleep on."""
    with scripted(transaction_version=version, transactional_id="x", max_block_ms=60_000) as (_, _log, producer):
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(records):
            producer.send("t", b"x")
        start = time.monotonic()
        producer.close(60)
        assert time.monotonic() - start < 30


def test_records_that_nobody_asks_about_are_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Sent and forgotten: what failed, and what a close left open, is said once with count and topic."""
    short = {"delivery_timeout_ms": 600, "request_timeout_ms": 500}
    with scripted(**short) as (broker, _log, producer):
        producer.send("t", b"x").get(10)
        broker.on(ApiKey.PRODUCE, SILENCE)
        producer.send_many("t", [b"1", b"2", b"3"])
        until(lambda: "3 records for topic 't' failed" in caplog.text)
        assert "OutcomeUnknown" not in caplog.text and "Traceback" not in caplog.text
    with scripted() as (broker, _log, producer):
        producer.send("t", b"x").get(10)
        broker.on(ApiKey.PRODUCE, SILENCE)
        producer.send_many("t", [b"1", b"2"])
        producer.close(0.2)
        until(lambda: "closed with 2 records not acknowledged, of t" in caplog.text)


def test_who_gives_up_waiting_for_memory_lets_the_next_one_go_on() -> None:
    """What it had gathered is enough for another, who is told."""
    with scripted(buffer_memory=40_000, batch_size=1000, max_block_ms=60_000) as (broker, _log, producer):
        producer.send("t", b"x").get(10)
        broker.on(ApiKey.PRODUCE, SILENCE)
        producer.send("t", b"x" * 25_000)
        appender, taken = producer._appender, threading.Event()

        def large() -> None:
            appender._max_block_s = 1.0
            with pytest.raises(BufferExhausted):
                producer.send("t", b"x" * 30_000)

        def small() -> None:
            producer.send("t", b"x" * 2000)
            taken.set()

        first = threading.Thread(target=large)
        first.start()
        until(lambda: producer._sender.accumulator.pool.exhausted)
        appender._max_block_s = 60.0
        second = threading.Thread(target=small)
        second.start()
        assert taken.wait(20)
        first.join(PATIENCE_S)
        second.join(PATIENCE_S)


def test_a_mistake_of_ours_in_an_answer_ends_the_sender_and_every_future(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record stays open for ever behind a line in the log."""
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    with scripted() as (_broker, _log, producer):
        producer.send("t", b"x").get(10)
        assert producer._sender.sequences is not None
        monkeypatch.setattr(producer._sender, "_learn", lambda *_: 1 / 0)
        monkeypatch.setattr(producer._sender.ledger, "_settle", lambda *_: 1 / 0)
        future = producer.send("t", b"y")
        with pytest.raises(ProducerClosed, match="ZeroDivisionError"):
            future.get(10)
        with pytest.raises(ProducerClosed, match="ZeroDivisionError"):
            producer.send("t", b"z")


def test_a_callback_that_sends_to_an_unknown_topic_is_told_that_it_must_not_wait() -> None:
    """It has not waited, and is not told that it had."""
    with scripted() as (_broker, _log, producer):
        heard: list[BaseException] = []
        done = threading.Event()

        def callback(_metadata: Any) -> None:
            try:
                producer.send("nowhere", b"x")
            except KafkaError as err:
                heard.append(err)
            done.set()

        producer.send("t", b"x").add_callback(callback)
        assert done.wait(10)
        assert "callback" in str(heard[0]) and "60 s" not in str(heard[0])


def test_a_callback_that_finds_the_buffer_full_is_told_that_it_must_not_wait() -> None:
    """For the memory that it would wait for is given back by its own thread."""
    with scripted(buffer_memory=20_000, batch_size=5000) as (_broker, _log, producer):
        heard: list[BaseException] = []
        done = threading.Event()

        def callback(_metadata: Any) -> None:
            try:
                for _ in range(100):
                    producer.send("t", b"x" * 4000)
            except KafkaError as err:
                heard.append(err)
            done.set()

        producer.send("t", b"x").add_callback(callback)
        assert done.wait(10)
        assert isinstance(heard[0], BufferExhausted) and "a callback must not wait" in str(heard[0])


def test_a_forked_child_can_wait_for_records_of_its_own() -> None:
    """Though a thread of its parent was noting a callback at the fork."""
    with record_future._registration:
        child = os.fork()
        if child == 0:
            free = record_future._registration.acquire(timeout=5)
            os._exit(0 if free else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_place_of_a_record_after_a_split_is_the_same_for_every_thread() -> None:
    """Two threads that look at one future at once do not count the way to its part twice."""
    tp = TopicPartition("t", 0)
    whole = ProducerBatch(tp, 0, 0.0)
    for index in range(4):
        whole.append(encode_record(None, b"x" * 10, (), 0, index), 0)
    future = FutureRecordMetadata(whole, 3, 0)
    parts = split_batch(whole, lambda batch: batch.split(100))
    assert len(parts) == 2 or len(parts) == 4
    raced = threading.Event()
    start, child = whole.child_of(3)

    real = ProducerBatch.child_of

    def child_of(self: ProducerBatch, index: int) -> tuple[int, ProducerBatch]:
        found = real(self, index)
        if not raced.is_set():
            raced.set()
            other = threading.Thread(target=lambda: future.is_done)
            other.start()
            other.join(PATIENCE_S)
        return found

    ProducerBatch.child_of = child_of  # type: ignore[method-assign]
    try:
        assert not future.is_done
    finally:
        ProducerBatch.child_of = real  # type: ignore[method-assign]
    for at, part in enumerate(parts):
        answered(part).complete(100 * at, -1)
        run_callbacks(part)
    assert future.get(0).offset == 100 * parts.index(child) + 3 - start
    assert whole.parts == [], "the parts hold the records now"


def test_an_idempotent_producer_that_was_refused_once_goes_on_when_it_is_let_in() -> None:
    """A password can be made right; nothing was written meanwhile."""
    with scripted() as (_broker, _log, producer):
        assert producer.send("t", b"w").get(10).offset == 0
        manager = producer._sender.manager
        assert manager is not None
        with producer._lock:
            producer._sender.sequences.producer_id = -1  # type: ignore[union-attr]
            asked = manager.next_ask(1e9, True)
            assert asked is not None
            manager.failed(asked, AuthenticationFailed("no"), time.monotonic())
        assert producer.send("t", b"x").get(10).offset == 1


def test_p8_what_moves_inside_a_transaction_makes_its_new_partition_part_of_it() -> None:
    """Else it would wait for its end without being sent."""
    settings: dict[str, Any] = {"transactional_id": "x", "partition_failover": "keyless"}
    with scripted({"t": 2}, **settings) as (broker, _log, producer):
        broker.on(ApiKey.ADD_PARTITIONS_TO_TXN, SILENCE)
        producer.init_transactions()
        producer.begin_transaction()
        producer._appender.topics._uniform = lambda: 0.0
        producer.send("t", b"x")
        until(lambda: broker.seen(ApiKey.ADD_PARTITIONS_TO_TXN))
        sender = producer._sender
        rows = {0: PartitionInfo("t", 0, -1, 0, (9,)), 1: PartitionInfo("t", 1, 1, 0, (1,))}
        seen = Cluster.of([Broker(1, "127.0.0.1", broker.port)], [TopicInfo("t", None, rows)])
        with producer._lock:
            (queue,) = sender.accumulator._active.values()
            sender._fail_over(queue, seen)
            assert sender.manager is not None
            assert TopicPartition("t", 1) in sender.manager._new_partitions


def test_an_expired_record_is_told_the_time_out_that_it_had() -> None:
    """The default is raised where a request may take longer."""
    with scripted(request_timeout_ms=200_000) as (_broker, _log, producer):
        batch = ProducerBatch(TopicPartition("t", 0), 0, 0.0)
        assert "(delivery_timeout_ms = 200000)" in str(producer._sender.ledger.expired_error(batch, Cluster(), 200.0))


def test_a_wakeup_may_come_while_the_same_thread_takes_one() -> None:
    """A producer that the garbage collector ends signals from wherever it runs."""
    wakeup, done = Wakeup(), threading.Event()

    def signal_inside() -> None:
        with wakeup._lock:
            wakeup.signal()
        done.set()

    thread = threading.Thread(target=signal_inside, daemon=True)
    thread.start()
    assert done.wait(5)
    wakeup.take()
    wakeup.close()


def leaderless(request: Any, broker: FakeBroker, code: int) -> MetadataResponse:
    """The broker's own answer, in which no partition has a leader."""
    answer = broker.cluster.metadata(request)
    rows = tuple(
        replace(topic, partitions=tuple(replace(row, error_code=code, leader_id=-1) for row in topic.partitions))
        for topic in answer.topics
    )
    return replace(answer, topics=rows)


@pytest.mark.parametrize("code", [5, 0], ids=["with an error", "without one"])
def test_m4_a_missing_leader_forces_updates_until_there_is_one(code: int) -> None:
    """Whether the answer says so by an error, or only names none; the record waits and then goes out."""
    with scripted(metadata_max_age_ms=600_000) as (broker, _log, producer):
        broker.on(ApiKey.METADATA, lambda request: leaderless(request, broker, code))
        future = producer.send("t", b"x")
        asked = len(broker.seen(ApiKey.METADATA))
        until(lambda: len(broker.seen(ApiKey.METADATA)) >= asked + 3)
        assert not future.done()
        broker.on(ApiKey.METADATA, broker.cluster.metadata)
        assert future.get(PATIENCE_S).offset == 0


def test_m4_an_unauthorised_partition_in_an_answer_forces_an_update() -> None:
    """The record fails at once; metadata then says what may still be written to."""
    with scripted(metadata_max_age_ms=600_000) as (broker, cluster, producer):
        producer.send("t", b"x").get(PATIENCE_S)
        asked = len(broker.seen(ApiKey.METADATA))
        cluster.answers.append(29)
        with pytest.raises(TopicAuthorizationFailed, match=r"after 1 try, correlation id [0-9]+"):
            producer.send("t", b"y").get(PATIENCE_S)
        until(lambda: len(broker.seen(ApiKey.METADATA)) > asked)
