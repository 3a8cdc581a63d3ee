"""Stages of a topology on DataFrames, and every reason against it at once."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Bolt, Grouping, ReliableSpout, Stream, StreamId, Topology, Tuple
from streamlet.bolts.kafka import KafkaBolt
from streamlet.model.dataframe_plan import (
    FREE,
    KEYED,
    SINGLE,
    NotForDataFrames,
    StageInput,
    plan_dataframes,
    stream_named,
)
from streamlet.model.topology import TopologySpec


class Lines(ReliableSpout):
    outputs = ["line"]

    def next_tuple(self) -> None: ...


class Two(ReliableSpout):
    outputs = [Stream(["line"]), Stream(["why", "n"], name="errors")]

    def next_tuple(self) -> None: ...


class One(Bolt):
    outputs = ["word"]

    def process(self, tup: Tuple) -> None: ...


class Split(Bolt):
    outputs = [Stream(["word"]), Stream(["why"], name="errors")]

    def process(self, tup: Tuple) -> None: ...


class Sink(Bolt):
    def process(self, tup: Tuple) -> None: ...


class Directs(Bolt):
    outputs = [Stream(["word"], direct=True)]

    def process(self, tup: Tuple) -> None: ...


def spec(**lines: Any) -> TopologySpec:
    return type(Topology)("T", (Topology,), lines).__topology__


def stages(topology: TopologySpec, **options: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [(stage.kind, stage.bolts) for stage in plan_dataframes(topology, **options).stages]


def refused(topology: TopologySpec, **options: Any) -> list[str]:
    with pytest.raises(NotForDataFrames) as caught:
        plan_dataframes(topology, **options)
    return [str(problem) for problem in caught.value.problems]


def test_bolts_by_shuffle_are_one_stage_and_a_fields_grouping_begins_another() -> None:
    lines = Lines.spec()
    split = One.spec(inputs={lines: Grouping.LOCAL_OR_SHUFFLE})
    lower = One.spec(inputs={split: Grouping.NONE})
    count = One.spec(inputs={lower: Grouping.fields("word")})
    shown = One.spec(inputs=[count])
    plan = plan_dataframes(spec(lines=lines, split=split, lower=lower, count=count, shown=shown))
    assert [(s.kind, s.bolts) for s in plan.stages] == [(FREE, ("split", "lower")), (KEYED, ("count", "shown"))]
    assert plan.sources == (StreamId("lines"),)
    assert plan.outputs == (StreamId("shown"),)
    assert plan.stages[0].gives == (StreamId("lower"),)
    assert plan.stages[1].inputs == (StageInput(StreamId("lower"), ("word",), ("word",)),)
    assert plan.stages[1].name == "count"


def test_a_global_grouping_is_a_stage_of_one_instance() -> None:
    lines = Lines.spec()
    report = One.spec(inputs={lines: Grouping.GLOBAL})
    assert stages(spec(lines=lines, report=report)) == [(SINGLE, ("report",))]


def test_a_bolt_with_a_tick_follows_a_keyed_one_in_a_stage_of_its_own_in_a_stream_only() -> None:
    lines = Lines.spec()
    count = One.spec(inputs={lines: Grouping.fields("line")})
    sums = One.spec(inputs=[count], config={"topology.tick.tuple.freq.secs": 1})
    topology = spec(lines=lines, count=count, sums=sums)
    assert stages(topology) == [(KEYED, ("count", "sums"))]
    assert stages(topology, streaming=True) == [(KEYED, ("count",)), (FREE, ("sums",))]


def test_a_bolt_that_acks_by_hand_follows_a_keyed_one_in_a_stage_of_its_own_in_a_stream_only() -> None:
    class ByHand(One):
        auto_ack = False

    lines = Lines.spec()
    count = One.spec(inputs={lines: Grouping.fields("line")})
    by_hand = ByHand.spec(inputs=[count])
    topology = spec(lines=lines, count=count, by_hand=by_hand)
    assert stages(topology) == [(KEYED, ("count", "by_hand"))]
    assert stages(topology, streaming=True) == [(KEYED, ("count",)), (FREE, ("by_hand",))]


def test_a_stage_is_read_by_each_input_of_a_stage_and_each_result() -> None:
    lines = Lines.spec()
    split = One.spec(inputs=[lines])
    one = One.spec(inputs={split: Grouping.fields("word")})
    two = One.spec(inputs={split: Grouping.fields("word")})
    plan = plan_dataframes(spec(lines=lines, split=split, one=one, two=two))
    assert [(stage.bolts, plan.readers(stage)) for stage in plan.stages] == [
        (("split",), 2),
        (("one",), 1),
        (("two",), 1),
    ]
    more = plan_dataframes(spec(lines=lines, split=split, one=one, two=two), outputs=["split", "one"])
    assert [(stage.bolts, more.readers(stage)) for stage in more.stages] == [(("split",), 2), (("one",), 1)]


def test_several_inputs_streams_and_outputs() -> None:
    two, more = Two.spec(), Lines.spec()
    split = Split.spec(inputs=[two, more])
    both = One.spec(inputs={split: Grouping.fields("word"), two["errors"]: Grouping.fields("why")})
    plan = plan_dataframes(spec(two=two, more=more, split=split, both=both))
    assert [(s.kind, s.bolts) for s in plan.stages] == [(FREE, ("split",)), (KEYED, ("both",))]
    assert set(plan.sources) == {StreamId("two"), StreamId("two", "errors"), StreamId("more")}
    assert plan.outputs == (StreamId("split", "errors"), StreamId("both"))
    assert plan.stages[0].gives == (StreamId("split"), StreamId("split", "errors"))
    only = plan_dataframes(spec(two=two, more=more, split=split, both=both), outputs=["split[errors]"])
    assert [stage.bolts for stage in only.stages] == [("split",)]


def test_two_bolts_that_read_the_same_input_by_shuffle_share_a_stage() -> None:
    lines = Lines.spec()
    one, other = One.spec(inputs=[lines]), One.spec(inputs=[lines])
    joined = One.spec(inputs=[one, other])
    assert stages(spec(lines=lines, one=one, other=other, joined=joined)) == [(FREE, ("one", "other", "joined"))]


def test_a_bolt_that_reads_two_stages_by_shuffle_has_one_of_its_own() -> None:
    lines = Lines.spec()
    one = One.spec(inputs=[lines])
    count = One.spec(inputs={lines: Grouping.fields("line")})
    joined = One.spec(inputs=[one, count])
    found = stages(spec(lines=lines, one=one, count=count, joined=joined))
    assert found == [(FREE, ("one",)), (KEYED, ("count",)), (FREE, ("joined",))]


def test_an_input_may_stand_for_a_bolt_and_what_leads_to_it_is_left_out() -> None:
    lines = Lines.spec()
    split = One.spec(inputs=[lines])
    sink = Sink.spec(inputs=[lines])
    count = One.spec(inputs={split: Grouping.fields("word")})
    topology = spec(lines=lines, split=split, count=count, sink=sink)
    assert stages(topology, given=["split"], outputs=["count"]) == [(KEYED, ("count",))]


def test_everything_that_cannot_be_is_said_at_once() -> None:
    lines = Lines.spec()
    everywhere = One.spec(inputs={lines: Grouping.ALL})
    direct = Directs.spec(inputs=[lines])
    mixed = One.spec(inputs={lines: Grouping.fields("line"), everywhere: Grouping.SHUFFLE})
    sink = Sink.spec(inputs=[mixed])
    kafka = KafkaBolt.spec(inputs=[mixed], hosts="127.0.0.1:9092", topic="t")
    texts = refused(spec(lines=lines, everywhere=everywhere, direct=direct, mixed=mixed, sink=sink, kafka=kafka))
    told = "\n".join(texts)
    assert "everywhere: It reads lines with Grouping.ALL" in told
    assert "direct: Its stream 'default' is direct" in told
    assert "mixed: It reads with different groupings: lines by fields; everywhere by shuffle" in told
    assert "sink: It declares no outputs" in told
    assert "kafka: KafkaBolt answers for tuples later" in told and 'format("streamlet-kafka")' in told


def test_a_circle_is_named() -> None:
    lines = Lines.spec()
    once = One.spec(inputs=[lines, StreamId("again")])
    again = One.spec(inputs=[once])
    after = One.spec(inputs=[again])
    (told,) = refused(spec(lines=lines, once=once, again=again, after=after))
    assert told.startswith("Tuples go in a circle through again, once, and DataFrames go one way.")


def test_wrong_names_of_inputs_and_outputs_are_said_with_the_nearest_right_ones() -> None:
    lines = Lines.spec()
    topology = spec(lines=lines, split=One.spec(inputs=[lines]))
    first, second = refused(topology, given=["line"], outputs=["spilt"])
    assert first == "inputs= names 'line', and no component gives a stream of that name. Did you mean 'lines'?"
    assert second == "outputs= names 'spilt', and no bolt gives a stream of that name. Did you mean 'split'?"


def test_a_spout_without_a_dataframe_is_named_with_what_to_give() -> None:
    lines, more = Lines.spec(), Lines.spec()
    split = One.spec(inputs=[lines, more])
    (told,) = refused(spec(lines=lines, more=more, split=split), given=["lines"])
    assert told == "more: It is a spout, and no DataFrame stands for it. Give one: inputs={'more': df}."


def test_a_stream_is_named_as_in_messages() -> None:
    assert stream_named("split") == StreamId("split")
    assert stream_named("split[errors]") == StreamId("split", "errors")
