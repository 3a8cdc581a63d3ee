"""``streamlet check``: verdict, problems as data, and the list of settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamlet.model.settings import SETTINGS

TOPOLOGIES = Path(__file__).parents[3] / "topologies"
READINGS = TOPOLOGIES / "readings.py"
COUNTED_WORDS = Path(__file__).parents[2] / "topologies" / "counted_words.py"
BAD = """
from streamlet import Bolt, Topology
class Count(Bolt): pass
class Made(Topology):
    count = Count.spec(par=0)
"""


def test_a_valid_topology_is_said_to_be_valid(streamlet) -> None:
    done = streamlet("check", READINGS)
    assert done.returncode == 0 and "is valid: 1 spout, 3 bolts, 6 tasks." in done.stdout


def test_problems_are_one_json_object_and_a_bad_status(streamlet) -> None:
    """One object on stdout; the exit status still says that something is wrong."""
    done = streamlet("check", streamlet.write(BAD), "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 2 and done.stderr == "" and answer["valid"] is False
    assert [problem["component"] for problem in answer["problems"]] == [None, "count", "count", "count"]
    assert all(problem["message"] and problem["remedy"] for problem in answer["problems"])


def test_a_file_that_cannot_be_loaded_as_json(streamlet) -> None:
    done = streamlet("check", "nowhere.py", "--json")
    assert done.returncode == 2 and "There is no file" in json.loads(done.stdout)["problems"][0]["message"]


def test_a_valid_topology_is_one_json_object(streamlet) -> None:
    answer = json.loads(streamlet("check", f"{READINGS}:Weather", "--json").stdout)
    assert (answer["topology"], answer["valid"], answer["tasks"], answer["problems"]) == ("Weather", True, 6, [])


def test_settings_are_listed_with_meaning_and_default(streamlet) -> None:
    done = streamlet("check", "--settings")
    assert done.returncode == 0
    assert all(f"{key} = " in done.stdout and setting.meaning in done.stdout for key, setting in SETTINGS.items())


def test_settings_of_a_topology_include_its_own(streamlet) -> None:
    assert "readings.failing = 0.01" in streamlet("check", "--settings", READINGS).stdout
    rows = json.loads(streamlet("check", "--settings", "--json", READINGS).stdout)
    assert {row["key"] for row in rows} >= {*SETTINGS, "readings.failing"}


def test_settings_are_json_whatever_a_topology_has_for_its_own(streamlet) -> None:
    """Infinity is no JSON, and a key that is no text ended it as a bug."""
    file = streamlet.write(
        "from streamlet import Spout, Topology\n"
        "class Quiet(Spout):\n    outputs = ['n']\n    def next_tuple(self): ...\n"
        "class Odd(Topology):\n    config = {'my.most': float('inf'), 'my.table': {b'a': 2}}\n"
        "    quiet = Quiet.spec()\n"
    )
    done = streamlet("check", file, "--settings", "--json")
    rows = json.loads(done.stdout, parse_constant=lambda constant: pytest.fail(constant))
    own = {row["key"]: row["default"] for row in rows if row["key"].startswith("my.")}
    assert own == {"my.most": None, "my.table": {"b'a'": 2}}


def test_a_topology_is_checked_with_the_settings_of_a_run(streamlet, tmp_path) -> None:
    """On the line and in a file; what is wrong with them is a problem as any other."""
    done = streamlet("check", READINGS, "-c", "topology.max.spout.pending=7", "-c", "readings.failing=0.5")
    assert done.returncode == 0 and "is valid" in done.stdout
    done = streamlet("check", READINGS, "-c", "topology.max.spout.pending=seven")
    assert done.returncode == 2 and "topology.max.spout.pending" in done.stderr
    config = tmp_path / "settings.toml"
    config.write_text("[average]\nnonsense = 1\n")
    answer = json.loads(streamlet("check", READINGS, "--config", config, "--json").stdout)
    assert not answer["valid"] and "nonsense" in answer["problems"][0]["message"]


def test_every_wrong_setting_of_a_bolt_that_writes_to_kafka_is_told_at_once(streamlet) -> None:
    file = streamlet.write(
        """
from streamlet import Topology
from streamlet.bolts.kafka import KafkaBolt
class Made(Topology):
    out = KafkaBolt.spec(inputs=["x"], topic="t", hosts="kafka://k:1", key=7, acks=2, linger_ms=-1)
"""
    )
    answer = json.loads(streamlet("check", file, "--json").stdout)
    for said in (streamlet("check", file).stderr, answer["problems"][0]["message"]):
        assert all(name in said for name in ("key is 7", "acks = 2", "linger_ms = -1"))


def test_settings_without_a_file_are_refused(refused) -> None:
    assert "FILE" in refused("check", "--settings", "-c", "topology.workers=2")


def test_neither_file_nor_settings_is_refused(refused) -> None:
    assert "--settings" in refused("check")


COPY = """
from streamlet import Bolt, Topology
from streamlet.bolts.kafka import KafkaBolt
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig
class Same(Bolt):
    outputs = ["line"]
    def process(self, tup): self.emit(tup.values)
class Copy(Topology):
    lines = KafkaSpout.spec(config=SpoutConfig(KafkaHosts("k:1"), topic="lines", id="copy"))
    same = Same.spec(inputs=[lines])
    out = KafkaBolt.spec(inputs=[same], hosts="k:1", topic="copied")
"""


def test_exactly_once_of_the_command_line_says_what_is_not_covered(streamlet) -> None:
    path = streamlet.write(COPY)
    assert "Exactly once" not in streamlet("check", path).stdout
    done = streamlet("check", path, "-c", "topology.delivery=exactly-once")
    assert done.returncode == 0 and "Exactly once: the records that out writes" in done.stdout
    answer = json.loads(streamlet("check", path, "-c", "topology.delivery=exactly-once", "--json").stdout)
    assert answer["exactly_once"] in done.stdout and "Not covered: what same keeps" in answer["exactly_once"]
    assert "exactly_once" not in json.loads(streamlet("check", path, "--json").stdout)


def test_a_topology_for_dataframes_is_shown_by_stages_or_refused_with_every_reason(streamlet, refused) -> None:
    shown = streamlet("check", "--for", "dataframe", COUNTED_WORDS)
    assert shown.stdout.splitlines()[1:] == [
        "No bolt reads the stream lengths of split: what it emits there counts as done at once.",
        "On DataFrames:",
        "  split, lower: wherever rows are",
        "  count: rows of a key together",
        "  window: rows of a key together",
    ]
    told = refused("check", "--for", "dataframe", TOPOLOGIES / "word_count.py")
    assert "WordCount cannot be applied to DataFrames. count: It declares no outputs" in " ".join(told.split())
    refused("check", "--for", "dataframe")


def test_a_config_of_streamparses_is_answered_in_one_paragraph(streamlet, tmp_path) -> None:
    config = tmp_path / "config.json"
    envs = {"prod": {"user": "storm", "workers": ["a"], "options": {"topology.workers": 2}}}
    config.write_text(json.dumps({"topology_specs": "topologies/", "virtualenv_specs": "virtualenvs/", "envs": envs}))
    done = streamlet("check", READINGS, "--config", config)
    assert done.returncode == 2 and len(done.stderr) < 1500
    assert done.stderr.count("streamparse's config.json") == 1
