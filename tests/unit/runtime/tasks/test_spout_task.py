"""One definition of running a spout: roots, limits, and that it hears of each tree once."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

import pytest

from streamlet import ReliableSpout, Spout, Stream
from streamlet.base.backoff import Backoff
from streamlet.base.clock import ManualClock
from streamlet.base.errors import BadEmit, NoRoom, ValueCannotTravel
from streamlet.components.columns import Columns
from streamlet.components.spout import FailReason, MessageIds
from streamlet.model.grouping import Grouping
from streamlet.runtime.tasks import spout_task
from streamlet.runtime.tasks.emitter import Emitter, Outbox, StreamRoutes, Target
from streamlet.runtime.tasks.in_hand import message_key
from streamlet.runtime.tasks.other_threads import OtherThreads, TaskCalls
from streamlet.runtime.tasks.spout_task import FEW, SpoutTask
from streamlet.runtime.tasks.task_stats import percentile_ms
from streamlet.tracking.census import CensusResult
from streamlet.tracking.roots import LAST_TRY, are_one_set, entry_of, owner_task
from streamlet.tracking.window import PendingWindow
from tests.unit.runtime.tasks.bolt_rig import rows_of


class Scripted(Spout):
    """Emits what the test puts into ``todo``: callables that get the spout."""

    def __init__(self) -> None:
        self.todo: list[Any] = []
        self.heard: list[tuple[str, Any]] = []
        self.reasons: list[tuple[FailReason, bool]] = []
        self.asked = 0

    def next_tuple(self) -> None:
        self.asked += 1
        if self.todo:
            self.todo.pop(0)(self)

    def ack(self, tup_id: Any) -> None:
        self.heard.append(("ack", tup_id))

    def fail(self, tup_id: Any) -> None:
        self.heard.append(("fail", tup_id))
        self.reasons.append((self.fail_reason, self.fail_final))


class Replaying(ReliableSpout):
    def next_tuple(self) -> None: ...


class Rig:
    def __init__(
        self,
        readers: int = 1,
        tracked: bool = True,
        max_pending: int = 100,
        streams: Any = None,
        spout: Any = None,
        began_s: float = 0.0,
        **more: Any,
    ) -> None:
        self.spout: Any = spout or Scripted()
        self.clock = ManualClock()
        self.clock.advance(began_s)
        self.boxes = [Outbox(1, 9 + n, "default") for n in range(readers)]
        targets = [Target(Grouping.SHUFFLE, (), (box,), ()) for box in self.boxes]
        routes = [StreamRoutes(s, targets, lambda: 0.0) for s in streams or [Stream(["v"])]]
        self.task = SpoutTask(
            self.spout,
            1,
            1,
            Emitter("spout", routes),
            random.Random(1).getrandbits,
            self.clock,
            tracked=tracked,
            window=PendingWindow(max_pending, target_s=7.5),
            timeout_s=30.0,
            **more,
        )
        self.task.window.size = max_pending
        self.task.active = True

    def emitted(self) -> list[tuple[int, int, Any]]:
        return rows_of(self.boxes)

    def turn(self, *acts: Any, now: float = 0.0, budget: int = 50) -> bool:
        self.spout.todo += acts
        emitted = self.task.turn(budget, now)
        self.task.note_emitted()
        self.task.deliver_complete()
        return emitted

    def ack_all(self, rows: list[tuple[int, int, Any]]) -> None:
        self.task.apply_acks([(root, edge) for root, edge, _ in rows], 0.0)


def emit(value: Any, tup_id: Any = None, **more: Any) -> Any:
    return lambda spout: spout.emit([value], tup_id, **more)


def test_roots_of_last_tries_are_marked_and_grow_with_the_others() -> None:
    """Several rows of one message have one root; an emit that raises leaves no mark behind."""
    rig = Rig()

    def last(spout: Any) -> None:
        spout.as_last_try(lambda: spout.emit_many([["b"], ["c"]], "two"))

    def refused(spout: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            spout.as_last_try(lambda: 1 / 0)

    rig.turn(emit("a", "one"), last, refused)
    rig.turn(emit("d", "three"))
    rows = rig.emitted()
    roots = [root for root, _, _ in rows]
    assert [bool(root & LAST_TRY) for root in roots] == [False, True, True, False]
    assert roots == sorted(roots) and len(set(roots)) == 3 and set(map(owner_task, roots)) == {1}
    rig.ack_all(rows)
    rig.turn()
    assert rig.spout.heard == [("ack", name) for name in ("one", "two", "three")] and not rig.task.pending.ids


def test_each_tuple_with_an_id_is_a_tree_and_is_heard_of_once() -> None:
    rig = Rig()
    assert rig.turn(emit(1, "a"), emit(2, "b"))
    one, two = rig.emitted()
    assert one[0] != two[0] and len(rig.task.pending) == 2
    rig.ack_all([two])
    rig.task.apply_fails([one[0]])
    rig.task.apply_fails([one[0]])
    rig.ack_all([one, two])
    assert rig.spout.heard == [("ack", "b"), ("fail", "a")]
    assert (rig.task.stats.emitted, rig.task.stats.acked, rig.task.stats.failed) == (2, 1, 1)


def test_a_tuple_that_is_emitted_before_the_first_turn_is_as_old_as_it_is() -> None:
    """As in ``initialize``: counted from the clock's zero, its latency would be the machine's uptime."""
    rig = Rig(began_s=5000.0, max_pending=1000)
    for n in range(500):  # some of them are measured
        rig.spout.emit([n], n)
    rig.task.apply_acks([(root, edge) for root, edge, _ in rig.emitted()], rig.clock.monotonic() + 0.5)
    p99_ms = percentile_ms(rig.task.stats.snapshot()["latency"], 0.99)
    assert p99_ms is not None and p99_ms < 1000


def test_a_tuple_without_an_id_is_not_tracked() -> None:
    rig = Rig()
    rig.turn(emit(1))
    assert [root for root, _, _ in rig.emitted()] == [0] and len(rig.task.pending) == 0 and rig.spout.heard == []


def test_zero_is_an_id() -> None:
    """So are other false values: only None means no id."""
    rig = Rig()
    rig.turn(emit(1, 0), emit(2, ""))
    rig.ack_all(rig.emitted())
    assert rig.spout.heard == [("ack", 0), ("ack", "")]


def test_with_tracking_off_every_tuple_is_acked_after_its_emit() -> None:
    """topology.acker.executors=0: the spout may forget at once; nothing is replayed."""
    rig = Rig(tracked=False)
    rig.turn(emit(1, "a"), emit(2, "b"))
    assert [root for root, _, _ in rig.emitted()] == [0, 0] and len(rig.task.pending) == 0
    assert rig.spout.heard == [("ack", "a"), ("ack", "b")]


def test_a_tuple_that_nobody_reads_is_acked_after_next_tuple_returned() -> None:
    rig = Rig(readers=0)
    heard_inside: list[Any] = []

    def act(spout: Scripted) -> None:
        spout.emit([1], "a")
        heard_inside.extend(spout.heard)

    rig.turn(act)
    assert heard_inside == [] and rig.spout.heard == [("ack", "a")]


def test_a_tuple_of_several_readers_waits_for_all() -> None:
    rig = Rig(readers=3)
    rig.turn(emit(1, "a"))
    rows = rig.emitted()
    assert len({root for root, _, _ in rows}) == 1 and len({edge for _, edge, _ in rows}) == 3
    rig.ack_all(rows[:2])
    assert rig.spout.heard == []
    rig.ack_all(rows[2:])
    assert rig.spout.heard == [("ack", "a")]


def test_emit_many_is_one_tree() -> None:
    rig = Rig(readers=2)
    rig.turn(lambda spout: spout.emit_many([[n] for n in range(3)], "a"))
    rows = rig.emitted()
    assert len(rows) == 6 and len({root for root, _, _ in rows}) == 1 and len(rig.task.pending) == 1
    for row in rows[:-1]:
        rig.ack_all([row])
    assert rig.spout.heard == []
    rig.ack_all(rows[-1:])
    assert rig.spout.heard == [("ack", "a")]


@pytest.mark.parametrize("count", [FEW - 1, FEW, 40])
def test_emit_each_opens_a_tree_for_each_tuple(count: int) -> None:
    rig, given, last = Rig(readers=1), [[n] for n in range(count)], count - 1
    rig.turn(lambda spout: spout.emit_each(given, [f"m{n}" for n in range(count)]))
    rows = rig.emitted()
    assert [values for _, _, values in rows] == given
    assert not any(values is row for (_, _, values), row in zip(rows, given, strict=True))
    assert len({root for root, _, _ in rows}) == count and len({edge for _, edge, _ in rows}) == count
    rig.task.apply_acks([(root, edge) for root, edge, _ in rows[:last]], 1.0)
    assert rig.spout.heard == [("ack", f"m{n}") for n in range(last)]
    rig.task.apply_fails([rows[last][0]])
    assert rig.spout.heard[-1] == ("fail", f"m{last}") and not len(rig.task.pending)


def set_of(count: int, **more: Any) -> tuple[Rig, list[str], list[tuple[int, int, Any]]]:
    """A rig, the ids of messages that were emitted as one set, and what was sent."""
    rig, ids = Rig(by_batch=True, may_join=True, max_pending=1000, **more), [f"m{n}" for n in range(count)]
    rig.turn(lambda spout: spout.emit_each([[n] for n in range(count)], ids), budget=1000)
    return rig, ids, rig.emitted()


def xor(edges: list[int]) -> int:
    return reduce(operator.xor, edges)


def test_for_readers_that_take_batches_tuples_of_one_emit_are_one_entry_of_the_ledger() -> None:
    rig, ids, rows = set_of(40)
    assert len(rig.task.ledger) == 1 and len(rig.task.pending) == 40
    assert len({root for root, _, _ in rows}) == 40 and are_one_set([root for root, _, _ in rows])
    rig.task.apply_acks([(rows[0][0], xor([edge for _, edge, _ in rows[:30]]))], 1.0)
    assert rig.spout.heard == [] and len(rig.task.pending) == 40
    rig.task.apply_acks([(root, edge) for root, edge, _ in rows[30:]], 2.0)
    assert rig.spout.heard == [("ack", one) for one in ids]
    assert not rig.task.ledger.open and not rig.task.pending and rig.task.stats.acked == 40


def test_of_a_set_that_one_has_failed_of_the_others_are_acked_when_they_are_done() -> None:
    rig, ids, rows = set_of(40)
    rig.task.apply_fails([rows[7][0]])
    assert rig.spout.heard == [("fail", "m7")] and len(rig.task.pending) == 39
    rig.task.apply_fails([rows[7][0], rows[7][0]])
    rig.task.apply_acks([(root, edge) for root, edge, _ in rows[:-1]], 1.0)
    assert rig.spout.heard == [("fail", "m7")]
    rig.ack_all(rows[-1:])
    assert rig.spout.heard[1:] == [("ack", one) for one in ids if one != "m7"]
    assert not rig.task.pending and (rig.task.stats.acked, rig.task.stats.failed) == (39, 1)


def test_a_set_of_which_all_have_failed_is_closed_and_nothing_of_it_is_acked() -> None:
    rig, ids, rows = set_of(20)
    rig.task.apply_fails([root for root, _, _ in rows])
    rig.ack_all(rows)
    assert rig.spout.heard == [("fail", one) for one in ids] and not rig.task.ledger.open and not rig.task.pending.sets


def test_ids_that_are_made_when_asked_for_come_back_as_they_were_given() -> None:
    class Numbers(MessageIds):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, at: Any) -> Any:
            return [*range(20)][at]

    rig, given, heard = Rig(by_batch=True, may_join=True), Numbers(), []
    rig.spout.ack_many = heard.append
    assert rig.turn(lambda spout: heard.append(spout.emit_each([[n] for n in range(20)], given)))
    rig.ack_all(rig.emitted())
    assert heard[0] is True and heard[1] is given


@pytest.mark.parametrize("count", [16, 17, 31, 100, 511, 512])
def test_the_entry_of_a_set_is_what_its_edges_leave(count: int) -> None:
    rig, _, rows = set_of(count)
    assert [*rig.task.ledger.open.values()] == [xor([edge for _, edge, _ in rows])]


def test_more_than_a_set_can_hold_are_several() -> None:
    rig, ids, rows = set_of(700)
    assert len(rig.task.ledger) == 2
    rig.ack_all(rows)
    assert [tup_id for _, tup_id in rig.spout.heard] == ids


def test_of_a_set_what_a_bolt_holds_times_out_and_the_others_are_lost_without_blame() -> None:
    """Nobody knows whether the others are done. All of them come again, and only one is charged a try."""
    rig, ids, rows = set_of(20)
    holding = {rows[3][0]: (7, 31.0), rows[4][0]: (8, 3.0)}
    seconds = (counted(rig, float(second), held=holding) for second in range(300))
    assert next(found for found in seconds if found) == {rows[3][0]: 7}
    assert rig.spout.heard == [("fail", "m3"), *(("fail", one) for one in ids if one != "m3")]
    assert [reason for reason, _ in rig.spout.reasons] == [FailReason.TIMED_OUT] + [FailReason.LOST] * 19
    assert rig.task.stats.timed_out == 1 and not rig.task.pending and not rig.task.ledger.open
    rig.ack_all(rows)
    assert len(rig.spout.heard) == 20


def test_a_set_that_nobody_has_a_tuple_of_times_out_whole() -> None:
    rig, ids, rows = set_of(20)
    rig.task.apply_fails([rows[5][0]])
    for second in range(300):
        counted(rig, float(second), waiting={rows[0][0]: 7})
    assert len(rig.spout.heard) == 1, "some of it waits in a queue"
    seconds = (counted(rig, float(second)) for second in range(300, 400))
    found = next(found for found in seconds if found)
    assert found == {root: 0 for root, _, (n,) in rows if n != 5}
    assert [one for _, one in rig.spout.heard[1:]] == [one for one in ids if one != "m5"]
    assert set(rig.spout.reasons[1:]) == {(FailReason.TIMED_OUT, False)}


def test_a_lost_link_fails_the_messages_of_every_set_once() -> None:
    rig, ids, rows = set_of(20)
    rig.task.apply_fails([rows[5][0]])
    assert rig.task.fail_all() == 19 and sorted(one for _, one in rig.spout.heard) == sorted(ids)
    rig.ack_all(rows)
    assert len(rig.spout.heard) == 20 and not rig.task.pending


def test_a_tree_of_a_set_that_killed_its_worker_counts_for_its_message() -> None:
    rig, _, rows = set_of(20, most_crashes=2)
    assert rig.task.pending.message_of(rows[9][0]) == "m9"
    rig.task.apply_crashes([rows[9][0]], "was killed by signal 9")
    assert rig.spout.heard == [("fail", "m9")] and rig.spout.reasons == [(FailReason.CRASHED, False)]


@pytest.mark.parametrize("rows", [[[1], [{1}]], [[1], [1, 2]], [[1], "a"]])
def test_emit_each_sends_nothing_unless_all_can_travel(rows: Any) -> None:
    rig = Rig()
    with pytest.raises((BadEmit, ValueCannotTravel)):
        rig.turn(lambda spout: spout.emit_each(rows, ["a", "b"]))
    assert not rig.emitted() and not len(rig.task.pending)


@pytest.mark.parametrize("more", [{"tracked": False}, {"readers": 2}, {"readers": 0}])
def test_emit_each_where_it_cannot_take_the_short_way(more: Any) -> None:
    rig = Rig(**more)
    rig.turn(lambda spout: spout.emit_each([[1], [[2]]], ["a", "b"]))
    rig.task.apply_acks([(root, edge) for root, edge, _ in rig.emitted()], 1.0)
    assert sorted(rig.spout.heard) == [("ack", "a"), ("ack", "b")]


def test_emit_each_wants_an_id_for_each_tuple() -> None:
    rig = Rig()
    with pytest.raises(BadEmit, match="2 tuples and 1 ids"):
        rig.turn(lambda spout: spout.emit_each([[1], [2]], ["a"]))


def test_a_turn_ends_when_a_spout_has_emitted_as_many_as_it_may() -> None:
    rig = Rig(max_pending=10)
    rooms = []

    def emit(spout: Any) -> None:
        rooms.append(spout.room())
        spout.emit_each([[1], [2], [3]], [len(rooms), -len(rooms), 100 + len(rooms)])

    rig.spout.todo = [emit] * 9
    rig.task.turn(7, 0.0)
    assert rooms == [7, 4, 1]
    rig.task.turn(7, 0.0)
    assert rooms == [7, 4, 1, 1], "as many trees are open as may be"


def test_an_int_of_64_bits_travels_and_a_longer_one_is_refused() -> None:
    rig = Rig()
    rig.turn(lambda spout: spout.emit([1 << 63], "a"))
    assert [values for _, _, values in rig.emitted()] == [[1 << 63]]
    with pytest.raises(ValueCannotTravel, match="65 bits"):
        rig.turn(lambda spout: spout.emit([1 << 64], "b"))


def test_emit_many_of_nothing_is_acked() -> None:
    rig = Rig()
    rig.turn(lambda spout: spout.emit_many([], "a"))
    assert rig.spout.heard == [("ack", "a")] and rig.emitted() == []


def test_emit_many_sends_nothing_unless_all_can_travel() -> None:
    """Half a tree could never be replayed as a whole."""
    rig = Rig()
    with pytest.raises(ValueCannotTravel):
        rig.turn(lambda spout: spout.emit_many([[1], [{1}]], "a"))
    assert rig.emitted() == [] and len(rig.task.pending) == 0


@pytest.mark.parametrize(
    "act", [lambda s: s.emit([1, 2], "a"), lambda s: s.emit("xy", "a"), lambda s: s.emit([1], "a", "nope")]
)
def test_an_emit_that_does_not_fit_opens_no_tree(act: Any) -> None:
    rig = Rig()
    with pytest.raises(BadEmit):
        rig.turn(act)
    assert rig.emitted() == [] and len(rig.task.pending) == 0


def test_no_more_trees_than_max_pending() -> None:
    rig = Rig(max_pending=3)
    rig.turn(*(emit(n, n) for n in range(10)))
    rows = rig.emitted()
    assert len(rows) == 3
    rig.ack_all(rows[:2])
    rig.turn()
    assert len(rig.emitted()) == 2 and len(rig.task.pending) == 3


def test_a_turn_asks_no_more_often_than_its_budget_and_stops_when_nothing_comes() -> None:
    rig = Rig()
    rig.turn(*(emit(n, n) for n in range(10)), budget=4)
    assert rig.spout.asked == 4
    rig.turn(budget=50)
    assert rig.spout.asked == 4 + 6 + 1
    assert not rig.turn()


@pytest.mark.parametrize(("took_s", "wanted"), [(0.0001, 1), (0.00001, 112), (0.0, 200)])
def test_a_spouts_turn_ends_when_many_bytes_were_emitted(took_s: float, wanted: int) -> None:
    """At once where a call takes as long as a large row does to make; else after a thousandth of a second."""
    rig = Rig(max_pending=1000)
    rig.task._emitted_much = lambda: True

    def making(spout: Scripted) -> None:
        rig.clock.advance(took_s)
        spout.emit([1])

    rig.turn(*[making] * 200, budget=300)
    assert len(rig.emitted()) == wanted


def test_what_a_slow_spout_emitted_leaves_at_once() -> None:
    """Whatever the budget: one that takes its time for each tuple, or begins to in the middle of a turn."""
    rig = Rig()

    def slowly(value: int) -> Any:
        act = emit(value, value)

        def waits(spout: Scripted) -> None:
            rig.clock.advance(0.1)
            act(spout)

        return waits

    rig.turn(*map(slowly, range(3)))
    assert rig.spout.asked == 1
    rig.turn()
    rig.turn()
    assert rig.spout.asked == 3
    rig.turn(*(emit(n, n) for n in range(3, 10)), *map(slowly, range(10, 13)))
    assert rig.spout.asked == 3 + 8


def test_an_inactive_spout_is_not_asked_but_hears_what_comes_back() -> None:
    rig = Rig()
    rig.turn(emit(1, "a"))
    rig.task.active = False
    assert not rig.turn(emit(2, "b"))
    rig.ack_all(rig.emitted())
    assert rig.spout.asked == 2 and rig.spout.heard == [("ack", "a")]


def counted(rig: Rig, now: float, **of: Any) -> dict[int, int]:
    """One round of the census, and what timed out by it."""
    rig.task.census_begins(now)
    empty = {"queued": 0, "wait_s": 0.0, "slowest": 0, "settled": True, "waiting": {}, "held": {}, "loads": []}
    return rig.task.expire(CensusResult(**{**empty, **of}), now)


def test_a_tree_that_a_bolt_holds_expires_between_its_timeout_and_a_quarter_more() -> None:
    rig = Rig()
    rig.turn(emit(1, "a"), now=0.0)
    ((root, _, _),) = rig.emitted()
    for tenth in range(300):
        assert not counted(rig, tenth / 10, held={root: (7, tenth / 10)})
    assert rig.spout.heard == [], "a tree failed before its time"
    held = ((tenth / 10, counted(rig, tenth / 10, held={root: (7, tenth / 10)})) for tenth in range(300, 400))
    expired_at, expired = next(found for found in held if found[1])
    assert 30.0 <= expired_at <= 37.6 and rig.spout.heard == [("fail", "a")]
    assert expired == {root: 7} and rig.task.stats.timed_out == 1


def test_a_tree_that_is_still_queued_does_not_expire_however_old_it_is() -> None:
    """Nor does its time-out begin before a bolt was given the tuple."""
    rig = Rig()
    rig.turn(emit(1, "a"), now=0.0)
    ((root, _, _),) = rig.emitted()
    for second in range(300):
        assert not counted(rig, float(second), queued=1, waiting={root: 7})
    for second in range(300, 325):
        assert not counted(rig, float(second), held={root: (7, second - 300.0)})
    assert rig.spout.heard == []
    assert any(counted(rig, float(second), held={root: (7, second - 300.0)}) for second in range(330, 340))
    assert rig.spout.heard == [("fail", "a")]


def test_where_old_trees_wait_is_kept_until_a_later_round_should_have_seen_them() -> None:
    """Of a set the oldest message stands for all; rounds that look for none change nothing."""
    rig = Rig()
    rig.turn(emit(1, "a"), now=0.0)
    rows = rig.emitted()
    root = rows[0][0]
    places = {}
    for second in range(41):
        counted(rig, float(second), waiting={root: 7 if second < 21 else 8})
        places[second] = dict(rig.task.places)
    assert places[4] == {} and places[20] == {"a": 7} and places[40] == {"a": 8}
    rig.ack_all(rows)
    for second in range(41, 70):
        counted(rig, float(second))
    assert rig.task.places == {}


def test_of_a_set_the_oldest_message_says_where_it_waits() -> None:
    rig, ids, rows = set_of(20)
    rig.task.apply_fails([rows[0][0]])
    for second in range(45):
        counted(rig, float(second), waiting={entry_of(rows[0][0]): 7})
    assert rig.task.places == {ids[1]: 7}


def test_failures_that_are_followed_no_more_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a run said 100 000 where more had failed."""
    monkeypatch.setattr(spout_task, "MOST_FOLLOWED", 3)
    rig = Rig()
    for n in range(7):
        rig.turn(emit(n, n))
    rows = rig.emitted()
    for root, _, _ in rows[:5]:
        rig.task.apply_fails([root])
    assert rig.task.stats.unreplayed == 5 and rig.task.unfinished() == 7
    rig.turn(emit(7, 0))
    rig.ack_all(rig.emitted())
    assert rig.task.stats.unreplayed == 4


