"""Validation: every rule, every problem at once, each with its component and a remedy."""

import functools
import inspect
from collections import Counter, OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streamlet import (
    AsyncBolt,
    BatchingBolt,
    Bolt,
    Grouping,
    ReliableSpout,
    Spout,
    Stream,
    StreamId,
    ThreadedBolt,
    TicklessBatchingBolt,
    Topology,
)
from streamlet.base.errors import SettingError
from streamlet.bolts.dataframe import DataFrameSink
from streamlet.bolts.kafka import KafkaBolt
from streamlet.components.component import Component
from streamlet.model.spec import ComponentSpec
from streamlet.model.validate import InvalidTopology, Problem, checked, unread_streams, validate, warnings_of
from streamlet.runtime.links.wire import pack
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig


class Lines(Spout):
    outputs = ["line"]

    def next_tuple(self) -> None: ...


class Split(Bolt):
    outputs = ["word"]

    def process(self, tup) -> None: ...


class Count(Bolt):
    def process(self, tup) -> None: ...


class Sorter(Bolt):
    outputs = [Stream(["good"]), Stream(["bad", "why"], name="errors"), Stream(["to"], name="picked", direct=True)]

    def process(self, tup) -> None: ...


class NoProcess(Bolt): ...


class InheritsProcess(Split): ...


class ByBatch(Bolt):
    def process_batch(self, batch) -> None: ...


class BothWays(ByBatch):
    def process(self, tup) -> None: ...


class BatchesAfterAll(Split):
    outputs = None

    def process_batch(self, batch) -> None: ...


class BadBatches(ByBatch):
    batch_size = 0
    on_batch_error = "retry"  # type: ignore[assignment]  # what is refused


class BadReplays(ReliableSpout):
    outputs = ["line"]
    max_fails = -1
    replay_backoff = 0.5  # type: ignore[assignment]  # what is refused

    def next_tuple(self) -> None: ...


class OwnReplays(Lines):
    replay_backoff = "a name of the user's"


class ComputedReplays(ReliableSpout):
    outputs = ["line"]

    @property
    def max_fails(self) -> int:  # type: ignore[override]  # as users write it
        return 5

    def next_tuple(self) -> None: ...


class NoNextTuple(Spout): ...


class AwaitsProcess(Bolt):
    async def process(self, tup) -> None: ...


class Wired(Bolt):
    def process(self, tup): ...

    @classmethod
    def wiring_problems(cls, kwargs: Any, sources: Any) -> Iterable[tuple[str, str]]:
        for name, fields in sources:
            yield f"{name} has {len(fields)} fields.", "Give it more."


class YieldsProcess(Bolt):
    def process(self, tup):
        yield tup


class Tunable(Spout):
    outputs = ["line"]

    def next_tuple(self) -> None: ...

    @classmethod
    def override_keys(cls) -> frozenset[str]:
        return frozenset({"fetch_size_bytes", "topic"})

    @classmethod
    def with_overrides(cls, kwargs, overrides) -> dict[str, Any]:
        if not str(overrides.get("fetch_size_bytes", "1")).isdigit():
            raise SettingError("fetch_size_bytes is a number.")
        return {**kwargs, **overrides}


def topology(**body: Any) -> Any:
    return type("Made", (Topology,), body).__topology__


def problems(**body: Any) -> list[Problem]:
    return validate(topology(**body))


def only(found: list[Problem]) -> Problem:
    assert len(found) == 1, [str(problem) for problem in found]
    assert found[0].remedy
    return found[0]


def test_the_issues_own_word_count_is_valid() -> None:
    """The topology in the README has no problem, and `checked` hands it on."""
    lines = Lines.spec()
    split = Split.spec(inputs=[lines], par=2)
    made = topology(lines=lines, split=split, count=Count.spec(inputs={split: Grouping.fields("word")}, par=2))
    assert validate(made) == []
    assert checked(made) is made


def test_an_empty_topology_is_refused() -> None:
    assert "no components" in only(problems()).message


def test_a_topology_without_a_spout_is_refused() -> None:
    bolt = Split.spec()
    bolt.inputs = [bolt]
    assert "no spout" in only(problems(split=bolt)).message


def test_two_components_of_one_name_are_refused() -> None:
    problem = only(problems(a=Lines.spec(name="lines"), b=Lines.spec(name="lines")))
    assert problem.component == "lines" and "2 components" in problem.message


@pytest.mark.parametrize("name", ["two words", "a/b", "1st", "ü", "dotted.name", "__ours"])
def test_names_that_cannot_be_used_are_refused(name: str) -> None:
    assert only(problems(a=Lines.spec(name=name))).component == name


@pytest.mark.parametrize("par", [0, -1, 1.0, "2", True])
def test_par_is_a_whole_number_of_at_least_one(par: Any) -> None:
    problem = only(problems(lines=Lines.spec(par=par)))
    assert problem.component == "lines" and repr(par) in problem.message


