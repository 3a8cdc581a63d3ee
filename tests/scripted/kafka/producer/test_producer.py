"""The producer against a scripted broker: what each error leads to, and that everything ends."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from streamlet.kafka.broker_errors import (
    InvalidRecord,
    MessageTooLarge,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.producer.errors import (
    BatchExpired,
    BufferExhausted,
    OutcomeUnknown,
    PartitionOutOfRange,
    RecordTooLarge,
    SerializationFailed,
)
from streamlet.kafka.protocol.messages.metadata import MetadataResponse, MetadataTopic
from streamlet.kafka.protocol.messages.produce import ProduceRequest
from streamlet.kafka.protocol.schema import ApiKey
from streamlet.kafka.records.record_batch import HEADER
from tests.far_ends import ScriptedFarEnd, a_late_success_is_counted_and_changes_nothing
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import CLOSE, SILENCE
from tests.scripted.fake_cluster import FakeCluster
from tests.scripted.kafka.producer.scripted import scripted, until

UNKNOWN_PARTITION = 3
NOT_LEADER, TOO_LARGE, OUT_OF_ORDER, UNKNOWN_ID, DUPLICATE, INVALID, CORRUPT = 6, 10, 45, 59, 46, 87, 2


@pytest.mark.parametrize(
    ("error", "doubts_the_leader"),
    [(NOT_LEADER, True), (UNKNOWN_PARTITION, True), (CORRUPT, False), (7, False), (19, False)],
)
def test_p4_m4_what_failed_is_sent_again_in_order_and_nothing_else(error: int, doubts_the_leader: bool) -> None:
    """Of two partitions in a request the one that failed comes again, with the same sequence.

    Where the error says that the leader or the partition is another one, metadata is asked for first.
    """
    with scripted({"t": 2}, linger_ms=20) as (broker, log, producer):
        producer.partitions_for("t")
        asked = len(broker.seen(ApiKey.METADATA))
        log.answers = [error, 0]
        futures = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(10)]
        assert [future.get(10).offset for future in futures] == [n // 2 for n in range(10)]
        assert log.values[("t", 0)] == [b"%d" % n for n in range(0, 10, 2)]
        assert log.values[("t", 1)] == [b"%d" % n for n in range(1, 10, 2)]
        assert producer.metrics()["retries"] == 1
        second = [part.index for topic in log.produced[1].topic_data for part in topic.partition_data]
        assert len(second) == 1
        assert [row[2] for row in log.batches] == [0, 0]
        if doubts_the_leader:
            assert len(broker.seen(ApiKey.METADATA)) > asked
            keys = [row.api_key for row in broker.requests]
            first = keys.index(ApiKey.PRODUCE)
            assert ApiKey.METADATA in keys[first : keys.index(ApiKey.PRODUCE, first + 1)]
        else:
            assert len(broker.seen(ApiKey.METADATA)) == asked


def test_p4_retries_end_and_the_error_names_topic_and_partition() -> None:
    """What time does not mend fails at its first try; what it may, after ``retries``."""
    with scripted(retries=2) as (broker, log, producer):
        log.answers = [INVALID, NOT_LEADER, NOT_LEADER, NOT_LEADER]
        future = producer.send("t", b"x")
        with pytest.raises(InvalidRecord, match=r"topic 't', partition 0"):
            future.get(10)
        assert producer.metrics()["retries"] == 0
        with pytest.raises(NotLeaderOrFollower, match="no longer leads") as caught:
            producer.send("t", b"x").get(10)
        assert producer.metrics()["retries"] == 2
        said = re.search(r"after 3 tries, correlation ids ([0-9]+) to ([0-9]+)\.", caught.value.message)
        sent = [row.correlation_id for row in broker.seen(ApiKey.PRODUCE)]
        assert said is not None and [int(said[1]), int(said[2])] == [sent[-3], sent[-1]]
        assert producer.send("t", b"y").get(10).offset == 0
        assert log.values[("t", 0)] == [b"y"]


def test_p4_without_retries_in_the_settings_a_record_is_sent_until_its_time_is_up() -> None:
    """Only ``delivery_timeout_ms`` ends the tries; here the eleventh succeeds."""
    with scripted() as (_broker, log, producer):
        log.answers = [NOT_LEADER] * 10
        assert producer.send("t", b"x").get(PATIENCE_S).offset == 0
        assert producer.metrics()["retries"] == 10 and len(log.produced) == 11


def test_order_is_kept_with_five_in_flight_when_the_first_fails() -> None:
    """The broker refuses those behind it (out of order); all come again, one at a time, lowest sequence first."""
    with scripted(batch_size=100, max_in_flight_requests_per_connection=5) as (broker, log, producer):
        producer.send("t", b"first").get(10)
        refused: list[int] = []

        def as_a_leader_does(request: ProduceRequest) -> Any:
            (part,) = (part for topic in request.topic_data for part in topic.partition_data)
            sequence = HEADER.unpack_from(bytes(part.records or b""))[11]
            if not refused:
                until(lambda: len(producer._sender.ledger.on_wire) > 1)
                log.answers = [NOT_LEADER]
            elif sequence != sum(log.batches[-1][2:]):
                log.answers = [OUT_OF_ORDER]
            refused.extend([sequence] * len(log.answers))
            return log.produce(request)

        broker.on(ApiKey.PRODUCE, as_a_leader_does)
        futures = []
        for n in range(30):
            futures += producer.send_many("t", [b"%d.%d" % (n, k) for k in range(10)])
        producer.flush(20)
        assert [future.get(0).offset for future in futures] == list(range(1, 301))
        assert log.values[("t", 0)] == [b"first"] + [b"%d.%d" % (n, k) for n in range(30) for k in range(10)]
        assert len(refused) > 1 and refused == sorted(set(refused)), "each was refused once, and came again in its turn"
        ends = [first + count for _id, _epoch, first, count in log.batches]
        assert [first for _id, _epoch, first, _count in log.batches][1:] == ends[:-1]


def test_a_batch_that_is_too_large_is_split_and_its_futures_follow() -> None:
    """Until it fits; a single record that does not fit fails, and the next one begins a new epoch."""
    with scripted(linger_ms=50, batch_size=10_000) as (_broker, log, producer):
        log.answers = [TOO_LARGE, TOO_LARGE, 0, 0]
        futures = [producer.send("t", b"%d" % n * 100) for n in range(8)]
        assert [future.get(10).offset for future in futures] == list(range(8))
        assert log.values[("t", 0)] == [b"%d" % n * 100 for n in range(8)]
        assert producer.metrics()["splits"] == 2 and producer.metrics()["retries"] == 0
        ends = [first + count for _id, _epoch, first, count in log.batches]
        assert [0, *ends[:-1]] == [first for _id, _epoch, first, _count in log.batches]
        log.answers = [TOO_LARGE]
        with pytest.raises(MessageTooLarge):
            producer.send("t", b"x").get(10)
        assert producer.send("t", b"y").get(10).offset == 8
        assert log.batches[-1][1:3] == (1, 0), "a number that was refused is not used again"
        assert producer.metrics()["buffer_bytes_in_use"] == 0


def test_a_duplicate_sequence_is_a_success_without_an_offset() -> None:
    """The broker has it already."""
    with scripted() as (_broker, log, producer):
        log.answers = [DUPLICATE]
        assert producer.send("t", b"x").get(10).offset == -1


@pytest.mark.parametrize("error", [OUT_OF_ORDER, UNKNOWN_ID])
def test_sequences_begin_again_under_the_next_epoch_when_the_broker_lost_them(error: int) -> None:
    """KIP-360: nothing is fatal, and what was refused is sent again from sequence 0."""
    with scripted() as (_broker, log, producer):
        for n in range(3):
            producer.send("t", b"%d" % n).get(10)
        log.answers = [error, error]
        assert producer.send("t", b"3").get(10).offset == 3
        assert log.batches[-1] == (7, log.batches[-1][1], 0, 1) and log.batches[-1][1] >= 1
        assert producer.send("t", b"4").get(10).offset == 4
        assert log.batches[-1][2] == 1
        assert log.values[("t", 0)] == [b"%d" % n for n in range(5)]


def test_f19_an_answer_that_is_lost_is_asked_for_again_with_the_same_sequence() -> None:
    """The broker wrote it and the connection broke: the second copy bears the sequence by which it is refused."""
    with scripted() as (_broker, log, producer):
        log.answers = [(CLOSE, True), DUPLICATE]
        assert producer.send("t", b"x").get(10).offset == -1
        assert log.values[("t", 0)] == [b"x"]
        assert len(log.produced) == 2


def test_e1_a_batch_without_a_broker_expires_and_says_it_was_never_sent() -> None:
    """No leader: after delivery_timeout_ms, BatchExpired; memory is back."""
    with scripted(delivery_timeout_ms=400, request_timeout_ms=300) as (broker, _log, producer):
        producer.send("t", b"x").get(10)
        broker.stop()
        future = producer.send("t", b"y")
        with pytest.raises(BatchExpired, match="never sent, so they are not in the log") as caught:
            future.get(10)
        assert not isinstance(caught.value, OutcomeUnknown)
        assert producer.metrics()["buffer_bytes_in_use"] == 0 and producer.metrics()["records_failed"] == 1


def test_e1_the_next_expiry_ends_the_senders_sleep() -> None:
    """The broker has told it to be silent for 100 s, and no request is open whose time-out would wake it."""
    with scripted(delivery_timeout_ms=400, request_timeout_ms=300) as (broker, log, producer):
        broker.on(ApiKey.PRODUCE, lambda request: replace(log.produce(request), throttle_time_ms=100_000))
        producer.send("t", b"x").get(10)
        future = producer.send("t", b"y")
        with pytest.raises(BatchExpired, match="never sent"):
            future.get(30)
        assert len(log.produced) == 1


def test_e2_e4_a_batch_in_flight_expires_once_and_its_memory_waits_for_the_socket() -> None:
    """Outcome unknown at the time-out; the bytes are held until the connection is closed by its own time-out."""
    with scripted(delivery_timeout_ms=600, request_timeout_ms=500, enable_idempotence=False) as (
        _broker,
        log,
        producer,
    ):
        producer.send("t", b"x").get(10)
        log.answers = [(SILENCE, True)] * 10
        calls: list[Any] = []
        future = producer.send("t", b"y").add_both(calls.append).add_both(lambda _: 1 // 0)
        with pytest.raises(OutcomeUnknown, match=r"outcome is unknown.*may be in the log"):
            future.get(10)
        until(lambda: producer.metrics()["buffer_bytes_in_use"] == 0)
        producer.flush(5)
        assert len(calls) == 1 and isinstance(calls[0], OutcomeUnknown)
        assert producer.metrics()["failed_by_topic"] == {"t": 1}
        assert producer.metrics()["callback_errors"] == 1
        assert producer.metrics()["failed_per_second"] > 0  # type: ignore[operator]


def test_e4_callbacks_of_what_expires_in_one_turn_run_in_the_order_of_the_records() -> None:
    """The batch in flight before those that wait behind it."""
    with scripted(batch_size=100, max_in_flight_requests_per_connection=1) as (_broker, log, producer):
        producer.send("t", b"x").get(10)
        log.answers = [(SILENCE, True)] * 10
        sender = producer._sender
        told: list[tuple[int, type[Any]]] = []
        for n in range(20):
            future = producer.send("t", b"x" * 100)
            future.add_both(lambda outcome, n=n: told.append((n, type(outcome))))
            until(lambda: bool(sender.ledger.on_wire))
        with sender.lock:
            assert len(sender.ledger.on_wire) == 1 and len(sender.accumulator.live) > 2
            for batch in sender.accumulator.live:
                batch.created_s -= 1000
        sender.client.wakeup()
        until(lambda: len(told) == 20)
        assert told == [(0, OutcomeUnknown)] + [(n, BatchExpired) for n in range(1, 20)]


def test_e2_memory_is_not_given_back_while_the_socket_may_still_send_it() -> None:
    """KAFKA-19012: failing a batch and freeing its bytes are two events."""
    with scripted(delivery_timeout_ms=60_000, request_timeout_ms=60_000, linger_ms=0) as (broker, log, producer):
        producer.send("t", b"x").get(10)
        log.answers = [(SILENCE, True)] * 10
        sender = producer._sender
        future = producer.send("t", b"y")
        until(lambda: bool(sender.ledger.on_wire))
        with sender.lock:
            (batch,) = sender.ledger.on_wire
            batch.created_s -= 100  # its time is up before the request's is
        sender.client.wakeup()
        with pytest.raises(OutcomeUnknown):
            future.get(5)
        with sender.lock:
            assert batch.is_over and batch.on_wire and batch.memory and batch.parts
        broker.drop_connections()
        until(lambda: producer.metrics()["buffer_bytes_in_use"] == 0)


def test_e3_a_late_success_is_counted_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The answer comes after the expiry: the future has failed and stays so, the log and a count say the truth."""
    with FakeCluster() as cluster:
        a_late_success_is_counted_and_changes_nothing(ScriptedFarEnd(cluster), caplog)


