"""Batching bolts: what is processed when, and what is acked and failed by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamlet import BatchingBolt, Bolt, TicklessBatchingBolt, Topology, Tuple
from streamlet.base.clock import ManualClock
from streamlet.components.batching import BatchFailed
from streamlet.model.validate import validate
from streamlet.runtime.tasks.user_errors import Complaints, EveryTupleFailed
from streamlet.testing import BoltTester, TopologyTester
from tests.unit.model.test_validate import Lines
from tests.unit.runtime.tasks.bolt_rig import Rig

TICKS = {"topology.tick.tuple.freq.secs": 1}


class Totals(BatchingBolt):
    outputs = ["word", "count"]

    def group_key(self, tup: Tuple) -> Any:
        return tup.values[0]

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        if key == "bad":
            raise ValueError("no such word")
        self.emit([key, len(tups)])


class Often(TicklessBatchingBolt):
    secs_between_batches = 0.5

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        self.logger.info("%d", len(tups))


def test_a_batch_waits_for_its_tick_and_is_then_acked() -> None:
    with BoltTester(Totals, conf=TICKS) as tester:
        tester.give("a", "b", "a")
        assert tester.emitted() == tester.acked == []
        tester.tick()
        assert tester.emitted() == [["a", 2], ["b", 1]]
        assert sorted(tester.acked) == [["a"], ["a"], ["b"]]
        tester.tick()
        assert len(tester.emitted()) == 2


class TakesOut(BatchingBolt):
    """Empties its list, as a queue."""

    outputs = ["n"]
    config = TICKS

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        while tups:
            tup = tups.pop(0)
            self.emit([tup.values[0]])
            if not type(self).auto_ack:
                self.ack(tup)


class TakesOutAndAcks(TakesOut):
    auto_ack = False


class Refuses(Bolt):
    def process(self, tup: Tuple) -> None:
        if tup.values[0] == 2:
            raise ValueError("not two")


@pytest.mark.parametrize("kind", [TakesOut, TakesOutAndAcks])
def test_what_a_bolt_takes_out_of_its_batch_is_acked_and_anchored_to_like_the_rest(kind: type[BatchingBolt]) -> None:
    """It was in the list that is acked, and that emits are anchored to: what failed later was lost without a word."""
    with BoltTester(kind, readers={"reader": 1}) as tester:
        tester.give(1, 2, 3)
        tester.tick()
        assert sorted(tester.acked) == [[1], [2], [3]]

    class Chain(Topology):
        lines = Lines.spec()
        takes = kind.spec(inputs=[lines])
        refuses = Refuses.spec(inputs=[takes])

    with TopologyTester(Chain, {"lines": [1, 2, 3]}, raise_errors=False, max_fails=0) as chain:
        chain.run()
        chain.advance(1.5)
        assert [2] in chain.failed("lines") and [2] not in chain.acked("lines")


def test_an_emit_after_a_tuple_was_settled_belongs_to_those_that_are_open() -> None:
    """It was refused, for an anchor that nobody had named, and the innocent failed with the batch."""

    class Sums(BatchingBolt):
        outputs = ["sum"]
        config = TICKS

        def process_batch(self, key: Any, tups: list[Tuple]) -> None:
            for tup in tups:
                if tup.values[0] < 0:
                    self.fail(tup, "negative")
            self.emit([sum(max(0, tup.values[0]) for tup in tups)])

    with BoltTester(Sums, raise_errors=False) as tester:
        tester.give(-1, 2, 3)
        tester.tick()
        assert (sorted(tester.acked), tester.failed, tester.emitted()) == ([[2], [3]], [[-1]], [[5]])
        tester.give(-1)
        tester.tick()
        assert tester.failed == [[-1], [-1]] and tester.emitted() == [[5]], "an emit for what is over is refused"


def test_a_batch_comes_every_nth_tick() -> None:
    """pystorm's came every n + 1 ticks."""

    class Third(Totals):
        ticks_between_batches = 3

    with BoltTester(Third, conf=TICKS) as tester:
        for ticks in range(1, 7):
            tester.give("a")
            tester.tick()
            assert len(tester.emitted()) == ticks // 3