def test_par_may_stand_in_the_class() -> None:
    """As in streamparse; a line's own goes before it."""
    many = type("Many", (Lines,), {"par": 3})
    assert (many.spec().par, many.spec(par=2).par, Split.spec().par) == (3, 2, 1)


def test_par_by_environment_is_refused_with_what_to_write() -> None:
    problem = only(problems(lines=Lines.spec(par={"prod": 3, "beta": 1})))
    assert "no environments" in problem.message and "os.environ" in problem.remedy


def test_a_spout_that_is_to_outlive_its_exceptions_is_refused() -> None:
    problem = only(problems(lines=type("Tough", (Lines,), {"exit_on_exception": False, "__module__": "m"}).spec()))
    assert "exit_on_exception" in problem.message and "next_tuple" in problem.remedy


def test_pystorms_settings_are_refused() -> None:
    problem = only(problems(lines=Lines.spec(), config={"pystorm.log.path": "/var/log"}))
    assert "'pystorm.log.path'" in problem.message and "migrating-from-streamparse" in problem.remedy


@pytest.mark.parametrize("value", [{"A": 1}, ["A"], "A=1", {1: "A"}, {"": "A"}, {"A=B": "C"}, {"A": "\0"}, {"A\0": ""}])
def test_the_environment_is_a_mapping_of_texts(value: Any) -> None:
    problem = only(problems(lines=Lines.spec(), config={"topology.environment": value}))
    assert "mapping of names to texts" in problem.message


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"PYTHONHASHSEED": "abc"}, "PYTHONHASHSEED is random or a whole number"),
        ({"PYTHONHASHSEED": "4294967296"}, "PYTHONHASHSEED is random or a whole number"),
        ({"PYTHONHOME": "/nowhere"}, "PYTHONHOME is another interpreter's"),
    ],
)
def test_variables_with_which_no_worker_starts_are_refused(value: Any, said: str) -> None:
    """Each worker died before it could say anything, and was started again for a minute."""
    assert said in only(problems(lines=Lines.spec(), config={"topology.environment": value})).message
    assert not problems(lines=Lines.spec(), config={"topology.environment": {"PYTHONHASHSEED": "7"}})


@pytest.mark.parametrize("inputs", [None, [], {}])
def test_a_bolt_without_inputs_is_refused(inputs: Any) -> None:
    assert "without inputs" in only(problems(lines=Lines.spec(), split=Split.spec(inputs=inputs))).message


def test_an_unknown_component_in_inputs_names_the_nearest() -> None:
    problem = only(problems(lines=Lines.spec(), split=Split.spec(inputs=["lins"])))
    assert "'lins'" in problem.message and "'lines'" in problem.remedy


def test_a_spec_from_outside_the_class_body_is_refused() -> None:
    """A spec object that no line of this topology holds is told from a wrong name."""
    problem = only(problems(lines=Lines.spec(), split=Split.spec(inputs=[Lines.spec()])))
    assert "Lines" in problem.message and "no line of this topology" in problem.message


def test_a_class_without_spec_in_inputs_is_refused() -> None:
    assert "no line of this topology" in only(problems(lines=Lines.spec(), split=Split.spec(inputs=[Lines]))).message


def test_an_unknown_stream_is_refused_with_its_nearest_name() -> None:
    lines = Lines.spec()
    sorter = Sorter.spec(inputs=[lines])
    problem = only(problems(lines=lines, sorter=sorter, count=Count.spec(inputs=[sorter["error"]])))
    assert "'error'" in problem.message and "'errors'" in problem.remedy


def test_reading_a_component_that_emits_nothing_is_refused() -> None:
    lines = Lines.spec()
    count = Count.spec(inputs=[lines])
    problem = only(problems(lines=lines, count=count, more=Count.spec(inputs=[count])))
    assert problem.component == "more" and "declares no outputs" in problem.message


def test_fields_grouping_on_a_field_not_declared_names_what_is() -> None:
    lines = Lines.spec()
    split = Split.spec(inputs=[lines])
    problem = only(problems(lines=lines, split=split, count=Count.spec(inputs={split: Grouping.fields("wrod")})))
    assert problem.component == "count"
    assert "'wrod'" in problem.message and "declares 'word'" in problem.message
    assert problem.remedy == "Did you mean 'word'?"


def test_a_fields_grouping_without_a_field_is_refused() -> None:
    lines = Lines.spec()
    assert "names no field" in only(problems(lines=lines, s=Split.spec(inputs={lines: Grouping.fields()}))).message


@pytest.mark.parametrize("grouping", ["word", 3, ["word"], Grouping, Grouping("magic")])
def test_a_value_that_is_not_a_grouping_is_refused(grouping: Any) -> None:
    lines = Lines.spec()
    assert "grouping" in only(problems(lines=lines, split=Split.spec(inputs={lines: grouping}))).message


