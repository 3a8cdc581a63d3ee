"""What a bolt has at work elsewhere for too long is named once, and told to be over."""

from __future__ import annotations

from traceback import FrameSummary

import pytest

from streamlet import Bolt, Tuple
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.worker.held_watch import HeldWatch
from streamlet.runtime.worker.standstill import Standstill
from tests.unit.runtime.tasks.bolt_rig import Rig


class Asks(Bolt):
    def process(self, tup: Tuple) -> None:
        pass

    def where_held(self, tup: Tuple) -> list[FrameSummary]:
        return [FrameSummary("users.py", 7, "ask", line="self.service.ask()")] if tup.values == ["a"] else []


def begun(task: BoltTask, calls: dict[Tuple, float]) -> None:
    """Give the bolt tuples, and let the calls for them begin."""
    task.held.given.update(calls)
    for tup, began in calls.items():
        task.held.begins(tup, began)


def test_what_the_bolt_was_given_and_no_thread_works_on_hangs_in_nothing() -> None:
    """Nor does a call that has returned, though the loop does not hear of it for long."""
    told: list[str] = []
    task = Rig(Asks()).task
    watch = HeldWatch([task], 30.0, lambda level, text, component, number: told.append(text))
    first, second = Tuple(["a"], "lines", "s", 1, 7), Tuple(["b"], "lines", "s", 1, 8)
    begun(task, {first: 0.0})
    task.held.given[second] = 0.0
    task.held.ends(first)
    watch.look(100.0)
    assert told == [] and watch.rows(100.0) == [] and watch.stuck is None


def test_a_time_without_a_look_counts_for_nothing_where_somebody_looks_all_the_time() -> None:
    """The process was stopped, or code held the interpreter's lock: no call could go on."""
    told: list[str] = []
    task = Rig(Asks()).task
    standstill = Standstill(lambda one: task.held.note_stood(one.began, one.ended))
    watch = HeldWatch([task], 30.0, lambda level, text, component, number: told.append(text), standstill)
    first, second = Tuple(["a"], "lines", "s", 1, 7), Tuple(["b"], "lines", "s", 1, 8)
    standstill.look(5.0, 5.0)
    begun(task, {first: 6.0})
    watch.look_if_due(9.0)
    begun(task, {second: 10.0})
    watch.look_if_due(100.0)
    assert task.held.at_work(100.0) == [(first, 97.0), (second, 100.0)]
    for now in range(104, 127, 4):
        watch.look_if_due(float(now))
    assert told == []
    watch.look_if_due(128.0)
    assert "31 s on a tuple from lines, ['a']" in told[0]


def test_two_that_look_at_once_ask_no_question_twice() -> None:
    """A loop that has not answered a moment after the question is not blocked."""
    asked: list[str] = []
    task = Rig(Asks()).task
    vars(task.bolt)["blocks_held"] = lambda: asked.append("")
    watch = HeldWatch([task], 8.0, lambda *_told: None)
    begun(task, {Tuple(["a"], "lines", "s", 1, 7): 0.0})
    for now in (4.0, 4.01, 4.9, 5.0):
        watch.look_if_due(now)
    assert len(asked) == 2


def test_the_oldest_is_named_once_with_its_stack_and_then_the_next() -> None:
    told: list[str] = []
    task = Rig(Asks()).task
    watch = HeldWatch([task], 30.0, lambda level, text, component, number: told.append(text))
    first, second = Tuple(["a"], "lines", "s", 1, 7), Tuple(["b"], "lines", "s", 1, 8)
    begun(task, {first: 10.0, second: 15.0})
    for now in (11.0, 39.0):
        watch.look(now)
    assert told == []
    for now in (40.0, 47.5):
        watch.look(now)
    (named,) = told
    assert "has been at work for 30 s on a tuple from lines, ['a'], outside of the loop." in named
    assert named.endswith('\n    File "users.py", line 7, in ask\n      self.service.ask()')
    assert watch.rows(47.5) == [{"task": task.task_id, "call": "process", "seconds": 37.5, "tuple": "['a']"}]
    task.held.ends(first)
    assert watch.rows(49.0) == [], "it is over, whoever has heard of it"
    watch.look(50.0)
    assert "went on after more than 40 s" in told[1]
    assert "35 s on a tuple from lines, ['b']" in told[2] and "File" not in told[2]


