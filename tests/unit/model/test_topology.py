"""The class body of a topology, as it is read."""

from __future__ import annotations

import re
from typing import Any

import pytest

from streamlet import BadInput, Bolt, Spout, Topology
from streamlet.model.validate import validate


class Lines(Spout):
    outputs = ["line"]


class Count(Bolt): ...


@pytest.mark.parametrize("name", ["run", "config"])
def test_a_component_cannot_have_the_name_of_what_a_topology_has(name: str) -> None:
    """A component called run would hide the method: the run could begin on the command line alone."""
    with pytest.raises(BadInput, match=rf"Words\.{name} is a component.*name={name!r}"):
        type(Topology)("Words", (Topology,), {"lines": (lines := Lines.spec()), name: Count.spec(inputs=[lines])})


def test_the_name_itself_is_free() -> None:
    class Words(Topology):
        lines = Lines.spec()
        runner = Count.spec(name="run", inputs=[lines])

    assert [component.name for component in Words.__topology__.components] == ["lines", "run"]


@pytest.mark.parametrize("config", [3, "topology.workers=1", ["topology.workers"]])
def test_a_config_that_is_not_a_dict_is_refused(config: Any) -> None:
    with pytest.raises(BadInput, match=r"Words\.config is .*give a dict"):
        type(Topology)("Words", (Topology,), {"config": config})


def test_a_subclass_replaces_a_line_and_adds_to_the_config() -> None:
    class Words(Topology):
        config = {"a": 1, "b": 1}
        lines = Lines.spec()
        count = Count.spec(inputs=[lines])

    class More(Words):
        config = {"b": 2}
        count = Count.spec(inputs=[Words.lines], par=3)

    assert More.__topology__.config == {"a": 1, "b": 2}
    assert [(c.name, c.par) for c in More.__topology__.components] == [("lines", 1), ("count", 3)]
    assert [(c.name, c.par) for c in Words.__topology__.components] == [("lines", 1), ("count", 1)]


class Stored(Topology):
    lines = Lines.spec()
    count = Count.spec(inputs=[lines])
    store = Count.spec(inputs=[lines])


def _names(topology: Any) -> list[str]:
    return [component.name for component in topology.__topology__.components]


def test_a_line_that_a_subclass_replaces_without_its_spec_is_told() -> None:
    """The parent's component ran in its place, and a trial wrote to production."""

    class DryRun(Count): ...

    class Trial(Stored):
        store = DryRun

    class Made(Stored):
        store = DryRun()

    class Between(Trial): ...

    assert Trial.__topology__.forgotten == Made.__topology__.forgotten == (("store", "DryRun"),)
    assert Between.__topology__.forgotten == (("store", "DryRun"),)
    assert "Write store = DryRun.spec(...)" in str(validate(Between.__topology__))

    class Mended(Between):
        store = DryRun.spec(inputs=[Stored.lines])

    assert Mended.__topology__.forgotten == ()
    assert Mended.__topology__.component("store").cls is DryRun


def test_none_in_a_subclass_removes_the_line_of_its_parent() -> None:
    class Fewer(Stored):
        store = None

    class Back(Fewer):
        store = Count.spec(inputs=[Stored.lines])

    class Beside(Stored): ...

    class Both(Fewer, Beside): ...

    assert _names(Fewer) == _names(Both) == ["lines", "count"]
    assert _names(Back) == _names(Stored) == ["lines", "count", "store"]


def test_a_subclass_puts_nothing_else_in_the_place_of_a_line() -> None:
    def method(self: Any) -> None: ...

    for value in (3, "store", method, int):
        with pytest.raises(BadInput, match=r"Trial\.store is .* is a component of .* \(Count\).*store = None"):
            type(Topology)("Trial", (Stored,), {"store": value})


@pytest.mark.parametrize(
    ("attribute", "value", "key"),
    [
        ("delivery", "exactly-once", "topology.delivery"),
        ("topology_delivery", "exactly-once", "topology.delivery"),
        ("message_timeout_secs", 5, "topology.message.timeout.secs"),
        ("streamlet_worker_memory_bytes", 1e9, "streamlet.worker.memory.bytes"),
    ],
)
def test_a_setting_written_as_an_attribute_of_the_class_is_refused(attribute: str, value: Any, key: str) -> None:
    """Nothing reads it there: the run would be at least once, without a word."""
    with pytest.raises(BadInput, match=rf'Words\.{attribute} = .* sets nothing.*config = {{"{re.escape(key)}": '):
        type(Topology)("Words", (Topology,), {attribute: value})
    type(Topology)("Words", (Topology,), {attribute: value, "config": {key: value}})


def test_constants_of_a_topology_may_have_the_name_of_a_setting() -> None:
    """The last word of one, one for a component's config, and one with a meaning of its own."""

    class Words(Topology):
        workers = 4
        version = "3"
        delivery = "parcels-delivered"
        tick_tuple_freq_secs = 10
        lines = Lines.spec(par=workers)
        count = Count.spec(inputs=[lines], config={"topology.tick.tuple.freq.secs": tick_tuple_freq_secs})

    assert Words.__topology__.components[0].par == 4


def test_what_is_set_after_the_body_is_refused_and_not_ignored() -> None:
    class Made(Topology):
        config = {"topology.max.spout.pending": 7}
        lines = Lines.spec()

    for name, value in (("config", {"topology.max.spout.pending": 8}), ("more", Lines.spec())):
        with pytest.raises(BadInput, match=rf"Made\.{name} is set after the body of the class.*Write it in the body"):
            setattr(Made, name, value)
    Made.note = "their own"  # type: ignore[attr-defined]  # as users do
    assert Made.__topology__.config == {"topology.max.spout.pending": 7} == Made.config
