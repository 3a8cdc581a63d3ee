"""``streamlet check``: verdict, problems as data, and the list of settings."""

from __future__ import annotations

import json
from pathlib import Path

from streamlet.model.settings import SETTINGS

READINGS = Path(__file__).parents[3] / "topologies" / "readings.py"
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


def test_neither_file_nor_settings_is_refused(refused) -> None:
    assert "--settings" in refused("check")