def test_how_many_of_those_at_work_take_too_long_is_said() -> None:
    told: list[str] = []
    task = Rig(Asks()).task
    watch = HeldWatch([task], 30.0, lambda level, text, component, number: told.append(text))
    begun(task, {Tuple([n], "lines", "s", 1, n): began for n, began in ((1, 0.0), (2, 5.0), (3, 30.0))})
    watch.look(36.0)
    assert "outside of the loop. Calls under way for so long: 2 of 3." in told[0]


def test_calls_whose_emits_wait_for_room_hang_in_nothing_and_the_one_beside_them_is_named() -> None:
    """The loop is in another bolt's call, and nobody makes room: the pool goes on when that does."""
    told: list[str] = []
    task = Rig(Asks()).task
    watch = HeldWatch([task], 30.0, lambda level, text, component, number: told.append(text))
    vars(task.bolt)["blocks_held"] = lambda: pytest.fail("no loop is asked whether it goes on")
    first, second, queued = (Tuple([n], "lines", "s", 1, 7) for n in "abc")
    task.held.given[queued] = 0.0
    begun(task, {first: 0.0, second: 0.0})
    calls = task.held.waits_for_room([], 5.0)
    for now in (10.0, 40.0, 70.0):
        watch.look(now)
    assert told == [] and watch.stuck is None
    task.held.has_room(calls, 80.0)
    vars(task.bolt)["blocks_held"] = lambda: None
    watch.look(84.0)
    assert told == [] and task.held.at_work_since(first, 84.0) == 75.0
    task.held.calls[first].waits = 1
    watch.look(105.0)
    assert "30 s on a tuple from lines, ['b']" in told[0] and "so long: 1 of 2" in told[0]
    assert watch.stuck is None, "one goes on as soon as there is room"


def test_a_bolt_is_stuck_once_none_of_its_calls_goes_on_while_others_wait() -> None:
    task = Rig(Asks()).task
    watch = HeldWatch([task], 30.0, lambda *_told: None)
    first, second = Tuple(["a"], "lines", "s", 1, 7), Tuple(["b"], "lines", "s", 1, 8)
    task.held.given.update({first: 0.0, second: 0.0})
    task.held.begins(first, 5.0)
    watch.look(34.0)
    assert watch.stuck is None
    watch.look(36.0)
    assert watch.stuck == (task.task_id, first, 5.0)
    task.held.begins(second, 36.0)
    watch.look(37.0)
    assert watch.stuck is None, "one goes on"
    task.held.let_go(second)
    task.held.ends(second)
    watch.look(38.0)
    assert watch.stuck is None, "nobody waits"


def test_the_call_that_holds_up_all_others_is_named_and_not_the_oldest() -> None:
    """A coroutine that blocks its loop: the others are in an await, and began before it."""
    told: list[str] = []
    task = Rig(Asks()).task
    watch = HeldWatch([task], 8.0, lambda level, text, component, number: told.append(text))
    innocent, guilty = Tuple(["b"], "lines", "s", 1, 7), Tuple(["a"], "lines", "s", 1, 8)
    task.held.given.update({innocent: 0.0, guilty: 0.0})
    task.held.begins(innocent, 1.0)
    task.held.begins(guilty, 3.0)
    vars(task.bolt)["blocks_held"] = lambda: guilty
    for now in (4.0, 6.0, 8.0, 10.0):
        watch.look(now)
    assert told == [] and watch.stuck is None and task.held.queued() == [innocent]
    watch.look(11.0)
    assert "for 8 s on a tuple from lines, ['a']" in told[0] and "holds up the bolt's asyncio loop" in told[0]
    assert watch.stuck == (task.task_id, guilty, 3.0)
    vars(task.bolt)["blocks_held"] = lambda: None
    watch.look(12.0)
    assert task.held.waiting() == [] and task.held.at_work_since(innocent, 12.0) == 12.0, "its work begins again"
    assert task.held.at_work_since(guilty, 12.0) == 3.0
