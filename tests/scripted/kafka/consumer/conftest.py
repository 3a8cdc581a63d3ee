"""Consumers of a scripted broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamlet.kafka import Consumer
from tests.scripted.fake_broker import FakeBroker
from tests.scripted.fake_cluster import FakeCluster


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """The one of a cluster with topic t of two partitions."""
    with FakeCluster({"t": 2}) as cluster:
        yield cluster.broker


@pytest.fixture
def consumer_of(broker: FakeBroker) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        names = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, **settings}
        made.append(Consumer(bootstrap_servers=broker.address, **names))
        return made[-1]

    yield make
    for one in made:
        one.close(2)
