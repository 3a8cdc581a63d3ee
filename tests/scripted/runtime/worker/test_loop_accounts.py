"""One worker's loop when something ends in the middle: every tuple is done, left or counted, and nothing twice."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamlet import Batch, Bolt, Spout, Topology, Tuple
from streamlet.base.clock import ManualClock
from streamlet.components.spout import FailReason
from streamlet.runtime.links.links import NoLinks
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.spout_task import SpoutTask
from streamlet.runtime.tasks.task_stats import percentile_ms
from streamlet.runtime.tasks.untracked_counts import Counted
from streamlet.runtime.worker.loop import FINISH_S, WorkerLoop
from streamlet.runtime.worker.spout_weights import WEIGH_S
from tests.worker_contexts import made_context


class Source(Spout):
    """Emits the pairs (value, id) of ``todo``."""

    outputs = ["n"]

    def __init__(self) -> None:
        self.todo: list[tuple[int, Any]] = []
        self.heard: list[tuple[str, Any]] = []
        self.reasons: list[FailReason] = []
        self.may = True

    def next_tuple(self) -> None:
        if self.todo:
            value, tup_id = self.todo.pop(0)
            self.emit([value], tup_id=tup_id)

    def may_send(self) -> bool:
        return self.may

    def ack(self, tup_id: Any) -> None:
        self.heard.append(("ack", tup_id))

    def fail(self, tup_id: Any) -> None:
        self.heard.append(("fail", tup_id))
        self.reasons.append(self.fail_reason)


class Collects(Bolt):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def process(self, tup: Tuple) -> None:
        self.seen.append(tup.values[0])


class EndsAtFive(Bolt):
    exit_on_exception = True

    def process(self, tup: Tuple) -> None:
        if tup.values[0] == 5:
            raise ValueError("five")


class SplitsAndEnds(Bolt):
    """Cannot take a 2, in a batch or alone."""

    on_batch_error = "split"
    exit_on_exception = True
    alone: BaseException = ValueError("bad")

    def __init__(self) -> None:
        self.seen: list[int] = []

    def process_batch(self, batch: Batch) -> None:
        rows = [tup.values[0] for tup in batch.tuples]
        if 2 in rows:
            raise ValueError("bad") if len(rows) > 1 else self.alone
        self.seen += rows


class KeepsAndEnds(Bolt):
    outputs = ["n"]
    auto_ack = False
    exit_on_exception = True

    def __init__(self) -> None:
        self.kept: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.kept.append(tup)


class Exits(Bolt):
    def initialize(self, conf: Any, context: Any) -> None:
        self.clock = context.clock

    def process(self, tup: Tuple) -> None:
        self.clock.advance(FINISH_S)
        sys.exit(7)


class Plain(Topology):
    source = Source.spec()
    sink = Collects.spec(inputs=[source])


class Ending(Topology):
    source = Source.spec()
    sink = EndsAtFive.spec(inputs=[source])


class Splitting(Topology):
    source = Source.spec()
    sink = SplitsAndEnds.spec(inputs=[source])


class Keeping(Topology):
    source = Source.spec()
    keeps = KeepsAndEnds.spec(inputs=[source])
    sink = Collects.spec(inputs=[keeps])


class ExitingMeanwhile(Topology):
    source = Source.spec()
    ends = EndsAtFive.spec(inputs=[source])
    exits = Exits.spec(inputs=[source])


class Looped:
    """A loop that is one worker's whole run, with its spout, task 1, and the bolt that reads it, task 2."""

    def __init__(self, topology: type[Topology], **conf: Any) -> None:
        self.clock = ManualClock()
        own = {key.replace("__", "."): value for key, value in conf.items()}
        self.loop = WorkerLoop(made_context(topology.__topology__, 1, 0, own, clock=self.clock), NoLinks())
        self.loop.initialize()
        self.spout_task = self.loop.spouts[1]
        self.spout_task.window.size = 10_000
        self.loop.activate()
        task = self.loop.tasks[2].task
        assert isinstance(task, BoltTask) and isinstance(self.spout_task, SpoutTask)
        self.task = task
        self.spout: Any = self.loop.tasks[1].component
        self.bolt: Any = self.loop.tasks[2].component

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.turn()

    def ends(self, kind: type[BaseException] = Exception) -> None:
        """Turn until the run is ended by an error."""
        with pytest.raises(kind):
            self.turns(10)


