"""A stop that is asked for while trees are open: the same on every backend."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.outcome import RunFailed
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.conformance.conftest import backend_named
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = Path(__file__).with_name("drained.py")
UNTRACKED = FILE.with_name("untracked.py")


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("backend", ["inline", "processes", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_stop_finishes_what_is_open_and_begins_nothing(backend: str, tmp_path: Path) -> None:
    """Spouts emit no more, every open tree is acked, then bolts clean up and spouts close; nothing failed."""
    topology = load_topology(FILE, "Drained")
    conf = resolve(topology.config, {"drained.results": str(tmp_path)})
    request = RunRequest(topology, conf, file=FILE, attribute="Drained", workers=2, seconds=PATIENCE_S)
    stop, open_then = Stop(), [0]

    def ask() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not open_then[0] and time.monotonic() < deadline:
            time.sleep(0.005)
            done = len(lines(tmp_path, "done"))
            if done > 40:
                open_then[0] = len(lines(tmp_path, "emitted")) - done
        stop.ask()

    asking = threading.Thread(target=ask)
    asking.start()
    result = backend_named(backend).run(request, Watcher(), stop)
    asking.join()
    assert open_then[0] > 0, "nothing was open when the stop was asked for"
    assert (result.reason, result.drained, result.status.pending) == ("interrupted", True, 0)
    emitted = lines(tmp_path, "emitted")
    assert Counter(lines(tmp_path, "done")) == Counter(lines(tmp_path, "acked")) == Counter(emitted)
    assert emitted == [str(n) for n in range(len(emitted))]
    assert len(lines(tmp_path, "cleaned")) == 2 and len(lines(tmp_path, "closed")) == 1


@pytest.mark.parametrize(("name", "calls"), [("LongTicks", 3), ("LongBatches", 2)])
@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_drain_has_the_time_that_a_batch_or_a_tick_takes(backend: str, name: str, calls: int, tmp_path: Path) -> None:
    """By what waits in queues, of which there was nothing, it was given 4 s; its worker was killed at work."""
    topology = load_topology(FILE, name)
    conf = resolve(topology.config, {"drained.results": str(tmp_path)})
    request = RunRequest(topology, conf, file=FILE, attribute=name, workers=1, seconds=PATIENCE_S)
    stop = Stop()

    def ask() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(lines(tmp_path, "began")) < calls and time.monotonic() < deadline:
            time.sleep(0.05)
        stop.ask()

    asking = threading.Thread(target=ask)
    asking.start()
    result = backend_named(backend).run(request, Watcher(), stop)
    asking.join()
    assert (result.reason, result.drained, result.unclosed) == ("interrupted", True, ())
    assert Counter(lines(tmp_path, "acked")) == Counter(lines(tmp_path, "emitted"))


@pytest.mark.parametrize("backend", ["inline", "processes", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_run_that_a_spout_ends_by_an_error_drains_first(backend: str, tmp_path: Path) -> None:
    """Its bolts are whole: what they keep of acked tuples is written at their last tick, and in their cleanup."""
    topology = load_topology(FILE, "Failed")
    conf = resolve(topology.config, {"drained.results": str(tmp_path)})
    request = RunRequest(topology, conf, file=FILE, attribute="Failed", workers=2, seconds=PATIENCE_S)
    watcher = Watcher()
    with pytest.raises(RunFailed, match=r"ConnectionError in next_tuple .*its source is gone") as caught:
        backend_named(backend).run(request, watcher, Stop())
    assert caught.value.exit_status == 1 and "closed without its source" not in caught.value.message
    assert Counter(lines(tmp_path, "acked")) == Counter(str(n) for n in range(500))
    assert lines(tmp_path, "ticked") == ["500"]
    assert sorted(lines(tmp_path, "cleaned")) == ["0", "500"] and len(lines(tmp_path, "closed")) == 1
    result = caught.value.result
    assert result is not None
    assert (result.reason, result.status.state, result.status.pending) == ("failed", "ended", 0)


@pytest.mark.parametrize("cut_short", [False, True])
@pytest.mark.parametrize("backend", ["inline", "processes", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_stop_does_what_a_bolt_keeps_until_a_tick(backend: str, cut_short: bool, tmp_path: Path) -> None:
    """With time to drain, a tick comes early; without it, the last tick's acks reach the spout before it commits."""
    topology = load_topology(FILE, "Collected")
    settings = {"drained.results": str(tmp_path), "streamlet.drain.timeout.secs": 0.2 if cut_short else 30.0}
    conf = resolve(topology.config, settings)
    request = RunRequest(topology, conf, file=FILE, attribute="Collected", workers=1 if cut_short else 2, seconds=1.0)
    result = backend_named(backend).run(request, Watcher(), Stop())
    assert result.drained is not cut_short and result.status.pending == 0
    emitted, done = lines(tmp_path, "emitted"), lines(tmp_path, "done")
    assert len(emitted) == 50 and Counter(done) == Counter(lines(tmp_path, "acked")) == Counter(emitted)


