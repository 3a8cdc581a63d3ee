"""One producer a worker, from the first task that asks to the last that leaves."""

from __future__ import annotations

import gc
import threading

import pytest

from streamlet.base.errors import BadInput
from streamlet.bolts.kafka.errors import BoltCannotStart, OutputTopicMissing
from streamlet.bolts.kafka.shared_producer import SharedProducer, share
from streamlet.devcluster.machine import free_ports
from streamlet.kafka.producer import ProducerConfig
from tests.far_ends import until
from tests.scripted.fake_cluster import FakeCluster

said: list[str] = []


def made(address: str, run: str = "run", **more: object) -> SharedProducer:
    settings = {"bootstrap_servers": [address], **more}
    return share(ProducerConfig.of(settings), settings, run)


def test_tasks_with_equal_settings_share_one_and_the_last_closes_it() -> None:
    with FakeCluster({"t": 1}) as cluster:
        one, two = made(cluster.broker.address), made(cluster.broker.address)
        other = made(cluster.broker.address, linger_ms=1)
        elsewhere = made(cluster.broker.address, run="another")
        assert one is two
        assert len({one, other, elsewhere}) == 3
        one.leave(5)
        future = two.producer.send("t", b"x") if two.await_topic("t", 5, "out", said.append) is None else None
        two.leave(5)
        assert future is not None and future.succeeded()
        assert made(cluster.broker.address) is not one
        for left in (other, elsewhere, made(cluster.broker.address)):
            left.leave(5)
            left.leave(5) if left.users else None


def test_one_that_nobody_left_ends_with_its_bolts() -> None:
    with FakeCluster({"t": 1}) as cluster:
        name = "producer-dropped"
        assert made(cluster.broker.address, client_id="dropped").users == 1
        gc.collect()
        until(lambda: name not in {thread.name for thread in threading.enumerate()})


def test_a_topic_that_no_broker_has_is_named() -> None:
    with FakeCluster({}) as cluster:
        shared = made(cluster.broker.address)
        with pytest.raises(
            OutputTopicMissing, match=r"The KafkaBolt out: the topic 'counts' does not exist, say the brokers at 127\.0"
        ):
            shared.await_topic("counts", 0.3, "out", said.append)
        shared.leave(5)


def test_that_a_topic_is_missing_is_told_long_before_brokers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlet.kafka.producer.topic_wait.UNKNOWN_S", 0.3)
    with FakeCluster({}) as cluster:
        shared = made(cluster.broker.address)
        with pytest.raises(OutputTopicMissing):
            shared.await_topic("counts", 3600.0, "out", said.append)
        shared.leave(5)


def test_a_start_that_waits_says_what_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlet.bolts.kafka.shared_producer.TOLD_AFTER_S", 0.05)
    shared = made(f"127.0.0.1:{free_ports(1)[0]}")
    told: list[str] = []
    with pytest.raises(BoltCannotStart):
        shared.await_topic("counts", 1.0, "out", told.append)
    assert [text[:42] for text in told] == ["waiting for the topic counts, for up to 1 "]
    shared.leave(5)


def test_brokers_that_do_not_answer_are_named_and_another_start_may_succeed() -> None:
    shared = made(f"127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(
        BoltCannotStart, match=r"The KafkaBolt out: no broker has said within 0\.2 s which partitions topic 'counts'"
    ) as no:
        shared.await_topic("counts", 0.2, "out", said.append)
    assert "Connections: 127.0.0.1:" in no.value.message and "after 0 s" not in no.value.message
    assert isinstance(no.value, BadInput), "a wrong port is refused with status 2, as a spout's is"
    shared.leave(5)
    assert BoltCannotStart.retriable
    shared.leave(1)