def elsewhere(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_rows_of_a_thread_that_the_loop_has_taken_count_though_the_thread_calls_again() -> None:
    """A worker that was killed there had them nowhere."""
    one = Looped(Plain)
    spout, looks = one.spout, list[Counted]()
    elsewhere(lambda: [spout.emit([n]) for n in range(5)] and None)
    guard = one.loop.ledgers.guard

    def look_after_the_last(task: SpoutTask, where: str, act: Callable[[], Any]) -> Any:
        told = guard(task, where, act)
        if where == "emit" and not len(task.calls):
            one.loop.ledgers.guard = guard  # type: ignore[method-assign]
            elsewhere(lambda: spout.emit([5]))
            looks.append(one.loop.untracked.look())
        return told

    one.loop.ledgers.guard = look_after_the_last  # type: ignore[method-assign]
    one.turns(4)
    assert looks[0].handed == {1: 6}
    assert one.loop.untracked.look().handed == {} and one.bolt.seen == [*range(6)]


def test_an_error_in_a_call_of_a_thread_drops_none_of_those_behind_it() -> None:
    """An emit that had returned was in no count, and finished tuples stayed open."""
    one = Looped(Keeping)
    one.spout.todo = [(n, n) for n in range(4)]
    one.turns(3)
    kept = one.bolt.kept
    assert len(kept) == 4

    def work() -> None:
        one.task.raised(ValueError("no"), kept[0])
        one.bolt.emit([7])
        for tup in kept[1:]:
            one.bolt.ack(tup)

    elsewhere(work)
    one.ends()
    one.turns(3)
    assert sorted(one.spout.heard) == [("ack", 1), ("ack", 2), ("ack", 3), ("fail", 0)]
    assert one.loop.ledgers.pending() == 0 and one.loop.tasks[3].component.seen == [7]  # type: ignore[attr-defined]


def test_a_bolt_that_exits_while_the_trees_of_an_error_are_finished_does_not_end_the_process() -> None:
    """It would pass for a death of the worker, and the error would be told by nobody."""
    one = Looped(ExitingMeanwhile)
    one.spout.todo = [(5, "a")]
    one.ends()
    one.loop.finish_open_trees()


@pytest.mark.parametrize("tracked", [0, 1])
def test_what_is_taken_back_is_failed_or_counted_as_lost_and_never_acked(tracked: int) -> None:
    """Of messages the spout hears, tracked or not; of rows without one the run."""
    one = Looped(Plain, topology__acker__executors=tracked)
    one.spout.may = False
    one.spout.todo = [(1, "a"), (2, "b"), (3, None)]
    one.turns(4)
    assert sorted(one.spout.heard) == [("fail", "a"), ("fail", "b")] and {*one.spout.reasons} == {FailReason.LOST}
    assert one.bolt.seen == [] and one.spout_task.untracked_lost == 1
    assert one.loop.untracked.look_at_final().lost == {1: 1} and not any(one.loop.untracked.look())
    one.spout.may = True
    one.spout.todo = [(1, "a")]
    one.turns(3)
    assert one.spout.heard[-1] == ("ack", "a") and one.spout_task.untracked_lost == 1


def test_rows_of_a_batch_that_were_not_begun_when_one_ended_the_run_are_left() -> None:
    one = Looped(Splitting)
    one.spout.todo = [(n, None) for n in range(6)]
    one.ends()
    assert one.bolt.seen == [0, 1] and one.task.stats.given_up == 1
    assert one.task.untracked_done == 3 and sum(work.left for work in one.loop.inbox) == 3


def test_rows_of_a_batch_are_left_with_the_one_at_which_the_process_was_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SplitsAndEnds, "alone", SystemExit(3))
    one = Looped(Splitting)
    one.spout.todo = [(n, None) for n in range(6)]
    one.ends(SystemExit)
    (work,) = one.loop.inbox
    assert one.bolt.seen == [0, 1] and [row for _, _, row in work.rows] == [[2], [3], [4], [5]]
    assert one.task.untracked_done == 2


def test_what_was_done_before_an_error_that_ended_the_run_is_counted() -> None:
    one = Looped(Ending)
    one.task.slices.size = 64
    one.spout.todo = [(n, n) for n in range(10)]
    one.ends()
    stats = one.task.stats
    assert (stats.executed, stats.acked, stats.failed) == (6, 5, 1)
    assert one.loop.inbox.tuples == sum(work.left for work in one.loop.inbox) == 4


@pytest.mark.parametrize("last", [5, 9])
def test_a_run_of_tuples_whose_last_one_ends_the_run_is_forgotten(last: int) -> None:
    one = Looped(Ending)
    one.task.slices.size = 64
    one.spout.todo = [(n % 10 if n != last else 5, n) for n in range(6, last + 1)] or [(5, 5)]
    one.ends()
    assert one.loop.inbox.tuples == 0 and not one.loop.inbox


def test_what_a_thread_emits_is_as_old_as_its_emit_and_not_as_the_last_question() -> None:
    """A spout that sleeps reported how long it slept."""
    one = Looped(Plain)
    one.turns(1)
    one.clock.advance(50.0)
    for n in range(64):
        elsewhere(lambda n=n: one.spout.emit([n], tup_id=n))  # type: ignore[misc]
    one.turns(3)
    p50_ms = percentile_ms(one.spout_task.stats.snapshot()["latency"], 0.5)
    assert one.spout_task.stats.acked == 64 and p50_ms is not None and p50_ms < 100


