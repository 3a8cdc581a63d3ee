"""KafkaSpout itself: its line in a topology, the walk from partition to partition, answers it does not know."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import streamlet.spouts.kafka as package
from streamlet import Bolt, Topology
from streamlet.base.clock import ManualClock
from streamlet.base.errors import SettingError
from streamlet.components.spout import FailReason, FailureCause, Spout
from streamlet.kafka.errors import CorruptRecord
from streamlet.model.paused import PausedPart
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, KeyValueScheme, Record, SpoutConfig
from streamlet.spouts.kafka.attempt import AttemptPhase
from streamlet.spouts.kafka.broker_connections import DynamicPartitionConnections
from streamlet.spouts.kafka.coordinator import PartitionCoordinator
from streamlet.spouts.kafka.errors import PoisonRecord
from streamlet.spouts.kafka.exactly_once import TOLD
from streamlet.spouts.kafka.last_commits import FINAL_COMMIT_S, LEAST_S, LastCommits
from streamlet.spouts.kafka.manager import EMITTED_END, EMITTED_MORE_LEFT, NO_EMITTED, PartitionManager
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.retry import NextTry

CONFIG = SpoutConfig(KafkaHosts("k"), "lines", id="demo", records_per_turn=3)


class Manager:
    """Emits ``left`` records, at most ``together`` in one call."""

    def __init__(self, number: int, left: int, together: int = 1) -> None:
        self.partition = Partition("lines", number)
        self.slot = number + 10
        self.left = left
        self.together = together
        self.asked: list[int] = []
        self.poisoned: Any = None
        self.damage: Any = None
        self.ledger = SimpleNamespace(open_count=0)
        self.closed = self.ending = self.paused = False
        self.held_back = None
        self.buffer = SimpleNamespace(unpacked_bytes=0, size_bytes=CONFIG.buffer_size_bytes)
        self.batch_bytes, self.drops = 0, False
        self.blocked = self.may_unpack = self.scheme_waits = False
        self.commit_is_pressing = False
        self.acked: list[int] = []
        self.failed: list[int] = []
        self.lost: list[int] = []
        self.count = 1
        self.at_end = False

    @property
    def at_hand(self) -> bool:
        return self.left > 0

    def drop_unpacked(self, now_s: float) -> None:
        if self.drops:
            self.buffer.unpacked_bytes = self.left = 0

    def pause(self, paused: bool) -> None:
        self.paused = paused

    def begin_turn(self, now_s: float, records: int, *, holds_back: bool, may_unpack: bool) -> None:
        self.may_unpack = may_unpack

    def next(self, collector: Any, most: int = 1) -> Any:
        self.asked.append(most)
        if self.scheme_waits and self.may_unpack:
            self.buffer.unpacked_bytes, self.scheme_waits = self.batch_bytes, False  # and rests
        if not self.left or self.blocked or not (self.may_unpack or self.buffer.unpacked_bytes):
            return NO_EMITTED
        self.buffer.unpacked_bytes = self.batch_bytes if self.left > 1 else 0
        self.count = min(self.left, self.together, most)
        self.ledger.open_count += self.count
        for _ in range(self.count):
            self.left -= 1
            collector.emit([self.partition.number], (self.slot, self.left))
        return EMITTED_MORE_LEFT if self.left else EMITTED_END

    def ack(self, offset: int) -> None:
        self.acked.append(offset)

    def ack_many(self, offsets: Sequence[int]) -> None:
        self.acked.extend(offsets)

    def fail(self, offset: int, now_s: float, *, lost: bool, cause: FailureCause) -> NextTry | None:
        (self.lost if lost else self.failed).append(offset)
        return None if lost else NextTry(len(self.failed), 21, now_s + 0.1)


class Rig:
    def __init__(self, *managers: Manager) -> None:
        self.emitted: list[int] = []
        self.spout = KafkaSpout(CONFIG)
        vars(self.spout).update(emit=lambda values, tup_id: self.emitted.append(values[0]), room=lambda: 128)
        self.spout._clock = ManualClock()  # type: ignore[misc]
        self.coordinator = SimpleNamespace(
            version=1,
            poll=lambda: None,
            fetch_failed=lambda failed: None,
            leader=lambda partition: None,
            get_my_managed_partitions=lambda: self.managers,
        )
        self.managers = list(managers)
        self.commits = 0
        self.pressing: list[bool] = []
        self.steps: list[str] = []
        self.spout._parts = SimpleNamespace(  # type: ignore[assignment]
            client=SimpleNamespace(
                poll=lambda seconds: self.steps.append("poll"),
                send_queued=lambda: self.steps.append("send_queued"),
                cluster=SimpleNamespace(topic_id=lambda topic: None),
            ),
            coordinator=self.coordinator,
            fetcher=SimpleNamespace(
                collect=lambda now: self.steps.append("collect") or [],
                send=lambda managers, topic_id, now: self.steps.append("fetch"),
                forget_unused=lambda: None,
                all_asked=True,
                sources=SimpleNamespace(
                    avoid_nearer=lambda partition, error, now: self.steps.append("avoid nearer"),
                    nearer=lambda partition: None,
                ),
            ),
            commits=SimpleNamespace(poll=self.commit_poll),
            gate=SimpleNamespace(poll=lambda now: None, may_emit=lambda now: True),
        )
        self.spout._gate = self.spout._parts.gate  # type: ignore[union-attr]

    def commit_poll(self, managers: Any, *, at_once: bool) -> None:
        self.commits += 1
        self.pressing.append(at_once)

    def ask(self, times: int) -> list[int]:
        for _ in range(times):
            self.spout.rests = False  # as before each turn
            self.spout.next_tuple()
        return self.emitted


def test_k5_a_partition_with_more_keeps_its_turn_for_a_while() -> None:
    """Here each ``next_tuple`` emits one record, as with a scheme whose records need a look of their own."""
    rig = Rig(Manager(0, 5), Manager(1, 1), Manager(2, 4))
    assert rig.ask(1) == [0]
    assert rig.ask(9) == [0, 0, 0, 1, 2, 2, 2, 0, 0, 2]
    assert len(rig.ask(3)) == 10, "nothing is left, nothing is emitted"


def test_k5_records_of_one_call_end_with_the_turn_and_with_the_room() -> None:
    """Several in one ``next_tuple``, of one partition: never more than its turn has left, nor than may be emitted."""
    rig = Rig(Manager(0, 9, together=99), Manager(1, 2, together=99))
    assert rig.ask(1) == [0, 0, 0]
    assert rig.ask(1) == [0, 0, 0, 1, 1]
    rig.emitted.clear()
    for room in (1, 99, 2, 99):
        rig.spout.room = lambda room=room: room  # type: ignore[method-assign,misc]
        rig.ask(1)
    assert rig.emitted == [0, 0, 0, 0, 0, 0]
    assert rig.managers[0].asked == [3, 1, 2, 2, 1], "a second call of a turn has what the first left of it"


def test_what_is_unpacked_is_emitted_before_more_is_unpacked() -> None:
    """A batch may take many times its bytes on the wire, and each of fifty partitions would hold one."""
    rig = Rig(*(Manager(number, 9) for number in range(3)))
    for each in rig.managers:
        each.batch_bytes = CONFIG.buffer_size_bytes
    assert rig.ask(9) == [0] * 9, "a turn has three records, and nobody else may unpack"
    assert rig.ask(9)[9:] == [1] * 9
    for each in rig.managers:
        each.left, each.batch_bytes = 9, CONFIG.buffer_size_bytes // 2
    rig.emitted.clear()
    assert {*rig.ask(18)} == {2, 0}, "two of them may"


def test_the_records_of_a_live_partition_do_not_wait_for_those_that_catch_up() -> None:
    rig = Rig(*(Manager(number, 9) for number in range(3)))
    for each in rig.managers:
        each.batch_bytes = CONFIG.buffer_size_bytes
    rig.managers[2].buffer.size_bytes = 100
    assert rig.ask(9) == [0, 0, 0, 2, 2, 2, 0, 0, 0]


def test_unpacked_records_that_may_not_leave_hold_up_no_other_partition() -> None:
    rig = Rig(*(Manager(number, 9) for number in range(3)))
    rig.managers[0].blocked, rig.managers[0].buffer.unpacked_bytes = True, 2 * CONFIG.buffer_size_bytes
    assert rig.ask(18) == [1, 1, 1, 2, 2, 2] * 3


def test_unpacked_records_that_may_not_leave_are_dropped_where_they_take_the_room_of_others() -> None:
    """Of a topic that is gone they are kept, and nobody waits for their room."""
    rig = Rig(*(Manager(number, 9) for number in range(4)))
    for one in rig.managers[:2]:
        one.blocked, one.buffer.unpacked_bytes = True, 2 * CONFIG.buffer_size_bytes
    assert rig.ask(9) == []
    rig.managers[0].drops = True
    assert rig.ask(7) == [2, 2, 2, 3, 3, 3], "the first time made room"
    assert [one.buffer.unpacked_bytes for one in rig.managers[:2]] == [0, 2 * CONFIG.buffer_size_bytes]
    for one in rig.managers[:2]:
        one.ending, one.drops, one.buffer.unpacked_bytes = True, True, 2 * CONFIG.buffer_size_bytes
    assert rig.ask(6)[6:] == [2, 2, 2, 3, 3, 3]
    assert [one.buffer.unpacked_bytes for one in rig.managers[:2]] == [2 * CONFIG.buffer_size_bytes] * 2


def test_a_walk_that_emits_nothing_unpacks_no_more_than_the_bound_and_a_batch() -> None:
    """While a registry is away each partition unpacks a batch, finds that out and keeps it: in one walk, all did."""
    rig = Rig(*(Manager(number, 9) for number in range(9)))
    for one in rig.managers:
        one.blocked = one.scheme_waits = True
        one.batch_bytes = CONFIG.buffer_size_bytes * 3 // 2
    for _ in range(3):
        assert rig.ask(1) == []
        assert sum(one.buffer.unpacked_bytes > 0 for one in rig.managers) == 3, "four times the budget is 2.7 of them"
    rig.managers[8].blocked = rig.managers[8].scheme_waits = False
    for one in rig.managers:
        one.drops = True
    assert rig.ask(6)[:1] == [8], "all others have tried, and made room again"


def test_a_turn_ends_with_its_epoch() -> None:
    """What it emitted after END would be in a transaction whose offsets stop before it."""
    rig = Rig(Manager(0, 9))
    attempt = SimpleNamespace(
        may_emit=True, left=99, records=0, phase=AttemptPhase.RUNNING, poll=lambda now: None, draining=False
    )

    def end(number: int, now: float) -> None:
        attempt.may_emit, attempt.phase = False, AttemptPhase.ENDING

    rig.spout._exactly_once = SimpleNamespace(attempt=attempt, acked=end, poll=lambda: None, adopted=lambda: None)  # type: ignore[assignment]
    assert rig.ask(1) == [0]
    rig.spout.ack((TOLD, 1))
    assert rig.ask(2) == [0]


def test_while_the_window_is_small_partitions_take_short_turns() -> None:
    rig = Rig(Manager(0, 9), Manager(1, 9))
    rig.spout.room = lambda: 2 - sum(each.ledger.open_count for each in rig.managers)  # type: ignore[method-assign]
    assert rig.ask(2) == [0, 0]
    for each in rig.managers:
        each.ledger.open_count = 0
    assert rig.ask(2) == [0, 0, 1, 1]


def test_k5_a_partition_with_nothing_is_walked_past() -> None:
    rig = Rig(Manager(0, 0), Manager(1, 0), Manager(2, 1), Manager(3, 1))
    assert rig.ask(2) == [2, 3]


def test_a_paused_partition_is_walked_past_at_once_and_after_a_refresh() -> None:
    rig = Rig(Manager(0, 9), Manager(1, 9))
    rig.ask(1)
    rig.spout.pause_parts([PausedPart("lines", "lines", 0)])
    assert rig.ask(4) == [0, 1, 1, 1, 1], "its turn under way ended"
    rig.managers = [Manager(0, 9), Manager(1, 0)]
    rig.coordinator.version = 2
    rig.spout.on_timer()
    rig.emitted.clear()
    assert rig.ask(2) == [] and rig.spout.rests is False
    rig.spout.pause_parts([])
    assert rig.ask(2) == [0, 0]


def test_k5_after_a_refresh_stale_managers_are_not_walked_on() -> None:
    stale = Manager(0, 100)
    rig = Rig(stale)
    rig.ask(2)
    rig.managers = [Manager(1, 5)]
    rig.coordinator.version = 2
    rig.spout.on_timer()
    rig.emitted.clear()
    assert rig.ask(2) == [1, 1]
    assert stale.left == 98


def test_k5_a_shrunken_list_is_no_index_error() -> None:
    rig = Rig(Manager(0, 1), Manager(1, 1), Manager(2, 1))
    rig.ask(2)
    rig.managers = [Manager(5, 1)]
    rig.coordinator.version = 2
    assert rig.ask(1)[-1] == 5
    rig.managers = []
    rig.coordinator.version = 3
    assert len(rig.ask(2)) == 3


def test_k13_every_walk_looks_at_the_commit_timer_even_without_an_emit() -> None:
    rig = Rig(Manager(0, 0))
    rig.ask(3)
    assert rig.commits == 3
    rig.spout.on_timer()
    assert rig.commits == 4
    assert KafkaSpout.timer_interval_s == 0.1, "seconds, which the loop keeps also under back-pressure"


def test_k9_1_deactivate_commits_without_waiting() -> None:
    """A pause may last for hours."""
    rig = Rig(Manager(0, 0))
    rig.spout.deactivate()
    assert rig.pressing == [True]


def test_no_answer_is_read_after_the_last_look_at_answers() -> None:
    """The loop sleeps until the descriptor is readable: an answer taken off it unseen would wait for the next timer."""
    rig = Rig(Manager(0, 0))
    rig.ask(1)
    assert rig.steps == ["poll", "collect", "fetch", "send_queued"]


def test_after_the_last_record_at_hand_it_rests_until_its_descriptor_is_readable() -> None:
    """A second upkeep for one answer would find nothing, and costs as much as the first."""
    rig = Rig(Manager(0, 1), Manager(1, 1))
    rig.ask(1)
    assert not rig.spout.rests, "the other partition has something"
    rig.ask(1)
    assert rig.spout.rests and rig.emitted == [0, 1]
    upkeeps = rig.commits
    rig.spout.next_tuple()
    assert rig.commits == upkeeps, "asked again in the same turn"
    rig.ask(1)
    assert rig.commits == upkeeps + 1 and not rig.spout.rests


@pytest.mark.parametrize("why", ["no fetch is under way", "the run ends by itself"])
def test_it_does_not_rest_where_nothing_would_wake_it(why: str) -> None:
    rig = Rig(Manager(0, 1))
    rig.spout._parts.fetcher.all_asked = why != "no fetch is under way"  # type: ignore[union-attr, misc]
    rig.spout._until_caught_up = why == "the run ends by itself"
    rig.ask(1)
    assert rig.emitted == [0] and not rig.spout.rests


def test_answers_go_to_the_manager_of_their_slot_and_unknown_ones_nowhere() -> None:
    """A slot is an opening: an answer for a former opening of the same partition touches nothing."""
    rig = Rig(Manager(0, 1), Manager(1, 1))
    rig.ask(2)
    rig.spout.ack_many([(10, 5), (11, 6), (99, 7)])
    rig.spout.ack((10, 8))
    rig.spout.ack((99, 8))
    rig.spout.fail_many([(11, 9), (99, 9)])
    rig.spout.fail_reason = FailReason.LOST
    rig.spout.fail_many([(10, 4)])
    assert [manager.acked for manager in rig.managers] == [[5, 8], [6]]
    assert [manager.failed for manager in rig.managers] == [[], [9]]
    assert [manager.lost for manager in rig.managers] == [[4], []]


def test_a_failed_record_is_named_in_the_log_with_its_tries(caplog: pytest.LogCaptureFixture) -> None:
    """A lost one is not: the record is not to blame, and its worker is told of."""
    rig = Rig(Manager(0, 3))
    rig.spout.next_tuple()
    rig.spout.fail_reason = FailReason.LOST
    rig.spout.fail((10, 2))
    assert caplog.messages == []
    rig.spout.fail_reason, rig.spout.fail_cause = FailReason.FAILED, FailureCause("enrich", "ValueError", "no 700")
    rig.spout.fail((10, 1))
    (said,) = caplog.messages
    assert said.startswith("topic lines, partition 0, offset 1 failed in enrich (ValueError: no 700): try 1 of 21, the")


def test_a_record_is_called_the_same_after_every_restart() -> None:
    rig = Rig(Manager(0, 1), Manager(1, 1))
    rig.ask(2)
    assert rig.spout.lasting_id((11, 6)) == (rig.managers[1].partition.topic, 1, 6)
    assert rig.spout.lasting_id((99, 6)) == (99, 6), "of an opening that is over: nobody's"


def test_a_record_that_must_be_given_up_is() -> None:
    rig = Rig(Manager(0, 1))
    rig.ask(1)
    crashed: list[Any] = []
    rig.managers[0].crashed = lambda *given: crashed.append(given)  # type: ignore[attr-defined]
    rig.spout.fail_reason, rig.spout.fail_final, rig.spout.fail_deaths = FailReason.CRASHED, True, 3
    rig.spout.fail_cause = cause = FailureCause("parse", "WorkerDied", "the worker was killed")
    rig.spout.fail_many([(10, 4), (99, 4)])
    assert crashed == [(4, cause, 3)] and not rig.managers[0].failed


def test_a_poison_record_stops_the_spout_also_while_it_is_paused() -> None:
    one = Manager(0, 1)
    rig = Rig(one)
    rig.ask(1)
    one.poisoned = PoisonRecord(one.partition, 4, "failed 9 times.")
    with pytest.raises(PoisonRecord, match="offset 4 failed 9 times"):
        rig.spout.on_timer()


def before_a_store_that_does_not_answer(done: int) -> Rig:
    one = Manager(0, 0)
    vars(one).update(ledger=SimpleNamespace(committed=0, open_count=0), last_completed_offset=lambda: done)
    rig = Rig(one)
    clock, parts = rig.spout._clock, rig.spout._parts
    store = SimpleNamespace(where=lambda partition: f"the store of {partition}")
    vars(parts).update(close=lambda answered: None, leave=lambda: None, store=store)
    parts.client.poll = clock.advance  # type: ignore[union-attr,method-assign,attr-defined]
    rig.ask(1)
    return rig


def test_begin_close_and_close_share_one_bound_and_say_once_what_is_not_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A store that does not answer is waited for once: the worker is killed at its own bound, cleaned up or not."""
    rig = before_a_store_that_does_not_answer(done=1234)
    clock = rig.spout._clock
    rig.spout.begin_close()
    assert FINAL_COMMIT_S <= clock.monotonic() < FINAL_COMMIT_S + 0.1
    rig.spout.close()
    assert clock.monotonic() < FINAL_COMMIT_S + 0.1
    assert rig.spout._last_commits.by_s(100.0) == 100.0 + FINAL_COMMIT_S, "who opens later has a time of its own"
    (told,) = caplog.messages
    assert told.startswith(
        "1,234 offsets are done and could not be committed: lines-0 from 0 to 1,234. They were for the store of lines-0"
    )


