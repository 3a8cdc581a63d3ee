"""A process that holds the interpreter's lock and whose parent is killed ends all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamlet.runtime.worker.parents_end import END_S
from tests.command_line import Streamlet, streamlet
from tests.marked_processes import REPOSITORY, lives
from tests.patience import PATIENCE_S

__all__ = ["streamlet"]

CHILD = """
import ctypes, os
from pathlib import Path
from streamlet.runtime.worker.parents_end import end_after_parent
end_after_parent()
Path("pid").write_text(str(os.getpid()))
ctypes.PyDLL(None).sleep(600)  # with the lock; a signal interrupts the first
ctypes.PyDLL(None).sleep(600)
"""
PARENT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}])
time.sleep(600)
"""


def test_a4_a_process_that_holds_the_interpreter_ends_after_its_parent(tmp_path: Path) -> None:
    """Not before, and not at once: until then it could have ended in order."""
    given = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=tmp_path, env=given)
    file, pid = tmp_path / "pid", 0
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not pid:
            assert time.monotonic() < deadline
            pid = int((file.exists() and file.read_text()) or 0)
            time.sleep(0.01)
        time.sleep(1.0)
        assert lives(pid)
        parent.kill()
        died = time.monotonic()
        while lives(pid):
            assert time.monotonic() - died < END_S + 3
            time.sleep(0.05)
        assert time.monotonic() - died > END_S - 1.5
    finally:
        parent.kill()
        parent.wait()
        if pid and lives(pid):
            os.kill(pid, signal.SIGKILL)


STARTS_PROCESSES = """
import ctypes, multiprocessing, os, subprocess, time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

class Ticks(ReliableSpout):
    outputs = ["n"]
    def initialize(self, conf, context):
        self.at = 0
    def next_tuple(self):
        self.at += 1
        self.emit([self.at], tup_id=self.at)

class Starts(Bolt):
    def initialize(self, conf, context):
        self.how = conf["how"]
        self.pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
        self.other = subprocess.Popen(["sleep", "1000"])
    def process(self, tup):
        if tup.values[0] == 1:
            started = os.getpid(), self.pool.submit(os.getpid).result(), self.other.pid
            Path("pids.new").write_text(" ".join(map(str, started)))
            Path("pids.new").rename("pids")
        if self.how == "in a call of the pool":
            self.pool.submit(time.sleep, 1000).result()

class Starting(Topology):
    config = {"how": "", "topology.max.spout.pending": 10}
    ticks = Ticks.spec()
    starts = Starts.spec(inputs=[ticks])
"""


@pytest.mark.parametrize("how", ["between two calls", "in a call of the pool"])
def test_a4_what_components_have_started_does_not_outlive_the_coordinator(streamlet: Streamlet, how: str) -> None:
    """A pool of processes waited for its worker, which waited for the pool; both had lost whoever ends them."""
    process = streamlet.start("run", streamlet.write(STARTS_PROCESSES), "--workers", "2", "-c", f"how={how}")
    file, pids = streamlet.folder / "pids", list[int]()
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not file.exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        pids += map(int, file.read_text().split())
        assert len(pids) == 3 and all(map(lives, pids))
        process.kill()
        deadline = time.monotonic() + 10.0
        while left := [pid for pid in pids if lives(pid)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
    finally:
        for pid in filter(lives, pids):
            os.kill(pid, signal.SIGKILL)
