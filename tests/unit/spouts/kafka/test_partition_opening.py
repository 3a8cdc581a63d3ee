"""Opening a partition: what is tried again in silence."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka.broker_errors import CoordinatorNotAvailable
from streamlet.spouts.kafka.activity import Activity, Steps
from streamlet.spouts.kafka.broker_connections import DynamicPartitionConnections
from streamlet.spouts.kafka.hosts import KafkaHosts
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.partition_opening import PartitionOpener
from streamlet.spouts.kafka.scheme import as_scheme
from streamlet.spouts.kafka.spout_config import SpoutConfig
from streamlet.spouts.kafka.stores.offset_store import Owner


def test_an_error_that_a_later_try_mends_is_kept_and_warns_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A group's first use of a fresh Kafka 4: its coordinator is not there for a moment. The start keeps the reason,
    and tells it when it takes long; no line of its own reaches a user.
    """

    class Opener(PartitionOpener):
        tries = 0

        def _open_once(self, *_: Any) -> Steps[Any]:
            yield from ()
            self.tries += 1
            if self.tries < 4:
                raise CoordinatorNotAvailable("Looking for the coordinator of group 'g'")
            return "opened"

    clock = ManualClock()
    config = SpoutConfig(KafkaHosts("a:9092"), "t", id="g", zk_root="/s")
    connections: Any = DynamicPartitionConnections(None)  # type: ignore[arg-type]
    store: Any = None
    opener = Opener(
        config,
        as_scheme(config.scheme),
        Owner("id", "name"),
        connections,
        store,
        clock,
        lambda: 0.5,
        until_caught_up=False,
    )
    caplog.set_level(logging.DEBUG)
    opening = Activity(opener.open(Partition("t", 0), lambda: Broker("a"), lambda: None, False))
    while not opening.poll():
        clock.advance(0.5)
    assert opening.take() == "opened" and isinstance(opener.last_error, CoordinatorNotAvailable)
    assert not [row for row in caplog.records if row.levelno > logging.DEBUG]