@pytest.mark.parametrize("how", ["error", "exit"])
@pytest.mark.parametrize("cut_short", [False, True])
@pytest.mark.parametrize("backend", ["inline", "processes", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_last_tick_that_ends_the_run_keeps_nobody_from_its_own_or_from_cleanup(
    backend: str, cut_short: bool, how: str, tmp_path: Path
) -> None:
    """In the drain, or where it is cut short: what the others keep of acked tuples is nowhere else."""
    topology = load_topology(FILE, "FailsAtItsEnd")
    settings = {"drained.results": str(tmp_path), "drained.held": cut_short, "drained.how": how}
    settings["streamlet.drain.timeout.secs"] = 0.2 if cut_short else 30.0
    conf = resolve(topology.config, settings)
    request = RunRequest(topology, conf, file=FILE, attribute="FailsAtItsEnd", workers=2, seconds=0.5)
    why = r"fails called sys.exit\(7\)" if how == "exit" else "fails raised OSError .*its table is gone"
    with pytest.raises(RunFailed, match=why) as caught:
        backend_named(backend).run(request, Watcher(), Stop())
    assert sorted(lines(tmp_path, "ticked")) == ["after", "after", "fails"]
    assert sorted(lines(tmp_path, "cleaned")) == ["after0", "after1", "fails0", "fails1"]
    result = caught.value.result
    assert result is not None and (result.reason, result.drained) == ("time", not cut_short)


@pytest.mark.parametrize("backend", ["inline", "processes", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_run_ends_though_ticks_take_longer_than_their_period(backend: str, tmp_path: Path) -> None:
    """The loop never sleeps then, and has nothing to do all the same."""
    topology = load_topology(FILE, "LateTicks")
    settings = {"drained.results": str(tmp_path), "streamlet.until.caught.up": True}
    conf = resolve(topology.config, settings)
    request = RunRequest(topology, conf, file=FILE, attribute="LateTicks", until_caught_up=True, seconds=PATIENCE_S)
    result = backend_named(backend).run(request, Watcher(), Stop())
    assert (result.reason, result.drained) == ("caught_up", True)
    assert len(lines(tmp_path, "acked")) == 10 and len(lines(tmp_path, "ticked")) > 2


@pytest.mark.parametrize("backend", ["inline", "processes", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_run_that_has_caught_up_has_done_what_nobody_tracks(backend: str, tmp_path: Path) -> None:
    """Workers in a chain: one that was idle when the end was near has more to do when the one before it is."""
    topology = load_topology(UNTRACKED)
    settings = {"untracked.results": str(tmp_path), "streamlet.until.caught.up": True}
    conf = resolve(topology.config, settings)
    workers = 2 if backend == "spark" else 3  # as many as its executors have slots
    request = RunRequest(
        topology, conf, file=UNTRACKED, attribute="Untracked", workers=workers, seconds=PATIENCE_S, until_caught_up=True
    )
    result = backend_named(backend).run(request, Watcher(), Stop())
    assert (result.reason, result.drained) == ("caught_up", True)
    assert (tmp_path / "seen").read_text() == "3000"
