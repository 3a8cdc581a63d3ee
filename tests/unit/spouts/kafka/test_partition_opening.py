"""Opening a partition: what is tried again in silence, and what counts as lost."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka.broker_errors import CoordinatorNotAvailable, UnknownServerError
from streamlet.spouts.kafka.activity import Activity, Steps
from streamlet.spouts.kafka.broker_connections import DynamicPartitionConnections, LogBounds
from streamlet.spouts.kafka.dead_letters.dead_letter import Fault, LastTry
from streamlet.spouts.kafka.epoch_ends import LastLook
from streamlet.spouts.kafka.errors import OffsetsLost
from streamlet.spouts.kafka.hosts import KafkaHosts
from streamlet.spouts.kafka.manager import PartitionManager
from streamlet.spouts.kafka.partition import Broker, OffsetRange, Partition
from streamlet.spouts.kafka.partition_opening import PartitionOpener, decide_stop
from streamlet.spouts.kafka.read_range import ReadPlace
from streamlet.spouts.kafka.schemes.scheme import as_scheme
from streamlet.spouts.kafka.spout_config import SpoutConfig
from streamlet.spouts.kafka.stores.offset_store import (
    CommitPosition,
    Owner,
    Reason,
    StartDecision,
    StopOffset,
    StoredOffset,
    decode,
    encode,
)


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
    opening = Activity(opener.open(Partition("t", 0), LastLook(lambda: Broker("a")), False))
    while not opening.poll():
        clock.advance(0.5)
    assert opening.take() == "opened" and isinstance(opener.last_error, CoordinatorNotAvailable)
    assert not [row for row in caplog.records if row.levelno > logging.DEBUG]


P0 = Partition("t", 0)


class MovingLog:
    """A connection to the leader of a log that grows."""

    broker = Broker("a")

    def __init__(self) -> None:
        self.end = 100

    def log_bounds(
        self, partition: Partition, timestamp_ms: int | None = None, stop_ms: int | None = None
    ) -> Steps[LogBounds]:
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
    opening = Activity(opener.open(Partition("t", 0), LastLook(lambda: Broker("a")), False))
    assert opening.poll()
    manager = opening.take()
    assert manager.ledger.position == 150 and manager.log_end == 164 and not manager.ledger.counts.lost
    assert manager.end == (164 if until_caught_up else None)


# -- bounded reads -----------------------------------------------------------------------------------------------------

AT_TEN = StoredOffset(10)
LATEST_STOP, LOG_NOW = ReadPlace("latest"), LogBounds(0, 100)
GOES_ON = StartDecision(40, Reason.STORED)


def test_latest_is_the_end_as_of_the_start_and_kept_until_it_is_reached() -> None:
    first = decide_stop(LATEST_STOP, LOG_NOW, None, StartDecision(0, Reason.FIRST_EARLIEST), "run-1")
    assert first == StopOffset(100, "latest")
    grown = LogBounds(0, 170)
    middle = StoredOffset(40, "run-1", stop=first)
    assert decide_stop(LATEST_STOP, grown, middle, GOES_ON, "run-2") == first
    reached = StoredOffset(100, "run-1", stop=first)
    assert decide_stop(LATEST_STOP, grown, reached, GOES_ON, "run-1") == first, "the same run: a worker was replaced"
    assert decide_stop(LATEST_STOP, grown, reached, GOES_ON, "run-2").offset == 170, "the next backfill"


def test_a_stop_by_time_is_the_first_record_of_that_time_or_the_end() -> None:
    at = ReadPlace("timestamp", 5000)
    assert decide_stop(at, LogBounds(0, 100, at_stop=60), None, GOES_ON).offset == 60
    assert decide_stop(at, LOG_NOW, None, GOES_ON).offset == 100


def test_a_stop_that_was_asked_for_otherwise_or_of_another_log_is_chosen_anew() -> None:
    stored = StoredOffset(40, "run-1", stop=StopOffset(100, "latest"))
    assert decide_stop(ReadPlace("offset", 70), LOG_NOW, stored, GOES_ON, "run-1") == StopOffset(70, "offset 70")
    grown = LogBounds(0, 170)
    for reason in (Reason.FORCED, Reason.TOPIC_RECREATED):
        assert decide_stop(LATEST_STOP, grown, stored, StartDecision(0, reason), "run-2").offset == 170


@pytest.mark.parametrize(
    ("reason", "log", "stop"),
    [
        (Reason.BELOW_START, LogBounds(60, 170), 100),
        (Reason.BELOW_START, LogBounds(120, 170), 100),
        (Reason.DIVERGED, LogBounds(0, 170), 100),
        (Reason.DIVERGED, LogBounds(0, 70), 70),
        (Reason.AHEAD_OF_END, LogBounds(0, 30), 30),
    ],
)
def test_a_stop_is_chosen_once_whatever_was_lost_since(reason: Reason, log: LogBounds, stop: int) -> None:
    """But in a log that was cut below it: that may never get there again."""
    stored = StoredOffset(40, "run-1", stop=StopOffset(100, "latest"))
    assert decide_stop(LATEST_STOP, log, stored, StartDecision(log.start, reason), "run-2").offset == stop
    at_offset = StoredOffset(40, "run-1", stop=StopOffset(100, "offset 100"))
    assert decide_stop(ReadPlace("offset", 100), log, at_offset, StartDecision(0, reason), "run-2").offset == 100


def test_the_stop_is_stored_with_the_offset_and_read_back() -> None:
    partition, stop = Partition("t", 0), StopOffset(100, "latest")
    data = encode(Owner("run", "name"), partition, CommitPosition(7, stop=stop), 1, None)
    assert decode(data, partition).stored.stop == stop
    assert decode(encode(Owner("run", "name"), partition, CommitPosition(7), 1, None), partition).stored.stop is None
    for odd in ({"offset": "7", "asked": "latest"}, {"offset": 7}, [], 7, None):
        fields = {**json.loads(data), "stop": odd}
        assert decode(json.dumps(fields), partition).stored.stop is None


@pytest.mark.parametrize(
    ("until_caught_up", "stop", "end"), [(False, 150, 150), (True, 500, 500), (False, "latest", 164)]
)
def test_a_bounded_read_ends_at_its_stop(until_caught_up: bool, stop: Any, end: int) -> None:
    log = MovingLog()
    asked = stop if isinstance(stop, str) else {0: stop}
    config = SpoutConfig(KafkaHosts("a:9092"), "t", id="g", stop_offset=asked)
    manager = opened_at(log, config, until_caught_up=until_caught_up)
    assert (manager.end, manager.stop and manager.stop.offset) == (end, end)


def test_a_start_outside_of_the_log_is_refused_by_its_setting() -> None:
    config = SpoutConfig(KafkaHosts("a:9092"), "t", id="g", start_offset={0: 900})
    with pytest.raises(OffsetsLost, match=r"start_offset says 900, and a read can begin from 0 .* to 164"):
        opened_at(MovingLog(), config, stored=None)
    beyond = opened_at(MovingLog(), replace(config, fail_on_data_loss=False), stored=None).ledger
    assert (beyond.position, beyond.counts.lost) == (164, 0), "what was never there is not lost"
    assert opened_at(MovingLog(), replace(config, start_offset={0: 9}), stored=None).ledger.position == 9


class Kept(HandedOver):
    """A store with an offset, or none."""

    def __init__(self, log: MovingLog, stored: StoredOffset | None) -> None:
        super().__init__(log)
        self.stored = stored

    def open(self, partition: Partition, broker: Any, topic_id: Any, decide: Any) -> Steps[StartDecision]:
        self.log.end = 164
        return (yield from decide(self.stored))


def opened_at(
    log: MovingLog,
    config: SpoutConfig,
    *,
    stored: StoredOffset | None = AT_TEN,
    until_caught_up: bool = False,
) -> PartitionManager:
    connections: Any = SimpleNamespace(register=lambda partition, broker: log)
    store: Any = Kept(log, stored)
    owner, clock, scheme = Owner("id", "name"), ManualClock(), as_scheme(config.scheme)
    opener = PartitionOpener(
        config, scheme, owner, connections, store, clock, lambda: 0.5, until_caught_up=until_caught_up
    )
    opening = Activity(opener.open(Partition("t", 0), LastLook(lambda: Broker("a")), False))
    assert opening.poll()
    return opening.take()


@pytest.mark.parametrize("offset", [170, 2**62])
def test_d7_a_stored_offset_beyond_the_end_of_the_log_is_told_with_its_range(offset: int) -> None:
    config = SpoutConfig(KafkaHosts("a:9092"), "t", id="g")
    with pytest.raises(OffsetsLost, match=rf"offset {offset}, but the log ends at 164\. Its end \[164, {offset - 1}\]"):
        opened_at(MovingLog(), config, stored=StoredOffset(offset))


def test_a_loss_found_at_an_opening_is_counted() -> None:
    config = SpoutConfig(KafkaHosts("a:9092"), "t", id="g", fail_on_data_loss=False)
    ledger = opened_at(MovingLog(), config, stored=StoredOffset(170)).ledger
    assert (ledger.position, ledger.counts.lost) == (164, 6)


class OtherEpochs(MovingLog):
    """A log whose leader answers what it is told to."""

    end_of_epoch = -1

    def epoch_end(self, *_: Any) -> Steps[int | None]:
        yield from ()
        return self.end_of_epoch


class Refusing(Kept):
    """A store that cannot keep anything for a while."""

    refuses = False

    def open(self, partition: Partition, broker: Any, topic_id: Any, decide: Any) -> Steps[StartDecision]:
        decision = yield from super().open(partition, broker, topic_id, decide)
        if self.refuses:
            raise CoordinatorNotAvailable("Committing for group 'g'")
        return decision


def opener_of(log: MovingLog, store: Any, clock: ManualClock, **settings: Any) -> PartitionOpener:
    config = SpoutConfig(KafkaHosts("a:9092"), "t", id="g", zk_root="/s", **settings)
    connections: Any = SimpleNamespace(register=lambda partition, broker: log)
    scheme, owner = as_scheme(config.scheme), Owner("id", "name")
    return PartitionOpener(config, scheme, owner, connections, store, clock, lambda: 0.5, until_caught_up=False)


class Unexpected(MovingLog):
    """A log whose leader cannot say where it ends for a number of seconds."""

    def __init__(self, clock: ManualClock, for_s: float) -> None:
        super().__init__()
        self.clock = clock
        self.until_s = clock.monotonic() + for_s

    def log_bounds(
        self, partition: Partition, timestamp_ms: int | None = None, stop_ms: int | None = None
    ) -> Steps[LogBounds]:
        if self.clock.monotonic() < self.until_s:
            raise UnknownServerError(f"Looking up the offsets of {partition}")
        return (yield from super().log_bounds(partition))


@pytest.mark.parametrize("resets", [False, True])
def test_a_look_at_a_log_meets_an_unexpected_error_tells_it_once_and_looks_again(
    resets: bool, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    log = Unexpected(clock, 0)
    opener, look = opener_of(log, Kept(log, AT_TEN), clock), LastLook(lambda: Broker("a"))
    opening = Activity(opener.open(P0, look, False))
    if resets:
        assert opening.poll()
        opening = Activity(opener.reset(opening.take(), look))
    log.until_s = clock.monotonic() + 50
    while not opening.poll():
        clock.advance(0.5)
    opened = opening.take()
    assert clock.monotonic() >= log.until_s and (resets or opened.ledger.position == 10)
    warnings = [row.getMessage() for row in caplog.records if row.levelno >= logging.WARNING]
    assert len(warnings) == 1 and "its offsets cannot be looked up at the moment, trying again" in warnings[0]


def test_an_error_that_the_leader_did_not_expect_is_raised_when_a_minute_brings_no_other_answer() -> None:
    clock = ManualClock()
    log = Unexpected(clock, 3600)
    opening = Activity(opener_of(log, Kept(log, AT_TEN), clock).open(P0, LastLook(lambda: Broker("a")), False))
    began_s = clock.monotonic()
    while not opening.poll():
        clock.advance(0.5)
    with pytest.raises(UnknownServerError, match=r"Looking up the offsets of .* Each answer of the last 60 s was so"):
        opening.take()
    assert 60 <= clock.monotonic() - began_s < 65


@pytest.mark.parametrize(
    ("topic_id", "settings", "where"),
    [("old", {"fail_on_data_loss": False}, 0), ("new", {"ignore_stored_offset": True}, 0)],
    ids=["a topic made again", "an offset that does not count"],
)
def test_no_newer_leader_is_waited_for_where_the_stored_offset_is_not_gone_on_from(
    topic_id: str, settings: dict[str, Any], where: int
) -> None:
    log, stored = OtherEpochs(), StoredOffset(50, "before", topic_id, leader_epoch=5)
    opener = opener_of(log, Kept(log, stored), ManualClock(), **settings)
    opening = Activity(opener.open(P0, LastLook(lambda: Broker("a"), lambda: "new", lambda: 0), False))
    assert opening.poll()
    assert opening.take().ledger.position == where


def test_a_log_that_was_cut_and_written_again_short_of_the_position_is_read_from_the_cut() -> None:
    """Its records between the cut and its end are of another leader: nobody has read them."""
    log, clock = OtherEpochs(), ManualClock()
    log.end_of_epoch = 90
    store = Kept(log, StoredOffset(170, "id", leader_epoch=5))
    look = LastLook(lambda: Broker("a"), leader_epoch=lambda: 7)
    opening = Activity(opener_of(log, store, clock, fail_on_data_loss=False).open(P0, look, False))
    assert opening.poll()
    opened = opening.take()
    assert (opened.ledger.position, opened.ledger.counts.lost) == (90, 80)

    store.stored = StoredOffset(120, "id", leader_epoch=5)
    log.end_of_epoch = 120
    opener = opener_of(log, store, clock, fail_on_data_loss=False)
    opening = Activity(opener.open(P0, look, False))
    assert opening.poll()
    running = opening.take()
    log.end, log.end_of_epoch = 110, 90
    reset = Activity(opener.reset(running, look))
    assert reset.poll()
    follower = reset.take()
    assert follower is not None and (follower.ledger.position, follower.ledger.counts.lost) == (90, 30)
    verdict = LastTry(Fault(None, "", ""), 1)
    running.ledger.counts.too_often[95] = verdict  # a verdict that comes late is about a record that is gone
    assert not follower.ledger.counts.too_often


def test_a_reset_that_cannot_be_stored_is_stored_later_and_judged_once() -> None:
    """Its manager reads no more by then: judged again, with a newer leader, it would go on, and nobody would read."""
    clock, log, epoch = ManualClock(), OtherEpochs(), [5]
    log.end_of_epoch = 100
    store = Refusing(log, StoredOffset(50, "id", leader_epoch=5))
    opener = opener_of(log, store, clock, fail_on_data_loss=False)
    look = LastLook(lambda: Broker("a"), leader_epoch=lambda: epoch[0])
    opening = Activity(opener.open(P0, look, False))
    assert opening.poll()
    manager = opening.take()
    epoch[0], log.end_of_epoch, store.refuses = 3, -1, True
    manager.validate()
    reset = Activity(opener.reset(manager, look))
    for _ in range(150):
        assert not reset.poll()
        clock.advance(0.1)
    assert manager.ending
    epoch[0], log.end_of_epoch, store.refuses = 6, 100, False
    clock.advance(1.0)
    assert reset.poll()
    follower = reset.take()
    assert follower is not None and follower.ledger.position == 0 and follower.wants_fetch()


# -- attempts: each opens partitions again -----------------------------------------------------------------------------


class Claims:
    """A store that keeps what is claimed, as a group does."""

    def __init__(self) -> None:
        self.stored: StoredOffset | None = StoredOffset(40)

    def open(self, partition: Partition, broker: Any, topic_id: Any, decide: Any) -> Steps[StartDecision]:
        decision = yield from decide(self.stored)
        self.stored = StoredOffset(decision.offset, "id", topic_id, stop=decision.stop)
        return decision

    def where(self, partition: Partition) -> str:
        return "the store"


class Attempts:
    """One opener over a log and a store."""

    def __init__(self, *, until_caught_up: bool = False, **settings: Any) -> None:
        self.log, self.store, self.topic_id = MovingLog(), Claims(), "old"
        self.log.end = 1000
        self.look = LastLook(lambda: Broker("a"), lambda: self.topic_id)
        config = SpoutConfig(KafkaHosts("a:9092"), "t", id="g", fail_on_data_loss=False, **settings)
        connections: Any = SimpleNamespace(register=lambda partition, broker: self.log)
        store: Any = self.store
        self.opener = PartitionOpener(
            config,
            as_scheme(config.scheme),
            Owner("id", "name"),
            connections,
            store,
            ManualClock(),
            lambda: 0.5,
            until_caught_up=until_caught_up,
            opens_later=True,
        )

    def done(self, steps: Steps[Any]) -> Any:
        activity = Activity(steps)
        assert activity.poll()
        return activity.take()

    def open(self) -> PartitionManager:
        manager = self.done(self.opener.open(P0, self.look, False))
        assert isinstance(manager, PartitionManager)
        return manager

    def reset(self, manager: PartitionManager) -> Any:
        return self.done(self.opener.reset(manager, self.look))


BOUNDED = [{"stop_offset": "latest"}, {"until_caught_up": True}]


@pytest.mark.parametrize("settings", BOUNDED)
def test_attempts_of_a_bounded_read_end_where_a_log_ended_that_was_cut(settings: dict[str, Any]) -> None:
    """At a start: the stored offset lies ahead of the end."""
    rig = Attempts(**settings)
    first = rig.open()
    assert first.end == 1000
    rig.store.stored = StoredOffset(600, "id", "old", stop=first.stop)
    rig.log.end = 500
    for rig.log.end in (500, 800):
        cut = rig.open()
        assert (cut.ledger.position, cut.end) == (500, 500)


@pytest.mark.parametrize("settings", BOUNDED)
def test_the_next_attempt_of_a_bounded_read_ends_where_a_reset_found_the_end_of_its_log(
    settings: dict[str, Any],
) -> None:
    """What is stored lies far below the cut."""
    rig = Attempts(**settings)
    first = rig.open()
    first.buffer.position = 600
    rig.log.end = 500
    assert rig.reset(first) is None and first.closed
    for rig.log.end in (500, 800):
        again = rig.open()
        assert (again.ledger.position, again.end) == (40, 500)


def test_a_stop_that_was_written_as_an_offset_stays_in_a_log_that_was_cut() -> None:
    rig = Attempts(stop_offset={0: 900})
    first = rig.open()
    first.buffer.position, rig.log.end = 600, 500
    rig.reset(first)
    assert rig.open().end == 900


@pytest.mark.parametrize("settings", BOUNDED)
def test_a_bounded_read_ends_at_the_end_of_a_topic_that_was_made_again(settings: dict[str, Any]) -> None:
    rig = Attempts(**settings)
    rig.open()
    rig.topic_id, rig.store.stored = "new", None
    for rig.log.end in (300, 350):
        end = rig.open().end
        assert end == 300


def test_offsets_given_up_of_a_topic_that_was_made_again_count_apart_and_what_was_counted_stays() -> None:
    """Of the old topic, too, what is given up later."""
    rig = Attempts()
    old = rig.open().ledger
    old.passed_poison(50)
    rig.topic_id, rig.store.stored = "new", StoredOffset(0)
    new = rig.open().ledger
    new.passed_poison(50)
    old.passed_poison(51)
    new.passed_poison(51)
    assert new.counts.given_up == old.counts.given_up == 4


def test_what_was_not_read_of_a_topic_that_is_gone_is_counted_and_its_offsets_are_forgotten() -> None:
    """Where topics have no ids, only the coordinator knows."""
    rig = Attempts()
    old = rig.open().ledger
    old.passed_poison(50)
    rig.opener.topic_gone(P0, OffsetRange(60, 64))
    new = rig.open().ledger
    new.passed_poison(50)
    assert (new.counts.given_up, new.counts.lost) == (2, 4)
