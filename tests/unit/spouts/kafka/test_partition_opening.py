"""Opening a partition: what is tried again in silence, and what counts as lost."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka.broker_errors import CoordinatorNotAvailable
from streamlet.spouts.kafka.activity import Activity, Steps
from streamlet.spouts.kafka.broker_connections import DynamicPartitionConnections, LogBounds
from streamlet.spouts.kafka.hosts import KafkaHosts
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.partition_opening import PartitionOpener
from streamlet.spouts.kafka.scheme import as_scheme
from streamlet.spouts.kafka.spout_config import SpoutConfig
from streamlet.spouts.kafka.stores.offset_store import Owner, StartDecision, StoredOffset


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


class MovingLog:
    """A connection to the leader of a log that grows."""

    broker = Broker("a")

    def __init__(self) -> None:
        self.end = 100

    def log_bounds(self, partition: Partition, timestamp_ms: int | None = None) -> Steps[LogBounds]:
        yield from ()
        return LogBounds(0, self.end)

    def epoch_end(self, *_: Any) -> Steps[int | None]:
        yield from ()
        return None


class HandedOver:
    """A store whose former owner reads on, and commits, until the partition is handed over."""

    def __init__(self, log: MovingLog) -> None:
        self.log = log

    def open(self, partition: Partition, broker: Any, topic_id: Any, decide: Any) -> Steps[StartDecision]:
        self.log.end = 164
        return (yield from decide(StoredOffset(150)))

    def where(self, partition: Partition) -> str:
        return "the store"


@pytest.mark.parametrize("until_caught_up", [False, True])
def test_what_a_former_owner_commits_until_it_hands_over_is_no_loss(until_caught_up: bool) -> None:
    """Beside bounds that were asked for before, its newest offset lies behind the end of the log."""
    log = MovingLog()
    config = SpoutConfig(KafkaHosts("a:9092"), "t", id="g", zk_root="/s")
    connections: Any = SimpleNamespace(register=lambda partition, broker: log)
    store: Any = HandedOver(log)
    owner, clock = Owner("id", "name"), ManualClock()
    scheme = as_scheme(config.scheme)
    opener = PartitionOpener(
        config, scheme, owner, connections, store, clock, lambda: 0.5, until_caught_up=until_caught_up
    )
    opening = Activity(opener.open(Partition("t", 0), lambda: Broker("a"), lambda: None, False))
    assert opening.poll()
    manager = opening.take()
    assert manager.ledger.position == 150 and manager.log_end == 164 and opener.lost_offsets == 0
    assert manager.end == (164 if until_caught_up else None)