def test_direct_on_a_stream_that_is_not_direct() -> None:
    lines = Lines.spec()
    assert (
        "not declared as direct" in only(problems(lines=lines, s=Split.spec(inputs={lines: Grouping.DIRECT}))).message
    )


def test_another_grouping_on_a_direct_stream_is_refused() -> None:
    lines = Lines.spec()
    sorter = Sorter.spec(inputs=[lines])
    read = Count.spec(inputs={sorter["picked"]: Grouping.SHUFFLE})
    assert "stream is direct" in only(problems(lines=lines, sorter=sorter, count=read)).message


def test_no_grouping_on_a_direct_stream_means_direct() -> None:
    lines = Lines.spec()
    sorter = Sorter.spec(inputs=[lines])
    assert problems(lines=lines, sorter=sorter, count=Count.spec(inputs=[sorter["picked"], sorter["errors"]])) == []


def test_one_input_named_twice_is_refused() -> None:
    lines = Lines.spec()
    assert "2 times" in only(problems(lines=lines, split=Split.spec(inputs=[lines, StreamId("lines")]))).message


@pytest.mark.parametrize(
    "outputs",
    [
        5,
        [1],
        ["a", None],
        ["a", "a"],
        ["a", Stream(["b"])],
        [""],
        {"a": 1},
        [Stream(["a"]), Stream(["b"])],
        [Stream(["a"], name="")],
        [Stream(["a", "a"])],
        [Stream([3])],  # type: ignore[list-item]
        [Stream(["a"], name="__tick")],
    ],
)
def test_malformed_outputs_are_refused_and_not_read_further(outputs: Any) -> None:
    """What is no list of distinct field names or distinct streams is refused, and not read any further."""
    lines = Lines.spec(outputs=outputs)
    problem = only(problems(lines=lines, split=Split.spec(inputs={lines: Grouping.fields("a")})))
    assert problem.component == "lines"


def test_a_class_made_inside_a_function_is_refused() -> None:
    class Local(Split): ...

    lines = Lines.spec()
    assert "inside a function" in only(problems(lines=lines, split=Local.spec(inputs=[lines]))).message


def test_a_class_of_main_is_refused() -> None:
    lines = Lines.spec()
    homeless = type("Homeless", (Split,), {"__module__": "__main__"})
    assert "__main__" in only(problems(lines=lines, split=homeless.spec(inputs=[lines]))).message


def test_a_bolt_without_process_and_a_spout_without_next_tuple_are_refused() -> None:
    lines = NoNextTuple.spec(outputs=["line"])
    found = problems(lines=lines, split=NoProcess.spec(inputs=[lines]), more=InheritsProcess.spec(inputs=[lines]))
    assert [(p.component, "does not define" in p.message) for p in found] == [("lines", True), ("split", True)]
    assert "next_tuple(self)" in found[0].remedy and "process(self, tup)" in found[1].remedy


def test_a_bolt_with_process_batch_needs_no_process_and_its_choices_are_checked() -> None:
    lines = Lines.spec()
    assert not problems(lines=lines, sums=ByBatch.spec(inputs=[lines]))
    found = problems(lines=lines, sums=BadBatches.spec(inputs=[lines]))
    assert [p.message.split(" has ")[1] for p in found] == ["batch_size = 0.", "on_batch_error = 'retry'."]


@pytest.mark.parametrize("period", [0, -0.1, True, "often", float("inf"), float("nan")])
def test_a_timer_without_a_period_is_refused(period: object) -> None:
    lines = Lines.spec()
    timed = type("Timed", (Split,), {"timer_interval_s": period, "__module__": __name__})
    found = only(problems(lines=lines, split=timed.spec(inputs=[lines])))
    assert f"has timer_interval_s = {period!r}." in found.message and "more than 0" in found.remedy
    for good in (None, 0.5, 2, property(lambda self: 0.5)):
        timed = type("Timed", (Split,), {"timer_interval_s": good, "__module__": __name__})
        assert not problems(lines=lines, split=timed.spec(inputs=[lines]))


@pytest.mark.parametrize("number", [0, -1, True, 2.5, "8", None])
@pytest.mark.parametrize(("kind", "name"), [(ThreadedBolt, "threads"), (AsyncBolt, "at_once")])
def test_a_bolt_has_the_number_of_its_calls_at_once_checked(kind: type[Any], name: str, number: Any) -> None:
    lines = Lines.spec()
    body = {"process": lambda self, tup: None, "__module__": __name__}
    wrong = type("Wrong", (kind,), {**body, name: number})
    found = only(problems(lines=lines, split=wrong.spec(inputs=[lines])))
    assert f"Wrong has {name} = {number!r}." in found.message and "a whole number, 1 or more." in found.remedy
    for right in (1, property(lambda self: 3)):
        sound = type("Sound", (kind,), {**body, name: right})
        assert not problems(lines=lines, split=sound.spec(inputs=[lines]))


