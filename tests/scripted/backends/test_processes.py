"""Worker processes: how a run of them begins and ends. What they compute is the conformance suite's matter."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, RunStatus, Stop
from streamlet.backends.processes import ProcessesBackend
from streamlet.backends.run_coordinator import RunFailed
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = """
from streamlet import Bolt, Spout, Topology

class Quiet(Spout):
    outputs = ["n"]
    def next_tuple(self): ...
    def partition_status(self):
        return [{{"topic": "t", "partition": 0, "position": 7, "committed": 7, "lag": 0}}]

class Hanging(Bolt):
    def process(self, tup): ...
    def cleanup(self):
        import time
        time.sleep({cleanup_s})

class Slow(Topology):
    quiet = Quiet.spec()
    hanging = Hanging.spec(inputs=[quiet])
"""


class StopWhenUp(Watcher):
    """Asks the run to stop once all its workers are up, however long that took."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self.stop = stop

    def on_status(self, status: RunStatus) -> None:
        if status.state == "running":
            self.stop.ask()


def request(file: Path, seconds: float | None, cleanup_s: float = 0.0) -> RunRequest:
    file.write_text(FILE.format(cleanup_s=cleanup_s))
    topology = load_topology(file)
    conf = resolve(topology.config, {})
    return RunRequest(topology, conf, file=file, workers=2, seconds=seconds)


def test_a_run_that_is_stopped_while_its_workers_start_ends(tmp_path: Path) -> None:
    """Whatever of plan, pause and stop a worker reads at once, it heeds."""
    for n in range(3):
        began = time.monotonic()
        run = ProcessesBackend().run(request(tmp_path / f"early{n}.py", 0.05 + 0.15 * n), Watcher(), Stop())
        assert run.reason == "time"
        assert time.monotonic() - began < 20


def test_a_cleanup_that_hangs_does_not_keep_the_run_from_ending(tmp_path: Path) -> None:
    """The worker is killed at its deadline, and named."""
    stop = Stop()
    observer = StopWhenUp(stop)
    run = ProcessesBackend().run(request(tmp_path / "hanging.py", None, cleanup_s=120), observer, stop)
    assert run.reason == "interrupted"
    assert any("did not stop" in text for text in observer.texts)


def test_the_last_status_still_shows_the_partitions(tmp_path: Path) -> None:
    """Their workers are gone by then."""
    stop = Stop()
    run = ProcessesBackend().run(request(tmp_path / "shown.py", None), StopWhenUp(stop), stop)
    assert [row["position"] for row in run.status.partitions] == [7]


def test_sockets_find_a_place_where_temporary_files_have_long_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Unix socket's path may have 107 bytes; TMPDIR, any number."""
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    stop = Stop()
    assert ProcessesBackend().run(request(tmp_path / "long.py", None), StopWhenUp(stop), stop).drained
    assert not list(long.iterdir())


CRASHING = """
import os, signal
from streamlet import Bolt, Spout, Topology

class One(Spout):
    outputs = ["n"]
    def next_tuple(self):
        self.emit([1], tup_id=1)

class Deadly(Bolt):
    def process(self, tup):
        os.kill(os.getpid(), signal.SIGSEGV)

class Crashing(Topology):
    one = One.spec()
    deadly = Deadly.spec(inputs=[one])
"""


def test_a_worker_that_dies_again_and_again_ends_the_run_with_a_paragraph(tmp_path: Path) -> None:
    """A tuple that kills its process, of a spout that sends it for ever: after so many deaths the run ends.

    The first one, and those after its spout should have given it up, count in full.
    """
    file = tmp_path / "crashing.py"
    file.write_text(CRASHING)
    topology = load_topology(file)
    conf = resolve(topology.config, {"streamlet.worker.restarts.max": 2})
    observer = Watcher()
    with pytest.raises(RunFailed, match=r"Worker 1 \(deadly\) died 5 times .* SIGSEGV.*worker\.restarts\.max"):
        ProcessesBackend().run(RunRequest(topology, conf, file=file, workers=2), observer, Stop())
    assert sum("SIGSEGV" in text for text in observer.texts) == 5


LATE = """
import time
from streamlet import Bolt, ReliableSpout, Topology

class Few(ReliableSpout):
    outputs = ["n"]
    asked = False
    def next_tuple(self):
        if not self.asked:
            self.asked = True
            for n in range({count}):
                self.emit([n], tup_id=n)
    def caught_up(self):
        return not self.has_unfinished()

class Late(Bolt):
    def initialize(self, conf, context):
        time.sleep(0.5)
    def process(self, tup): ...

class Small(Topology):
    few = Few.spec()
    late = Late.spec(inputs=[few])
"""


@pytest.mark.parametrize("count", [0, 3])
def test_a_spout_at_its_end_before_the_others_are_up_ends_the_run_once_they_are(tmp_path: Path, count: int) -> None:
    """What it says of its end counts from when tuples may flow: neither too early, before it was asked, nor never."""
    file = tmp_path / f"late{count}.py"
    file.write_text(LATE.format(count=count))
    topology = load_topology(file)
    conf = resolve(topology.config, {"streamlet.until.caught.up": True})
    asked = RunRequest(topology, conf, file=file, workers=2, until_caught_up=True, seconds=PATIENCE_S)
    run = ProcessesBackend().run(asked, Watcher(), Stop())
    assert run.reason == "caught_up"
    assert [row.acked for row in run.status.components] == [count, count]


UNTOLD = """
from streamlet import Spout, Topology

class Odd(Spout):
    outputs = ["n"]
    def next_tuple(self): ...
    def partition_status(self):
        return [{"topic": object()}]

class Odds(Topology):
    odd = Odd.spec()
"""


def test_a_row_that_no_heartbeat_can_carry_is_named(tmp_path: Path) -> None:
    """It ended the thread that sends them, and the worker was replaced, again and again, for being silent."""
    file = tmp_path / "untold.py"
    file.write_text(UNTOLD)
    topology = load_topology(file)
    wanted = RunRequest(topology, resolve(topology.config, {}), file=file, workers=1, seconds=PATIENCE_S)
    with pytest.raises(RunFailed, match="TypeError"):
        ProcessesBackend().run(wanted, Watcher(), Stop())