def test_one_offset_that_is_not_committed_is_told_as_one(caplog: pytest.LogCaptureFixture) -> None:
    before_a_store_that_does_not_answer(done=1).spout.begin_close()
    assert caplog.messages[0].startswith("1 offset is done and could not be committed: lines-0 from 0 to 1.")


def test_the_spouts_of_a_run_wait_for_their_stores_side_by_side() -> None:
    """Four of them took four times as long, in a worker that has a bound for its own end."""
    rigs, shared = [before_a_store_that_does_not_answer(done=1) for _ in range(4)], LastCommits()
    for rig in rigs:
        rig.spout._clock = rigs[0].spout._clock
        rig.spout._parts.client.poll = rigs[0].spout._clock.advance  # type: ignore[union-attr,method-assign]
        rig.spout._last_commits = shared
    for rig in rigs:
        rig.spout.begin_close()
    assert rigs[0].spout._clock.monotonic() < FINAL_COMMIT_S + 3 * (LEAST_S + 0.1)


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


def words(record: Record) -> list[list[str]]:
    return [[word] for word in str(record.value, "utf-8").split()]


def test_its_fields_are_those_of_the_scheme() -> None:
    class Reading(Topology):
        lines = KafkaSpout.spec(config=CONFIG, par=3)
        pairs = KafkaSpout.spec(config=SpoutConfig(KafkaHosts("k"), "t", id="x", scheme=KeyValueScheme))
        words = KafkaSpout.spec(config=SpoutConfig(KafkaHosts("k"), "t", id="y", scheme=words), outputs=["word"])
        sink = Sink.spec(inputs=[lines, pairs, words])

    fields = {one.name: [stream.fields for stream in one.streams()] for one in Reading.__topology__.components}
    assert fields["lines"] == [("value",)]
    assert fields["pairs"] == [("key", "value")]
    assert fields["words"] == [("word",)]
    made = Reading.__topology__.component("lines")
    assert isinstance(made.cls(**made.kwargs), KafkaSpout)


