"""Runs of ``tests/topologies/stations.py`` on a backend that imports it, and the rows that it must write."""

from __future__ import annotations

from pathlib import Path

from streamlet.backends.contract import Backend, RunRequest, RunResult, Stop
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = Path(__file__).parent / "topologies" / "stations.py"


def run_stations(backend: Backend, folder: Path, *, deadly: int = -1, pending: int = 2000) -> RunResult:
    """To the end, on two workers, from ``folder/readings`` into ``folder/out``."""
    topology = load_topology(FILE)
    given = {
        "streamlet.until.caught.up": True,
        "topology.max.spout.pending": pending,
        "deadly": deadly,
        "witness": str(folder / "killed"),
    }
    overrides = {
        "readings": {"path": str(folder / "readings"), "progress": str(folder / "progress")},
        "out": {"path": str(folder / "out"), "idle_s": 0.2},
    }
    request = RunRequest(
        topology,
        resolve(topology.config, given),
        overrides,
        file=FILE,
        workers=2,
        until_caught_up=True,
        seconds=PATIENCE_S,
    )
    return backend.run(request, Watcher(), Stop())


def reading(number: int) -> tuple[int, str, float]:
    """A row of the DataFrame."""
    return number, f"station {number % 7}", number / 8


def written(number: int) -> tuple[int, str, float]:
    """The row that becomes of it."""
    _, station, celsius = reading(number)
    return number, station, celsius * 1.8 + 32
