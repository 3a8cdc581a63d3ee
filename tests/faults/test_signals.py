"""Signals that reach every process of a run, as service managers and containers send them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults.rig import wait_for
from tests.marked_processes import REPOSITORY, Marked, streamlet
from tests.patience import PATIENCE_S

FILE = """
import multiprocessing, os, subprocess, sys, time
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

FOLDER = Path(os.environ["FOLDER"])

class Numbers(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        self.n += 1
        self.emit([self.n], tup_id=self.n)
    def ack(self, tup_id):
        super().ack(tup_id)
        with open(FOLDER / "acked", "a") as file:
            file.write(f"{tup_id}\\n")

class Collect(Bolt):
    # Keeps tuples open for half a second, and the acked ones in memory until its cleanup.
    auto_ack = False
    def initialize(self, conf, context):
        self.open, self.kept = [], []
        CHILD
        (FOLDER / "up").touch()
    def process(self, tup):
        self.open.append(tup)
    def process_tick(self, tup):
        TICK
        for held in self.open:
            self.kept.append(held.values[0])
            self.ack(held)
        self.open.clear()
    def cleanup(self):
        (FOLDER / "kept").write_text("\\n".join(map(str, self.kept)))

class Kept(Topology):
    config = {"topology.max.spout.pending": 100}
    numbers = Numbers.spec()
    collect = Collect.spec(inputs=[numbers], config={"topology.tick.tuple.freq.secs": 0.5})
"""


class Keeping:
    """A run whose bolt writes what it has acked only when it is closed."""

    def __init__(
        self,
        folder: Path,
        child: str = "pass",
        tick: str = "pass",
        hooks: Path | None = None,
        meanwhile: Callable[[], None] = lambda: None,
        options: Sequence[str] = ("--workers", "2"),
    ) -> None:
        self.folder = folder
        (folder / "kept.py").write_text(FILE.replace("CHILD", child).replace("TICK", tick))
        environ = {"FOLDER": str(folder), "TMPDIR": str(folder)}
        if hooks is not None:
            environ["PYTHONPATH"] = os.pathsep.join([str(hooks), str(REPOSITORY)])
        started: dict[str, Any] = {"cwd": folder, "start_new_session": True, "stderr": subprocess.STDOUT}
        self.run: Marked = streamlet(["run", "kept.py", *options], environ, **started)
        meanwhile()
        wait_for("tuples", lambda: (folder / "acked").exists())

    def end(self, status: int) -> str:
        """Wait for its end; what it said. Everything that was acked must have been written."""
        said, _ = self.run.process.communicate(timeout=PATIENCE_S)
        assert self.run.process.returncode == status, said
        kept = (self.folder / "kept").read_text().split()
        acked = (self.folder / "acked").read_text().split()
        assert set(acked) <= set(kept) and len(acked) == len(kept), "what was acked was not kept"
        assert "everything that was emitted is done" in said.splitlines()[-1], said
        assert not self.run.family()
        return said


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Any]:
    made: list[Keeping] = []

    def start(**more: Any) -> Keeping:
        made.append(Keeping(tmp_path, **more))
        return made[-1]

    yield start
    for each in made:
        each.run.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("workers_first", [True, False])
def test_a_signal_to_every_process_drains_like_ctrl_c(keeping: Any, number: int, workers_first: bool) -> None:
    """To the whole cgroup, as by systemd: no worker dies of it, whoever hears of it first."""
    run = keeping()
    everybody = sorted(run.run.family(), key=lambda pid: (pid == run.run.process.pid) == workers_first)
    assert len(everybody) == 3
    for pid in everybody:
        os.kill(pid, number)
    said = run.end(128 + number)
    assert "Draining" in said and "epoch" not in said


OWN_HANDLERS = {
    "the system's": "import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL)",
    "one that exits": "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))",
}


@pytest.mark.parametrize("handler", OWN_HANDLERS)
@pytest.mark.parametrize("when", ["initialize", "later"])
def test_a_bolts_own_handler_of_a_signal_is_put_back_and_told(keeping: Any, handler: str, when: str) -> None:
    """Else its worker died first, in the middle of what the coordinator was to drain."""
    if when == "initialize":
        run = keeping(child=OWN_HANDLERS[handler])
    else:
        run = keeping(tick=f'if not hasattr(self, "own"): self.own = True; {OWN_HANDLERS[handler]}')
        time.sleep(2.0)  # twice the second within which it is put back
    everybody = sorted(run.run.family(), key=lambda pid: pid == run.run.process.pid)
    for pid in everybody:
        os.kill(pid, signal.SIGTERM)
    said = run.end(143)
    whose = "collect" if when == "initialize" else "A component"
    assert f"{whose}, or a library" in said and said.count("changed what SIGTERM does") == 1
    assert "epoch" not in said, said


@pytest.mark.parametrize("handler", OWN_HANDLERS)
def test_inline_a_bolts_own_handler_of_a_signal_is_put_back(keeping: Any, handler: str) -> None:
    run = keeping(child=OWN_HANDLERS[handler], options=["--backend", "inline"])
    os.kill(run.run.process.pid, signal.SIGTERM)
    assert "changed what SIGTERM does" in run.end(143)


def test_a_worker_that_gets_a_signal_alone_goes_on(keeping: Any) -> None:
    run = keeping()
    workers = set(run.run.family()) - {run.run.process.pid}
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        for pid in workers:
            os.kill(pid, number)
    time.sleep(1.0)
    assert set(run.run.family()) - {run.run.process.pid} == workers
    run.run.process.send_signal(signal.SIGTERM)
    run.end(143)


FORKED = """
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        child.start()
        child.terminate()
        child.join(30)
        assert child.exitcode == -15, child.exitcode
"""
STARTED = """
        child = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"],
                                 stdout=subprocess.PIPE)
        child.stdout.readline()
        child.terminate()
        assert child.wait(30) == -15, child.returncode
"""


@pytest.mark.parametrize("child", [FORKED, STARTED], ids=["forked", "started"])
def test_what_a_component_starts_can_be_terminated(keeping: Any, child: str) -> None:
    """It inherits nothing of the worker's own way with signals."""
    run = keeping(child=child.strip())
    run.run.process.send_signal(signal.SIGINT)
    run.end(130)


SLOW_START = """
import os, sys, time
from pathlib import Path

if "streamlet.runtime.worker.worker" in sys.orig_argv:
    (Path(os.environ["FOLDER"]) / f"starts.{os.getpid()}").touch()
    while not (Path(os.environ["FOLDER"]) / "go").exists():
        time.sleep(0.01)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_workers_that_are_only_starting_ends_none(tmp_path: Path, keeping: Any, number: int) -> None:
    """It comes while Python imports streamlet, long before a line of the worker's own has run."""
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(SLOW_START)

    def signals() -> None:
        starting = wait_for("two workers", lambda: len(found := [*tmp_path.glob("starts.*")]) == 2 and found)
        for file in starting:
            os.kill(int(file.suffix[1:]), number)
        (tmp_path / "go").touch()

    run = keeping(hooks=tmp_path / "hooks", meanwhile=signals)
    assert len([*tmp_path.glob("starts.*")]) == 2, "a worker was started again"
    run.run.process.send_signal(signal.SIGTERM)
    assert "epoch" not in run.end(143)
