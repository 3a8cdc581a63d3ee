"""Far ends of one test: a scripted cluster, or a real one; and a body that two tests share."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.errors import OutcomeUnknown
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.read_back import read_back
from tests.scripted.fake_cluster import FakeCluster


class ScriptedFarEnd:
    """The fake cluster: its state can be looked at, its answers held back."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.bootstrap_servers = cluster.broker.address

    def make_topic(self) -> str:
        self.cluster.log("t", 0)
        return "t"

    def fill(self, topic: str, count: int) -> None:
        """Write so many records to partition 0."""
        self.cluster.fill(topic, count)

    def reader(self, make_consumer: Callable[..., Consumer], topic: str, **settings: Any) -> Consumer:
        """Return a consumer of the topic, without a group: this far end has none."""
        consumer = make_consumer(self, **settings)
        consumer.assign([TopicPartition(topic, 0)])
        return consumer

    def values(self, topic: str, count: int) -> list[bytes | None]:
        """Return what was written to partition 0."""
        found = self.cluster.log(topic, 0).values()
        assert len(found) == count
        return found

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Hold every produce request back."""
        gate = threading.Event()

        def late(request: Any) -> Any:
            gate.wait(60)
            return self.cluster.produce(request)

        self.cluster.broker.on(ApiKey.PRODUCE, late)
        try:
            yield
        finally:
            gate.set()


class RealFarEnd:
    """A cluster of the development kit, looked at with librdkafka."""

    def __init__(self, cluster: DevCluster, make_topic: Callable[..., str]) -> None:
        self.cluster = cluster
        self.bootstrap_servers = cluster.bootstrap_servers
        self._make_topic = make_topic

    def make_topic(self) -> str:
        return self._make_topic(self.cluster)

    def fill(self, topic: str, count: int) -> None:
        """Write so many records to partition 0, in batches of 2000 bytes."""
        own = {"linger.ms": 5, "batch.size": 2000, "enable.idempotence": True}
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap_servers, **own})
        for _ in range(count):
            producer.produce(topic, b"x" * 100, partition=0)
        assert producer.flush(PATIENCE_S) == 0

    def reader(self, make_consumer: Callable[..., Consumer], topic: str, **settings: Any) -> Consumer:
        """Return a member of a group that reads the topic."""
        return make_consumer(self, topic, group_id=topic, enable_auto_commit=False, **settings)

    def values(self, topic: str, count: int) -> list[bytes | None]:
        """Return what was written to partition 0."""
        return [row.value for row in read_back(self.cluster, topic, count)]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the broker's process."""
        self.cluster.pause(0)
        try:
            yield
        finally:
            self.cluster.resume(0)


FarEnd = ScriptedFarEnd | RealFarEnd


def a_late_success_is_counted_and_changes_nothing(far_end: FarEnd, caplog: pytest.LogCaptureFixture) -> None:
    """Let a record expire in flight and be written afterwards: its future stays failed, log and counts say the truth.

    A batch comes to its end before its request does when it had to wait for its turn: here its age is set by hand.
    """
    topic = far_end.make_topic()
    with Producer(bootstrap_servers=far_end.bootstrap_servers, request_timeout_ms=100_000) as producer:
        producer.send(topic, b"before").get(PATIENCE_S)
        sender, told = producer._sender, []
        with far_end.paused():
            future = producer.send(topic, b"late").add_both(lambda outcome: told.append(outcome))
            until(lambda: sender.ledger.on_wire)
            with sender.lock:
                (batch,) = sender.ledger.on_wire
                batch.created_s -= producer.config.delivery_timeout_s
            sender.client.wakeup()
            with pytest.raises(OutcomeUnknown, match="may still be written") as caught:
                future.get(PATIENCE_S)
            assert producer.metrics()["late_successes"] == 0
            assert producer.metrics()["buffer_bytes_in_use"] != 0, "the socket may still send from it"
        until(lambda: producer.metrics()["late_successes"] == 1)
        assert told == [future.exception] and str(caught.value) == str(future.exception)
        assert (producer.metrics()["records_failed"], producer.metrics()["records_sent"]) == (1, 1)
        assert producer.metrics()["buffer_bytes_in_use"] == 0
        until(lambda: f"1 record(s) for {topic}-0 were written at offset 1 after all" in caplog.text)
        assert producer.send(topic, b"after").get(PATIENCE_S).offset == 2
    assert far_end.values(topic, 3) == [b"before", b"late", b"after"]


def until(reached: Callable[[], object]) -> None:
    """Wait until it is so; fails the test after ``PATIENCE_S``."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)