@pytest.mark.parametrize("kind", [ThreadedBolt, AsyncBolt])
def test_a_bolt_that_works_on_several_at_once_gets_no_batches_and_defines_process(kind: type[Any]) -> None:
    lines = Lines.spec()
    idle = type("Idle", (kind,), {"__module__": __name__})
    found = only(problems(lines=lines, split=idle.spec(inputs=[lines])))
    assert found.message.endswith("does not define process.") and "process_batch" not in found.remedy
    body = {"process": lambda self, tup: None, "process_batch": lambda self, batch: None, "__module__": __name__}
    both = type("Both", (kind,), body)
    assert (
        "defines process_batch, which nothing calls"
        in only(problems(lines=lines, split=both.spec(inputs=[lines]))).message
    )


def test_what_is_awaited_is_awaited_and_yields_nothing() -> None:
    async def waits(self: Any, *given: Any) -> None: ...

    async def yields(self: Any, *given: Any) -> Any:
        yield 1

    lines = Lines.spec()
    for name, method, remedy in (
        ("process", yields, "Leave out its yield"),
        ("initialize", waits, "Call it async_initialize"),
        ("cleanup", waits, "Call it async_cleanup"),
    ):
        wrong = type("Wrong", (AsyncBolt,), {"process": waits, name: method, "__module__": __name__})
        found = [
            one for one in problems(lines=lines, split=wrong.spec(inputs=[lines])) if one.remedy.startswith(remedy)
        ]
        assert found and f"The method {name} of " in found[0].message


@pytest.mark.parametrize("most", [0, -1, True, 2.5, "8"])
def test_a_bolt_has_the_bound_of_what_it_may_hold_checked(most: Any) -> None:
    lines = Lines.spec()
    bounded = type("Bounded", (Split,), {"max_unacked": most, "__module__": __name__})
    found = only(problems(lines=lines, split=bounded.spec(inputs=[lines])))
    assert f"has max_unacked = {most!r}." in found.message and "1 or more; None is for any number" in found.remedy
    for right in (None, 1, property(lambda self: 3)):
        sound = type("Bounded", (Split,), {"max_unacked": right, "__module__": __name__})
        assert not problems(lines=lines, split=sound.spec(inputs=[lines]))


def test_a_spout_that_replays_has_its_choices_checked() -> None:
    lines = BadReplays.spec()
    found = problems(lines=lines, split=Split.spec(inputs=[lines]))
    assert [p.message.split(" has ")[1] for p in found] == ["max_fails = -1.", "replay_backoff = 0.5."]
    assert "streamlet.Backoff(" in found[1].remedy
    for fine in (OwnReplays.spec(), ComputedReplays.spec()):
        assert not problems(lines=fine, split=Split.spec(inputs=[fine]))


def test_a_process_that_would_never_run_is_refused() -> None:
    lines = Lines.spec()
    assert "process would never run" in only(problems(lines=lines, sums=BothWays.spec(inputs=[lines]))).message
    assert not problems(lines=lines, sums=BatchesAfterAll.spec(inputs=[lines]))


@pytest.mark.parametrize(("cls", "kind"), [(AwaitsProcess, "async"), (YieldsProcess, "generator")])
def test_a_method_whose_call_runs_none_of_it(cls: type[Bolt], kind: str) -> None:
    """Every tuple would be acked, and none processed."""
    lines = Lines.spec()
    found = only(problems(lines=lines, lazy=cls.spec(inputs=[lines])))
    assert kind in found.message and "process" in found.message


@pytest.mark.parametrize(
    "name",
    [
        *("caught_up", "ack_many", "fail_many", "close", "on_timer", "fileno", "unfinished_count", "given_up"),
        *("on_drain", "begin_close", "pause_parts", "may_send", "kept_bytes", "lasting_id", "given_up_count"),
    ],
)
def test_a_hook_of_a_spout_whose_call_runs_none_of_it(name: str) -> None:
    """A coroutine is true: a spout with an async caught_up would have caught up before it began."""

    async def hook(self: Any, *args: Any) -> None: ...

    lazy = type("Lazy", (ReliableSpout,), {"next_tuple": lambda self: None, name: hook, "__module__": "m"})
    found = only(problems(lines=lazy.spec(outputs=["line"])))
    assert name in found.message and "async" in found.message
    own = type("Own", (Lines,), {"given_up": hook, "__module__": "m"})  # no reliable spout: a method of its own
    assert problems(lines=own.spec()) == []


