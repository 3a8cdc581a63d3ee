"""One definition of running a bolt: anchoring, acking, failing. Every tree is checked by XOR, as the acker does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet import Bolt, Stream, Tuple
from streamlet.base.errors import BadEmit
from streamlet.components.batch import Batch
from streamlet.components.batching import BatchFailed
from streamlet.components.spout import FailureCause
from streamlet.components.tuples import ACKED, OPEN
from streamlet.runtime.tasks.emitter import Run, Work
from streamlet.runtime.tasks.user_errors import ComponentFailed, place
from streamlet.tracking.roots import first_root
from tests.unit.runtime.tasks.bolt_rig import DOWN, Rig, bolt


def test_each_tree_is_complete_when_all_that_was_emitted_is_acked() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        for n in range(tup.values[0]):
            self.emit([n])

    rig = Rig(bolt(process))
    rig.run((7, [0]), (7, [2]), (8, [3]), (7, [1]), (8, [0]))
    emitted = rig.emitted()
    assert len(emitted) == 6 and rig.open_trees(emitted) == {}
    assert rig.open_trees(emitted[1:]) != {}, "a tree must not be complete without one of its tuples"
    assert rig.task.stats.acked == 5 and rig.fails == []


def test_untracked_tuples_make_untracked_tuples() -> None:
    rig = Rig(bolt(lambda self, tup: self.emit([1])))
    rig.run((0, [1]), (7, [1]), (0, [1]))
    assert [root for root, _, _ in rig.emitted()] == [0, 7, 0]


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


@pytest.mark.parametrize("how", ["ack", "fail"])
def test_emitting_with_an_anchor_that_is_done_is_refused(how: str) -> None:
    """Its tree could never complete, or was completed without the new tuple."""

    def process(self: Bolt, tup: Tuple) -> None:
        getattr(self, how)(tup)
        self.emit([1])

    rig = Rig(bolt(process, auto_ack=False))
    rig.run((7, [0]))
    ((error, _),) = rig.reported
    assert isinstance(error, BadEmit) and "already acked" in str(error) and rig.emitted() == []


def test_emitting_later_with_an_anchor_that_was_acked_by_itself_is_refused() -> None:
    held: list[Tuple] = []

    def process(self: Bolt, tup: Tuple) -> None:
        if held:
            self.emit([1], anchors=[held[0]])
        held.append(tup)

    rig = Rig(bolt(process))
    rig.run((7, [0]), (8, [0]))
    assert isinstance(rig.reported[0][0], BadEmit) and rig.fails == [8]


def test_no_anchors_make_an_untracked_tuple() -> None:
    rig = Rig(bolt(lambda self, tup: self.emit([1], anchors=[])))
    rig.run((7, [0]))
    emitted = rig.emitted()
    assert [root for root, _, _ in emitted] == [0] and rig.open_trees([]) == {}


def test_without_auto_anchor_nothing_is_anchored_unless_asked() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        self.emit([1])
        self.emit([2], anchors=[tup])

    rig = Rig(bolt(process, auto_anchor=False))
    rig.run((7, [0]))
    emitted = rig.emitted()
    assert [root for root, _, _ in emitted] == [0, 7] and rig.open_trees(emitted) == {}


def joiner(size: int) -> Bolt:
    held: list[Tuple] = []

    def process(self: Bolt, tup: Tuple) -> None:
        held.append(tup)
        if len(held) == size:
            self.emit([1], anchors=held)
            for one in held:
                self.ack(one)
            held.clear()

    return bolt(process, auto_ack=False)


@pytest.mark.parametrize("roots", [(7, 8), (7, 8, 9), (7, 7), (7, 7, 8), (7, 0), (0, 0), (7, 7, 7)])
def test_a_tuple_with_several_anchors_belongs_to_every_tree(roots: tuple[int, ...]) -> None:
    """Two anchors of one tree must not cancel: a shared edge XORed in twice would be gone."""
    rig = Rig(joiner(len(roots)))
    rig.run(*((root, [0]) for root in roots))
    emitted = rig.emitted()
    assert len(emitted) == 1
    assert rig.open_trees(emitted) == {}
    assert set(rig.open_trees([])) == {root for root in roots if root}, "acked without the joined tuple"


def test_a_tuple_of_several_roots_passes_all_of_them_on() -> None:
    rig = Rig(bolt(lambda self, tup: [self.emit([n]) for n in range(3)]))
    rig.run((0, [0]), (0, [0]), multi=[[7, 8], [9, 7]])
    emitted = rig.emitted()
    assert [sorted(roots) for roots, _, _ in emitted] == [[7, 8]] * 3 + [[7, 9]] * 3
    assert rig.open_trees(emitted) == {} and rig.task.stats.acked == 2
    assert rig.open_trees(emitted[:-1]) != {}


def test_a_failed_tuple_of_several_roots_fails_all_of_them() -> None:
    rig = Rig(bolt(lambda self, tup: self.fail(tup)))
    rig.run((0, [0]), multi=[[7, 8]])
    assert sorted(rig.fails) == [7, 8]


def test_joined_and_plain_tuples_keep_their_order() -> None:
    """Another kind of tuple closes the run at hand, and the next emit is of the first kind again."""
    held: list[Tuple] = []

    def process(self: Bolt, tup: Tuple) -> None:
        self.emit([tup.values[0]])
        if tup.values[0] == 2:
            self.emit(["joined"], anchors=[held[0], tup])
            self.emit(["after"])
        held.append(tup)

    rig = Rig(bolt(process, auto_ack=False))
    rig.run((7, [1]), (8, [2]), (9, [3]))
    assert [values for _, _, values in rig.emitted()] == [[1], [2], ["joined"], ["after"], [3]]


def test_every_reader_gets_an_edge_of_its_own() -> None:
    rig = Rig(bolt(lambda self, tup: self.emit([1])), readers=3)
    rig.run((7, [0]))
    emitted = rig.emitted()
    assert len({edge for _, edge, _ in emitted}) == 3 and rig.open_trees(emitted) == {}


def test_task_ids_are_given_on_request() -> None:
    told: list[Any] = []

    def process(self: Bolt, tup: Tuple) -> None:
        told.append(self.emit([1]))
        told.append(self.emit([1], need_task_ids=True))

    Rig(bolt(process), readers=2).run((7, [0]))
    assert told == [None, [DOWN, DOWN + 1]]


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


def test_auto_anchor_may_be_set_in_initialize() -> None:
    """Of every value's type; and what a bolt has put around its emit stays."""
    for values in (["text"], [7]):
        made = bolt(lambda self, tup, values=values: self.emit(values))
        rig = Rig(made)
        made.auto_anchor = False
        rig.task.initialized()
        rig.run((7, ["a"]))
        assert [row[0] for row in rig.emitted()] == [0]
    wrapped: list[Any] = []
    made.emit = wrapped.append  # type: ignore[method-assign]
    rig.task.initialized()
    rig.run((7, ["a"]))
    assert wrapped == [[7]]