def test_a_lost_link_fails_every_open_tree() -> None:
    rig = Rig()
    rig.turn(emit(1, "a"), emit(2, "b"))
    assert rig.task.fail_all() == 2 and rig.spout.heard == [("fail", "a"), ("fail", "b")]
    rig.ack_all(rig.emitted())
    assert len(rig.spout.heard) == 2


def test_a_replay_is_a_fresh_tree() -> None:
    """A late ack of the first try must not complete the second."""
    rig = Rig()
    rig.turn(emit(1, "a"))
    (first,) = rig.emitted()
    rig.task.apply_fails([first[0]])
    rig.turn(emit(1, "a"))
    (second,) = rig.emitted()
    assert second[0] != first[0]
    rig.ack_all([first])
    assert rig.spout.heard == [("fail", "a")]
    rig.ack_all([second])
    assert rig.spout.heard == [("fail", "a"), ("ack", "a")]


def test_named_streams_and_wide_emits_take_the_same_way() -> None:
    rig = Rig(streams=[Stream(["v"]), Stream(["x", "y"], name="pairs")])
    rig.turn(lambda spout: spout.emit([1, 2], "a", "pairs"), emit(3, "b"))
    (box,) = rig.boxes
    assert [(run.stream, run.values) for run in box.take()] == [("pairs", [[1, 2]]), ("default", [[3]])]


