"""Every public name of streamparse 5.0.1 and pystorm 3.1.4 is here, or answers, and stands on the migration page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import streamlet
from streamlet import Bolt, Grouping, ReliableSpout, Spout, Stream, TicklessBatchingBolt, Topology, Tuple
from streamlet.model.pystorm_names import (
    COMPONENT,
    CONSTRUCTOR,
    CURRENT,
    GROUPING,
    INNER,
    MODULE,
    MODULE_ALONE,
    SPEC,
    TOPOLOGY,
)
from streamlet.model.settings import SETTINGS
from streamlet.model.validate import Problem, validate
from streamlet.runtime.worker.loading import CannotLoad, load_topology
from tests.docs.pages import ROOT
from tests.unit.runtime.worker.test_loading import _imports_are_undone as _imports_are_undone

PAGE = (ROOT / "docs/guide/migrating-from-streamparse.md").read_text(encoding="utf-8")
TABLES = PAGE.partition("## Every name")[2]

PACKAGE = (
    *("BatchingBolt", "Bolt", "Grouping", "JavaBolt", "JavaSpout", "ReliableSpout", "ShellBolt", "ShellSpout"),
    *("Spout", "StormHandler", "Stream", "TicklessBatchingBolt", "Topology", "Tuple", "Component", "LogStream"),
    *("StormWentAwayError", "bolt", "component", "dsl", "spout", "storm", "VERSION", "__version__"),
    *("remote_pdb_handler", "Serializer", "JSONSerializer", "MsgpackSerializer", "TopologyType", "ComponentSpec"),
    *("JavaComponentSpec", "JavaBoltSpec", "JavaSpoutSpec", "ShellComponentSpec", "ShellBoltSpec", "ShellSpoutSpec"),
    *("serializers", "exceptions", "version", "util", "thrift", "bootstrap"),
)
MODULES = {
    "bolt": ("Bolt", "BatchingBolt", "TicklessBatchingBolt", "JavaBolt", "ShellBolt"),
    "spout": ("Spout", "ReliableSpout", "JavaSpout", "ShellSpout"),
    "component": ("Component", "Tuple", "StormHandler", "LogStream", "remote_pdb_handler"),
    "exceptions": ("StormWentAwayError",),
    "version": ("VERSION", "__version__"),
    "serializers": (),
    "serializers.serializer": ("Serializer",),
    "serializers.json_serializer": ("JSONSerializer",),
    "serializers.msgpack_serializer": ("MsgpackSerializer",),
    "dsl": ("Grouping", "Stream", "Topology"),
    "dsl.topology": ("Topology", "TopologyType"),
    "dsl.stream": ("Grouping", "Stream"),
    "dsl.bolt": ("JavaBoltSpec", "ShellBoltSpec"),
    "dsl.spout": ("JavaSpoutSpec", "ShellSpoutSpec"),
    "dsl.component": ("ComponentSpec", "JavaComponentSpec", "ShellComponentSpec"),
    "dsl.util": ("to_java_arg", "to_python_arg", "to_python_arg_list"),
    "storm": ("Bolt", "Spout", "Component", "Tuple"),
    "storm.bolt": ("Bolt", "BatchingBolt", "TicklessBatchingBolt", "JavaBolt", "ShellBolt"),
    "storm.spout": ("Spout", "ReliableSpout", "JavaSpout", "ShellSpout"),
    "storm.component": ("Component", "StormHandler"),
    "thrift": ("storm_thrift", "GlobalStreamId", "StreamInfo"),
    "run": ("main", "RESOURCES_PATH"),
    "cli.common": ("add_name",),
    "util": (
        *("activate_env", "die", "get_config", "get_env_config", "get_logfiles_cmd", "get_nimbus_client"),
        *("get_nimbus_config", "get_nimbus_host_port", "get_storm_workers", "get_topology_definition"),
        *("get_topology_from_file", "get_ui_json", "get_ui_jsons", "is_ssh_for_nimbus", "local_storm_version"),
        *("nimbus_storm_version", "prepare_topology", "print_stats_table", "run_cmd", "set_topology_serializer"),
        *("ssh_tunnel", "storm_lib_version", "warn"),
    ),
}
"""The modules of both packages, as they would be called here, and the public names in each."""
OF_CLASSES_THAT_ARE_NOT_THERE = (
    *("class_dict_to_specs", "add_bolt_spec", "add_spout_spec", "clean_spec_inputs", "serialize_dict", "flush"),
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
    *("exc_info", "_current_tups"),
)
CONSTRUCTED_WITH = ("input_stream", "output_stream", "rdb_signal", "serializer")
OVERRIDDEN = (
    *("_run", "_setup_component", "_handle_run_exception", "_handle_worker_exception", "_batch_entry"),
    *("_batch_entry_run", "_exit"),
)
"""Private in pystorm, and overridden all the same."""
OF_SPEC = ("name", "inputs", "outputs", "par", "config", "component_cls", "common", "component_object")
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
        (streamlet, tuple({name.partition(".")[0] for name in MODULES}), {**MODULE, **MODULE_ALONE}),
        (Bolt, OF_COMPONENT, COMPONENT),
        (Bolt, OVERRIDDEN, INNER),
        (Bolt, CONSTRUCTED_WITH, CONSTRUCTOR),
        (Bolt.spec(), OF_SPEC, SPEC),
        (Spout, OF_COMPONENT, COMPONENT),
        (TicklessBatchingBolt, OF_BOLT, {**COMPONENT, **CURRENT}),
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


def test_what_their_modules_and_the_classes_that_are_not_there_have_is_on_the_page() -> None:
    words = set(re.findall(r"[A-Za-z_]+", " ".join(re.findall(r"`[^`\n]+`", TABLES))))
    names = {*OF_CLASSES_THAT_ARE_NOT_THERE, *(name for of_module in MODULES.values() for name in of_module)}
    assert names - words - {"add_name"} == set(), "add_name is of the command line, which is no library"


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
THE_USERS = {*SET_BY_THE_RUNTIME, "logger", "log", "spec", "unacked_tuples", "failed_tuples", "_current_tups"}
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
        *((Bolt, name) for name in sorted({*OF_COMPONENT, *OF_BOLT, *OVERRIDDEN} - READ - THE_USERS)),
        *((Spout, name) for name in sorted({*OF_COMPONENT, *OF_SPOUT, *OVERRIDDEN} - READ - THE_USERS)),
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


@pytest.mark.parametrize("module", MODULES)
def test_an_import_from_a_module_of_theirs_is_refused_with_what_takes_its_place(tmp_path: Path, module: str) -> None:
    file = tmp_path / f"imports_{module.replace('.', '_')}.py"
    answer = {**MODULE, **MODULE_ALONE}[module.partition(".")[0]]
    for line in (f"import streamlet.{module}", *(f"from streamlet.{module} import {name}" for name in MODULES[module])):
        file.write_text(line)
        with pytest.raises(CannotLoad) as raised:
            load_topology(file)
        assert answer in raised.value.message and raised.value.message.endswith("lists all differences."), line


def uses(name: str) -> list[Problem]:
    """What `check` says of a bolt that looks at an attribute of its own that pystorm has."""
    scope: dict[str, Any] = {}
    exec(f"def process(self, tup):\n    [print(self.{name}) for _ in '1']", scope)
    kind = type("Uses", (Bolt,), {"process": scope["process"], "__module__": "users"})
    source = type("Source", (Spout,), {"outputs": ["n"], "next_tuple": lambda self: None, "__module__": "users"})
    spout = source.spec()
    body = {"source": spout, "a_bolt": kind.spec(inputs=[spout])}
    return validate(Topology.__class__("Made", (Topology,), body).__topology__)


@pytest.mark.parametrize("name", sorted({*OF_COMPONENT, *OF_BOLT}))
def test_a_class_that_uses_a_name_finds_it_or_is_told_by_check(name: str) -> None:
    problems = [problem for problem in uses(name) if f" uses self.{name}, " in problem.message]
    if name in COMPONENT or name in CURRENT:
        (problem,) = problems
        assert {**COMPONENT, **CURRENT}[name] in problem.message
    else:
        assert not problems and (_is_here(TicklessBatchingBolt, name) or name in SET_BY_THE_RUNTIME)


def test_storms_settings_on_the_page_are_settings_here() -> None:
    named = set(re.findall(r"`(topology\.[a-z.]+)`", PAGE))
    assert len(named) >= 6 and named <= SETTINGS.keys()


def test_each_answer_belongs_to_a_name_of_theirs() -> None:
    theirs = {*PACKAGE, *OF_COMPONENT, *OF_BOLT, *OF_TOPOLOGY, *OF_GROUPING, *CONSTRUCTED_WITH, *OVERRIDDEN, *OF_SPEC}
    assert {*MODULE, *COMPONENT, *TOPOLOGY, *GROUPING, *CONSTRUCTOR, *INNER, *CURRENT, *SPEC} <= theirs
    assert {*MODULE_ALONE} <= {name.partition(".")[0] for name in MODULES}