def test_an_emit_goes_to_the_stream_it_names() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        self.emit([1])
        self.emit([2, 3], stream="errors")
        self.emit([4])

    rig = Rig(bolt(process), (Stream(["v"]), Stream(["a", "b"], name="errors")))
    rig.run((7, [0]))
    runs = rig.boxes[0].take()
    assert [(run.stream, run.values) for run in runs] == [("default", [[1]]), ("errors", [[2, 3]]), ("default", [[4]])]
    emitted = [row for run in runs for row in zip(run.roots, run.edges, run.values, strict=True)]
    assert rig.open_trees(emitted) == {}


def test_anchors_may_be_any_iterable() -> None:
    """An iterator is spent by the first look at it: what was emitted would be tracked by nobody."""
    rig = Rig(bolt(lambda self, tup: self.emit([1], anchors=iter([tup]))))
    rig.run((7, ["a"]))
    rows = rig.emitted()
    assert [root for root, _, _ in rows] == [7]
    assert rig.open_trees(rows) == {}


@pytest.mark.parametrize("row", [{"a": 1}, {0: "a"}, {"a"}, "n", b"n", {"a": 1, "b": 2}, {"a", "b"}, "no", b"no"])
def test_a_row_is_a_sequence_of_values(row: Any) -> None:
    """A dict or a set has as many members as a row has fields, and they are not the row's values."""
    rig = Rig(bolt(lambda self, tup: self.emit(row)), (Stream(["x", "y"][: len(row)]),))
    rig.run((7, ["a"]))
    assert rig.emitted() == []
    assert isinstance(rig.reported[0][0], BadEmit)


