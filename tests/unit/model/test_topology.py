"""The class body of a topology, as it is read."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import BadInput, Bolt, Spout, Topology


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


def test_what_is_set_after_the_body_is_refused_and_not_ignored() -> None:
    class Made(Topology):
        config = {"topology.max.spout.pending": 7}
        lines = Lines.spec()

    for name, value in (("config", {"topology.max.spout.pending": 8}), ("more", Lines.spec())):
        with pytest.raises(BadInput, match=rf"Made\.{name} is set after the body of the class.*Write it in the body"):
            setattr(Made, name, value)
    Made.note = "their own"  # type: ignore[attr-defined]  # as users do
    assert Made.__topology__.config == {"topology.max.spout.pending": 7} == Made.config
