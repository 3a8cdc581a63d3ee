"""A producer on a wrong address, or with a topic or partition that is not there: what it says, and what to do."""

from __future__ import annotations

import pytest

from streamlet.devcluster.machine import free_ports
from streamlet.kafka import Producer
from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.producer import append
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


def test_a_partition_that_is_not_there(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "TOLD_AFTER_S", 1.0)
    with scripted(max_block_ms=1300) as (_broker, _log, producer):
        with pytest.raises(ClientTimeout, match=r"Partition 17 of topic 't' is not there.*The record was not taken\.$"):
            producer.send("t", b"x", partition=17)
        assert "a record for topic 't' waits, at most 0 s more (max_block_ms): the topic has no such" in caplog.text
