"""Consumers of real clusters that are closed after the test, and what librdkafka writes for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from tests.brokers import BROKERS
from tests.patience import PATIENCE_S


class Told(ConsumerRebalanceListener):
    """What came and went, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.events.append(("revoked", sorted(tp.partition for tp in revoked)))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.events.append(("assigned", sorted(tp.partition for tp in assigned)))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.events.append(("lost", sorted(tp.partition for tp in lost)))


@pytest.fixture(params=BROKERS)
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    """Each broker that the run has, one after the other."""
    found: DevCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def produce() -> Callable[..., None]:
    """``produce(cluster, topic, values, partition=0, key=None, **settings)`` by librdkafka, all acknowledged."""

    def write(
        cluster: DevCluster,
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        key: bytes | None = None,
        **settings: Any,
    ) -> None:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, **names}
        )
        for value in values:
            producer.produce(topic, value, key, partition=partition)
        assert producer.flush(20) == 0

    return write


@pytest.fixture
def make_consumer() -> Iterator[Callable[..., Consumer]]:
    """``make_consumer(cluster, *topics, **settings)``; closed after the test."""
    made: list[Consumer] = []

    def make(cluster: DevCluster, *topics: str, **settings: Any) -> Consumer:
        settings.setdefault("auto_offset_reset", "earliest")
        consumer = Consumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **settings)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close(5)


def take(consumer: Consumer, count: int, patience_s: float = PATIENCE_S) -> list[ConsumerRecord]:
    """Poll until so many records came."""
    found: list[ConsumerRecord] = []
    until([consumer], lambda: len(found) >= count, lambda _consumer, records: found.extend(records), patience_s)
    return found


def until(
    consumers: Sequence[Consumer],
    reached: Callable[[], bool],
    heard: Callable[[Consumer, list[ConsumerRecord]], None] = lambda _consumer, _records: None,
    patience_s: float = PATIENCE_S,
) -> None:
    """Poll all of them in turn until it is so; fails the test after ``patience_s``."""
    deadline = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < deadline, consumers
        for consumer in consumers:
            for records in consumer.poll(timeout_ms=50).values():
                heard(consumer, records)