class Keeps(Source):
    """Gives up what fails, and keeps it elsewhere."""

    def given_up_count(self) -> int:
        return len(self.reasons)

    def kept_count(self) -> int:
        return len(self.reasons)


class Refuses(Bolt):
    def process(self, tup: Tuple) -> None:
        self.fail(tup)


class Kept(Topology):
    numbers = Keeps.spec()
    refuses = Refuses.spec(inputs=[numbers])


class GivesUpItself(Source):
    """Gives up each message before it is a tuple."""

    gone = 0

    def next_tuple(self) -> None:
        self.gone += 1

    def given_up_count(self) -> int:
        return self.gone


class Unread(Topology):
    numbers = GivesUpItself.spec()
    refuses = Refuses.spec(inputs=[numbers])


def test_what_a_spout_gives_up_without_a_tuple_is_on_the_page_before_the_next_heartbeat() -> None:
    """Of a worker that is killed nothing else would say that a record could not be decoded."""
    one = Looped(Unread)
    one.turns(3)
    one.clock.advance(WEIGH_S)
    one.turns(1)
    assert one.loop.untracked.look_at_final().given_up == {1: 3}


def test_what_a_spout_keeps_elsewhere_is_on_the_page_beside_what_it_has_given_up() -> None:
    """Its worker may die before the next heartbeat, and its dead letters would be told as lost."""
    one = Looped(Kept)
    one.spout.todo = [(1, "a"), (2, "b")]
    one.turns(6)
    final = one.loop.untracked.look_at_final()
    assert final.given_up == final.kept == {1: 2} and final.lost == {}


class Upkeep(Bolt):
    """Emits at each call of its timer how many there were."""

    outputs = ["n"]
    timer_interval_s = 0.1

    def __init__(self) -> None:
        self.calls = 0
        self.seen: list[int] = []

    def process(self, tup: Tuple) -> None:
        self.seen.append(tup.values[0])

    def on_timer(self) -> None:
        self.calls += 1
        self.emit([self.calls])


class UpkeepChain(Topology):
    source = Source.spec()
    first = Upkeep.spec(inputs=[source])
    second = Upkeep.spec(inputs=[first])
    sink = Collects.spec(inputs=[second])


def test_a_bolt_has_its_last_timer_before_those_behind_it_and_none_when_the_run_closes() -> None:
    """A tuple of a timer reached workers that closed: one was left, with status 1, and all had been done."""
    clock = ManualClock()
    loop = WorkerLoop(made_context(UpkeepChain.__topology__, 1, 0, {}, clock=clock), NoLinks())
    loop.initialize()
    loop.activate()
    first, second, sink = (loop.tasks[task].component for task in (2, 3, 4))
    clock.advance(0.1)
    loop.turn()
    assert isinstance(first, Upkeep) and isinstance(second, Upkeep) and isinstance(sink, Collects)
    assert (first.calls, second.calls, loop.quiet_steps) == (1, 1, 2)
    loop.be_quiet(1)
    clock.advance(0.1)
    loop.turn()
    assert (first.calls, second.calls) == (2, 2), "a last one of the first; the second goes on"
    loop.be_quiet(2)
    for _ in range(3):
        clock.advance(0.1)
        loop.turn()
    assert (first.calls, second.calls) == (2, 3)
    assert (second.seen, sink.seen) == ([1, 2], [1, 2, 3]) and loop.left_over(settled=True, ticks=True) == {}
    loop.close(clean=True)


class AcksByTimer(Bolt):
    auto_ack = False

    def initialize(self, conf: Any, context: Any) -> None:
        self.timer_interval_s = 0.1  # type: ignore[misc]  # as users may
        self.held: list[Tuple] = []
        self.calls = 0

    def process(self, tup: Tuple) -> None:
        self.held.append(tup)

    def on_timer(self) -> None:
        self.calls += 1
        while self.held:
            self.ack(self.held.pop())


class AckedByTimer(Topology):
    source = Source.spec()
    sink = AcksByTimer.spec(inputs=[source])


def test_a_bolt_that_is_given_more_after_its_last_timer_has_it_again() -> None:
    """A spout may emit in a drain, too. A timer that the bolt has set on itself has its last call like any other."""
    clock = ManualClock()
    loop = WorkerLoop(made_context(AckedByTimer.__topology__, 1, 0, {}, clock=clock), NoLinks())
    loop.initialize()
    loop.activate()
    source, sink = (loop.tasks[task].component for task in (1, 2))
    assert isinstance(source, Source) and isinstance(sink, AcksByTimer)
    loop.be_quiet(1)
    assert sink.calls == 1
    source.emit([7], tup_id="late")
    for _ in range(4):
        clock.advance(0.1)
        loop.turn()
    assert (sink.calls, source.heard, loop.ledgers.pending()) == (2, [("ack", "late")], 0)
    loop.close(clean=True)