def test_a_spouts_payload_may_be_named_tup() -> None:
    """pystorm's name of the parameter: ``emit(tup=[...])``, on the fast path and on the slow one."""
    rig = Rig()
    rig.turn(lambda spout: spout.emit(tup=["fast"], tup_id=1), lambda spout: spout.emit(tup=["slow"]))
    assert [values for _, _, values in rig.emitted()] == [["fast"], ["slow"]]


class Keeping(ReliableSpout):
    """Emits texts of a kilobyte without end."""

    replay_backoff = Backoff(initial=1.0, maximum=1.0)
    max_fails = None
    emitted = 0
    todo: tuple[()] = ()

    def next_tuple(self) -> None:
        self.emitted += 1
        self.emit([f"{self.emitted:01000}"], tup_id=self.emitted)


def test_a_spout_that_keeps_too_much_emits_again_and_nothing_new_until_half_is_done() -> None:
    """Failed messages are no open trees: only their bytes say how many there are."""
    rig = Rig(max_pending=1000, spout=Keeping())
    rig.task.weigh(200_000)  # as the loop does before it asks
    assert rig.turn(budget=100)
    rig.task.weigh(200_000)
    assert not rig.spout.holds_back and 100_000 < rig.task.kept_bytes < 160_000
    assert rig.turn(budget=100)
    held = rig.spout.emitted
    assert 130 <= held <= 150 and rig.spout.holds_back, "in the middle of a turn"
    rig.task.weigh(200_000)
    assert rig.spout.holds_back and not rig.turn(), "nothing new"
    rows = rig.emitted()
    rig.task.apply_fails([root for root, _, _ in rows])
    rig.task.weigh(200_000)
    assert rig.spout.holds_back and not rig.turn(), "what failed is kept as before"
    rig.clock.advance(1.0)
    assert rig.turn(now=1.0, budget=1000) and rig.spout.emitted == held
    again = rig.emitted()
    assert len(again) == held
    rig.ack_all(again[:40])
    rig.task.weigh(200_000)
    assert rig.spout.holds_back, "more than half is left"
    rig.ack_all(again[40:85])
    rig.task.weigh(200_000)
    assert not rig.spout.holds_back and rig.turn(now=1.0, budget=10) and rig.spout.emitted > held


