"""A client of scripted brokers, and the polls until something is so."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamlet.kafka import ClientConfig, KafkaClient
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import FakeBroker


def make(*servers: FakeBroker, **settings: object) -> KafkaClient:
    names = tuple(row.address for row in servers)
    return KafkaClient(ClientConfig.of({"bootstrap_servers": names, **settings}))


def until(client: KafkaClient, done: Callable[[], bool], deadline_s: float = PATIENCE_S) -> None:
    """Poll until it is so."""
    end = time.monotonic() + deadline_s
    while not done():
        assert time.monotonic() < end, (client, client.cluster)
        client.poll(0.05)