def test_p5_a_full_buffer_blocks_up_to_max_block_ms_then_says_so() -> None:
    """What was taken before is written all the same, and then there is room again."""
    with scripted(buffer_memory=20_000, batch_size=5000, max_block_ms=1500) as (_broker, log, producer):
        producer.send("t", b"x").get(10)
        gate = threading.Event()
        log.answers = [0] * 100

        def slow(request: Any) -> Any:
            gate.wait(20)
            return log.produce(request)

        _broker.on(ApiKey.PRODUCE, slow)
        with pytest.raises(BufferExhausted, match=r"buffer_memory \(20000 bytes\).*1\.5 s have passed"):
            for _ in range(100):
                began = time.monotonic()
                producer.send("t", b"x" * 1000)
        assert time.monotonic() - began >= 1.4
        with pytest.raises(BufferExhausted) as caught:
            producer.send_many("t", [b"x" * 1000] * 100)
        assert len(caught.value.taken) < 100  # type: ignore[attr-defined]
        producer._appender._max_block_s = PATIENCE_S
        went_on: list[Any] = []
        blocked = threading.Thread(target=lambda: went_on.append(producer.send("t", b"waited" * 200)), daemon=True)
        blocked.start()
        until(lambda: producer._sender.accumulator.pool.exhausted)
        assert not went_on
        gate.set()
        blocked.join(PATIENCE_S)
        assert went_on[0].get(PATIENCE_S).offset > 0
        producer.flush(10)
        producer.send("t", b"x").get(10)
        assert producer.metrics()["buffer_bytes_in_use"] == 0