def test_without_a_spout_config_it_says_what_to_write() -> None:
    with pytest.raises(SettingError, match=r"config is None\. It is a SpoutConfig: SpoutConfig\(hosts="):
        KafkaSpout.spec()


def test_settings_can_be_overridden_by_name_and_are_checked_again() -> None:
    kwargs = KafkaSpout.spec(config=CONFIG).kwargs
    assert KafkaSpout.with_overrides(kwargs, {}) == kwargs
    changed = KafkaSpout.with_overrides(kwargs, {"retry_limit": "3", "topic": "others"})["spout_config"]
    assert (changed.retry_limit, changed.topic) == (3, "others")
    assert "fetch_size_bytes" in KafkaSpout.override_keys()
    with pytest.raises(SettingError):
        KafkaSpout.with_overrides(kwargs, {"fetch_min_bytes": "0"})


def test_each_setting_can_be_set_for_a_run_or_in_the_topology_alone() -> None:
    """And a value of a wrong kind is refused in words, whichever it is."""
    names = {field.name for field in dataclasses.fields(SpoutConfig)}
    assert KafkaSpout.override_keys() | KafkaSpout.topology_keys() == names
    assert not KafkaSpout.override_keys() & KafkaSpout.topology_keys()
    kwargs = KafkaSpout.spec(config=CONFIG).kwargs
    for name in KafkaSpout.override_keys():
        with pytest.raises(SettingError, match=name):
            KafkaSpout.with_overrides(kwargs, {name: {"x": 1}})


