from __future__ import annotations

from typing import Any

import pytest

from streamlet.model.settings import resolve
from streamlet.model.spec import BOLT, SPOUT
from streamlet.model.stream import StreamId
from streamlet.model.time_outs import TimeOut, first_time_out
from streamlet.model.topology import BoltInput, ComponentDef, TopologySpec

UNTRACKED = {"topology.acker.executors": 0}


def part(name: str, *sources: str, **config: Any) -> ComponentDef:
    kind = BOLT if sources else SPOUT
    inputs = tuple(BoltInput(StreamId(source, "default"), None) for source in sources)
    return ComponentDef(name, kind, object, ["n"], inputs, 1, config, {})


def timed(name: str, seconds: Any, **config: Any) -> ComponentDef:
    return part(name, **{"topology.message.timeout.secs": seconds}, **config)


def first(*parts: ComponentDef, bolt: str = "last", **run: Any) -> TimeOut | None:
    return first_time_out(TopologySpec("T", parts, {}), bolt, resolve({}, run))


def test_the_shortest_of_all_spouts_behind_a_bolt_counts() -> None:
    parts = timed("slow", 60), timed("quick", "5"), part("usual"), part("middle", "quick", "usual")
    assert first(*parts, part("last", "slow", "middle")) == TimeOut("quick", 5.0)
    assert first(*parts, part("last", "slow", "usual")) == TimeOut("usual", 30.0)
    assert first(*parts, part("last", "slow")) == TimeOut("slow", 60.0)


def test_a_loop_and_a_name_that_nobody_has_are_passed_over() -> None:
    parts = timed("lines", 5), part("split", "lines", "last"), part("last", "split", "nobody", "last")
    assert first(*parts) == TimeOut("lines", 5.0)
    assert first(part("last", "last")) is None


def test_nothing_of_a_spout_that_is_not_tracked_times_out() -> None:
    quick = timed("quick", 5, **UNTRACKED)
    assert first(quick, part("last", "quick")) is None
    assert first(quick, timed("slow", 60), part("last", "quick", "slow")) == TimeOut("slow", 60.0)
    assert first(timed("quick", 5), part("last", "quick"), **UNTRACKED) is None


def test_a_value_that_is_no_number_is_for_the_caller_to_tell() -> None:
    with pytest.raises(ValueError, match="soon"):
        first(timed("quick", "soon"), part("last", "quick"))