EMITS: dict[str, Callable[[ReliableSpout, int, Any], object]] = {
    "emit": lambda spout, number, value: spout.emit([value], tup_id=number),
    "a container": lambda spout, number, value: spout.emit([[*range(10), {"body": [value]}]], tup_id=number),
    "emit_many": lambda spout, number, value: spout.emit_many([["x"]] * 5 + [[value]], tup_id=number),
    "emit_each": lambda spout, number, value: spout.emit_each([[value]], [number]),
    "emit_each of columns": lambda spout, number, value: spout.emit_each(Columns([[value]]), [number]),
}


@pytest.mark.parametrize("emit_one", EMITS)
@pytest.mark.parametrize("every", [20, 64])
def test_rare_large_messages_hold_a_spout_back_at_every_offset(every: int, emit_one: str) -> None:
    """Whichever messages are looked at, and before the turn ends that emits too many of them."""

    class Mixed(ReliableSpout):
        emitted = 0

        def next_tuple(self) -> None:
            self.emitted += 1
            EMITS[emit_one](self, self.emitted, "x" * 500_000 if self.emitted % every == offset else "x")

    for offset in range(every):
        spout = Mixed()
        spout.todo = []  # type: ignore[attr-defined]
        rig = Rig(max_pending=50_000, spout=spout)
        rig.task.weigh(8 << 20)
        for _ in range(5):
            rig.turn(budget=1000)
        large = spout.emitted // every
        assert 14 <= large <= 17 and spout.holds_back, offset
        rig.task.weigh(8 << 20)
        assert spout.holds_back and 8 << 20 < rig.task.kept_bytes < 9 << 20