@pytest.mark.parametrize("cls", [Bolt, KafkaBolt, DataFrameSink, Spout, KafkaSpout])
def test_a_hook_that_returns_an_iterable_may_yield(cls: type[Component]) -> None:
    """Its result is iterated, so it runs: to refuse a generator there would refuse what the documents ask for."""
    names = ("wiring_problems", "time_out_problems", "exactly_once_problems", "at_least_once_problems")
    hooks = {name: getattr(cls, name) for name in names if hasattr(cls, name)}
    assert hooks and all(map(inspect.isgeneratorfunction, hooks.values()))
    public = {name: at for name, at in inspect.getmembers(cls, callable) if not name.startswith("_")}
    returns = {name: getattr(at, "__annotations__", {}).get("return", "") for name, at in public.items()}
    assert {name for name, kind in returns.items() if str(kind).startswith("Itera")} == hooks.keys()


def test_what_a_bolt_yields_of_its_wiring_is_told() -> None:
    lines = Lines.spec()
    assert only(problems(lines=lines, sums=Wired.spec(inputs=[lines]))).message == "lines has 1 fields."


def test_what_stands_where_a_name_belongs() -> None:
    """Each is a problem by name, not a TypeError of ours; one list of fields is what streamparse takes, too."""
    lines = Lines.spec()
    assert problems(lines=lines, split=Split.spec(inputs={lines: Grouping.fields(["line"])})) == []
    for wrong in (
        {"lines": lines, "split": Split.spec(inputs={lines: Grouping.fields(3)})},
        {"lines": lines, "split": Split.spec(inputs={lines: Grouping.fields("line", ["line"])})},
        {"lines": lines, "split": Split.spec(inputs={lines: Grouping(["x"])})},
        {"lines": lines, "split": Split.spec(inputs=[lines[["x"]]])},
        {"lines": lines, "split": Split.spec(inputs=[StreamId(["x"], "default")])},
        {"lines": lines, "split": Split.spec(inputs=[StreamId("lines", ["x"])])},
        {"lines": Lines.spec(name=["x"])},
    ):
        found = only(problems(**wrong))
        assert "3" in found.message or "['" in found.message


def test_a_setting_where_nothing_reads_it() -> None:
    """Those of the run in a component's config, and those of the other kind; its own are its own."""
    lines = Lines.spec(config={"topology.workers": 3, "topology.message.timeout.secs": 5})
    split = Split.spec(inputs=[lines], config={"topology.acker.executors": 0, "topology.tick.tuple.freq.secs": 1})
    found = problems(lines=lines, split=split)
    assert [p.component for p in found] == ["lines", "split"]
    assert "'topology.workers'" in found[0].message and "the whole run's" in found[0].message
    assert "'topology.acker.executors'" in found[1].message and "only a spout" in found[1].message


def test_bolts_that_no_spout_reaches() -> None:
    """A circle of bolts runs for ever on nothing."""
    one = Split.spec(inputs=["two"])
    found = problems(lines=Lines.spec(), one=one, two=Split.spec(inputs=[one]))
    assert [p.component for p in found] == ["one", "two"] and "No spout leads here" in found[0].message


def test_what_follows_from_forgotten_inputs_is_no_problem_of_its_own() -> None:
    """The bolt behind one without inputs stands in no circle."""
    forgotten = Split.spec()
    found = problems(lines=Lines.spec(), enrich=forgotten, out=Split.spec(inputs=[forgotten]))
    assert [(p.component, p.message) for p in found] == [("enrich", "It is a bolt without inputs.")]


def test_reserved_keys_that_nothing_reads_and_bad_values() -> None:
    lines = Lines.spec(config={"topology.max.spout.pending": "often", "my.own": object()})
    found = problems(lines=lines, config={"topology.max.spout.pendign": 5, "streamlet.seed": -1, "mine": 1})
    assert [p.component for p in found] == [None, None, "lines"]
    assert "'topology.max.spout.pending'" in found[0].remedy
    assert "streamlet.seed" in found[1].message and "'often'" in found[2].message


def test_overrides_are_checked_against_the_class() -> None:
    made = topology(lines=Tunable.spec(), split=Split.spec(inputs=["lines"]))
    assert validate(made, {"lines": {"topic": "x", "fetch_size_bytes": "5"}}) == []
    assert "'fetch_size_bytes'" in only(validate(made, {"lines": {"fetch_size": "5"}})).remedy
    assert "is a number" in only(validate(made, {"lines": {"fetch_size_bytes": "five"}})).message
    assert "has none" in only(validate(made, {"split": {"x": "5"}})).remedy
    assert "'lines'" in only(validate(made, {"line": {"topic": "x"}})).remedy


