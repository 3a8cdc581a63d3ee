"""When progress is written, with a store that answers when the test says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streamlet.base.backoff import Backoff
from streamlet.base.clock import ManualClock
from streamlet.base.errors import StreamletError
from streamlet.spouts.kafka.activity import Steps
from streamlet.spouts.kafka.errors import Deposed
from streamlet.spouts.kafka.manager import EmitLimits, PartitionManager
from streamlet.spouts.kafka.offset_ledger import OffsetLedger
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.retry import ExponentialBackoffMsgRetryManager
from streamlet.spouts.kafka.schemes.scheme import StringScheme
from streamlet.spouts.kafka.stores.commit_rounds import CommitRounds
from streamlet.spouts.kafka.stores.offset_store import CommitOutcome, CommitPosition

P = Partition("t", 0)


class Gate:
    open = False

    def done(self) -> bool:
        return self.open


class Unreachable(StreamletError):
    retriable = True


class Store:
    def __init__(self) -> None:
        self.recommit_interval_s: float | None = None
        self.rounds: list[dict[Partition, int]] = []
        self.gate = Gate()
        self.gate.open = True
        self.outcome: CommitOutcome = None

    def commit(self, positions: Mapping[Partition, CommitPosition]) -> Steps[dict[Partition, CommitOutcome]]:
        self.rounds.append({partition: position.offset for partition, position in positions.items()})
        yield self.gate
        return dict.fromkeys(positions, self.outcome)


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Store()
        self.commits = CommitRounds(self.store, self.clock, 2.0, lambda partition: None)  # type: ignore[arg-type]
        retries = ExponentialBackoffMsgRetryManager(Backoff(1, 1), 0)
        self.manager = PartitionManager(P, 0, OffsetLedger(0), retries, StringScheme(), EmitLimits())

    def emit(self, offset: int) -> None:
        self.manager.ledger.emitted(offset, ["x"])

    def poll(self, seconds: float = 0.0, **keys: Any) -> None:
        self.clock.advance(seconds)
        self.commits.poll([self.manager], **keys)


def test_k7_progress_is_written_each_interval_and_only_when_it_moved() -> None:
    rig = Rig()
    rig.emit(0)
    rig.poll(1.9)
    assert rig.store.rounds == []
    rig.poll(0.2)
    assert rig.store.rounds == [], "nothing is done yet"
    rig.manager.ack(0)
    rig.poll(2.1)
    assert rig.store.rounds == [{P: 1}]
    rig.poll(2.1)
    rig.poll(2.1)
    assert rig.store.rounds == [{P: 1}]


def test_k7_a_round_never_starts_before_the_last_has_ended() -> None:
    rig = Rig()
    rig.store.gate.open = False
    for offset in (0, 1):
        rig.emit(offset)
        rig.manager.ack(offset)
        rig.poll(2.1)
        rig.poll(2.1)
    assert rig.store.rounds == [{P: 1}]
    assert rig.manager.ledger.committed == 0
    rig.store.gate.open = True
    rig.poll()
    rig.poll()
    assert rig.store.rounds == [{P: 1}, {P: 2}]
    assert rig.manager.ledger.committed == 2


def test_k7_what_could_not_be_written_is_written_by_a_later_round(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.emit(0)
    rig.manager.ack(0)
    rig.store.outcome = Unreachable("ZooKeeper does not answer")
    for _ in range(3):
        rig.poll(2.1)
    assert rig.manager.ledger.committed == 0
    assert caplog.text.count("progress was not stored") == 1, "said once"
    rig.store.outcome = None
    rig.poll(2.1)
    rig.poll()
    assert rig.manager.ledger.committed == 1


def test_a_deposed_owner_stops_reading_at_once() -> None:
    rig = Rig()
    rig.emit(0)
    rig.manager.ack(0)
    rig.store.outcome = Deposed(P, "there", "run-1", 1, {"owner_epoch": 2})
    with pytest.raises(Deposed):
        rig.poll(2.1)
    assert rig.manager.closed


def test_k7_unchanged_group_offsets_are_written_again_before_they_expire() -> None:
    rig = Rig()
    rig.store.recommit_interval_s = 3600.0
    for _ in range(5):
        rig.poll(900)
    assert rig.store.rounds == [{P: 0}]


def test_k13_pressing_progress_does_not_wait_for_the_timer() -> None:
    rig = Rig()
    rig.emit(0)
    rig.manager.ack(0)
    rig.poll(0.1, at_once=True)
    assert rig.store.rounds == [{P: 1}]


def test_the_answer_for_a_partition_that_began_again_meanwhile_stops_nobody() -> None:
    """Its write met our own later claim: that is no new owner."""
    rig = Rig()
    rig.emit(0)
    rig.manager.ack(0)
    rig.store.gate.open = False
    rig.store.outcome = Deposed(P, "ZooKeeper", "run-1", 1, {})
    rig.poll(2.1)
    rig.manager.close()
    rig.store.gate.open = True
    rig.poll()
    assert rig.manager.ledger.committed == 0