def test_a_spout_of_the_users_says_itself_what_it_keeps() -> None:
    rig = Rig()
    rig.spout.kept_bytes = lambda: 11
    rig.task.weigh(10)
    assert rig.spout.holds_back and rig.turn(emit(1, "a")), "it is asked as before, and reads holds_back"


def test_the_tree_that_a_worker_died_of_is_charged_and_the_others_are_lost() -> None:
    rig = Rig(most_crashes=2)
    for deaths in (1, 2):
        rig.turn(emit(1, "a"), emit(2, "b"), emit(3, "c"))
        rows = rig.emitted()
        rig.task.apply_crashes([rows[1][0], 77], "was killed by SIGSEGV")
        assert rig.spout.heard == [("fail", "b")]
        assert rig.spout.reasons == [(FailReason.CRASHED, deaths == 2)]
        assert rig.spout.fail_detail == f"was killed by SIGSEGV ({deaths} time{'s' * (deaths - 1)} so far)"
        rig.task.fail_all()
        assert rig.spout.heard[1:] == [("fail", "a"), ("fail", "c")]
        assert rig.spout.reasons[1:] == [(FailReason.LOST, False)] * 2 and rig.spout.fail_detail == ""
        rig.spout.heard.clear()
        rig.spout.reasons.clear()