def test_all_problems_come_at_once() -> None:
    """One run of `check` tells everything: nobody mends problems one by one."""

    class Made(Topology):
        config: ClassVar[Any] = {"topology.wrong": 1}
        lines = Lines.spec(par=0)
        split = Split.spec(inputs=["lnes"])
        count = Count.spec(inputs={split: Grouping.fields("wrod")})
        idle = Count.spec()

    with pytest.raises(InvalidTopology) as raised:
        checked(Made.__topology__)
    assert [p.component for p in raised.value.problems] == [None, "lines", "split", "count", "idle"]
    assert all(str(problem) in raised.value.message for problem in raised.value.problems)
    assert raised.value.exit_status == 2


def test_specs_are_compared_by_identity() -> None:
    """Specs are compared by identity: two equal-looking lines are two components."""
    assert Lines.spec() != Lines.spec()
    assert isinstance(Lines.spec(), ComponentSpec)


@pytest.mark.parametrize("line", [Count, Count(), Count.spec])
def test_a_component_without_its_spec_is_no_line_and_is_told(line: Any) -> None:
    """Left out in silence, its spout's records would be committed unprocessed."""
    found = problems(lines=Lines.spec(), store=line)
    assert "store is the class Count" in only(found).message and "Count.spec(" in only(found).remedy
    assert len(problems(store=line)) == 1, "what follows from it is no problem of its own"
    parent: Any = type("Parent", (Topology,), {"lines": Lines.spec(), "store": line})
    assert validate(type("Child", (parent,), {}).__topology__)
    assert not validate(type("Child", (parent,), {"store": None}).__topology__)


def test_a_class_that_is_defined_in_the_body_of_its_topology_is_no_forgotten_line() -> None:
    class Made(Topology):
        class Store(Count): ...

        class Unused(Count): ...

        lines = Lines.spec()
        store = Store.spec(inputs=[lines])

    assert only(validate(Made.__topology__, imported=False)).component == "Unused"


def test_a_class_that_is_chosen_in_the_body_is_no_forgotten_line_and_a_second_line_of_a_class_is() -> None:
    class Chosen(Topology):
        lines = Lines.spec()
        Store = Count if Lines else Split
        store = Store.spec(inputs=[lines])

    assert not validate(Chosen.__topology__, imported=False)
    assert (
        "store is the class Count"
        in only(problems(lines=Lines.spec(), count=Count.spec(inputs=["lines"]), store=Count)).message
    )


_ENDLESS: list[Any] = []
_ENDLESS.append(_ENDLESS)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, "{1, 2} is of type set"),
        (Path("/x"), "is of type PosixPath"),
        (datetime(2026, 1, 1), "has no time zone"),
        ([1, {"a": 1 << 70}], "an int of 71 bits"),
        ({("a", 1): 2}, "a dict with the key ('a', 1)"),
        (_ENDLESS, "contains itself"),
    ],
)
def test_a_setting_that_cannot_travel_to_workers_is_named(value: Any, why: str) -> None:
    """On worker processes it was a bug of ours, and nobody could see which. A component's own stays where it is."""

    class Carries(Topology):
        config = {"my.own": value, "my.other": [1, {"a": (None, True, 1.5, b"x")}]}
        lines = Lines.spec()
        count = Count.spec(inputs=[lines], config={"my.own": value})

    (found,) = validate(Carries.__topology__)
    assert found.component is None and why in found.message
    assert "config has a value for 'my.own' that cannot travel" in found.message


class Level(IntEnum):
    HIGH = 3


def test_a_setting_may_be_all_that_the_wire_takes() -> None:
    class Carries(Topology):
        config = {
            "my.level": Level.HIGH,
            "my.since": datetime(2026, 1, 1, tzinfo=UTC),
            "my.counts": OrderedDict(a=Counter("aa")),
            "my.bytes": bytearray(b"x"),
        }
        lines = Lines.spec()
        count = Count.spec(inputs=[lines])

    assert pack(dict(Carries.__topology__.config)) and not validate(Carries.__topology__)


def test_a_spout_that_no_bolt_reads_is_warned_of() -> None:
    (warning,) = unread_streams(topology(lines=Lines.spec()))
    assert "No bolt reads the spout lines" in warning
    assert not unread_streams(topology(lines=Lines.spec(), count=Count.spec(inputs=["lines"])))


def test_a_stream_that_no_bolt_reads_beside_one_that_is_read_is_warned_of() -> None:
    class Sorts(Bolt):
        outputs = [Stream(fields=["word"]), Stream(fields=["word"], name="bad")]

    made = topology(lines=Lines.spec(), sorts=Sorts.spec(inputs=["lines"]), count=Count.spec(inputs=["sorts"]))
    (warning,) = unread_streams(made)
    assert warning == "No bolt reads the stream bad of sorts: what it emits there counts as done at once."
    assert not unread_streams(topology(lines=Lines.spec(), sorts=Sorts.spec(inputs=["lines"])))


class InitializesAlone(Count):
    def initialize(self) -> None: ...  # type: ignore[override]  # the mistake