def test_a_batch_that_raises_fails_alone() -> None:
    with BoltTester(Totals, conf=TICKS, raise_errors=False) as tester:
        tester.give("bad", "good", "bad")
        tester.tick()
        assert tester.failed == [["bad"], ["bad"]] and tester.acked == [["good"]] and tester.emitted() == [["good", 1]]
        (raised,) = tester.errors
    assert isinstance(raised.error, BatchFailed)
    assert "totals (task " in str(raised.error) and "ValueError" in str(raised.error)
    assert "2 tuple(s) of key 'bad': no such word. They have failed" in str(raised.error)


def _divided(count: int) -> float:
    return count / 0


class Divides(Totals):
    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        _divided(len(tups))


class ListsAreKeys(Totals):
    def group_key(self, tup: Tuple) -> Any:
        return [tup.values[0]]


def reported(cls: type[BatchingBolt]) -> list[str]:
    lines: list[str] = []
    complaints = Complaints(lambda level, text, *where: lines.append(text), ManualClock(), lambda text: None)
    with BoltTester(cls, conf=TICKS, raise_errors=False) as tester:
        tester.give("a", "b")
        tester.tick()
        assert len(tester.failed) == 2
        for raised in tester.errors:
            complaints.report("totals", 2, raised.error, None)
    complaints.flush()
    return lines


def test_the_error_of_a_batch_is_told_with_its_traceback_and_counted_by_its_own_name() -> None:
    first, counted = reported(Divides)
    assert "_divided(len(tups))" in first and "return count / 0" in first and "batching.py" not in first.split("\n")[1]
    assert counted == "totals raised ZeroDivisionError 1 more time(s)."


def test_a_key_that_cannot_be_one_names_the_method_that_returned_it() -> None:
    line = ListsAreKeys.group_key.__code__.co_firstlineno
    assert f"{__file__}:{line}" in reported(ListsAreKeys)[0]
    assert "/components/batching.py" not in reported(ListsAreKeys)[0]


def test_what_a_batch_raises_goes_along_with_the_tuples_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spout's dead letters have it as their reason."""
    told: list[Any] = []
    with BoltTester(Totals, conf=TICKS, raise_errors=False) as tester:
        monkeypatch.setitem(vars(tester.bolt), "_fail_told", lambda tup, error: told.append((tup.values, str(error))))
        tester.give("bad")
        tester.tick()
    assert told == [(["bad"], "no such word")]


def test_each_batch_that_fails_at_a_tick_is_told() -> None:
    class ByNumber(Totals):
        def process_batch(self, key: Any, tups: list[Tuple]) -> None:
            raise ValueError(key)

    with BoltTester(ByNumber, conf=TICKS, raise_errors=False) as tester:
        tester.give("a", "b", "c")
        tester.tick()
        assert [str(raised.error.__cause__) for raised in tester.errors] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("roots", "said"),
    [
        ([7, 8], "They have failed, and their spouts were told;"),
        ([0, 0], "They are not tracked, so no spout hears of them and nobody sends them again;"),
        ([0, 8], "They have failed; 1 of them are not tracked, so nobody sends those again;"),
    ],
)
def test_what_a_batch_that_raises_means_for_its_tuples_is_said(roots: list[int], said: str) -> None:
    rig = _raised_at_a_tick(Totals(), roots, said)
    assert rig.task.stats.given_up == roots.count(0)


def _raised_at_a_tick(made: Totals, roots: list[int], said: str) -> Rig:
    made.component_name, made.task_id = "totals", 1
    rig = Rig(made)
    rig.run(*((root, ["bad"]) for root in roots))
    rig.task.tick(1.0)
    ((error, _),) = rig.reported
    assert said in str(error)
    return rig


@pytest.mark.parametrize(
    ("roots", "said"),
    [
        ([7, 8], "auto_fail is off: they are open;"),
        ([0, 0], "They are not tracked, so no spout hears of them and nobody sends them again;"),
        ([0, 8], "auto_fail is off: they are open, but 1 of them are not tracked, so nobody sends those again;"),
    ],
)
def test_without_auto_fail_the_untracked_tuples_of_a_batch_that_raises_count_as_given_up(
    roots: list[int], said: str
) -> None:
    """Nobody would ever settle them: a run that lost them would end well."""

    class ByHand(Totals):
        auto_fail = False

    rig = _raised_at_a_tick(ByHand(), roots, said)
    assert (rig.task.stats.given_up, rig.fails) == (roots.count(0), [])


