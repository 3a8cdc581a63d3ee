"""Worker processes: how a run of them begins and ends. What they compute is the conformance suite's matter."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends import processes
from streamlet.backends.contract import RunRequest, RunStatus, Stop
from streamlet.backends.processes import ProcessesBackend, ProcessLauncher
from streamlet.backends.run_coordinator import RunFailed
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.marked_processes import streamlet
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


SLOW_TO_START = """
import time
from streamlet import Bolt, Spout, Topology

class Numbers(Spout):
    outputs = ["n"]
    def next_tuple(self):
        self.emit([1])
        time.sleep(0.01)

class Late(Bolt):
    def initialize(self, conf, context):
        time.sleep(1.0)
    def process(self, tup): ...

class Starting(Topology):
    numbers = Numbers.spec()
    late = Late.spec(inputs=[numbers])
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
        began, stop = time.monotonic(), Stop()
        asking = threading.Timer(0.05 + 0.15 * n, stop.ask)
        asking.start()
        run = ProcessesBackend().run(request(tmp_path / f"early{n}.py", None), Watcher(), stop)
        asking.join()
        assert run.reason == "interrupted"
        assert time.monotonic() - began < 20


def test_the_seconds_of_a_run_begin_when_its_workers_stand(tmp_path: Path) -> None:
    """Else a run whose workers start slowly would be over before a tuple was emitted, and end well."""
    file = tmp_path / "late.py"
    file.write_text(SLOW_TO_START)
    topology = load_topology(file)
    asked = RunRequest(topology, resolve(topology.config, {}), file=file, workers=1, seconds=0.5)
    run = ProcessesBackend().run(asked, Watcher(), Stop())
    assert run.reason == "time" and run.components["numbers"].emitted > 0


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


def test_temporary_files_may_have_long_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Unix socket's path may have 107 bytes only; TMPDIR, any number."""
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


def test_a_start_that_the_system_refuses_costs_one_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor or process is left at the moment: told, and tried again; no descriptor of ours is left open."""
    tries: list[int] = []
    popen = subprocess.Popen

    def refusing(*given: Any, **more: Any) -> Any:
        tries.append(1)
        if len(tries) in (2, 3):
            raise OSError(errno.EMFILE, "Too many open files")
        return popen(*given, **more)

    monkeypatch.setattr(processes.subprocess, "Popen", refusing)
    stop = Stop()
    observer = StopWhenUp(stop)
    before = len(os.listdir("/proc/self/fd"))
    assert ProcessesBackend().run(request(tmp_path / "refused.py", None), observer, stop).drained
    assert len(tries) == 4 and len(os.listdir("/proc/self/fd")) == before
    told = [text for text in observer.texts if "could not be started" in text]
    first, second = told
    assert second == "worker 1 (epoch 2) could not be started: [Errno 24] Too many open files"
    assert first.startswith(second.replace("epoch 2", "epoch 1")) and "Look at `ulimit -n`" in first


def test_a15_a_start_that_the_system_refuses_each_time_ends_the_run_and_blames_no_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*given: Any, **more: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(processes.subprocess, "Popen", refusing)
    asked = request(tmp_path / "never.py", None)
    asked = dataclasses.replace(asked, conf={**asked.conf, "streamlet.worker.restarts.max": 2})
    with pytest.raises(RunFailed, match=r"started 3 times and never came up.*Too many open files.*`ulimit -n`") as end:
        ProcessesBackend().run(asked, Watcher(), Stop())
    assert "components" not in end.value.message


def test_what_the_kernel_does_not_let_end_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A killed process in a read of a disk that hangs is not reaped until that returns: it is named at the end."""
    monkeypatch.setattr(processes, "REAP_S", 0.2)

    class Kept(subprocess.Popen):  # type: ignore[type-arg]
        def wait(self, timeout: float | None = None) -> int:
            assert timeout is not None, "it would wait for ever"
            time.sleep(timeout)
            raise subprocess.TimeoutExpired("", timeout)

        def poll(self) -> int | None:
            return None

    process = Kept(["sleep", str(PATIENCE_S)], process_group=0)
    launcher = ProcessLauncher()
    launcher._processes[0] = 1, process
    launcher.kill(0, 1)
    assert launcher.ended() == []
    launcher.close()
    assert f"have not ended after 0.2 s (process {process.pid})" in caplog.text
    os.waitpid(process.pid, 0)


def test_a16_a_workers_group_is_killed_before_its_number_can_be_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is reaped, a program that nobody here knows may lead a group of that number."""
    killed: list[tuple[int, str]] = []
    kill = os.killpg

    def recording(group: int, number: int) -> None:
        killed.append((group, Path(f"/proc/{group}/stat").read_text().rpartition(")")[2].split()[0]))
        kill(group, number)

    monkeypatch.setattr(os, "killpg", recording)
    launcher = ProcessLauncher()
    ends = [subprocess.Popen(["sh", "-c", command], process_group=0) for command in ("exit 3", "kill -9 $$", "exit 0")]
    for worker, process in enumerate(ends):
        launcher._processes[worker] = (1, process)
    deadline = time.monotonic() + PATIENCE_S
    while len(said := launcher.ended()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert said == [(0, 1, "ended with status 3"), (1, 1, "was killed by SIGKILL"), (2, 1, "ended with status 0")]
    assert launcher.ended() == said, "not reaped by the look"
    launcher.kill(0, 1)
    launcher.close()
    assert sorted(killed) == sorted((process.pid, "Z") for process in ends)
    assert [process.returncode for process in ends] == [3, -9, 0]


FORKING = """
import os, threading
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

FOLDER = Path(__file__).parent

