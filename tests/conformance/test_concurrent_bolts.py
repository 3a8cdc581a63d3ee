"""Bolts that work on several tuples at once keep what any bolt promises, on every backend."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.conformance.conftest import backend_named
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = Path(__file__).with_name("concurrent_bolts.py")

backends = pytest.mark.parametrize(
    ("backend", "workers"),
    [("inline", 1), ("processes", 1), ("processes", 2)],
    ids=["inline", "one worker", "two workers"],
)
kinds = pytest.mark.parametrize("name", ["Threads", "Loops"])


def ran(
    folder: Path, backend: str, workers: int, name: str, seconds: float = PATIENCE_S, **conf: Any
) -> tuple[RunResult, Watcher]:
    topology = load_topology(FILE, name)
    watcher = Watcher()
    own = {"at_once.results": str(folder), "streamlet.until.caught.up": seconds == PATIENCE_S, **conf}
    settings = resolve(topology.config, own)
    request = RunRequest(
        topology,
        settings,
        file=FILE,
        attribute=name,
        workers=workers,
        seconds=seconds,
        until_caught_up=settings["streamlet.until.caught.up"],
    )
    return backend_named(backend).run(request, watcher, Stop()), watcher


def written(folder: Path) -> Counter[int]:
    return Counter(int(line) for line in (folder / "squares.0").read_text().split())


@backends
@kinds
def test_tuples_are_worked_on_at_once_and_one_that_raises_fails_alone(
    backend: str, workers: int, name: str, tmp_path: Path
) -> None:
    """Its tree fails and comes again; what it emits belongs to its tuple, and no more than five are under work."""
    result, watcher = ran(tmp_path, backend, workers, name, **{"at_once.raises": True})
    assert (result.reason, result.drained) == ("caught_up", True)
    assert written(tmp_path) == Counter(range(1000))
    numbers, work = result.components["numbers"], result.components["work"]
    assert (numbers.acked, numbers.failed, work.acked, work.failed, work.errors) == (1000, 20, 1000, 20, 20)
    assert int((tmp_path / "work.0").read_text()) == 5
    told = [text for text in watcher.texts if "work (task 2) raised ValueError at" in text]
    assert told and "concurrent_bolts.py" in told[0] and "not the first time, 7" in told[0]


@backends
@kinds
def test_a_drain_waits_for_what_is_under_work_though_nobody_tracks_it(
    backend: str, workers: int, name: str, tmp_path: Path
) -> None:
    result, _ = ran(tmp_path, backend, workers, name, **{"topology.acker.executors": 0, "at_once.secs": 0.005})
    assert (result.reason, result.drained) == ("caught_up", True)
    assert written(tmp_path) == Counter(range(1000))
    assert result.components["work"].acked == 1000


@backends
@kinds
def test_a_run_that_is_ended_by_time_finishes_what_it_has_begun(
    backend: str, workers: int, name: str, tmp_path: Path
) -> None:
    result, _ = ran(tmp_path, backend, workers, name, 3.0, **{"at_once.count": 10**6, "at_once.secs": 0.02})
    assert (result.reason, result.drained) == ("time", True)
    done = written(tmp_path)
    assert max(done.values()) == 1 and result.components["numbers"].acked == done.total() > 0


@backends
@kinds
def test_a_tuple_that_is_worked_on_for_too_long_is_named_with_where_it_stands(
    backend: str, workers: int, name: str, tmp_path: Path
) -> None:
    """The loop goes on meanwhile, and so do the others."""
    result, watcher = ran(tmp_path, backend, workers, name, **{"at_once.secs_of_3": 4, "streamlet.task.hang.secs": 1})
    assert (result.reason, written(tmp_path)) == ("caught_up", Counter(range(1000)))
    (told,) = [text for text in watcher.texts if "work (task 2) has been at work for" in text]
    assert "on a tuple from numbers, [3], outside of the loop" in told
    frames = [text for text in watcher.texts if "at_once.secs_of_3" in text]
    assert frames and not any("_bootstrap" in text or "bolts/concurrent.py" in text for text in watcher.texts)


@backends
@kinds
def test_calls_that_take_most_of_the_time_out_do_not_time_out(
    backend: str, workers: int, name: str, tmp_path: Path
) -> None:
    """Those that wait for a thread have not begun."""
    conf = {"at_once.count": 15, "at_once.secs": 2.1, "topology.message.timeout.secs": 3}
    result, _ = ran(tmp_path, backend, workers, name, **conf)
    assert (result.reason, result.drained) == ("caught_up", True)
    numbers = result.components["numbers"]
    assert written(tmp_path) == Counter(range(15)) and (numbers.acked, numbers.failed) == (15, 0)


@backends
def test_what_waits_for_room_for_its_emits_does_not_time_out(backend: str, workers: int, tmp_path: Path) -> None:
    """Its reader is slow, and it is not forgotten."""
    conf = {
        "at_once.count": 30,
        "topology.message.timeout.secs": 1,
        "streamlet.threads.queue.max": 20,
        "streamlet.inbox.high.water.tuples": 20,
    }
    result, _ = ran(tmp_path, backend, workers, "Floods", **conf)
    numbers, reader = result.components["numbers"], result.components["reader"]
    assert (result.reason, numbers.acked, numbers.failed, reader.acked) == ("caught_up", 30, 0, 1800)


@pytest.mark.spark
def test_on_executors_they_work_at_once_too(tmp_path: Path) -> None:
    """The same workers, so one kind stands for both."""
    result, _ = ran(tmp_path, "spark", 2, "Loops")
    assert (result.reason, result.drained) == ("caught_up", True)
    assert written(tmp_path) == Counter(range(1000))
