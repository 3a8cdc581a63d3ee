"""Every public name of streamparse 5.0.1 and pystorm 3.1.4 is here, or answers, and stands on the migration page."""

from __future__ import annotations

import re
from typing import Any

import pytest

import streamlet
from streamlet import Bolt, Grouping, ReliableSpout, Spout, Stream, TicklessBatchingBolt, Topology, Tuple
from streamlet.model.pystorm_names import COMPONENT, GROUPING, MODULE, TOPOLOGY
from streamlet.model.settings import SETTINGS
from streamlet.model.validate import Problem, validate
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/guide/migrating-from-streamparse.md").read_text(encoding="utf-8")
TABLES = PAGE.partition("## Every name")[2]

PACKAGE = (
    *("BatchingBolt", "Bolt", "Grouping", "JavaBolt", "JavaSpout", "ReliableSpout", "ShellBolt", "ShellSpout"),
    *("Spout", "StormHandler", "Stream", "TicklessBatchingBolt", "Topology", "Tuple", "Component", "LogStream"),
    *("StormWentAwayError", "bolt", "component", "dsl", "spout", "storm", "VERSION", "__version__"),
)
OF_COMPONENT = (
    *("exit_on_exception", "topology_name", "task_id", "component_name", "debug", "storm_conf", "context", "pid"),
    *("logger", "serializer", "is_heartbeat", "read_message", "read_task_ids", "read_command", "read_handshake"),
    *("send_message", "raise_exception", "report_metric", "log", "emit", "initialize", "run", "outputs", "par"),
    *("config", "spec"),
)
OF_BOLT = (
    *("auto_anchor", "auto_ack", "auto_fail", "is_tick", "read_tuple", "process", "process_tick", "emit", "ack"),
    *("fail", "ticks_between_batches", "group_key", "process_batch", "process_batches", "secs_between_batches"),
    "exc_info",
)
OF_SPOUT = ("ack", "fail", "next_tuple", "emit", "activate", "deactivate")
OF_RELIABLE_SPOUT = ("max_fails", "failed_tuples", "unacked_tuples")
OF_TOPOLOGY = ("config", "write", "read", "to_flux_dict", "specs", "thrift_topology", "thrift_bolts", "thrift_spouts")
OF_GROUPING = (
    *("SHUFFLE", "GLOBAL", "DIRECT", "ALL", "NONE", "LOCAL_OR_SHUFFLE", "fields", "custom_object"),
    "custom_serialized",
)
OF_TUPLE = ("id", "component", "stream", "task", "values")
OF_STREAM = ("fields", "name", "direct")

SET_BY_THE_RUNTIME = {"topology_name", "task_id", "component_name", "debug", "storm_conf", "context", "pid"}
"""Attributes of a task's instance: annotated in the class, set before ``initialize``."""


def _is_here(owner: Any, name: str) -> bool:
    annotated = {key for base in getattr(owner, "__mro__", ()) for key in vars(base).get("__annotations__", {})}
    return hasattr(owner, name) or name in annotated


@pytest.mark.parametrize(
    ("owner", "names", "answers"),
    [
        (streamlet, PACKAGE, MODULE),
        (Bolt, OF_COMPONENT, COMPONENT),
        (Spout, OF_COMPONENT, COMPONENT),
        (TicklessBatchingBolt, OF_BOLT, COMPONENT),
        (Spout, OF_SPOUT, COMPONENT),
        (ReliableSpout, OF_RELIABLE_SPOUT, COMPONENT),
        (Topology, OF_TOPOLOGY, TOPOLOGY),
        (Grouping, OF_GROUPING, GROUPING),
        (Tuple([]), OF_TUPLE, {}),
        (Stream(["word"]), OF_STREAM, {}),
    ],
)
def test_every_name_is_here_or_answers_and_is_on_the_page(
    owner: Any, names: tuple[str, ...], answers: dict[str, str]
) -> None:
    words = set(re.findall(r"[A-Za-z_]+", " ".join(re.findall(r"`[^`\n]+`", TABLES))))
    for name in names:
        assert name in answers or _is_here(owner, name) or name in SET_BY_THE_RUNTIME, name
        assert name in words, f"{name} is not on the page"


CALLED = {
    *("initialize", "process", "process_batch", "process_tick", "cleanup", "group_key", "process_batches"),
    *("next_tuple", "ack", "fail", "activate", "deactivate", "given_up", "replay"),
}
"""Methods of a component that the runtime, or a base class of ours, calls."""
READ = {
    *("exit_on_exception", "outputs", "par", "config", "auto_anchor", "auto_ack", "auto_fail", "max_fails"),
    *("ticks_between_batches", "secs_between_batches"),
}
"""Attributes of a class that are read."""
THE_USERS = {*SET_BY_THE_RUNTIME, "logger", "log", "spec", "unacked_tuples", "failed_tuples"}
"""What only the user's own lines call or read, there as here."""


def defining(name: str, base: type) -> list[Problem]:
    """What `check` says of a component whose class defines this name."""
    kind = type(f"Defines{name}", (base,), {name: lambda self, *args, **more: None, "__module__": "users"})
    if base is Spout:
        kind.next_tuple, kind.outputs = lambda self: None, ["n"]  # type: ignore[attr-defined]  # a spout's
        return validate(Topology.__class__("Made", (Topology,), {"a_spout": kind.spec()}).__topology__)
    if name != "process":
        kind.process = lambda self, tup: None  # type: ignore[attr-defined]  # a bolt's
    source = type("Source", (Spout,), {"outputs": ["n"], "next_tuple": lambda self: None, "__module__": "users"})
    spout = source.spec()
    body = {"source": spout, "a_bolt": kind.spec(inputs=[spout])}
    return validate(Topology.__class__("Made", (Topology,), body).__topology__)


@pytest.mark.parametrize(
    ("base", "name"),
    [
        *((Bolt, name) for name in sorted({*OF_COMPONENT, *OF_BOLT} - READ - THE_USERS)),
        *((Spout, name) for name in sorted({*OF_COMPONENT, *OF_SPOUT} - READ - THE_USERS)),
    ],
)
def test_a_class_that_defines_a_name_is_called_by_it_or_named_by_check(base: type, name: str) -> None:
    problems = [problem for problem in defining(name, base) if f" defines {name}, " in problem.message]
    hook = name in CALLED and not (base is Bolt and name in ("ack", "fail"))
    if hook:
        assert not problems
    else:
        (problem,) = problems
        assert problem.component in ("a_bolt", "a_spout")
        assert "never called" in problem.message or "nothing here calls" in problem.message
        assert problem.remedy


def test_storms_settings_on_the_page_are_settings_here() -> None:
    named = set(re.findall(r"`(topology\.[a-z.]+)`", PAGE))
    assert len(named) >= 6 and named <= SETTINGS.keys()


def test_each_answer_belongs_to_a_name_of_theirs() -> None:
    theirs = {*PACKAGE, *OF_COMPONENT, *OF_BOLT, *OF_TOPOLOGY, *OF_GROUPING}
    assert {*MODULE, *COMPONENT, *TOPOLOGY, *GROUPING} <= theirs
