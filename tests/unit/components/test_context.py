"""The context as an object and as the mapping that Storm gives to components in other languages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streamlet import Bolt, Grouping, Topology, TopologyContext, Tuple
from streamlet.components.context import SharedFiles
from streamlet.testing import TopologyTester
from tests.unit.model.test_validate import Lines


class Seen(Bolt):
    outputs = ["word", "count"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.told = (conf, context)

    def process(self, tup: Tuple) -> None: ...


class Two(Topology):
    config = {"topology.debug": True}
    lines = Lines.spec(outputs=["line"])
    seen = Seen.spec(inputs={lines: Grouping.ALL}, par=2)


def test_a_context_has_storms_keys() -> None:
    with TopologyTester(Two, {"lines": []}) as tester:
        bolt = tester.instances("seen")[1]
        conf, context = bolt.told
    assert context["taskid"] == context.task_id == 3 and context["componentid"] == "seen"
    assert context["task->component"] == {"1": "lines", "2": "seen", "3": "seen"}
    assert context["source->stream->fields"] == {"lines": {"default": ["line"]}}
    assert context["streams"] == ["default"] and context["stream->outputfields"] == {"default": ["word", "count"]}
    assert context.get("stream->target->grouping") is None and set(context) == dict(context).keys()
    assert conf["topology.name"] == "Two" and bolt.debug is True
    with pytest.raises(
        KeyError, match=r"not the key 'task_id'\. context\.task_id is an attribute\. .*taskid, component"
    ):
        context["task_id"]
    with pytest.raises(KeyError, match=r"not the key 'pid'\. As in Storm it has taskid"):
        context["pid"]


def test_the_process_id_is_the_workers() -> None:
    with TopologyTester(Two, {"lines": []}) as tester:
        assert tester.instances("seen")[0].pid == os.getpid()


def test_a_file_that_is_not_shared_is_named_with_those_that_are() -> None:
    with pytest.raises(KeyError, match=r"'modle' is not a file of streamlet\.shared: .*There is: model\."):
        SharedFiles({"model": Path("model.bin")})["modle"]
    with pytest.raises(KeyError, match=r"Nothing is shared in this run\."):
        SharedFiles()["model"]
