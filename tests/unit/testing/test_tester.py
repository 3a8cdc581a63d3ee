"""What both testers do: errors, time, the end."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pytest

from streamlet import (
    BadInput,
    BatchingBolt,
    Bolt,
    Grouping,
    Spout,
    StreamletError,
    Topology,
    Tuple,
)
from streamlet.model.validate import InvalidTopology
from streamlet.runtime.tasks.user_errors import ComponentFailed
from streamlet.testing import BoltTester, ManualClock, TopologyTester, tester
from tests.unit.testing.tested import Flaky, Orders, Split


def test_an_error_is_raised_after_the_rest_was_done() -> None:
    with BoltTester(Split) as split:
        with pytest.raises(ValueError, match="a bomb") as caught:
            split.give("a bomb", "fine")
        assert caught.value.__notes__ == ["raised by split (task 2) on the tuple ['a bomb']"]
        assert split.failed == [["a bomb"]] and split.acked == [["fine"]]
        split.give("again")  # what was raised once is not raised again
        assert [raised.values for raised in split.errors] == [["a bomb"]]


def test_errors_may_be_kept() -> None:
    with BoltTester(Split, raise_errors=False) as split:
        split.give("bomb", "bomb")
        assert [type(raised.error) for raised in split.errors] == [ValueError, ValueError]
        assert split.failed == [["bomb"], ["bomb"]]


def test_what_is_recorded_is_what_it_was_then() -> None:
    class Reuse(Bolt):
        outputs = ["list"]

        def process(self, tup: Tuple) -> None:
            row = [tup.values[0]]
            self.emit([row])
            row.append("later")
            tup.values[0] = "changed"

    with BoltTester(Reuse) as reuse:
        reuse.give("a")
        assert reuse.emitted() == [[["a"]]] and reuse.acked == [["a"]]


def test_an_emit_by_name_is_recorded() -> None:
    class Named(Bolt):
        outputs = ["n"]

        def process(self, tup: Tuple) -> None:
            self.emit(tup=tup.values)

    with BoltTester(Named) as named:
        named.give(1)
        assert named.emitted() == [[1]]


def test_an_emit_of_one_value_is_refused_as_in_a_run() -> None:
    class One(Bolt):
        outputs = ["n"]

        def process(self, tup: Tuple) -> None:
            self.emit(tup.values[0])

    class Ones(Spout):
        outputs = ["n"]

        def next_tuple(self) -> None:
            self.emit_many(["a"])  # not ["a"], though its letters are as many as the fields

    class Counting(Topology):
        ones = Ones.spec()

    with BoltTester(One) as one, pytest.raises(ValueError, match=r"emitted 5 on stream 'default', .*1 field"):
        one.give(5)
    with TopologyTester(Counting) as counting, pytest.raises(StreamletError, match="emitted 'a' on stream 'default'"):
        counting.run()


def test_emit_in_cleanup_is_refused_and_cleanup_runs_once() -> None:
    class Late(Bolt):
        outputs = ["n"]
        cleaned = 0

        def process(self, tup: Tuple) -> None: ...

        def cleanup(self) -> None:
            self.cleaned += 1
            self.emit([1])

    late = BoltTester(Late)
    with pytest.raises(ValueError, match="emitted while it was closed"):
        late.close()
    late.close()
    assert late.bolt.cleaned == 1 and late.emitted() == []


SELDOM = {"topology.tick.tuple.freq.secs": 20}


class Sums(BatchingBolt):
    outputs = ["sum"]
    config = SELDOM

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        self.emit([sum(tup.values[0] for tup in tups)])


class Keeps(Bolt):
    """Writes what it has been given at its ticks, and says when it is closed."""

    config = SELDOM

    def initialize(self, conf: Any, context: Any) -> None:
        self.kept: list[Any] = []
        self.written: list[Any] = []

    def process(self, tup: Tuple) -> None:
        self.kept.append(tup.values[0])

    def process_tick(self, tup: Tuple) -> None:
        if "bomb" in self.kept:
            raise ValueError("a bomb")
        self.written += [self.kept]

    def cleanup(self) -> None:
        self.written += ["cleaned up"]


class Summing(Topology):
    numbers = Orders.spec()
    sums = Sums.spec(inputs=[numbers])
    keeps = Keeps.spec(inputs=[sums])


def test_a_bolt_has_its_last_tick_before_its_tester_is_closed() -> None:
    with BoltTester(Sums) as sums:
        sums.give(1, 2, 3)
        assert sums.acked == []
    assert sums.emitted() == [[6]] and sums.acked == [[1], [2], [3]]


def test_the_last_ticks_of_a_topology_go_down_it() -> None:
    with TopologyTester(Summing, {"numbers": [1, 2]}) as summing:
        summing.run()
        (keeps,) = summing.instances("keeps")
    assert keeps.written == [[3], "cleaned up"] and summing.acked("numbers") == [[1], [2]]


def test_a_spout_emits_nothing_while_its_tester_is_closed() -> None:
    with TopologyTester(Summing, {"numbers": [1, 2]}) as summing:
        pass
    assert summing.log == [] and summing.acked("numbers") == []


def test_what_the_last_tick_raised_is_raised_after_the_cleanup() -> None:
    keeps = BoltTester(Keeps)
    keeps.give("bomb")
    with pytest.raises(ValueError, match="a bomb") as caught:
        keeps.close()
    assert caught.value.__notes__ == ["raised by keeps (task 2) in process_tick"]
    assert keeps.bolt.written == ["cleaned up"]
    keeps.close()


def test_a_last_tick_that_ends_the_run_is_raised_after_every_cleanup() -> None:
    class Ends(Keeps):
        exit_on_exception = True

    ends = BoltTester(Ends)
    ends.give("bomb")
    with pytest.raises(ComponentFailed, match=r"ends raised ValueError .* exit_on_exception"):
        ends.close()
    assert ends.bolt.written == ["cleaned up"]


def test_a_tester_that_an_error_has_ended_takes_nothing_more_and_says_so() -> None:
    """As in a run, the bolt is not called any more: what is given would be lost without a word."""
    calls: list[Any] = []

    class Fails(Bolt):
        exit_on_exception = True

        def process(self, tup: Tuple) -> None:
            calls.append(tup.values[0])
            if tup.values[0] == "bad":
                raise ValueError("down")

    with BoltTester(Fails) as fails:
        with pytest.raises(ComponentFailed, match="exit_on_exception"):
            fails.give("a", "bad", "b")
        for call in (lambda: fails.give("c"), fails.run, lambda: fails.advance(1), fails.tick, fails.wait):
            with pytest.raises(StreamletError, match="has ended this one"):
                call()
        assert fails.acked == [["a"]] and fails.failed == [["bad"]]
    assert calls == ["a", "bad"]


def test_a_run_that_has_failed_is_closed_without_a_last_tick_and_without_cleanup() -> None:
    """As a run whose worker ends: what its bolts keep is not whole, and a test must not see it written."""

    class Ends(Keeps):
        exit_on_exception = True

        def process(self, tup: Tuple) -> None:
            raise ValueError("not me")

    with BoltTester(Ends) as ends, pytest.raises(StreamletError, match="not me"):
        ends.give(1)
    assert not ends.bolt.written


def test_a_test_that_failed_is_not_hidden_by_its_cleanup() -> None:
    class Worse(Split):
        def cleanup(self) -> None:
            raise OSError

    with pytest.raises(AssertionError), BoltTester(Worse):
        raise AssertionError


def test_what_initialize_raises_is_told_as_in_a_run() -> None:
    class Broken(Split):
        def initialize(self, conf: Any, context: Any) -> None:
            raise KeyError("path")

    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StreamletError, match=r"broken \(task 2\) raised KeyError in initialize"):
        BoltTester(Broken)
    assert len(os.listdir("/proc/self/fd")) == open_before
    with pytest.raises(InvalidTopology, match="process"):
        BoltTester(type("Empty", (Bolt,), {}))


def test_a_tester_that_is_closed_says_so() -> None:
    split = BoltTester(Split)
    split.give("a")
    split.close()
    for act in (split.run, split.tick, lambda: split.give("b"), lambda: split.advance(1)):
        with pytest.raises(StreamletError, match="This tester is closed"):
            act()
    assert split.emitted() == [["a"]]  # what was recorded stays


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "x", None])
def test_a_time_that_a_clock_cannot_go_is_refused(seconds: Any) -> None:
    with BoltTester(Split) as split, pytest.raises((BadInput, ValueError), match="seconds"):
        split.advance(seconds)


class Clocked(Spout):
    outputs = ["n"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.clock, self.heard = context.clock, []

    def next_tuple(self) -> None:
        if len(self.heard) < int(self.clock.monotonic()):
            self.heard.append(len(self.heard))
            self.emit([len(self.heard)], tup_id=len(self.heard))


class Clocking(Topology):
    clocked = Clocked.spec()
    split = Flaky.spec(inputs=[clocked])


def test_a_spout_of_ones_own_runs_by_the_clock() -> None:
    clock = ManualClock()
    with TopologyTester(Clocking, clock=clock) as clocking:
        clocking.advance(3)
        assert clocking.emitted("clocked") == [[1], [2], [3]] and clocking.acked("clocked") == [1, 2, 3]
        clock.advance(1)
        clocking.run()
        assert clocking.acked("clocked")[-1] == 4


class Endless(Spout):
    outputs = ["n"]

    def next_tuple(self) -> None:
        self.emit([1])


def test_a_spout_without_an_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tester, "MOST_TUPLES", 20_000)

    class Never(Topology):
        endless = Endless.spec()

    with TopologyTester(Never) as never, pytest.raises(StreamletError, match=r"busy after 20,000 .* by endless"):
        never.run()


class Long(Spout):
    """Ends, after more turns than may pass with nothing done."""

    outputs = ["n"]
    left = 30_000

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([self.left])


def test_a_long_run_that_comes_to_an_end_is_none_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tester, "MOST_TURNS", 5)

    class Ends(Topology):
        long = Long.spec()

    with TopologyTester(Ends) as ends:
        ends.run()
        assert len(ends.emitted("long")) == 30_000


class Round(Bolt):
    outputs = ["n"]

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values)


def test_a_loop_of_bolts_without_a_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one turn: its bolts have always more to do, and the clock stands."""
    monkeypatch.setattr(tester, "MOST_TUPLES", 5_000)

    class Turning(Topology):
        once = OnDemand.spec()
        there = Round.spec(inputs={"once": Grouping.SHUFFLE, "back": Grouping.SHUFFLE})
        back = Round.spec(inputs=[there])

    with (
        TopologyTester(Turning, {"once": [7]}) as turning,
        pytest.raises(StreamletError, match=r"busy after 5,000 .*(there|back).* way out"),
    ):
        turning.run()