def test_p11_a_failed_refresh_of_metadata_hurts_no_send() -> None:
    """It is swallowed, counted, and tried again."""
    with scripted(metadata_max_age_ms=20) as (broker, _log, producer):
        producer.send("t", b"x").get(10)
        broker.on(ApiKey.METADATA, MetadataResponse(brokers=(), topics=()))
        until(lambda: producer.metrics()["metadata_failures"] > 0)  # type: ignore[operator]
        assert producer.send("t", b"y").get(10).offset == 1


def test_m2_a_topic_that_is_not_there_or_not_allowed() -> None:
    """After max_block_ms, naming the topic; what an administrator must grant is said at once."""
    with scripted(max_block_ms=1500) as (_broker, _log, producer):
        with pytest.raises((ClientTimeout, UnknownTopicOrPartition), match="'nowhere'"):
            producer.send("nowhere", b"x")
        with pytest.raises(PartitionOutOfRange, match="Partition 5"):
            producer.send("t", b"x", partition=5)
        with pytest.raises(ValueError, match="partition = -1"):
            producer.send("t", b"x", partition=-1)
    with scripted(max_block_ms=600_000) as (broker, _log, producer):
        own = broker.metadata

        def refuse(request: Any) -> MetadataResponse:
            answer = own(request)
            rows = tuple(MetadataTopic(error_code=29, name=row.name) for row in answer.topics)
            return MetadataResponse(brokers=answer.brokers, topics=rows)

        broker.on(ApiKey.METADATA, refuse)
        with pytest.raises(TopicAuthorizationFailed, match="secret"):
            producer.send("secret", b"x")


