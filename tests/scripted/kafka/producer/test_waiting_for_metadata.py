"""A producer on a wrong address, or with a topic or partition that is not there: what it says, and what to do."""

from __future__ import annotations

import threading
import time

import pytest

from streamlet.devcluster.machine import free_ports
from streamlet.kafka import Producer
from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.kafka.errors import ClientTimeout, KafkaError
from streamlet.kafka.producer import append
from streamlet.kafka.producer.errors import BufferExhausted, PartitionOutOfRange
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import SILENCE
from tests.scripted.fake_cluster import Log
from tests.scripted.kafka.producer.scripted import scripted


def test_nobody_at_the_address_is_told_and_the_record_stays_the_callers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says where it was tried and that the record is still the caller's; the log says it long before."""
    monkeypatch.setattr(append, "TOLD_AFTER_S", 0.1)
    (port,) = free_ports(1)
    with Producer(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=500) as producer:
        said = rf"no broker has answered.*127\.0\.0\.1:{port}.*bootstrap_servers.*runs\. The record was not taken\.$"
        for _ in range(2):
            with pytest.raises(ClientTimeout, match=said):
                producer.send("lines", b"x")
        with pytest.raises(ClientTimeout, match=r"runs\.$"):
            producer.partitions_for("lines")
        with pytest.raises(ClientTimeout, match=r"runs\. 0 of 2 records were taken\.$"):
            producer.send_many("lines", [b"x", b"y"])
    waits = [text for text in caplog.messages if "a record for topic 'lines' waits, at most 0 s more" in text]
    assert len(waits) == 1 and "no broker has answered" in waits[0] and f"127.0.0.1:{port}" in waits[0]


def test_a_topic_that_is_not_there_ends_the_send_by_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "TOLD_AFTER_S", 1.0)
    with scripted(max_block_ms=1300) as (_broker, _log, producer):
        said = r"'lines'.*Create the topic \(`streamlet dev topic lines`, or Admin\.create_topics\).*was not taken\.$"
        with pytest.raises(UnknownTopicOrPartition, match=said):
            producer.send("lines", b"x")
        assert "the brokers answer UnknownTopicOrPartition. Create the topic" in caplog.text


def test_m2_a_partition_out_of_range_ends_the_send_after_a_fresh_look_and_not_after_max_block_ms() -> None:
    """It says how many there are, and that the record is still the caller's; a topic that has grown is found."""
    with scripted({"t": 2}, max_block_ms=600_000) as (broker, cluster, producer):
        said = r"Partition 17 of topic 't' is not there: the topic has 2 partitions.*The record was not taken\.$"
        for known in (False, True):
            asked = len(broker.seen(ApiKey.METADATA))
            with pytest.raises(PartitionOutOfRange, match=said):
                producer.send("t", b"x", partition=17)
            assert len(broker.seen(ApiKey.METADATA)) >= asked + 2, f"the topic was known: {known}"
        with pytest.raises(PartitionOutOfRange, match=r"0 of 2 records were taken\.$"):
            producer.send_many("t", [b"x", b"y"], partition=17)
        cluster.topics["t"].append(Log())
        assert producer.send("t", b"x", partition=2).get(PATIENCE_S).partition == 2


def test_m2_sends_that_do_not_wait_learn_after_some_that_a_partition_is_not_there() -> None:
    """A KafkaBolt sends so, each tenth of a second: it heard of a topic unknown as yet until its max_block_ms."""
    with scripted({"t": 2}, max_block_ms=0) as (_broker, cluster, producer):
        found = _send_until_taken_or_refused(producer, partition=5)
        assert isinstance(found, PartitionOutOfRange) and "the topic has 2 partitions" in found.message
        cluster.topics["t"].append(Log())
        # What was learnt of another partition does not count.
        assert not isinstance(_send_until_taken_or_refused(producer, partition=2), KafkaError)


def _send_until_taken_or_refused(producer: Producer, partition: int) -> object:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return producer.send("t", b"x", partition=partition)
        except ClientTimeout:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        except PartitionOutOfRange as error:
            return error


def test_m2_the_wait_is_returned_and_taken_off_max_block_ms() -> None:
    """A record that waited for its topic has that much less time to wait for memory."""
    with scripted({}, max_block_ms=1500, buffer_memory=20_000, linger_ms=60_000) as (broker, cluster, producer):
        cluster.topics["u"] = [Log()]
        waited = producer._appender.wait_on_metadata("u", None, 20)
        assert waited > 0 and producer._appender.wait_on_metadata("u", 0, 0) == 0.0
        with pytest.raises(ValueError, match="a wait of -1 s: it cannot be negative"):
            producer._appender.wait_on_metadata("u", 0, -1)
        broker.on(ApiKey.PRODUCE, SILENCE)
        producer.send("u", bytes(15_000))
        appears = threading.Timer(1.0, cluster.topics.update, [{"t": [Log()]}])
        appears.start()
        begun = time.monotonic()
        with pytest.raises(BufferExhausted):
            producer.send("t", bytes(15_000))
        assert 1.4 <= time.monotonic() - begun < 2.4
        appears.join()
