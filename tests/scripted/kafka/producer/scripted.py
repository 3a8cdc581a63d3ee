"""A producer on a scripted cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from streamlet.kafka.producer import Producer
from streamlet.kafka.protocol.messages.metadata import MetadataPartition, MetadataRequest, MetadataResponse
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.fake_broker import FakeBroker
from tests.scripted.fake_cluster import FakeCluster

both_versions = pytest.mark.parametrize("version", [1, 2])
"""For what holds whichever version the transactions have (KIP-890)."""


@contextmanager
def scripted(
    topics: dict[str, int] | None = None, transaction_version: int = 1, **settings: Any
) -> Iterator[tuple[FakeBroker, FakeCluster, Producer]]:
    """A broker, the cluster behind it, and a producer on it."""
    with FakeCluster(topics or {"t": 1}, transaction_version=transaction_version) as cluster:
        broker = cluster.broker
        producer = Producer(bootstrap_servers=broker.address, retry_backoff_ms=10, retry_backoff_max_ms=20, **settings)
        try:
            yield broker, cluster, producer
        finally:
            producer.close(1)


def take_leader(producer: Producer, broker: FakeBroker, number: int, replicas: tuple[int, ...] = (9,)) -> None:
    """Have the producer hear that a partition has no leader, and has its replicas on these brokers."""

    def without(row: MetadataPartition) -> MetadataPartition:
        if row.partition_index != number:
            return row
        return replace(row, error_code=5, leader_id=-1, replica_nodes=replicas)

    def answer(request: MetadataRequest) -> MetadataResponse:
        own: MetadataResponse = broker.cluster.metadata(request)
        topics = (replace(topic, partitions=tuple(map(without, topic.partitions))) for topic in own.topics)
        return replace(own, topics=tuple(topics))

    broker.on(ApiKey.METADATA, answer)
    producer._sender.client.request_update()
    producer._sender.client.wakeup()


def until(done: Any, within_s: float = 10) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)
