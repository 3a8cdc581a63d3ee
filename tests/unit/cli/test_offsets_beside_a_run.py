"""``streamlet offsets`` beside a run: what it shows and copies, and what it refuses to write."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamlet.cli import offsets
from streamlet.cli.offsets import Chosen
from streamlet.spouts.kafka import GroupOffsets, KafkaHosts, SpoutConfig, ZkOffsets
from streamlet.spouts.kafka.offset_tools.offset_changes import Change, LogPlace, StoredEntry, Wish, export_document
from streamlet.spouts.kafka.offset_tools.stored_offsets import StillRunning
from streamlet.spouts.kafka.partition import OffsetRange


class FakePlace:
    """A store of offsets, and who reads under its id."""

    def __init__(self, where: str, stored: dict[int, int]) -> None:
        self.where = where
        self.stored = stored
        self.tasks: list[str] = []

    def read(self, partitions: Sequence[int]) -> dict[int, StoredEntry]:
        return {number: StoredEntry(offset) for number, offset in self.stored.items() if number in partitions}

    def running(self) -> list[str]:
        return self.tasks

    def write(self, changed: Sequence[Change], topic_id: str | None) -> None:
        self.stored = {**self.stored, **{row.partition: row.after.offset for row in changed}}


class FakeOffsets:
    """The spout `lines`, whose offsets are in the group `own`; `bak` is another."""

    component, topic, topic_id, partitions = "lines", "clicks", "id", (0, 1)
    config = SpoutConfig(KafkaHosts("h:1"), "clicks", id="own")

    def __init__(self) -> None:
        self.place = FakePlace("consumer group 'own'", {0: 5, 1: 6})
        self.other = FakePlace("consumer group 'bak'", {})

    def place_of(self, store: ZkOffsets | GroupOffsets, zk_root: str, spout_id: str) -> FakePlace:
        return self.other

    def logs(self) -> dict[int, OffsetRange]:
        return {0: OffsetRange(0, 9), 1: OffsetRange(0, 9)}

    def find(self, place: LogPlace, numbers: Sequence[int], logs: Any) -> dict[int, Wish]:
        return dict.fromkeys(numbers, Wish(0))


@pytest.fixture
def spout(monkeypatch: pytest.MonkeyPatch) -> FakeOffsets:
    made = FakeOffsets()

    @contextlib.contextmanager
    def one(chosen: Chosen, topic: str | None) -> Iterator[FakeOffsets]:
        yield made

    monkeypatch.setattr(Chosen, "one", one)
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(offsets.offsets, [arguments[0], "clicks.py", *arguments[1:]])


def test_offsets_of_a_running_topology_are_copied_elsewhere_and_nothing_is_copied_over_them(spout: FakeOffsets) -> None:
    """Only the store that is written to has to be free."""
    spout.place.tasks = ["member 7 from /10.0.0.1"]
    done = run("copy", "--to", "group:bak", "--yes")
    assert done.exit_code == 0 and spout.other.stored == {0: 5, 1: 6}, done.output
    assert done.stderr == (
        "A run reads from consumer group 'own' (member 7 from /10.0.0.1) and goes on: the copy has its offsets of this "
        "moment.\n"
    )
    spout.other.stored = {0: 1, 1: 1}
    refused = run("copy", "--from", "group:bak", "--yes")
    assert isinstance(refused.exception, StillRunning) and "in consumer group 'own' are in use" in str(
        refused.exception
    )
    spout.place.tasks, spout.other.tasks = [], ["member 8 from /10.0.0.1"]
    assert isinstance(run("copy", "--to", "group:bak", "--yes").exception, StillRunning)
    assert (spout.place.stored, spout.other.stored) == ({0: 5, 1: 6}, {0: 1, 1: 1})
    assert run("copy", "--from", "group:bak", "--yes").exit_code == 0 and spout.place.stored == {0: 1, 1: 1}


def commands(folder: Path) -> list[tuple[str, ...]]:
    export = folder / "export.json"
    export.write_text(json.dumps(export_document({}, "clicks", "id", {0: StoredEntry(3), 1: StoredEntry(6)})))
    return [
        ("set", "0=3"),
        ("reset", "--to", "earliest"),
        ("reset", "--by", "-1"),
        ("import", str(export)),
        ("copy", "--from", "group:bak"),
    ]


@pytest.mark.parametrize("number", range(5))
def test_what_would_change_is_shown_beside_a_run_which_has_to_stop_before_it_is_done(
    spout: FakeOffsets, tmp_path: Path, number: int
) -> None:
    command = commands(tmp_path)[number]
    spout.other.stored = {0: 3}
    spout.place.tasks = ["member 7 from /10.0.0.1"]
    shown = run(*command)
    assert shown.exit_code == 0 and shown.stdout.splitlines()[3].split()[:2] == ["0", "5"], shown.output
    assert shown.stdout.splitlines()[-1].endswith(
        "would be written. Nothing was changed. A run has these offsets (member 7 from /10.0.0.1): stop it before "
        "--yes, which is refused while it reads."
    )
    told = json.loads(run(*command, "--json").stdout)
    assert (told["dry_run"], told["running"], told["changes"][0]["from"]) == (True, ["member 7 from /10.0.0.1"], 5)
    assert isinstance(run(*command, "--yes").exception, StillRunning)
    assert spout.place.stored == {0: 5, 1: 6}
    spout.place.tasks = []
    assert run(*command).stdout.endswith("Nothing was changed: --yes does it.\n")
    assert json.loads(run(*command, "--json").stdout)["running"] == []
    assert run(*command, "--yes").exit_code == 0 and spout.place.stored != {0: 5, 1: 6}


@pytest.mark.parametrize("option", ["--spout", "--component"])
def test_the_spout_whose_offsets_are_meant_has_an_option_of_two_names(
    spout: FakeOffsets, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """The other groups of commands call it `--spout`."""
    named: list[str | None] = []

    @contextlib.contextmanager
    def one(chosen: Chosen, topic: str | None) -> Iterator[FakeOffsets]:
        named.append(chosen.component)
        yield spout

    monkeypatch.setattr(Chosen, "one", one)
    assert run("set", "0=3", option, "lines").exit_code == 0 and named == ["lines"]