def test_what_killed_its_spout_too_often_is_not_sent_again_but_given_up() -> None:
    """The replacement learns of it; ``fail`` comes after ``next_tuple``, as always. Fewer deaths are borne."""
    rig = Rig(crashes={message_key("a"): 2, message_key(("t", 7)): 3, message_key("c"): 1}, most_crashes=2)
    many = lambda spout: spout.emit_many([[4], [5]], ("t", 7))  # noqa: E731
    assert rig.turn(emit(1, "a"), emit(2, "b"), emit(3, "c"), many, emit(6))
    assert [values for _, _, values in rig.emitted()] == [[2], [3], [6]]
    assert rig.spout.heard == [("fail", "a"), ("fail", ("t", 7))]
    assert rig.spout.reasons == [(FailReason.CRASHED, True)] * 2
    assert rig.task.stats.failed == 2 and len(rig.task.pending) == 2


def test_without_a_limit_of_deaths_all_is_sent() -> None:
    rig = Rig(crashes={message_key("a"): 9}, most_crashes=0)
    rig.turn(emit(1, "a"))
    assert len(rig.emitted()) == 1 and not rig.spout.heard


def emit_elsewhere(rig: Rig, rows: list[Any], ids: Any) -> bool:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(rig.spout.emit_each, rows, ids).result()


