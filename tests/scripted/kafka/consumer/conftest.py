"""Consumers of a scripted broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamlet.devcluster.fake_broker import FakeBroker
from streamlet.kafka import Consumer
from streamlet.kafka.protocol.api import ApiKey
from tests.scripted.kafka.consumer.scripted import first_offsets


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 2}) as one:
        one.ranges[ApiKey.FETCH] = (10, 12)
        one.on(ApiKey.LIST_OFFSETS, first_offsets)
        yield one


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
