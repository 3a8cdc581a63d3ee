"""Closing, callbacks, forks and settings: nothing hangs, and what contradicts itself is refused."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.errors import IllegalProducerState, ProducerClosed, SerializationFailed
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import CLOSE, SILENCE, FakeBroker
from tests.scripted.fake_cluster import FakeCluster
from tests.scripted.kafka.producer.scripted import scripted, until


def test_a_callback_may_send_and_may_not_wait() -> None:
    """flush, get and commit there would wait for their own thread; send does not block; close does not wait."""
    with scripted() as (_broker, _log, producer):
        seen: list[Any] = []
        done = threading.Event()

        def callback(metadata: Any) -> None:
            again = producer.send("t", b"again")
            seen.append(again)
            for wait in (lambda: again.get(1), lambda: producer.flush(1)):
                try:
                    wait()
                except IllegalProducerState as err:
                    seen.append(err)
            done.set()

        producer.send("t", b"x").add_callback(callback)
        assert done.wait(10) and len(seen) == 3
        assert seen[0].get(10).offset == 1
        producer.send("t", b"x").add_callback(lambda metadata: producer.close())
        until(lambda: not producer._sender._thread.is_alive())
        with pytest.raises(ProducerClosed, match="closed"):
            producer.send("t", b"x")


@pytest.mark.parametrize("act", [SILENCE, CLOSE])
def test_close_ends_in_its_time_with_a_broker_that_never_answers(act: Any) -> None:
    """What is open fails with ProducerClosed, once; a second close is nothing."""
    with scripted() as (broker, _log, producer):
        producer.send("t", b"x").get(10)
        broker.on(ApiKey.PRODUCE, act)
        future = producer.send("t", b"y")
        start = time.monotonic()
        producer.close(0.3)
        assert time.monotonic() - start < 10
        with pytest.raises(ProducerClosed, match="may be written all the same"):
            future.get(0)
        producer.close()
        assert not producer._sender._thread.is_alive()


def test_neither_send_nor_close_hangs_when_nobody_listens() -> None:
    """Nor does send hang."""
    with FakeBroker() as broker:
        address = broker.address
    producer = Producer(bootstrap_servers=address, max_block_ms=100)
    with pytest.raises(ClientTimeout, match=address):
        producer.send("t", b"x")
    start = time.monotonic()
    producer.close(0.1)
    assert time.monotonic() - start < 10
    with pytest.raises(ProducerClosed):
        producer.send("t", b"x")


def test_a_forked_child_is_refused_and_the_parent_goes_on() -> None:
    """Whatever lock is held at the fork: the child hears at once that it needs a producer of its own."""
    with scripted() as (_broker, _log, producer):
        producer.send("t", b"x").get(10)
        _broker.on(ApiKey.PRODUCE, SILENCE)
        open_one = producer.send("t", b"open")
        reader, writer = os.pipe()
        with producer._lock:
            child = os.fork()
        if child == 0:
            said = b"nothing"
            try:
                producer.send("t", b"from the child")
            except ProducerClosed as err:
                said = err.message.encode()
            try:
                open_one.get(5)
            except ProducerClosed as err:
                said += err.message.encode()
            finally:
                producer.close()
                os.write(writer, said)
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read()
            assert b"is a fork of it" in said and b"only the parent hears how it ends" in said
        os.waitpid(child, 0)


def test_a_producer_that_nobody_holds_any_more_sends_what_it_has_and_ends() -> None:
    """Its thread does not stay behind."""
    with FakeCluster({"t": 1}) as log:
        producer = Producer(bootstrap_servers=log.broker.address, enable_idempotence=False)
        thread = producer._sender._thread
        producer.send("t", b"first").get(10)
        futures = producer.send_many("t", [b"x"] * 10)
        del producer
        gc.collect()
        until(lambda: not thread.is_alive())
        assert [future.get(0).offset for future in futures] == list(range(1, 11))


def test_a_send_that_waits_hears_of_the_close() -> None:
    """At once, in the thread that waits."""
    with scripted(max_block_ms=60_000) as (_broker, _log, producer):
        heard: list[BaseException] = []

        def wait() -> None:
            try:
                producer.send("nowhere", b"x")
            except ProducerClosed as err:
                heard.append(err)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: "nowhere" in producer._sender.client.metadata.topics)
        producer.close(5)
        thread.join(PATIENCE_S)
        assert heard


@pytest.mark.parametrize("timestamp", [1.5, -1, 1 << 63, "now", True])
def test_a_record_with_a_wrong_timestamp_is_refused(timestamp: Any) -> None:
    """And nothing is left behind that could not be sent."""
    with scripted() as (_broker, log, producer):
        with pytest.raises(ValueError, match="timestamp_ms = "):
            producer.send("t", b"x", timestamp_ms=timestamp)
        with pytest.raises(SerializationFailed, match="headers"):
            producer.send("t", b"x", headers=[("\ud800", b"")])
        assert producer.send("t", b"y").get(10).offset == 0
        assert log.values[("t", 0)] == [b"y"]


def test_close_sends_what_it_was_given() -> None:
    """The context manager too."""
    with scripted(linger_ms=10_000) as (_broker, log, producer):
        with producer:
            futures = [producer.send("t", b"%d" % n) for n in range(100)]
        assert [future.get(0).offset for future in futures] == list(range(100))
        assert log.values[("t", 0)] == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ack": 1}, "acks"),
        ({"acks": 2}, "acks = 2"),
        ({"acks": 1, "enable_idempotence": True}, "acks = 1 contradicts enable_idempotence"),
        ({"acks": 0, "transactional_id": "x"}, "acks = 0 contradicts transactional_id"),
        ({"transactional_id": "x", "enable_idempotence": False}, "contradicts transactional_id"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"delivery_timeout_ms": 100}, "less than linger_ms"),
        ({"compression_type": "zip"}, "gzip"),
        ({"partitioner": "random"}, "uniform_sticky"),
        ({"partition_failover": "yes"}, "keyless"),
        ({"value_serializer": 5}, "value_serializer = 5"),
    ],
)
def test_producer_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], message: str) -> None:
    """Before anything is begun."""
    with pytest.raises(SettingError, match=message):
        Producer(bootstrap_servers="127.0.0.1:1", **settings)