class Built(Count):
    def __init__(self, path: str) -> None: ...


class PystormsOnlyArgument(BatchingBolt):
    config: ClassVar = {"topology.tick.tuple.freq.secs": 1}

    def process_batch(self, tups) -> None: ...  # type: ignore[override]  # the mistake


class TakesMore(Count):
    def initialize(self, *everything: Any) -> None: ...

    def process(self, tup, again: bool = False, *, quietly: bool = False) -> None: ...


def _wrapped(method: Any) -> Any:
    @functools.wraps(method)
    def called(*given: Any) -> Any:
        return method(given[0])

    return called


class Decorated(Count):
    initialize = _wrapped(InitializesAlone.initialize)
    cleanup: Any = print


@pytest.mark.parametrize(
    ("cls", "told"),
    [
        (InitializesAlone, "initialize(self, conf, context)"),
        (Built, "initialize(self, conf, context)"),
        (PystormsOnlyArgument, "process_batch(self, key, tups)"),
        (TakesMore, None),
        (Decorated, None),
    ],
)
def test_a_method_that_cannot_take_its_arguments_is_a_problem(cls: Any, told: str | None) -> None:
    lines = Lines.spec()
    found = problems(lines=lines, bolt=cls.spec(inputs=[lines]))
    if told is None:
        assert not found
    else:
        assert told in only(found).remedy


def test_a_setting_of_storms_that_means_nothing_here_is_answered_with_what_takes_its_place() -> None:
    found = problems(lines=Lines.spec(), config={"topology.subprocess.timeout.secs": 30})
    assert "streamlet.task.hang.action=replace" in only(found).remedy


class Sums(BatchingBolt):
    def process_batch(self, key, tups) -> None: ...


@pytest.mark.parametrize(
    ("period", "ticks", "run", "said"),
    [
        (29, 1, {}, ""),
        (30, 1, {}, "every 30 s, and a tuple of lines times out after 30 s"),
        (10, 3, {}, "every 30 s, and a tuple of lines times out after 30 s"),
        (6, 1, {"topology.message.timeout.secs": 4}, "every 6 s, and a tuple of lines times out after 4 s"),
        (30, 1, {"topology.message.timeout.secs": 90}, ""),
        (30, 1, {"topology.acker.executors": 0}, ""),  # nothing is tracked, and nothing times out
        ("soon", 1, {}, "topology.tick.tuple.freq.secs"),  # told as a wrong setting
    ],
)
def test_batches_that_come_later_than_the_time_out_are_refused(
    period: Any, ticks: int, run: dict[str, Any], said: str
) -> None:
    """Each tuple would be sent again while it waits, and be in its batch twice."""
    kind = type("Late", (Sums,), {"ticks_between_batches": ticks, "__module__": "m"})
    lines = Lines.spec()
    late = kind.spec(inputs=[lines], config={"topology.tick.tuple.freq.secs": period})
    found = validate(topology(lines=lines, late=late), settings=run)
    assert [problem.component for problem in found] == (["late"] if said else [])
    assert all(said in problem.message and problem.remedy for problem in found)


def test_a_bolt_with_a_period_of_its_own_is_told_what_that_is_called() -> None:
    kind = type("Late", (TicklessBatchingBolt,), {"secs_between_batches": 40, "process_batch": Sums.process_batch})
    lines = Lines.spec()
    found = validate(topology(lines=lines, late=kind.spec(inputs=[lines])))
    assert "a shorter period (secs_between_batches of the bolt)" in only(found).remedy


def test_the_time_out_that_counts_for_a_batch_is_the_shortest_of_the_spouts_that_reach_it() -> None:
    slow = Lines.spec(config={"topology.message.timeout.secs": 60})
    quick = Lines.spec(config={"topology.message.timeout.secs": 5})
    split = Split.spec(inputs=[quick])
    sums = Sums.spec(inputs=[slow], config={"topology.tick.tuple.freq.secs": 30})
    assert not validate(topology(slow=slow, quick=quick, split=split, sums=sums))
    sums.inputs = [slow, split]
    problem = only(validate(topology(slow=slow, quick=quick, split=split, sums=sums)))
    assert problem.component == "sums" and "a tuple of quick times out after 5 s" in problem.message


def test_time_outs_are_found_round_a_loop() -> None:
    lines = Lines.spec(config={"topology.message.timeout.secs": 5})
    split = Split.spec(inputs=[lines])
    sums = Sums.spec(inputs=[split], outputs=["again"], config={"topology.tick.tuple.freq.secs": 30})
    split.inputs = [lines, sums]
    assert "a tuple of lines times out" in only(validate(topology(lines=lines, split=split, sums=sums))).message