@pytest.mark.parametrize("spout", [Scripted, Replaying])
def test_emit_each_on_another_thread_takes_all_rows_or_none(spout: type[Spout]) -> None:
    """A bad row, or no room, after the first were taken: the caller would send them a second time."""
    rig = Rig(spout=spout(), calls=TaskCalls(OtherThreads(most=1, wait_s=0.0), "spout"))
    with pytest.raises(ValueCannotTravel):
        emit_elsewhere(rig, [[1], [2], [{3}]], ["a", "b", "c"])
    with pytest.raises((BadEmit, ValueError)):
        emit_elsewhere(rig, [[1], [2]], ["a"])
    assert len(rig.task.calls) == 0
    emit_elsewhere(rig, [[1], [2], [3]], ["a", "b", "c"])
    with pytest.raises(NoRoom):
        emit_elsewhere(rig, [[4], [5]], ["d", "e"])
    for call in rig.task.calls.take(9, emits=True):
        call.act()
    assert [row for _, _, row in rig.emitted()] == [[1], [2], [3]]
    assert [*rig.task.pending.ids.values()] == ["a", "b", "c"]


@pytest.mark.parametrize("spout", [Scripted, Replaying])
def test_emit_each_emits_no_row_where_one_cannot_travel(spout: type[Spout]) -> None:
    rig = Rig(spout=spout())
    with pytest.raises(ValueCannotTravel):
        rig.spout.emit_each([[1], [2], [{3}]], ["a", "b", "c"])
    assert rig.emitted() == [] and len(rig.task.pending) == 0


def test_what_another_thread_emits_at_once_is_a_set_too() -> None:
    rig = Rig(by_batch=True, may_join=True)
    assert emit_elsewhere(rig, [[n] for n in range(FEW)], range(FEW)) is False, "not known yet"
    for call in rig.task.calls.take(9, emits=True):
        call.act()
    assert are_one_set([root for root, _, _ in rig.emitted()])
