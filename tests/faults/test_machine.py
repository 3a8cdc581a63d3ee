"""What a machine takes away under a run: its temporary folder, its descriptors."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.rig import wait_for
from tests.marked_processes import Marked, streamlet
from tests.patience import PATIENCE_S

FILE = """
import os, resource
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

FOLDER = Path(os.environ["FOLDER"])

def leak(least):
    # As a component does that never closes its files.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        while True:
            os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return

class Numbers(ReliableSpout):
    outputs = ["n"]
    n = 0
    def initialize(self, conf, context):
        super().initialize(conf, context)
        (FOLDER / f"0.{context.epoch}").write_text(str(os.getpid()))
    def next_tuple(self):
        LEAK
        if self.n < 10**9 and not (FOLDER / "enough").exists():
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return not self.has_unfinished() and (FOLDER / "enough").exists()

class Sink(Bolt):
    def initialize(self, conf, context):
        self.done = 0
        self.epoch = context.epoch
        (FOLDER / f"1.{context.epoch}").write_text(str(os.getpid()))
    def process(self, tup):
        self.done += 1
        if self.done == 1000:
            (FOLDER / f"works.{self.epoch}").touch()

class Made(Topology):
    config = {"topology.max.spout.pending": 50}
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers])
"""

Start = Callable[[str], Marked]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[Marked] = []
    (tmp_path / "temporary").mkdir()

    def begin(leak: str = "pass") -> Marked:
        (tmp_path / "made.py").write_text(FILE.replace("LEAK", leak))
        environ = {"FOLDER": str(tmp_path), "TMPDIR": str(tmp_path / "temporary")}
        arguments = ["run", "made.py", "--workers", "2", "--until-caught-up"]
        begun.append(streamlet(arguments, environ, cwd=tmp_path, start_new_session=True, stderr=subprocess.STDOUT))
        wait_for("tuples", (tmp_path / "works.1").exists)
        return begun[-1]

    yield begin
    for each in begun:
        each.end()


def kill_the_bolt(folder: Path) -> None:
    """SIGKILL to the worker of the bolt; its replacement must get tuples."""
    os.kill(int((folder / "1.1").read_text()), signal.SIGKILL)
    wait_for("a replacement that works", (folder / "works.2").exists, 30)


def finish(folder: Path, run: Marked) -> str:
    (folder / "enough").touch()
    said, _ = run.process.communicate(timeout=PATIENCE_S)
    assert run.process.returncode == 0, said
    assert "everything that was emitted is done" in said.splitlines()[-1]
    return str(said)


def test_a_temporary_folder_that_is_swept_costs_nothing(start: Start, tmp_path: Path) -> None:
    """As systems do after ten days: workers that are replaced link again, and what is left is removed at the end."""
    run = start("pass")
    for found in (tmp_path / "temporary").iterdir():
        shutil.rmtree(found)
    kill_the_bolt(tmp_path)
    assert [path.name for path in (tmp_path / "temporary").iterdir()], "the folder was made again"
    finish(tmp_path, run)
    assert not list((tmp_path / "temporary").iterdir())


def test_a_worker_without_descriptors_links_again_and_does_not_spin(start: Start, tmp_path: Path) -> None:
    """Its component takes every descriptor that becomes free, so that of the link that was lost, too."""
    run = start("leak(0)")
    kill_the_bolt(tmp_path)
    said = finish(tmp_path, run)
    assert not (tmp_path / "0.2").exists(), f"the one without descriptors was replaced: {said}"