def test_where_nothing_is_written_settings_of_the_run_count_all_the_same() -> None:
    lines = Lines.spec()
    made = topology(lines=lines, sums=Sums.spec(inputs=[lines]))
    assert "gets none" in only(validate(made, writes=False)).message
    assert validate(made, settings={"topology.tick.tuple.freq.secs": 1}, writes=False) == []


@pytest.mark.parametrize(
    ("acker", "run", "said"),
    [
        (0, {}, ""),
        (1, {}, "a tuple of quick times out after 5 s"),
        (None, {}, "a tuple of quick times out after 5 s"),
        (1, {"topology.acker.executors": 0}, "a tuple of quick times out after 5 s"),
    ],
)
def test_only_a_spout_that_is_tracked_has_a_time_out_that_counts_for_a_batch(
    acker: int | None, run: dict[str, Any], said: str
) -> None:
    """Nothing of the others times out: theirs neither hides a wrong period nor makes one."""
    own = {} if acker is None else {"topology.acker.executors": acker}
    slow = Lines.spec(config={"topology.message.timeout.secs": 60})
    quick = Lines.spec(config={"topology.message.timeout.secs": 5, **own})
    sums = Sums.spec(inputs=[slow, quick], config={"topology.tick.tuple.freq.secs": 30})
    found = validate(topology(slow=slow, quick=quick, sums=sums), settings=run)
    assert [said in problem.message for problem in found] == ([True] if said else [])


def test_batches_of_spouts_that_are_not_tracked_may_come_as_late_as_they_like() -> None:
    lines = Lines.spec(config={"topology.acker.executors": 0})
    sums = Sums.spec(inputs=[lines], config={"topology.tick.tuple.freq.secs": 300})
    assert not validate(topology(lines=lines, sums=sums))
    tracked = Lines.spec(config={"topology.acker.executors": 1})
    sums = Sums.spec(inputs=[tracked], config={"topology.tick.tuple.freq.secs": 300})
    only(validate(topology(tracked=tracked, sums=sums), settings={"topology.acker.executors": 0}))


class Taking(Bolt):
    def process_batch(self, batch: Any) -> None: ...


class Splitting(Taking):
    on_batch_error = "split"


class FailingByItself(Taking):
    auto_fail = False


class GivingUp(ReliableSpout):
    outputs = ["line"]
    answers_for_failures = True
    max_fails = 0

    def next_tuple(self) -> None: ...


def of_kafka(**more: Any) -> ComponentSpec:
    return KafkaSpout.spec(config=SpoutConfig(KafkaHosts("127.0.0.1:9092"), topic="lines", id="demo", **more))


@pytest.mark.parametrize(
    ("spout", "policy", "exactly_once"),
    [
        (of_kafka(on_poison="skip", retry_limit=2), 'on_poison = "skip", retry_limit = 2', True),
        (of_kafka(on_poison="skip", retry_limit=2), "", False),
        (of_kafka(on_poison="skip"), "", True),
        (of_kafka(on_poison="skip", retry_limit=0), "", True),
        (
            of_kafka(on_poison="dead-letter", dead_letter_topic="bad", retry_limit=1),
            'on_poison = "dead-letter", retry_limit = 1',
            True,
        ),
        (GivingUp.spec(), "max_fails = 0", False),
        (of_kafka(), "", True),
        (Lines.spec(), "", False),
    ],
)
def test_a_bolt_whose_batches_fail_whole_behind_a_spout_that_gives_up_is_warned_of(
    spout: ComponentSpec, policy: str, exactly_once: bool
) -> None:
    """Where nothing is tried alone before: one bad record takes the good ones of its batch along."""
    between = Split.spec(inputs=[spout])
    bolts = {
        "whole": Taking.spec(inputs=[between]),
        "parted": Splitting.spec(inputs=[spout]),
        "own": FailingByItself.spec(inputs=[spout]),
        "writes": KafkaBolt.spec(inputs=[spout], hosts="127.0.0.1:9092", topic="out"),
        "one": Split.spec(inputs=[spout]),
    }
    found = warnings_of(topology(source=spout, between=between, **bolts), exactly_once=exactly_once)
    assert [line.split()[2] for line in found] == (["whole"] if policy else [])
    assert not policy or (f"source by {policy}" in found[0] and "in Taking" in found[0] and '"split"' in found[0])


def test_a_run_that_would_set_a_components_own_setting_is_told_where_that_stands() -> None:
    lines = Lines.spec()
    sums = Sums.spec(inputs=[lines], config={"topology.tick.tuple.freq.secs": 6})
    given = {"sums": {"topology.tick.tuple.freq.secs": "4"}}
    problem = only(validate(topology(lines=lines, sums=sums), given))
    assert "no setting 'topology.tick.tuple.freq.secs' that a run could change" in problem.message
    assert "stands in its own config" in problem.remedy and "-c topology.tick.tuple.freq.secs=VALUE" in problem.remedy
