"""A terminal that is closed, with a run on it."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from pathlib import Path

import pytest

from tests.command_line import Streamlet
from tests.patience import PATIENCE_S

FILE = """
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    at = 0
    def next_tuple(self):
        self.at += 1
        self.emit([self.at], tup_id=self.at)

class Keeps(Bolt):
    seen = 0
    def process(self, tup):
        self.seen += 1
        if self.seen == 1:
            Path("begun").touch()
    def cleanup(self):
        Path("cleaned").write_text(f"{self.seen}")

class Closing(Topology):
    config = {"topology.max.spout.pending": 10}
    numbers = Numbers.spec()
    keeps = Keeps.spec(inputs=[numbers])
"""

# The leader of a session, with the terminal of its standard output as the controlling one; then the command.
ON_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.parametrize("backend", ["inline", "processes"])
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_run_whose_terminal_is_closed_drains_and_ends_with_129(
    streamlet: Streamlet, tmp_path: Path, term: str, backend: str
) -> None:
    """What it has to show then can be written nowhere; that is the same event, and no fault of the output."""
    master, slave = pty.openpty()
    command = [streamlet.command[0], "-c", ON_A_TERMINAL, *streamlet.command[1:], "run", "closing.py"]
    streamlet.write(FILE, "closing.py")
    process = subprocess.Popen(
        [*command, "--backend", backend],
        cwd=tmp_path, env={**streamlet.environment, "TERM": term}, stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    streamlet.started.append(process)  # type: ignore[arg-type]  # its streams are not read
    os.close(slave)
    deadline = time.monotonic() + PATIENCE_S
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    time.sleep(1.2)  # some of its statuses are shown
    os.close(master)
    assert process.wait(PATIENCE_S) == 129
    assert int((tmp_path / "cleaned").read_text()) > 0