def test_k9_1_and_k11_the_interface_and_the_names_of_the_articles_table_exist() -> None:
    for method in ("next_tuple", "ack", "fail", "initialize", "activate", "deactivate", "close"):
        assert method in vars(KafkaSpout) and hasattr(Spout, method)
    for method in ("next", "ack", "fail", "last_completed_offset"):
        assert hasattr(PartitionManager, method)
    for method in ("get_my_managed_partitions", "get_manager", "refresh"):
        assert hasattr(PartitionCoordinator, method)
    for method in ("register", "get_connection", "unregister"):
        assert list(inspect.signature(getattr(DynamicPartitionConnections, method)).parameters)[1] == "partition"
    for name in ("Broker", "Partition", "GlobalPartitionInformation", "StaticHosts", "ZkHosts", "KafkaHosts", "Scheme"):
        assert hasattr(package, name)


def test_a_subclass_may_take_acks_one_by_one() -> None:
    class OneByOne(KafkaSpout):
        def ack_many(self, tup_ids: Any) -> None:
            for tup_id in tup_ids:
                self.ack(tup_id)

    spout, manager = OneByOne(CONFIG), Manager(0, 0)
    spout._slots = {manager.slot: manager}  # type: ignore[assignment]
    spout.ack_many([(manager.slot, 5), (manager.slot, 6)])
    assert manager.acked == [5, 6]


def test_records_of_a_topic_that_is_gone_press_for_no_commit() -> None:
    """Their offset is stored no more: each turn would commit at once, as long as one of them is open."""
    one = Manager(0, 0)
    one.commit_is_pressing = True
    rig = Rig(one)
    rig.ask(1)
    one.ending = True
    rig.ask(1)
    assert rig.pressing == [True, False]


def test_damage_of_a_topic_that_is_gone_is_not_fetched_again() -> None:
    one = Manager(0, 0)
    one.ending, one.ledger = True, SimpleNamespace(position=4, open_count=0)
    rig = Rig(one)
    for _ in range(2):
        one.damage = CorruptRecord("bad crc")
        rig.ask(1)
        assert one.damage is None
