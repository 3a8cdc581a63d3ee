"""One definition of running a bolt: anchoring, acking, failing. Every tree is checked by XOR, as the acker does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamlet import Bolt, Tuple
from streamlet.base.errors import BadEmit
from streamlet.components.batch import Batch
from streamlet.components.batching import BatchFailed
from streamlet.components.spout import FailureCause
from streamlet.runtime.tasks.emitter import Run, Work
from streamlet.runtime.tasks.user_errors import ComponentFailed
from streamlet.tracking.roots import first_root
from tests.unit.runtime.tasks.bolt_rig import Rig, bolt


def test_an_exception_fails_its_tuple_only() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        self.emit([0])
        if tup.values[0] == "bad":
            raise KeyError("oh")

    rig = Rig(bolt(process))
    rig.run((7, ["good"]), (8, ["bad"]), (9, ["good"]))
    assert rig.fails == [8] and [str(error) for error, _ in rig.reported] == ["'oh'"]
    assert set(rig.open_trees(rig.emitted())) == {8}
    stats = rig.task.stats
    assert (stats.acked, stats.failed, stats.errors, stats.executed) == (2, 1, 1, 3)


class FailsWithABatch(Bolt):
    def process_batch(self, batch: Batch) -> None:
        self.fail(batch)


class RaisesOnABatch(Bolt):
    def process_batch(self, batch: Batch) -> None:
        self.ack(batch.tuples[0])
        raise ValueError("no")


def _acked_and_then_raised(self: Bolt, tup: Tuple) -> None:
    self.ack(tup)
    raise ValueError("no")


@pytest.mark.parametrize(
    ("made", "given_up"),
    [
        (bolt(lambda self, tup: 1 / 0), 3),
        (bolt(lambda self, tup: self.fail(tup)), 3),
        (bolt(lambda self, tup: [self.fail(tup), self.fail(tup)]), 3),
        (bolt(lambda self, tup: 1 / 0, auto_fail=False), 3),
        (bolt(_acked_and_then_raised), 0),
        (FailsWithABatch(), 3),
        (RaisesOnABatch(), 2),
    ],
    ids=["raised", "failed", "failed twice", "raised and left open", "acked first", "batch", "batch acked in part"],
)
def test_untracked_tuples_that_fail_count_as_given_up_whoever_fails_them(made: Bolt, given_up: int) -> None:
    """No spout hears of them: the run would end well without them."""
    rig = Rig(made)
    rig.run((0, ["a"]), (7, ["b"]), (0, ["c"]), (0, ["d"]))
    assert (rig.task.stats.given_up, rig.task.stats.unreplayed) == (given_up, given_up)


class KeepsABatch(Bolt):
    auto_fail = False

    def process_batch(self, batch: Batch) -> None:
        KEPT.append(batch)
        raise ValueError("no")


KEPT: list[Any] = []


def _keeps(self: Bolt, tup: Tuple) -> None:
    KEPT.append(tup)
    raise ValueError("no")


@pytest.mark.parametrize("made", [bolt(_keeps, auto_fail=False), KeepsABatch()], ids=["tuples", "batch"])
@pytest.mark.parametrize("later", ["ack", "fail"])
def test_an_untracked_tuple_that_raised_counts_once_whatever_the_bolt_does_with_it_later(
    made: Bolt, later: str
) -> None:
    """Without auto_fail, too: no time-out would ever settle it. Tracked ones are open until the bolt says."""
    KEPT.clear()
    rig = Rig(made)
    rig.run((0, ["a"]), (7, ["b"]), (0, ["c"]))
    stats = rig.task.stats
    assert (stats.given_up, stats.failed, stats.acked, rig.fails) == (2, 2, 0, [])
    for kept in KEPT:
        getattr(rig.task, later)(kept)
    assert (stats.given_up, stats.unreplayed) == (2, 2)
    assert (stats.acked, stats.failed) == ((1, 2) if later == "ack" else (0, 3))


def test_without_auto_fail_an_exception_leaves_the_tree_open() -> None:
    rig = Rig(bolt(lambda self, tup: 1 / 0, auto_fail=False))
    rig.run((7, [0]))
    assert rig.fails == [] and rig.acks == {} and len(rig.reported) == 1


def test_without_auto_ack_the_bolt_acks_when_it_likes() -> None:
    held: list[Tuple] = []
    one = bolt(lambda self, tup: held.append(tup), auto_ack=False)
    rig = Rig(one)
    rig.run((7, [0]), (8, [0]))
    assert rig.acks == {} and rig.task.stats.acked == 0
    for tup in held:
        one.emit([1], anchors=[tup])
        one.ack(tup)
    assert rig.open_trees(rig.emitted()) == {} and rig.task.stats.acked == 2


def test_a_second_ack_changes_nothing() -> None:
    """XOR would undo the first: the tree would never complete, or complete too soon."""

    def process(self: Bolt, tup: Tuple) -> None:
        self.ack(tup)
        self.ack(tup)

    rig = Rig(bolt(process))
    rig.run((7, [0]))
    assert rig.open_trees([]) == {} and rig.task.stats.acked == 1


def test_an_ack_after_a_fail_changes_nothing_and_the_reverse() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        first, second = (self.fail, self.ack) if tup.values[0] else (self.ack, self.fail)
        first(tup)
        second(tup)

    rig = Rig(bolt(process))
    rig.run((6, [True]), (8, [False]))
    assert rig.fails == [6] and set(rig.acks) == {8}
    assert (rig.task.stats.acked, rig.task.stats.failed) == (1, 1)


def test_a_failed_tuple_of_several_roots_fails_all_of_them() -> None:
    rig = Rig(bolt(lambda self, tup: self.fail(tup)))
    rig.run((0, [0]), multi=[[7, 8]])
    assert sorted(rig.fails) == [7, 8]


def test_a_tick_is_no_tuple_of_any_tree() -> None:
    ticks: list[Tuple] = []

    def process_tick(self: Bolt, tup: Tuple) -> None:
        ticks.append(tup)
        self.emit([tup.values[0]])

    rig = Rig(bolt(lambda self, tup: None, process_tick=process_tick))
    rig.run((7, [0]))
    rig.task.tick(2.0)
    assert Bolt.is_tick(ticks[0]) and [(root, values) for root, _, values in rig.emitted()] == [(0, [2.0])]


def test_a_tick_that_raises_is_reported_and_hurts_no_tuple() -> None:
    rig = Rig(bolt(lambda self, tup: None, process_tick=lambda self, tup: 1 / 0))
    rig.task.tick(1.0)
    assert [(type(error), tup) for error, tup in rig.reported] == [(ZeroDivisionError, None)] and rig.fails == []


def test_a_tick_that_raises_ends_the_run_only_with_exit_on_exception() -> None:
    made = bolt(lambda self, tup: None)
    made.process_tick = lambda tup: 1 / 0  # type: ignore[assignment,method-assign,return-value]  # raises before it returns
    rig = Rig(made)
    rig.task.tick(1.0)
    assert [type(error) for error, _ in rig.reported] == [ZeroDivisionError]
    made.exit_on_exception = True  # type: ignore[misc]  # a class variable, as a user's class sets it
    with pytest.raises(ComponentFailed, match="exit_on_exception"):
        rig.task.tick(1.0)


def test_a_call_of_the_bolts_own_that_raises_ends_the_run_only_with_exit_on_exception() -> None:
    made = bolt(lambda self, tup: None)
    rig = Rig(made)
    rig.task.call(lambda: 1 / 0)  # type: ignore[arg-type,return-value]  # raises before it returns
    assert [type(error) for error, _ in rig.reported] == [ZeroDivisionError]
    made.exit_on_exception = True  # type: ignore[misc]  # a class variable, as a user's class sets it
    with pytest.raises(ComponentFailed, match="exit_on_exception"):
        rig.task.call(lambda: 1 / 0)  # type: ignore[arg-type,return-value]


def test_the_error_of_a_bolt_that_ends_the_run_is_the_last_that_happens_to_it() -> None:
    """It may write nothing after what failed; and what it had done before is done."""
    calls: list[Any] = []

    def process(self: Any, tup: Tuple) -> None:
        calls.append(tup.values[0])
        if tup.values[0] == "bad":
            raise ValueError("down")

    made = bolt(process, exit_on_exception=True)
    made.process_tick = lambda tup: calls.append("tick")  # type: ignore[method-assign]
    resting: set[int] = set()
    rig = Rig(made, resting=resting)
    with pytest.raises(ComponentFailed, match="exit_on_exception"):
        rig.run((2, ["a"]), (4, ["b"]), (6, ["bad"]), (8, ["c"]))
    assert rig.open_trees([]).keys() == {6, 8} and rig.fails == [6]
    rig.task.tick(1.0)
    rig.task.call(lambda: calls.append("call"))
    assert calls == ["a", "b", "bad"] and resting == {rig.task.task_id}


class Panic(BaseException):
    """As extensions in Rust raise: no Exception, and no wish to end the process."""


@pytest.mark.parametrize("kind", [asyncio.CancelledError, Panic])
def test_what_is_no_exception_and_no_wish_to_end_fails_its_tuple_alone(kind: type[BaseException]) -> None:
    """A CancelledError ended the worker, and so did a panic: at each start, for the record that brought it about."""

    def process(self: Any, tup: Tuple) -> None:
        if tup.values[0] == 1:
            raise kind

    for hand in (False, True):
        made = bolt(process)
        made.auto_ack = not hand  # type: ignore[misc]  # a class variable, as a user's class sets it
        rig = Rig(made)
        rig.run((1, [1]), (2, [2]))
        assert rig.fails == [1] and [type(error) for error, _ in rig.reported] == [kind]


class EndsAtFour(Bolt):
    exit_on_exception = True

    def process(self, tup: Tuple) -> None:
        if tup.values[0] == 4:
            raise self.kind("no")


class HoldsAndEndsAtFour(EndsAtFour):
    auto_ack = False

    def process(self, tup: Tuple) -> None:
        self.kept = [*getattr(self, "kept", []), tup]
        super().process(tup)


class EndsByBatch(EndsAtFour):
    def process_batch(self, batch: Batch) -> None:
        for tup in batch:
            self.process(tup)


@pytest.mark.parametrize(
    ("kind", "error", "done", "held", "waits"),
    [
        (EndsAtFour, ValueError, 4, 0, 2),
        (EndsAtFour, SystemExit, 3, 0, 3),
        (HoldsAndEndsAtFour, ValueError, 1, 3, 2),
        (HoldsAndEndsAtFour, SystemExit, 0, 3, 3),
        (EndsByBatch, ValueError, 6, 0, 0),
        (EndsByBatch, SystemExit, 0, 0, 6),
    ],
)
def test_an_error_that_ends_the_run_leaves_what_was_not_begun_or_is_held_to_be_counted(
    kind: type[Bolt], error: type[BaseException], done: int, held: int, waits: int
) -> None:
    """Each of the six untracked tuples is done or failed, held, or waits: that of the error is not twice among them."""
    rig = Rig(made := kind())
    vars(made)["kind"] = error
    work = Work(Run(1, 5, "default", False, [0] * 6, [0] * 6, [[n] for n in range(1, 7)]))
    with pytest.raises((ComponentFailed, SystemExit)):
        rig.task.execute(work, until=1e9)
    assert (rig.task.untracked_done, rig.task.held.untracked, work.left) == (done, held, waits)
    assert [values for _, _, values in work.rows] == [[n] for n in range(7 - waits, 7)]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_is_to_end_the_process_is_not_taken_for_a_failed_tuple(error: type[BaseException]) -> None:
    def process(self: Any, tup: Tuple) -> None:
        raise error

    with pytest.raises(error):
        Rig(bolt(process)).run((1, [1]))


def test_a_failure_takes_along_what_was_raised_or_said() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        if tup.values[0] == "raises":
            raise KeyError("oh")
        self.fail(tup, "by hand")

    rig = Rig(bolt(process))
    rig.run((7, ["raises"]), (8, ["fails"]))
    assert rig.fails == [7, 8]
    assert rig.task.causes.take() == {
        7: FailureCause("bolt", "KeyError", "'oh'"),
        8: FailureCause("bolt", "", "by hand"),
    }


def test_a_dead_letter_fails_all_trees_of_a_tuple_and_is_no_failure_of_the_bolt() -> None:
    rig = Rig(bolt(lambda self, tup: self.dead_letter(tup, "not wanted")))
    rig.task.failures.allowed = 1
    rig.run((0, ["x"]), multi=[[7, 8]])
    assert rig.fails == [7, 8]
    assert set(rig.task.causes.take().values()) == {FailureCause("bolt", "", "not wanted", True)}
    assert (rig.task.stats.failed, rig.task.stats.acked) == (1, 0)


def test_a_dead_letter_of_a_batch_leaves_its_other_tuples_alone() -> None:
    class ByBatch(Bolt):
        def process_batch(self, batch: Batch) -> None:
            self.dead_letter(batch.tuples[1], "not wanted")

    rig = Rig(ByBatch())
    rig.run((7, ["a"]), (8, ["b"]), (9, ["c"]))
    assert rig.fails == [8] and [*rig.task.causes.take()] == [8]
    assert rig.open_trees([]).keys() == {8}


def test_a_dead_letter_from_another_thread_is_made_by_the_loop() -> None:
    held: list[Tuple] = []
    rig = Rig(bolt(lambda self, tup: held.append(tup), auto_ack=False))
    rig.run((7, ["x"]))
    thread = threading.Thread(target=rig.task.dead_letter, args=(held[0], "later"))
    thread.start()
    thread.join()
    assert rig.fails == []
    for call in rig.task.calls.take(9, emits=True):
        call.act()
    assert rig.fails == [7] and rig.task.causes.take()[7].to_dead_letters


@pytest.mark.parametrize(
    "root, said", [(0, "is not tracked"), (first_root(3, 1), "the spout lines, which keeps no dead letters")]
)
def test_a_dead_letter_that_no_spout_would_keep_is_refused_where_it_is_called(root: int, said: str) -> None:
    rig = Rig(bolt(lambda self, tup: self.dead_letter(tup, "x")))
    rig.task._without_dead_letters = {3: "lines"}
    rig.run((root, ["x"]))
    ((error, _),) = rig.reported
    assert isinstance(error, BadEmit) and said in str(error)
    assert not any(cause.to_dead_letters for cause in rig.task.causes.take().values())


@pytest.mark.parametrize("call", ["ack", "fail", "dead_letter", "emit", "emit_many"])
def test_a_wrong_argument_on_another_thread_is_refused_there(call: str) -> None:
    """On the loop, where it is made later, it would end the run."""
    held: list[Tuple] = []
    rig = Rig(bolt(lambda self, tup: held.append(tup), auto_ack=False))
    rig.run((7, ["x"]))
    wrong = str(held[0].id)
    acts: dict[str, Callable[[], Any]] = {
        "ack": lambda: rig.task.ack(wrong),  # type: ignore[arg-type]
        "fail": lambda: rig.task.fail(wrong),  # type: ignore[arg-type]
        "dead_letter": lambda: rig.task.dead_letter(wrong, "x"),  # type: ignore[arg-type]
        "emit": lambda: rig.task.emit([1], anchors=[wrong]),
        "emit_many": lambda: rig.task.emit_many([[1]], anchors=[wrong]),  # type: ignore[list-item]
    }
    with ThreadPoolExecutor(1) as pool, pytest.raises(TypeError, match="leads to no tuple"):
        pool.submit(acts[call]).result()
    assert len(rig.task.calls) == 0


def test_a_reason_without_a_text_is_refused_on_the_thread_that_gave_it() -> None:
    class Mute:
        def __str__(self) -> str:
            raise OSError("no text")

    held: list[Tuple] = []
    rig = Rig(bolt(lambda self, tup: held.append(tup), auto_ack=False))
    rig.run((7, ["x"]))
    with ThreadPoolExecutor(1) as pool, pytest.raises(OSError, match="no text"):
        pool.submit(rig.task.fail, held[0], Mute()).result()
    assert len(rig.task.calls) == 0


def test_an_error_is_told_with_the_call_that_raised_it() -> None:
    def on_timer() -> None:
        raise ValueError("slip")

    rig = Rig(bolt(lambda self, tup: 1 / 0))
    rig.task.call(on_timer)
    rig.run((7, ["x"]))
    rig.task.tick(1.0)
    assert rig.called == [on_timer, rig.task.bolt.process]


def test_a_tick_that_raised_counts_until_one_does_its_work() -> None:
    def raises(error: Exception | None) -> None:
        if error is not None:
            raise error

    rig = Rig(bolt(lambda self, tup: None))
    wanted: list[Exception | None] = [OSError("gone"), OSError("gone"), None, BatchFailed("told by its tuples")]
    seen = []
    for error in wanted:
        vars(rig.task.bolt)["process_tick"] = lambda tup, error=error: raises(error)
        rig.task.tick(1.0)
        seen.append((rig.task.stats.tick_errors, rig.task.stats.tick_failed))
    assert seen == [(1, 1), (2, 1), (2, 0), (2, 0)]


def test_a_call_of_a_bolt_that_takes_batches_is_one_for_a_batch_as_they_are_now() -> None:
    """A drain must outlast one. A batch that was slow long ago says nothing where tuples take no time any more."""

    class TakesLong(Bolt):
        def process_batch(self, batch: Batch) -> None:
            rig.clock.advance(0.5 * len(batch))

    rig = Rig(TakesLong())
    rig.run(*[(7, [n]) for n in range(10)])
    assert rig.task.call_s(0.5) == 5.0
    assert rig.task.call_s(1e-5) < 0.1