def test_a_batch_that_is_cancelled_fails_alone() -> None:
    """The batches after it had been taken from the bolt: they would be neither acked nor failed, nor processed."""

    class Cancelled(Totals):
        def process_batch(self, key: Any, tups: list[Tuple]) -> None:
            if key == "bad":
                raise asyncio.CancelledError
            self.emit([key, len(tups)])

    with BoltTester(Cancelled, conf=TICKS, raise_errors=False) as tester:
        tester.give("a", "bad", "b")
        tester.tick()
        (raised,) = tester.errors
        assert "raised CancelledError" in str(raised.error)
        assert tester.emitted() == [["a", 1], ["b", 1]] and tester.failed == [["bad"]]


def test_flags_of_the_class_mean_the_batch() -> None:
    class ByHand(Totals):
        auto_ack = auto_fail = False

    with BoltTester(ByHand, conf=TICKS, raise_errors=False) as tester:
        tester.give("bad", "good")
        tester.tick()
        assert tester.failed == tester.acked == []
        assert "auto_fail is off" in str(tester.errors[0].error)


def test_what_a_batch_emits_belongs_to_the_trees_of_all_its_tuples() -> None:
    class Sink(TicklessBatchingBolt):
        def process_batch(self, key: Any, tups: list[Tuple]) -> None:
            raise OSError("down")

    class Batches(Topology):
        words = Lines.spec(outputs=["word"])
        totals = Totals.spec(inputs=[words], config=TICKS)
        sink = Sink.spec(inputs=[totals])

    with TopologyTester(Batches, {"words": ["a", "a", "b"]}, raise_errors=False) as tester:
        tester.advance(3.1)  # a tick, and two seconds for the sink's
        assert sorted(tester.failed("words")) == [["a"], ["a"], ["b"]] and tester.acked("words") == []


def test_a_period_of_its_own_needs_no_setting() -> None:
    with BoltTester(Often) as tester:
        tester.give("a")
        tester.advance(0.6)
        assert tester.acked == [["a"]]


def test_a_batching_bolt_without_ticks_is_refused() -> None:
    def problems(config: dict[str, Any], **own: Any) -> list[str]:
        lines = Lines.spec()
        body = {"lines": lines, "totals": Totals.spec(inputs=[lines], config=own), "config": config}
        return [str(problem) for problem in validate(type("Made", (Topology,), body).__topology__)]

    (problem,) = problems({})
    assert "gets none" in problem and "TicklessBatchingBolt" in problem
    assert problems(TICKS) == problems({}, **TICKS) == []


def test_a_batching_bolt_defines_process_batch() -> None:
    lines = Lines.spec()
    body = {"lines": lines, "bolt": type("Bare", (TicklessBatchingBolt,), {}).spec(inputs=[lines])}
    found = [str(problem) for problem in validate(type("Made", (Topology,), body).__topology__, imported=False)]
    assert len(found) == 1 and "does not define process_batch" in found[0]


@pytest.mark.parametrize("anchored", [True, False])
def test_anchors_are_the_batch_unless_the_class_says_otherwise(anchored: bool) -> None:
    class Anchored(Totals):
        auto_anchor = anchored

    class Sink(Totals):
        def process_batch(self, key: Any, tups: list[Tuple]) -> None: ...

    class Batches(Topology):
        words = Lines.spec(outputs=["word"])
        totals = Anchored.spec(inputs=[words], config=TICKS)
        sink = Sink.spec(inputs=[totals], config={"topology.tick.tuple.freq.secs": 10})

    with TopologyTester(Batches, {"words": ["a"]}) as tester:
        tester.advance(1.5)
        assert tester.open_trees == int(anchored)


def test_a_batch_that_raises_at_first_and_always_ends_the_run_with_what_it_raised() -> None:
    """It was said to have failed its tuples by itself, and to have raised nothing."""

    class Broken(BatchingBolt):
        config = TICKS

        def process_batch(self, key: Any, tups: list[Tuple]) -> None:
            raise KeyError("a slip")

    rig = Rig(broken := Broken())
    vars(broken).update(component_name="bolt", task_id=1)
    rig.task.failures.allowed = 2
    rig.run((7, [1]), (8, [2]), (9, [3]))
    with pytest.raises(EveryTupleFailed, match=r"raised on each of its first 2 tuples, the last time KeyError.*a slip"):
        rig.task.tick(1.0)
