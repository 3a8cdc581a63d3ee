"""Calls in a topology's file that TypeError refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlet.runtime.worker.loading import CannotLoad, load_topology
from tests.unit.runtime.worker.test_loading import _imports_are_undone as _imports_are_undone
from tests.unit.runtime.worker.test_loading import put


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("SpoutConfig(hosts=KafkaHosts('h:1'), topik='x')", "Did you mean 'topic'?"),
        ("SpoutConfig(hosts=KafkaHosts('h:1'), topic='x', group_id='g')", "It is called id here."),
        ("Enrich.spec(parallelism=4)", "It takes name, inputs, par, config, outputs."),
        ("Enrich.spec(input=[])", "Did you mean 'inputs'?"),
        ("KafkaSpout.spec(confg=1)", "Did you mean 'config'?"),
        ("Enrich(inputs=[])", "a component is a line Enrich.spec(...), and not a call of it."),
        ("Enrich('a')", "a component is a line Enrich.spec(...), and not a call of it."),
        ("Built(inputs=[])", "a component is a line Built.spec(...), and not a call of it."),
        ("plain(typo=1)", "A topology's file must import cleanly in every worker."),
    ],
)
def test_a_wrong_argument_in_the_file_is_answered_with_a_right_one(tmp_path: Path, line: str, said: str) -> None:
    text = (
        "from streamlet import Bolt\nfrom streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig\n"
        "class Enrich(Bolt):\n    def process(self, tup): pass\n"
        "class Built(Enrich):\n    def __init__(self): pass\n"
        f"def plain(): pass\n{line}\n"
    )
    with pytest.raises(CannotLoad) as raised:
        load_topology(put(tmp_path, "wrong_argument.py", text))
    assert "raised TypeError (line 8): " in raised.value.message and raised.value.message.endswith(said)
    assert "installed" not in raised.value.message


def test_an_error_in_a_module_of_the_users_is_told_with_the_line_of_that_module(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    put(tmp_path / "src", "inner_module.py", "import xyzzy\n")
    put(tmp_path / "src", "outer_module.py", "\nimport json, inner_module\njson.loads('}')\n")
    (tmp_path / "topologies").mkdir()
    file = put(tmp_path / "topologies", "imports_it.py", "import outer_module\n")
    with pytest.raises(CannotLoad, match=rf"\(line 1, through {tmp_path}/src/inner_module.py:1\): No module named"):
        load_topology(file)
    put(tmp_path / "src", "inner_module.py", "")
    with pytest.raises(CannotLoad, match=rf"\(line 1, through {tmp_path}/src/outer_module.py:3\): Expecting value"):
        load_topology(file)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("inputs = [prase]", "Did you mean 'parse'?"),
        ("from streamparse import Bolt", "`streamlet docs migrating-from-streamparse` lists all differences."),
        ("from pystorm.bolt import Bolt", "from streamlet import Bolt,"),
        ("from streamlet.bolt import Bolt", "from streamlet import Bolt,"),
        ("import streamlet.dsl", "from streamlet import Grouping, Stream, Topology."),
        ("from streamlet import remote_pdb_handler", "call breakpoint() where you want it."),
        ("from streamlet import Serializer", "lists all differences. Nothing was started."),
        ("from streamlet.util import get_config", "settings stand in conf"),
        ("import xyzzy", "installed or lie beside it"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_one_that_is(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(CannotLoad) as raised:
        load_topology(put(tmp_path, "wrong_name.py", f"parse = 1\n{line}\n"))
    assert said in raised.value.message
