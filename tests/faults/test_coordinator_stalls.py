"""The coordinator stands still while its workers go on: stopped, not read, or its files on a disk that hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.rig import wait_for
from tests.marked_processes import Marked, streamlet
from tests.patience import PATIENCE_S

FILE = """
import os, time
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

FOLDER = Path(os.environ["FOLDER"])

class Numbers(ReliableSpout):
    # Emits until the file "enough" is there.
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if not (FOLDER / "enough").exists():
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return (FOLDER / "enough").exists() and not self.has_unfinished()

class Sink(Bolt):
    # Says a line for each tuple, far more than the buffers of a socket or a pipe hold.
    def initialize(self, conf, context):
        (FOLDER / f"epoch{context.epoch}").touch()
        self.file = open(FOLDER / "done", "a", buffering=1)
    def process(self, tup):
        self.file.write(f"{tup.values[0]}\\n")
        self.log(f"tuple {tup.values[0]} " + 400 * "x")
        time.sleep(0.001)

class Chatty(Topology):
    config = {"topology.max.spout.pending": 50}
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers])
"""


class Chatting:
    """A run on two workers that says hundreds of lines a second."""

    def __init__(self, folder: Path, *more: str, code: str = "", **options: Any) -> None:
        self.folder = folder
        (folder / "chatty.py").write_text(FILE)
        arguments = ["run", "chatty.py", "--workers", "2", "--until-caught-up", *more]
        environ = {"FOLDER": str(folder), "TMPDIR": str(folder)}
        self.said = folder / "said"
        with self.said.open("w") as said:
            options = {"stdout": subprocess.DEVNULL, "stderr": said, "start_new_session": True, **options}
            self.run: Marked = streamlet(arguments, environ, cwd=folder, **options)

    def done(self) -> int:
        """How many tuples the bolt has processed."""
        file = self.folder / "done"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def wait_for_more(self, count: int) -> None:
        """Until so many more tuples are done than now."""
        goal = self.done() + count
        wait_for(f"{goal} tuples", lambda: self.done() >= goal, told=lambda: f"{self.done()} are done")

    def finish(self) -> str:
        """Let it come to its end; what it said on standard error."""
        (self.folder / "enough").touch()
        self.run.process.communicate(timeout=PATIENCE_S)
        err = self.said.read_text()
        assert self.run.process.returncode == 0, err[-3000:]
        lines = (self.folder / "done").read_text().split()
        assert sorted(map(int, set(lines))) == list(range(1, len(set(lines)) + 1)), "a tuple was lost"
        assert len(lines) == len(set(lines)), "a tuple came twice: a worker or a link was replaced"
        assert not (self.folder / "epoch2").exists(), f"a worker was replaced: {err[-3000:]}"
        return err


@pytest.fixture
def chatting(tmp_path: Path) -> Iterator[Callable[..., Chatting]]:
    made: list[Chatting] = []

    def start(*more: str, **options: Any) -> Chatting:
        made.append(Chatting(tmp_path, *more, **options))
        return made[-1]

    yield start
    for each in made:
        each.run.end()


STOPPED_S = float(os.environ.get("STOPPED_S", "6"))
"""Thrice as long as a worker may be silent here, and as a send once took; by hand 48, or more."""


def test_a_coordinator_that_was_stopped_goes_on(chatting: Callable[..., Chatting]) -> None:
    """SIGSTOP of `streamlet run` alone, as Ctrl-Z does: its workers go on, and so does the run afterwards."""
    run = chatting("-c", "streamlet.worker.timeout.secs=2")
    run.wait_for_more(300)
    os.kill(run.run.process.pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)  # the fault itself: as long as it lasts
    run.wait_for_more(300)
    os.kill(run.run.process.pid, signal.SIGCONT)
    run.wait_for_more(300)
    run.finish()
