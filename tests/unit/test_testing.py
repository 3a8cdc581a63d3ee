"""The testing kit: what a user's test of a bolt or topology sees, on a clock moved by hand."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streamlet import (
    BadEmit,
    BadInput,
    BatchingBolt,
    Bolt,
    Grouping,
    ReliableSpout,
    Spout,
    Stream,
    StreamletError,
    Topology,
    Tuple,
    ValueCannotTravel,
    testing,
)
from streamlet.base.errors import WrongArgument
from streamlet.model.validate import InvalidTopology
from streamlet.testing import BoltTester, Emitted, ManualClock, TopologyTester


class Split(Bolt):
    outputs = [Stream(["word"]), Stream(["line", "why"], name="bad")]

    def process(self, tup: Tuple) -> None:
        if not tup.values[0]:
            self.emit([tup.values[0], "empty"], stream="bad")
        for word in tup.values[0].split():
            if word == "bomb":
                raise ValueError("a bomb")
            self.emit([word])


def test_what_a_bolt_emits_and_acks_is_recorded() -> None:
    with BoltTester(Split) as split:
        split.give("to be", [""], Tuple(["or"]))
        assert split.emitted() == [["to"], ["be"], ["or"]] and split.emitted("bad") == [["", "empty"]]
        assert split.acked == [["to be"], [""], ["or"]] and split.failed == []
        assert [made.stream for made in split.log] == ["default", "default", "bad", "default"]
        assert split.log[0] == Emitted("split", 2, "default", ["to"])
        assert split.bolt.task_id == 2 and isinstance(split.bolt, Split)


def test_an_error_is_raised_after_the_rest_was_done() -> None:
    with BoltTester(Split) as split:
        with pytest.raises(ValueError, match="a bomb") as caught:
            split.give("a bomb", "fine")
        assert caught.value.__notes__ == ["raised by split (task 2) on the tuple ['a bomb']"]
        assert split.failed == [["a bomb"]] and split.acked == [["fine"]]
        split.give("again")  # what was raised once is not raised again
        assert [raised.values for raised in split.errors] == [["a bomb"]]


class Bill(Bolt):
    def process(self, tup: Tuple) -> None:
        if not tup.values[0]:
            self.dead_letter(tup, "no customer")


def test_what_a_bolt_sends_to_the_dead_letters_is_kept_with_its_reason() -> None:
    with BoltTester(Bill) as bill:
        bill.give("Ann", "")
        assert bill.dead_letters == [([""], "no customer")]
        assert (bill.failed, bill.acked, bill.errors) == ([[""]], [["Ann"]], [])


class Orders(ReliableSpout):
    outputs = ["customer"]

    def next_tuple(self) -> None: ...


class OrdersWithLetters(Orders):
    @classmethod
    def takes_dead_letters(cls, kwargs: Any) -> bool:
        return True


def test_a_list_keeps_dead_letters_where_its_spout_does() -> None:
    class Billing(Topology):
        orders = OrdersWithLetters.spec()
        bill = Bill.spec(inputs=[orders])

    with TopologyTester(Billing, {"orders": ["Ann", ""]}) as billing:
        billing.run()
        assert billing.dead_letters("orders") == [([""], "no customer")]
        assert billing.given_up("orders") == [[""]] and billing.acked("orders") == [["Ann"]]
        billing.advance(60)
        assert len(billing.emitted("orders")) == 2  # it is not sent again


def test_a_list_refuses_a_dead_letter_where_its_spout_would() -> None:
    class Billing(Topology):
        orders = Orders.spec()
        bill = Bill.spec(inputs=[orders])

    with TopologyTester(Billing, {"orders": [""]}) as billing:
        with pytest.raises(BadEmit, match="the spout orders, which keeps no dead letters"):
            billing.run()
        assert billing.dead_letters("orders") == []


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


class Hold(Bolt):
    outputs = ["many"]
    auto_ack = False

    def initialize(self, conf: Any, context: Any) -> None:
        self.held: list[Tuple] = []
        self.clock = context.clock

    def process(self, tup: Tuple) -> None:
        self.held.append(tup)
        if tup.values[0] == "no":
            self.fail(tup)

    def process_tick(self, tup: Tuple) -> None:
        assert self.is_tick(tup)
        self.emit([[self.clock.monotonic(), len(self.held)]], anchors=self.held[:1])
        for one in self.held:
            self.ack(one)
        self.held = []


def test_ticks_follow_the_clock() -> None:
    with BoltTester(Hold, conf={"topology.tick.tuple.freq.secs": 2}) as hold:
        hold.give("a", "b", "no")
        assert hold.acked == [] and hold.failed == [["no"]]
        hold.advance(1.9)
        assert hold.emitted() == []
        hold.advance(4.2)
        assert [many[0][0] for many in hold.emitted()] == pytest.approx([2, 4, 6])
        assert hold.acked == [["a"], ["b"]] and hold.clock.monotonic() == pytest.approx(6.1)


def test_a_tick_comes_at_once_and_its_error_is_raised() -> None:
    class Boom(Hold):
        def process_tick(self, tup: Tuple) -> None:
            raise OSError("disk full")

    with BoltTester(Hold) as hold:
        hold.give("a")
        hold.tick()
        assert hold.acked == [["a"]]
    with BoltTester(Boom) as boom, pytest.raises(OSError, match="disk full") as caught:
        boom.tick()
    assert caught.value.__notes__ == ["raised by boom (task 2) in process_tick"]


def test_auto_anchor_may_be_chosen_in_initialize() -> None:
    class Loose(Split):
        def initialize(self, conf: Any, context: Any) -> None:
            self.auto_anchor = False

    with BoltTester(Loose) as loose:
        loose.give("a b")
        assert loose.emitted() == [["a"], ["b"]] and loose.acked == [["a b"]]


class Route(Bolt):
    outputs = [Stream(["order"], name="to", direct=True)]

    def initialize(self, conf: Any, context: Any) -> None:
        self.tasks = context.component_tasks("store")

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values, stream="to", direct_task=self.tasks[tup.values[0] % len(self.tasks)])


def test_direct_emits_reach_the_named_task_and_wrong_sources_are_refused() -> None:
    with BoltTester(Route, readers={"store": 2}, sources=("left", "right")) as route:
        route.give(1, 2, source="right")
        assert route.emitted("to") == [[1], [2]]
        first, second = route.bolt.tasks
        assert [made.direct_task for made in route.log] == [second, first]
        with pytest.raises(BadInput, match=r"no source 'up'. There are: 'left', 'right'"):
            route.give(3, source="up")
    with BoltTester(Route, readers={"store": 1}) as route:
        route.bolt.tasks = [99]
        with pytest.raises(ValueError, match="direct_task=99"):
            route.give(1)
        assert route.log == [] and route.failed == [[1]]


def test_task_ids_that_were_asked_for_are_returned() -> None:
    class Ask(Bolt):
        outputs = ["n"]

        def process(self, tup: Tuple) -> None:
            self.got = self.emit(tup.values, need_task_ids=True)

    with BoltTester(Ask, task_index=1, task_count=3) as ask:
        ask.give(1)
        assert ask.bolt.got == [5] and ask.bolt.context.task_index == 1


def test_what_cannot_travel_is_refused_on_both_sides() -> None:
    class Emits(Bolt):
        outputs = ["value"]

        def process(self, tup: Tuple) -> None:
            self.emit([object()])

    with BoltTester(Emits) as emits:
        with pytest.raises(ValueCannotTravel, match="emits emitted a tuple"):
            emits.give(1)
        with pytest.raises(ValueCannotTravel, match="source emitted a tuple"):
            emits.give(object())
        assert emits.emitted() == []


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


EACH_MINUTE = {"topology.tick.tuple.freq.secs": 60}


class Sums(BatchingBolt):
    outputs = ["sum"]
    config = EACH_MINUTE

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        self.emit([sum(tup.values[0] for tup in tups)])


class Keeps(Bolt):
    """Writes what it has been given at its ticks, and says when it is closed."""

    config = EACH_MINUTE

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


def test_a_run_that_has_failed_is_closed_without_a_last_tick() -> None:
    """As a run whose worker ends: what its bolts keep is not whole."""

    class Ends(Keeps):
        exit_on_exception = True

        def process(self, tup: Tuple) -> None:
            raise ValueError("not me")

    with BoltTester(Ends) as ends, pytest.raises(StreamletError, match="not me"):
        ends.give(1)
    assert "cleaned up" in ends.bolt.written and [] not in ends.bolt.written


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


def test_a_line_of_a_topology_brings_its_config() -> None:
    class Lines(Spout):
        outputs = ["line"]

        def next_tuple(self) -> None: ...

    class Holding(Topology):
        lines = Lines.spec()
        keeper = Hold.spec(inputs=[lines], config={"topology.tick.tuple.freq.secs": 1})

    with BoltTester(Holding.keeper) as keeper:
        keeper.give("a")
        keeper.advance(1)
        assert keeper.acked == [["a"]]


def test_a_bolts_metrics_are_kept_by_name() -> None:
    class Metered(Bolt):
        def process(self, tup: Tuple) -> None:
            self.report_metric("size", len(tup.values[0]))

    with BoltTester(Metered) as metered:
        metered.give("four")
        assert metered.metrics == {"size": 4.0}


@pytest.mark.parametrize(
    ("bolt", "text"),
    [
        (Split(), r"is an object.* makes its own.*BoltTester\(Split\)"),
        ("Split", "'Split' is neither a class"),
        ([Split], "is neither a class"),
        (int, "is neither a class"),
        (Bolt, "define process"),
    ],
)
def test_a_value_that_is_not_a_bolts_class_is_refused(bolt: Any, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        BoltTester(bolt)


def test_a_spout_is_sent_to_the_other_tester() -> None:
    for spout in (Lines, Lines.spec()):
        with pytest.raises(WrongArgument, match=r"Lines is a spout.*TopologyTester"):
            BoltTester(spout)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sources": "source"}, r"sources= is 'source'.*\(\"source\",\)"),
        ({"sources": ()}, r"sources= is \(\)"),
        ({"sources": ("a", 3)}, "sources= holds 3"),
        ({"sources": ("a", "a")}, r"sources= is \('a', 'a'\): name each component once"),
        ({"sources": ("split",)}, "split: 2 components have this name"),
        ({"sources": {"a": "ab"}}, "sources= says 'ab' of 'a'"),
        ({"readers": "store"}, "readers= is 'store'"),
        ({"readers": {"store": 0}}, "store.* par is 0"),
        ({"conf": 3}, "conf= is 3"),
        ({"task_index": 3}, "task_index= is 3.*task_count= is 1"),
        ({"task_index": -1}, "task_index= is -1"),
        ({"task_count": 0}, "task_count= is 0"),
        ({"clock": 5}, "clock= is 5.*ManualClock"),
    ],
)
def test_an_option_that_a_tester_cannot_have_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        BoltTester(Split, **options)


def test_a_stream_that_the_bolt_does_not_declare_is_refused() -> None:
    with BoltTester(Split) as split:
        with pytest.raises(BadInput, match=r"split declares no stream 'nosuch'\. It declares: 'default', 'bad'"):
            split.emitted("nosuch")
        with pytest.raises(BadInput, match=r"split declares no stream 3"):
            split.emitted(3)  # type: ignore[arg-type]
    with BoltTester(Hold, sources=["up"]) as hold, pytest.raises(BadInput, match="no stream 'hold'"):
        hold.emitted("hold")

    class Silent(Bolt):
        def process(self, tup: Tuple) -> None: ...

    with BoltTester(Silent) as silent:
        assert silent.emitted() == []  # that it emits nothing is what a test may say


def test_a_tuple_keeps_its_stream_and_source() -> None:
    class Places(Bolt):
        outputs = ["component", "stream"]

        def process(self, tup: Tuple) -> None:
            self.emit([tup.component, tup.stream])

    with BoltTester(Places, sources=("left", "right")) as places:
        places.give("a", Tuple(["b"], stream="late"), Tuple(["c"], "right"), "d")
        assert places.emitted() == [["left", "default"], ["left", "late"], ["right", "default"], ["left", "default"]]
        places.give(Tuple(["e"], "left"), source="right", stream="named")
        assert places.emitted()[-1] == ["right", "named"]
        with pytest.raises(BadInput, match="no source 'up'"):
            places.give("kept back", Tuple(["f"], "up"))
        assert len(places.emitted()) == 5


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


# -- topologies ----------------------------------------------------------------------------------------------


class Lines(ReliableSpout):
    """Stands for a spout that needs something outside: a test never builds it."""

    outputs = [Stream(["line"]), Stream(["note"], name="notes")]

    def __init__(self) -> None:
        raise AssertionError("built, though a list was given")

    def next_tuple(self) -> None: ...


class Count(Bolt):
    outputs = ["word", "count"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.counts: dict[str, int] = {}
        self.file = Path(conf["out"])

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, self.counts[word]])
        self.report_metric("words", len(self.counts))

    def cleanup(self) -> None:
        self.file.write_text(str(self.counts))


class Words(Topology):
    config = {"out": "/nowhere"}
    lines = Lines.spec()
    split = Split.spec(inputs=[lines], par=2)
    count = Count.spec(inputs={split: Grouping.fields("word")})


def test_a_topology_runs_on_a_list_in_place_of_its_spout(tmp_path: Path) -> None:
    out = tmp_path / "counts"
    with TopologyTester(Words, {"lines": ["to be", "or not to be"]}, settings={"out": str(out)}) as words:
        assert words.emitted("lines") == []  # nothing flows before it is run
        words.run()
        assert words.acked("lines") == [["to be"], ["or not to be"]] and words.open_trees == 0
        assert sorted(words.emitted("split")) == sorted([[word] for word in ["to", "be", "or", "not", "to", "be"]])
        assert ["to", 2] in words.emitted("count")
        assert words.instances("count")[0].counts == {"to": 2, "be": 2, "or": 1, "not": 1}
        assert words.status("count").executed == 6 and words.status("count").metrics == {"words": 4.0}
        words.give("lines", "to", stream="default")
        assert words.instances("count")[0].counts["to"] == 3
    assert "'to': 3" in out.read_text()


def test_a_given_spout_emits_on_its_other_stream() -> None:
    class Notes(Topology):
        lines = Lines.spec()
        hold = Hold.spec(inputs=[lines["notes"]])

    with TopologyTester(Notes, {"lines": []}) as notes:
        notes.give("lines", "look", stream="notes")
        assert notes.emitted("lines", "notes") == [["look"]] and notes.open_trees == 1


class Flaky(Bolt):
    def process(self, tup: Tuple) -> None:
        tries = vars(self).setdefault("tries", {})
        tries[tup.values[0]] = tries.get(tup.values[0], 0) + 1
        if tries[tup.values[0]] <= {"once": 1, "never": 99}.get(tup.values[0], 0):
            raise ConnectionError(tup.values[0])


class Flaking(Topology):
    lines = Lines.spec()
    flaky = Flaky.spec(inputs=[lines])


def test_a_replay_comes_when_the_clock_has_moved() -> None:
    with TopologyTester(Flaking, {"lines": ["once", "fine"]}, raise_errors=False) as flaking:
        flaking.run()
        assert flaking.failed("lines") == [["once"]] and flaking.acked("lines") == [["fine"]]
        flaking.advance(0.09)
        assert len(flaking.emitted("lines")) == 2  # its back-off is 0.1 s
        flaking.advance(0.05)
        assert flaking.acked("lines") == [["fine"], ["once"]] and len(flaking.emitted("lines")) == 3


def test_a_row_is_given_up_after_its_replays() -> None:
    with TopologyTester(Flaking, {"lines": ["never"]}, raise_errors=False, max_fails=2) as flaking:
        flaking.advance(10)
        assert flaking.failed("lines") == [["never"]] * 3 and flaking.given_up("lines") == [["never"]]
        assert flaking.status("lines").given_up == 1 and flaking.open_trees == 0
        assert len(flaking.errors) == 3


def test_an_error_in_a_topology_is_raised() -> None:
    with TopologyTester(Flaking, {"lines": ["once"]}) as flaking:
        with pytest.raises(ConnectionError, match="once"):
            flaking.run()
        flaking.advance(1)
        assert flaking.acked("lines") == [["once"]]


class Swallowing(Topology):
    lines = Lines.spec()
    hold = Hold.spec(inputs=[lines])


def test_a_swallowed_tuple_times_out_on_the_testers_clock() -> None:
    settings = {"topology.message.timeout.secs": 10}
    with TopologyTester(Swallowing, {"lines": ["a"]}, settings=settings, max_fails=0) as swallowing:
        swallowing.advance(9)
        assert swallowing.open_trees == 1 and swallowing.failed("lines") == []
        swallowing.advance(6)
        assert swallowing.failed("lines") == swallowing.given_up("lines") == [["a"]]


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


def test_one_seed_gives_one_run() -> None:
    def run(seed: int) -> list[Emitted]:
        with TopologyTester(Words, {"lines": ["a b c"] * 5}, seed=seed, settings={"out": os.devnull}) as words:
            words.run()
            return words.log

    assert run(7) == run(7)


class Endless(Spout):
    outputs = ["n"]

    def next_tuple(self) -> None:
        self.emit([1])


def test_a_spout_without_an_end_is_told() -> None:
    class Never(Topology):
        endless = Endless.spec()

    with TopologyTester(Never) as never, pytest.raises(StreamletError, match="still busy after 2,000 turns"):
        never.run()


def test_a_list_may_be_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "MOST_TURNS", 5)
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


def test_names_that_are_not_there_are_refused_with_those_that_are() -> None:
    with pytest.raises(BadInput, match=r"Words has no spout 'line'\. It has: lines"):
        TopologyTester(Words, {"line": []})
    with TopologyTester(Words, {"lines": []}, settings={"out": os.devnull}) as words:
        with pytest.raises(BadInput, match="Words has no component 'splitt'"):
            words.emitted("splitt")
        with pytest.raises(BadInput, match="count is a bolt"):
            words.acked("count")
        with pytest.raises(ValueError, match="cannot go back"):
            words.advance(-1)
        with pytest.raises(BadInput, match="was not given as a list"):
            words.give("other", 1)
        with pytest.raises(BadInput, match="split declares no stream 'nosuch'"):
            words.emitted("split", "nosuch")
        with pytest.raises(BadInput, match="lines declares no stream 'nosuch'"):
            words.give("lines", 1, stream="nosuch")


def test_a_tuple_keeps_its_stream_in_a_topology() -> None:
    rows = [Tuple(["a"], stream="notes"), "b"]
    with TopologyTester(Words, {"lines": rows}, settings={"out": os.devnull}) as words:
        words.give("lines", Tuple(["c"], stream="notes"))
        assert words.emitted("lines", "notes") == [["a"], ["c"]] and words.emitted("lines") == [["b"]]


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (("Words",), {}, "TopologyTester takes a class that inherits"),
        ((Words(),), {}, "TopologyTester takes a class that inherits"),
        ((Words, {"lines": "abc"}), {}, "rows of 'lines' are 'abc'"),
        ((Words, {"lines": 3}), {}, "rows of 'lines' are 3"),
        ((Words, {"lines": [Tuple([1], stream="nosuch")]}), {}, "lines declares no stream 'nosuch'"),
        ((Words, ["lines"]), {}, r"given= is \['lines'\]"),
        ((Words,), {"settings": 3}, "settings= is 3"),
        ((Words,), {"clock": 3}, "clock= is 3"),
    ],
)
def test_what_a_topology_tester_cannot_take_is_refused(arguments: Any, options: Any, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        TopologyTester(*arguments, **options)


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


# -- rows by the fields of what a bolt reads ----------------------------------------------------------------------


class Named(ReliableSpout):
    outputs = [Stream(["user", "amount"]), Stream(["user"], name="gone")]

    def next_tuple(self) -> None: ...


class Greet(Bolt):
    outputs = ["text"]

    def process(self, tup: Tuple) -> None:
        self.emit([f"{tup.component}.{tup.stream}: {tup.values.user}"])  # type: ignore[attr-defined]


class Greeting(Topology):
    people = Named.spec()
    greet = Greet.spec(inputs=[people, people["gone"]])
    bye = Greet.spec(inputs=[people["gone"]])


def test_a_line_of_a_topology_brings_the_fields_of_its_inputs() -> None:
    with BoltTester(Greeting.greet) as greet:
        greet.give(["ann", 3], Tuple(["bob"], stream="gone"))
        assert greet.emitted() == [["people.default: ann"], ["people.gone: bob"]]
        assert greet.log[0].component == "greet"
        with pytest.raises(BadInput, match=r"greet reads no stream 'nosuch' of 'people'.*'default', 'gone'"):
            greet.give("ann", stream="nosuch")
    with BoltTester(Greeting.bye) as bye:
        bye.give("ann")  # the only stream that it reads
        assert bye.emitted() == [["people.gone: ann"]]
    with BoltTester(Greeting.greet, sources={"others": ["user"]}) as greet:
        greet.give("ann")
        assert greet.emitted() == [["others.default: ann"]]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (["ann"], r"The row \['ann'\] has 1 value, and 'people' emits 2 on its stream 'default': user, amount"),
        ("ann", r"The row 'ann' is 1 value"),
        (["ann", 3, 0], r"has 3 values"),
        (Tuple(["ann"]), r"has 1 value"),
        ({"user": "ann", "amount": 3}, r"The row \{.*\} is a dict, which is 1 value.*\[row\['user'\], row\['amount'\]"),
    ],
)
def test_a_row_that_does_not_fit_the_fields_is_refused(row: Any, text: str) -> None:
    with BoltTester(Greeting.greet) as greet:
        with pytest.raises(BadInput, match=text):
            greet.give(["ann", 3], row)
        assert greet.emitted() == []
    with TopologyTester(Greeting, {"people": []}) as greeting:
        with pytest.raises(BadInput, match=text):
            greeting.give("people", row)
        assert greeting.emitted("people") == []
    with pytest.raises(BadInput, match=text):
        TopologyTester(Greeting, {"people": [row]})


def test_a_bolt_that_reads_names_that_the_tester_does_not_know_is_told_the_remedy() -> None:
    with BoltTester(Greet, sources=["people"]) as greet:
        with pytest.raises(AttributeError) as caught:
            greet.give(["ann", 3])
        (_, remedy) = caught.value.__notes__
        assert "does not know the fields of 'people'" in remedy
        assert 'sources={"people": ["user", ...]}' in remedy


# -- bolts with threads -------------------------------------------------------------------------------------------


class Pooled(Bolt):
    outputs = ["word"]
    auto_ack = False
    takes_s = 0.02

    def initialize(self, conf: Any, context: Any) -> None:
        self.pool = ThreadPoolExecutor(4)

    def process(self, tup: Tuple) -> None:
        self.pool.submit(self.work, tup)

    def work(self, tup: Tuple) -> None:
        time.sleep(self.takes_s)
        if tup.values[0] != "never":
            self.emit([tup.values[0].upper()], anchors=[tup])
            self.ack(tup)

    def cleanup(self) -> None:
        self.pool.shutdown()


class Pooling(Topology):
    orders = Orders.spec()
    pooled = Pooled.spec(inputs=[orders])


def test_a_tester_waits_for_a_bolts_threads() -> None:
    with BoltTester(Pooled) as pooled:
        pooled.give("a", "b", "c")
        pooled.wait()
        assert sorted(pooled.acked) == [["a"], ["b"], ["c"]] and sorted(pooled.emitted()) == [["A"], ["B"], ["C"]]
    with TopologyTester(Pooling, {"orders": ["a", "b"]}) as pooling:
        pooling.wait()
        assert sorted(pooling.acked("orders")) == [["a"], ["b"]]


def test_a_wait_in_vain_names_what_is_open() -> None:
    with BoltTester(Pooled) as pooled:
        pooled.give("never")
        with pytest.raises(StreamletError, match=r"1 tuple is still open after 0.1 s.* threads: \['never'\]"):
            pooled.wait(0.1)
    with TopologyTester(Pooling, {"orders": ["never"]}) as pooling:
        with pytest.raises(StreamletError, match=r"1 message of a spout is still open after 0.1 s"):
            pooling.wait(0.1)
        with pytest.raises(BadInput, match="a number of seconds"):
            pooling.wait("long")  # type: ignore[arg-type]


def test_a_line_that_reads_its_own_stream_is_tested_by_its_other_inputs() -> None:
    class Numbers(Spout):
        outputs: ClassVar[Any] = ["n"]

    class Down(Bolt):
        outputs: ClassVar[Any] = ["n"]

        def process(self, tup: Tuple) -> None:
            if tup.values[0] > 0:
                self.emit([tup.values[0] - 1])

    class Loop(Topology):
        numbers = Numbers.spec()
        down = Down.spec(inputs=[numbers, "down"])

    with BoltTester(Loop.down) as down:
        down.give([2])
        assert down.emitted()[0] == [1]
