"""A producer on a scripted cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streamlet.kafka.producer import Producer
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


def until(done: Any, within_s: float = 10) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)