def test_acks_0_is_done_when_it_is_written_to_the_socket() -> None:
    """Offset -1, and no idempotence."""
    with scripted(acks=0) as (_broker, log, producer):
        assert producer.send("t", b"x").get(10).offset == -1
        until(log.arrived.is_set)
        assert log.batches[0][0] == -1


def test_serializers_and_what_they_may_not_do() -> None:
    """Functions or objects; errors name topic, setting and value; None is a tombstone without a serializer's word."""

    class Typed:
        def serialize(self, topic: str, value: object) -> bytes:
            return f"{topic}:{value}".encode()

    with scripted(value_serializer=Typed(), key_serializer=str.encode) as (_broker, log, producer):
        producer.send("t", 5, key="k").get(10)
        producer.send("t", None, key="k").get(10)
        assert log.values[("t", 0)] == [b"t:5", None]
        with pytest.raises(SerializationFailed, match=r"key_serializer raised TypeError.*int 5.*topic 't'"):
            producer.send("t", 1, key=5)
    with scripted() as (_broker, _log, producer):
        with pytest.raises(SerializationFailed, match=r"topic 't' has str 'text'.*value_serializer"):
            producer.send("t", "text")
        with pytest.raises(SerializationFailed, match="headers"):
            producer.send("t", b"x", headers=[("a", "text")])
        with pytest.raises(RecordTooLarge, match="max_request_size is 1048576"):
            producer.send("t", b"x" * 1_048_576)


def test_order_without_idempotence_needs_one_in_flight_and_then_holds() -> None:
    """The partition is muted until its batch is answered for."""
    settings = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1, "batch_size": 100}
    with scripted(**settings) as (_broker, log, producer):
        producer.send("t", b"first").get(10)
        log.answers = [NOT_LEADER, 0, NOT_LEADER]
        values = [b"%d" % n for n in range(200)]
        futures = [producer.send("t", value) for value in values]
        producer.flush(20)
        assert [future.get(0).offset for future in futures] == list(range(1, 201))
        assert log.values[("t", 0)] == [b"first", *values] and log.batches[0][0] == -1


@pytest.mark.parametrize("way", ["send", "send_many"])
def test_p2_the_java_hash_is_of_the_key_before_it_is_serialized(way: str) -> None:
    """The hashCode of "hello" is 99162322; that of its bytes is another number."""
    with scripted({"t": 7}, partitioner="java_hash", key_serializer=str.encode) as (_broker, log, producer):
        if way == "send":
            producer.send("t", b"v", key="hello")
        else:
            producer.send_many("t", [b"v"], keys=["hello"])
        producer.flush(10)
        assert log.values == {("t", 99162322 % 7): [b"v"]}
