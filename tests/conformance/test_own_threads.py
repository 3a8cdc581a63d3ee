"""Untracked tuples of bolts that settle them by hand: a run waits for those that can still be settled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.outcome import TreesFailed, TuplesLeft
from streamlet.base.errors import StreamletError
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.conformance.conftest import backend_named
from tests.conformance.test_concurrent_bolts import backends, written
from tests.run_observer import Watcher

FILE = Path(__file__).with_name("own_threads.py")


TRACKED = {"topology.acker.executors": 1}


def ran(folder: Path, backend: str, workers: int, name: str, watcher: Watcher | None = None, **conf: Any) -> RunResult:
    topology = load_topology(FILE, name)
    own = {"at_once.results": str(folder), "topology.acker.executors": 0, "at_once.secs": 0.005, **conf}
    settings = resolve(topology.config, {**own, "streamlet.until.caught.up": True})
    request = RunRequest(topology, settings, file=FILE, attribute=name, workers=workers, until_caught_up=True)
    return backend_named(backend).run(request, watcher or Watcher(), Stop())


@backends
def test_a_run_waits_for_untracked_tuples_in_a_pool_of_the_bolts_own(
    backend: str, workers: int, tmp_path: Path
) -> None:
    result = ran(tmp_path, backend, workers, "OwnThreads")
    assert (result.reason, result.drained) == ("caught_up", True)
    assert written(tmp_path) == Counter(range(1000))
    assert result.components["work"].acked == 1000


@pytest.mark.parametrize("name", ["Raising", "RaisingByBatch"])
@backends
def test_an_untracked_tuple_that_a_pool_of_the_bolts_own_drops_has_failed_and_the_run_says_so(
    backend: str, workers: int, name: str, tmp_path: Path
) -> None:
    with pytest.raises(TreesFailed) as caught:
        ran(tmp_path, backend, workers, name)
    result = caught.value.result
    assert result is not None
    work = result.components["work"]
    assert (result.reason, work.acked, work.failed, work.given_up) == ("caught_up", 990, 10, 10)
    assert written(tmp_path) == Counter(n for n in range(1000) if n % 100 != 99)
    assert "10 untracked tuples at work failed" in caught.value.message
    assert "work (task 2) kept a tuple from numbers beyond its call, and dropped it" in caught.value.message


@backends
def test_nobody_waits_for_an_untracked_tuple_that_nobody_keeps(backend: str, workers: int, tmp_path: Path) -> None:
    """Without an ack, as a bolt may have it that knows that its topology is not tracked."""
    result = ran(tmp_path, backend, workers, "Forgetful")
    assert (result.reason, result.drained) == ("caught_up", True)
    assert written(tmp_path) == Counter(range(1000))


@backends
def test_an_untracked_tuple_that_is_kept_and_never_acked_is_named_at_the_end(
    backend: str, workers: int, tmp_path: Path
) -> None:
    with pytest.raises(TuplesLeft) as caught:
        ran(tmp_path, backend, workers, "Keeping", **{"streamlet.drain.timeout.secs": 2})
    assert "1 untracked tuple for work" in caught.value.message
    assert written(tmp_path) == Counter(range(1000))


@backends
def test_what_a_bolt_held_untracked_when_its_error_ended_the_run_is_counted(
    backend: str, workers: int, tmp_path: Path
) -> None:
    with pytest.raises(StreamletError, match="no more") as caught:
        ran(tmp_path, backend, workers, "Ending")
    components = caught.value.result.components
    work = components["work"]
    assert work.given_up == 1 and work.lost >= 99
    assert work.given_up + work.lost == components["numbers"].emitted


in_processes = pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "two workers"])


@in_processes
def test_emits_of_a_pool_whose_tuples_were_acked_before_are_told_and_counted(workers: int, tmp_path: Path) -> None:
    """A pool keeps the refusal in a future, and the run ended with nothing sent, and status 0."""
    with pytest.raises(TreesFailed) as caught:
        ran(tmp_path, "processes", workers, "Acking", **TRACKED)
    components = caught.value.result.components
    assert (components["numbers"].acked, components["work"].emitted, components["work"].given_up) == (1000, 0, 1000)
    assert "own_threads.py:93" in caught.value.message and "set auto_ack = False" in caught.value.message


@in_processes
def test_emits_of_a_pool_that_come_after_the_end_are_told_and_lost(workers: int, tmp_path: Path) -> None:
    watcher = Watcher()
    with pytest.raises(StreamletError, match="untracked tuples were lost") as caught:
        ran(tmp_path, "processes", workers, "AckingUnanchored", watcher, **TRACKED)
    work = caught.value.result.components["work"]
    assert work.lost > 0 and work.emitted + work.lost == 1000 and written(tmp_path).total() == work.emitted
    assert any("auto_ack acks its tuples when process returns" in text for text in watcher.texts)
    assert any("that it emitted on threads of its own were refused" in text for text in watcher.texts)


def test_emits_of_a_pool_that_come_after_an_inline_run_are_lost_too(tmp_path: Path) -> None:
    with pytest.raises(StreamletError, match="untracked tuples were lost") as caught:
        ran(tmp_path, "inline", 1, "AckingUnanchored", **{**TRACKED, "at_once.secs": 0.002})
    work = caught.value.result.components["work"]
    assert work.lost > 0 and work.emitted + work.lost == 1000


@in_processes
def test_calls_that_a_pool_was_given_are_made_before_a_worker_ends(workers: int, tmp_path: Path) -> None:
    """As in any program of Python's; they were dropped, with status 0."""
    result = ran(tmp_path, "processes", workers, "Writing")
    assert (result.reason, result.drained) == ("caught_up", True)
    assert written(tmp_path) == Counter(range(1000))


def test_calls_of_a_pool_that_would_take_too_long_at_the_end_are_counted(tmp_path: Path) -> None:
    with pytest.raises(StreamletError, match=r"\d+ call\(s\) that components had given to a thread pool") as caught:
        ran(tmp_path, "processes", 1, "Writing", **{"at_once.secs": 0.5, "at_once.count": 200})
    not_made = int(caught.value.message.partition(" call(s)")[0].split()[-1])
    assert 0 < not_made <= 200 - written(tmp_path).total()


@backends
def test_a_call_of_a_pool_that_does_not_end_is_told_with_its_place_and_is_no_error(
    backend: str, workers: int, tmp_path: Path
) -> None:
    """It may be a listener: the run ends well."""
    watcher = Watcher()
    result = ran(tmp_path, backend, workers, "Listening", watcher)
    assert (result.reason, result.drained) == ("caught_up", True)
    (told,) = (text for text in watcher.texts if "were under way when all was closed" in text)
    assert told.startswith("1 call(s)") and "in listen" in told
    (tmp_path / "over").touch()
