"""Ctrl-C inside a ``with`` block is not answered by minutes of silence, though no broker answers."""

from __future__ import annotations

import logging
import time

import pytest

from streamlet.kafka import Consumer, Producer, TopicPartition
from streamlet.kafka.producer.errors import ProducerClosed
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.fake_broker import SILENCE, FakeBroker
from tests.scripted.fake_cluster import FakeCluster

SOON_S = 20.0
"""Far less than the 150 s (a producer) and 30 s (a consumer) that a close waits by default."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_producer_left_in_haste_ends_soon_and_says_what_was_not_sent(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """The count is told once, what is waited for is told before, and the futures know."""
    with FakeBroker(topics={"t": 1}) as broker:
        broker.on(ApiKey.PRODUCE, SILENCE)
        with pytest.raises(kind), Producer(bootstrap_servers=broker.address, enable_idempotence=False) as producer:
            futures = producer.send_many("t", [b"1", b"2", b"3"])
            start = time.monotonic()
            raise kind
        assert time.monotonic() - start < SOON_S
        assert [type(future.exception) for future in futures] == [ProducerClosed] * 3
    said = [row.getMessage() for row in caplog.records if row.levelno == logging.WARNING]
    assert [text for text in said if "closed with 3 records not acknowledged, of t" in text] == said[1:], said
    assert said[0].startswith("close() waits, at most 2 s more: 3 records, of t, are not acknowledged yet"), said
    assert broker.address in said[0]


def test_a_close_that_takes_long_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """And one that has nothing to wait for is silent."""
    with FakeBroker(topics={"t": 1}) as broker:
        with Producer(bootstrap_servers=broker.address):
            pass
        assert not caplog.records
        broker.on(ApiKey.INIT_PRODUCER_ID, SILENCE)
        producer = Producer(bootstrap_servers=broker.address)
        producer.send("t", b"1")
        producer.close(2.5)
        assert caplog.text.count("close() waits, at most 0 s more: 1 record, of t") == 1


def test_a_consumer_left_in_haste_ends_soon_and_says_what_it_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Its last commit has no coordinator to go to."""
    with FakeCluster({"t": 1}).fill("t", 20) as cluster:
        broker = cluster.broker.on(ApiKey.FIND_COORDINATOR, SILENCE)
        with pytest.raises(KeyboardInterrupt), Consumer(bootstrap_servers=broker.address, group_id="g") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek(TopicPartition("t", 0), 0)
            while not consumer.poll(500):
                pass
            start = time.monotonic()
            raise KeyboardInterrupt
        assert time.monotonic() - start < SOON_S
    assert caplog.text.count("close() waits, at most 2 s more: for the last commit, or to leave group 'g'") == 1
    assert "the last automatic commit failed" in caplog.text


def test_a_consumer_that_closes_at_once_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    """The thread that would speak has ended, too."""
    with FakeBroker(topics={"t": 1}) as broker, Consumer(bootstrap_servers=broker.address):
        pass
    assert not caplog.records
