"""A consumer that its user drops without a close."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref

import pytest

from streamlet.kafka import Consumer, ConsumerRebalanceListener
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import SILENCE, FakeBroker
from tests.scripted.kafka.consumer.scripted import ZERO


class Knows(ConsumerRebalanceListener):
    """As listeners do that commit."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer


def take(consumer: Consumer, count: int) -> int:
    deadline, found = time.monotonic() + PATIENCE_S, 0
    while found < count:
        assert time.monotonic() < deadline
        found += sum(map(len, consumer.poll(50).values()))
    return found


def group_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "streamlet-group-dropped"]


def test_its_thread_and_connections_end_and_that_is_told(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Else it would be a member that reads nothing, and keep its partitions from the others."""
    broker.on(ApiKey.JOIN_GROUP, SILENCE)
    consumer = Consumer(bootstrap_servers=broker.address, group_id="dropped")
    consumer.subscribe(["t"], listener=Knows(consumer))
    deadline = time.monotonic() + PATIENCE_S
    while not broker.seen(ApiKey.JOIN_GROUP):
        assert time.monotonic() < deadline
        consumer.poll(10)
    reference = weakref.ref(consumer)
    with caplog.at_level(logging.WARNING):
        del consumer
        gc.collect()
    assert reference() is None
    assert "was dropped without close()" in caplog.text and "'dropped'" in caplog.text
    while group_threads() or broker._open:
        assert time.monotonic() < deadline, (group_threads(), broker._open)
        time.sleep(0.01)


def test_one_without_a_group_leaves_no_connection(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Reference counts are enough: nothing of it waits for the collector of cycles."""
    broker.cluster.fill("t", 20)
    consumer = Consumer(bootstrap_servers=broker.address, fetch_max_wait_ms=50, auto_offset_reset="earliest")
    consumer.assign([ZERO])
    assert take(consumer, 20) == 20
    reference = weakref.ref(consumer)
    gc.disable()
    try:
        del consumer
        assert reference() is None
    finally:
        gc.enable()
    deadline = time.monotonic() + PATIENCE_S
    while broker._open:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_was_closed_or_never_used_is_told_nothing(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Closed is closed; and one that never polled has nothing open."""
    with caplog.at_level(logging.WARNING):
        Consumer(bootstrap_servers=broker.address).close()
        Consumer("t", bootstrap_servers=broker.address, group_id="dropped")
        gc.collect()
    assert caplog.text == ""
