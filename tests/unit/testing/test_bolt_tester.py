"""A bolt in a test: tuples in, what it did with them out."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from streamlet import (
    BadInput,
    Bolt,
    Spout,
    Stream,
    Topology,
    Tuple,
    ValueCannotTravel,
)
from streamlet.base.errors import WrongArgument
from streamlet.testing import BoltTester, Emitted
from tests.unit.testing.tested import Bill, Greet, Greeting, Hold, Lines, Split


def test_what_a_bolt_emits_and_acks_is_recorded() -> None:
    with BoltTester(Split) as split:
        split.give("to be", [""], Tuple(["or"]))
        assert split.emitted() == [["to"], ["be"], ["or"]] and split.emitted("bad") == [["", "empty"]]
        assert split.acked == [["to be"], [""], ["or"]] and split.failed == []
        assert [made.stream for made in split.log] == ["default", "default", "bad", "default"]
        assert split.log[0] == Emitted("split", 2, "default", ["to"])
        assert split.bolt.task_id == 2 and isinstance(split.bolt, Split)


def test_what_a_bolt_sends_to_the_dead_letters_is_kept_with_its_reason() -> None:
    with BoltTester(Bill) as bill:
        bill.give("Ann", "")
        assert bill.dead_letters == [([""], "no customer")]
        assert (bill.failed, bill.acked, bill.errors) == ([[""]], [["Ann"]], [])


class Refuses(Bolt):
    """Fails what it is given, as that says."""

    def process(self, tup: Tuple) -> None:
        how = tup.values[0]
        if how == "raises":
            raise ValueError("why")
        if how == "letter":
            self.dead_letter(tup, "of no use")
        elif how != "fine":
            self.fail(tup, {"error": ValueError("why"), "text": "because"}.get(how))


def test_the_reason_of_each_failure_is_kept() -> None:
    with BoltTester(Refuses, raise_errors=False) as refuses:
        refuses.give("error", "fine", "text", "nothing", "raises", "letter")
        assert refuses.failed == [["error"], ["text"], ["nothing"], ["raises"], ["letter"]]
        assert refuses.fail_reasons == ["ValueError: why", "because", "", "ValueError: why", "of no use"]
        assert refuses.dead_letters == [(["letter"], "of no use")]


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


def test_a_bolt_that_reads_names_that_the_tester_does_not_know_is_told_the_remedy() -> None:
    with BoltTester(Greet, sources=["people"]) as greet:
        with pytest.raises(AttributeError) as caught:
            greet.give(["ann", 3])
        (_, remedy) = caught.value.__notes__
        assert "does not know the fields of 'people'" in remedy
        assert 'sources={"people": ["user", ...]}' in remedy


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