@pytest.mark.parametrize("row", [5, None, iter(["n"])])
@pytest.mark.parametrize("fields", [["x"], ["x", "y"]])
def test_a_row_without_a_length_is_refused_with_the_declared_fields(row: Any, fields: list[str]) -> None:
    rig = Rig(bolt(lambda self, tup: self.emit(row)), (Stream(fields),))
    rig.run((7, ["a"]))
    error = rig.reported[0][0]
    assert isinstance(error, BadEmit) and f"{len(fields)} field(s): {', '.join(fields)}" in str(error)


def test_the_payload_may_be_named_tup() -> None:
    """pystorm's name of the parameter: ``emit(tup=[...])``, with one field and with two, anchored and not."""
    rig = Rig(bolt(lambda self, tup: self.emit(tup=["one"])))
    rig.run((1, [0]))
    assert [values for _, _, values in rig.emitted()] == [["one"]]
    wide = Rig(
        bolt(lambda self, tup: (self.emit(tup=["a", 1]), self.emit(tup=["b", 2], anchors=[]))), (Stream(["v", "n"]),)
    )
    wide.run((1, [0]))
    assert [values for _, _, values in wide.emitted()] == [["a", 1], ["b", 2]]


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


@pytest.mark.parametrize("call", ["emit", "emit_many"])
def test_an_emit_that_its_loop_refuses_is_told_with_the_line_of_the_thread_that_called_it(call: str) -> None:
    """Its tuple was acked after the call and before the loop made it: no stack of the loop's has the line."""
    held: list[Tuple] = []
    rig = Rig(bolt(lambda self, tup: held.append(tup), auto_ack=False))
    rig.run((7, ["x"]))

    def emits_there() -> None:
        rig.task.emit([1], anchors=held) if call == "emit" else rig.task.emit_many([[1]], anchors=held)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(emits_there).result()
    rig.task.ack(held[0])
    for handed in rig.task.calls.take(9, emits=True):
        handed.act()
    ((error, _),) = rig.reported
    assert isinstance(error, BadEmit)
    assert place(error) == f"{__file__}:{emits_there.__code__.co_firstlineno + 1}"


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


@pytest.mark.parametrize("many", [False, True])
def test_an_emit_of_a_thread_for_a_tuple_that_is_settled_is_refused_there_or_counted(many: bool) -> None:
    """The loop dropped it, after the call had returned: the run ended well without it."""
    kept: list[Tuple] = []
    rig = Rig(bolt(lambda self, tup: kept.append(tup)))
    rig.run((7, [1]))
    calls: list[Callable[[], None]] = []
    rig.task.calls = SimpleNamespace(  # type: ignore[assignment]  # those of another thread
        here=lambda: False,
        row=lambda emitter, values, *rest: [*values],
        put=lambda act, *rest, **named: calls.append(act),
        note_refused=lambda error, rows, has_open_anchor: None,
    )

    def emit() -> None:
        if many:
            rig.task.emit_many([[1], [2]], anchors=kept)
        else:
            rig.task.emit_anywhere([1], anchors=kept)

    with pytest.raises(BadEmit, match="already acked or failed"):
        emit()
    kept[0].state = OPEN
    emit()
    kept[0].state = ACKED
    rig.task.calls.here = lambda: True
    for act in calls:
        act()
    assert rig.task.stats.given_up == rig.task.stats.unreplayed == (2 if many else 1)
    assert rig.emitted() == []


def test_a_call_of_a_bolt_that_takes_batches_is_one_for_a_batch_as_they_are_now() -> None:
    """A drain must outlast one. A batch that was slow long ago says nothing where tuples take no time any more."""

    class TakesLong(Bolt):
        def process_batch(self, batch: Batch) -> None:
            rig.clock.advance(0.5 * len(batch))

    rig = Rig(TakesLong())
    rig.run(*[(7, [n]) for n in range(10)])
    assert rig.task.call_s(0.5) == 5.0
    assert rig.task.call_s(1e-5) < 0.1
