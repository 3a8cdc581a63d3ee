"""Batches on every backend: nothing lost through failures, splits and a killed worker. Counted outside."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.conformance.bad_rows import BAD, ROWS
from tests.conformance.by_batch import LINES, WORDS
from tests.conformance.conftest import backend_named
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = Path(__file__).with_name("by_batch.py")
BAD_ROWS = Path(__file__).with_name("bad_rows.py")


WAYS = ["ByBatch", "TogetherByBatch"]
"""A tree for each line; and sets of trees."""


def ran(folder: Path, backend: str, workers: int, way: str) -> RunResult:
    topology = load_topology(FILE, way)
    conf = resolve(topology.config, {"batch.folder": str(folder), "streamlet.until.caught.up": True})
    request = RunRequest(
        topology, conf, file=FILE, attribute=way, workers=workers, seconds=PATIENCE_S, until_caught_up=True
    )
    return backend_named(backend).run(request, Watcher(), Stop())


def counted_outside(folder: Path) -> int:
    """How many different words were written, by another program's count."""
    files = sorted(map(str, folder.glob("seen.*")))
    merged = subprocess.run(["sort", "-u", *files], check=True, capture_output=True).stdout
    return merged.count(b"\n")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("backend", "workers"), [("inline", 1), ("processes", 1), ("processes", 2)])
def test_every_word_is_counted_though_batches_and_tuples_of_them_fail(
    backend: str, workers: int, way: str, tmp_path: Path
) -> None:
    (tmp_path / "fail").touch()
    result = ran(tmp_path, backend, workers, way)
    assert (result.reason, result.drained, result.left) == ("caught_up", True, {})
    assert counted_outside(tmp_path) == LINES * WORDS
    lines, split = result.components["lines"], result.components["split"]
    assert way == "ByBatch" or lines.metrics["together"] > 2, "they were not tracked as sets"
    assert lines.acked == LINES and lines.failed > 0 and lines.given_up == 0
    assert split.errors > 0 and (tmp_path / "failed").exists(), "nothing failed"
    assert result.components["count"].failed == 0 and result.components["count"].errors == 0, "split spares them"


@pytest.mark.parametrize("way", ["BadRows", "BadGroups"])
@pytest.mark.parametrize(("backend", "workers"), [("inline", 1), ("processes", 1), ("processes", 2)])
def test_before_a_row_is_given_up_it_is_tried_alone_in_each_batch(
    backend: str, workers: int, way: str, tmp_path: Path
) -> None:
    """Batches fail whole, and what fails together comes together again: good rows by thousands went with ten bad."""
    topology = load_topology(BAD_ROWS, way)
    conf = resolve(topology.config, {"bad.folder": str(tmp_path), "streamlet.until.caught.up": True})
    request = RunRequest(
        topology, conf, file=BAD_ROWS, attribute=way, workers=workers, seconds=PATIENCE_S, until_caught_up=True
    )
    result = backend_named(backend).run(request, Watcher(), Stop())
    given_up = sorted(map(int, (tmp_path / "given_up").read_text().split()))
    assert given_up == list(range(BAD, ROWS + 1, BAD))
    numbers = result.components["numbers"]
    assert numbers.acked == ROWS - len(given_up) and numbers.failed > 3 * len(given_up), "no batch failed with others"


@pytest.mark.faults
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_killed_in_a_batch_loses_nothing(workers: int, way: str, tmp_path: Path) -> None:
    (tmp_path / "kill").touch()
    result = ran(tmp_path, "processes", workers, way)
    assert (tmp_path / "killed").exists()
    assert (result.reason, result.drained) == ("caught_up", True)
    assert counted_outside(tmp_path) == LINES * WORDS


@pytest.mark.spark
def test_batches_on_executors_count_every_word_once(tmp_path: Path) -> None:
    result = ran(tmp_path, "spark", 2, "ByBatch")
    assert (result.reason, result.drained) == ("caught_up", True)
    assert counted_outside(tmp_path) == LINES * WORDS