def in_a_child(act, name):
    child = os.fork()
    if child == 0:
        try:
            act()
            (FOLDER / name).write_text("it was taken")
        except BaseException as error:
            (FOLDER / name).write_text(f"{type(error).__name__}: {error}")
        finally:
            os._exit(0)
    os.waitpid(child, 0)

class Few(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n == 3:
            self.n += 1
            in_a_child(lambda: self.emit([99], tup_id=99), "spout")
        elif self.n < 6:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 6 and not self.has_unfinished()

class Forks(Bolt):
    outputs = ["n"]
    auto_ack = False
    def process(self, tup):
        if tup.values[0] == 1:
            in_a_child(lambda: self.emit([98]), "emit")
            in_a_child(lambda: self.ack(tup), "ack")
            thread = threading.Thread(target=in_a_child, args=(lambda: self.fail(tup), "fail"))
            thread.start()
            thread.join()
        self.emit(tup.values)
        self.ack(tup)

class Sink(Bolt):
    def process(self, tup):
        with (FOLDER / "seen").open("a") as file:
            file.write(f"{tup.values[0]}\\n")

class Forking(Topology):
    few = Few.spec()
    forks = Forks.spec(inputs=[few])
    sink = Sink.spec(inputs=[forks])
"""


def test_a14_what_a_forked_child_of_a_worker_emits_or_acks_is_refused_and_not_lost(tmp_path: Path) -> None:
    """It has a copy of the outboxes that nobody empties; the worker itself goes on."""
    file = tmp_path / "forking.py"
    file.write_text(FORKING)
    topology = load_topology(file)
    conf = resolve(topology.config, {"streamlet.until.caught.up": True})
    asked = RunRequest(topology, conf, file=file, workers=2, until_caught_up=True, seconds=PATIENCE_S)
    result = ProcessesBackend().run(asked, Watcher(), Stop())
    assert (result.reason, result.components["few"].acked) == ("caught_up", 5)
    assert sorted((tmp_path / "seen").read_text().split()) == ["1", "2", "3", "5", "6"]
    for name in ("spout", "emit", "ack", "fail"):
        said = (tmp_path / name).read_text()
        assert said.startswith("BadEmit: ") and "in a process that was forked from its worker" in said, (name, said)


DRAWING = """
from pathlib import Path
from streamlet import Bolt, Spout, Topology

FOLDER = Path(__file__).parent

def draw(context):
    # A task's own generator, that of its edges and shuffles, too.
    with (FOLDER / f"drawn.{context.task_id}.{context.epoch}").open("w") as file:
        file.writelines(f"{context.uniform()}\\n" for _ in range(100))

class Few(Spout):
    outputs = ["n"]
    def initialize(self, conf, context):
        draw(context)
    def next_tuple(self):
        self.emit([1], tup_id=1)
    def fail(self, tup_id):
        pass

class Draws(Bolt):
    def initialize(self, conf, context):
        draw(context)
        self.dies = context.epoch == 1 and context.task_index == 0
        (FOLDER / f"up.{context.epoch}").touch()
    def process(self, tup):
        if self.dies:
            import os
            os._exit(1)

class Drawing(Topology):
    few = Few.spec(par=2)
    draws = Draws.spec(inputs=[few], par=3)
"""


class StopAtTheSecondEpoch(StopWhenUp):
    def on_status(self, status: RunStatus) -> None:
        if any(row["epoch"] > 1 and row["state"] == "up" for row in status.workers):
            self.stop.ask()


def test_a14_no_two_tasks_of_a_run_draw_the_same_random_numbers(tmp_path: Path) -> None:
    """Of one worker, of two, and of a worker and its replacement: edges that meet would cancel each other."""
    file = tmp_path / "drawing.py"
    file.write_text(DRAWING)
    topology, stop = load_topology(file), Stop()
    asked = RunRequest(topology, resolve(topology.config, {}), file=file, workers=2, seconds=PATIENCE_S)
    assert ProcessesBackend().run(asked, StopAtTheSecondEpoch(stop), stop).reason == "interrupted"
    drawn = [path.read_text().split() for path in tmp_path.glob("drawn.*")]
    assert len(drawn) >= 6 and all(len(numbers) == 100 for numbers in drawn)
    assert len({number for numbers in drawn for number in numbers}) == 100 * len(drawn)


def test_a18_runs_of_one_file_at_the_same_time_share_nothing(tmp_path: Path) -> None:
    """Nothing is submitted anywhere: each has a folder, a secret and processes of its own."""
    (tmp_path / "same.py").write_text(LATE.format(count=500))
    (tmp_path / "t").mkdir()
    command = ["run", "same.py", "--workers", "2", "--until-caught-up", "--json"]
    runs = [streamlet(command, {"TMPDIR": str(tmp_path / "t")}, cwd=tmp_path) for _ in range(3)]
    try:
        for run in runs:
            said, errors = run.process.communicate(timeout=PATIENCE_S)
            assert run.process.returncode == 0, errors
            result = json.loads(said.splitlines()[-1])
            assert (result["reason"], result["drained"]) == ("caught_up", True)
            assert [row["acked"] for row in result["components"]] == [500, 500]
            assert [row["epoch"] for row in result["workers"]] == [1, 1]
        assert not list((tmp_path / "t").iterdir())
    finally:
        for run in runs:
            run.end()


@pytest.mark.parametrize(
    ("status", "text"),
    [(-9, "was killed by SIGKILL"), (-37, "was killed by signal 37"), (7, "ended with status 7")],
)
def test_the_end_of_a_process_has_words_whatever_the_signal(status: int, text: str) -> None:
    """Most real-time signals have no name: one ended the run as a bug."""
    assert processes._exit_text(status) == text