def test_a_loop_that_never_rests_though_nothing_is_done_is_told() -> None:
    class Calls(Bolt):
        def process(self, tup: Tuple) -> None: ...

    with BoltTester(Calls) as calls:
        loop = calls._loop
        turn = loop.turn

        def busy(sleep_s: float = 0.0) -> float:
            turn(sleep_s)
            loop.at_rest = len(calls.acked) > 1
            return 0.0

        loop.turn = busy  # type: ignore[method-assign]
        with pytest.raises(StreamletError, match=r"2,000 turns in which nothing was done"):
            calls.give(1)
        loop.turn = turn  # type: ignore[method-assign]


def test_a_list_may_be_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tester, "MOST_TURNS", 5)
    with TopologyTester(Clocking, {"clocked": range(3000)}) as many:
        many.run()
        assert len(many.acked("clocked")) == 3000


def test_a_spout_that_raises_stops_the_run() -> None:
    class Raises(Spout):
        outputs = ["n"]

        def next_tuple(self) -> None:
            raise RuntimeError("gone")

    class Raising(Topology):
        raises = Raises.spec()

    with TopologyTester(Raising) as raising, pytest.raises(StreamletError, match=r"spout raises .* RuntimeError"):
        raising.run()


class OnDemand(Spout):
    outputs = ["number"]
    wanted: ClassVar[list[int]] = []

    def next_tuple(self) -> None:
        if self.wanted:
            self.emit([self.wanted[0]], tup_id=self.wanted.pop(0))


class Beats(Bolt):
    outputs = ["beat"]

    def process(self, tup: Tuple) -> None: ...

    def process_tick(self, tup: Tuple) -> None:
        self.emit([1])


class Demands(Bolt):
    """Has work for a spout, and has the loop ask it."""

    def process(self, tup: Tuple) -> None:
        OnDemand.wanted.append(1)
        self.context.wake()


def test_a_component_that_wakes_the_loop_has_something_left_to_do() -> None:
    """The spouts of this turn have been asked already: without a further turn nobody would look."""

    class Waking(Topology):
        numbers = OnDemand.spec()
        beats = Beats.spec(inputs=[numbers], config={"topology.tick.tuple.freq.secs": 1})
        demands = Demands.spec(inputs=[beats])

    with TopologyTester(Waking) as tester:
        tester.advance(1.0)
        assert tester.acked("numbers") == [1]


def test_emit_each_in_close_is_refused() -> None:
    """It would open trees that nobody sends."""

    class Late(OnDemand):
        def close(self) -> None:
            self.emit_each([[1]], [1])

    class Closing(Topology):
        late = Late.spec()

    tester = TopologyTester(Closing)
    with pytest.raises(ValueError, match="emitted while it was closed"):
        tester.close()
