"""A component that prints into an output which nobody reads holds nothing up, and no tuple is charged for it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Streamlet
from tests.patience import PATIENCE_S

FILE = """
import sys
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < 2000:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        done = self.n == 2000 and not self.has_unfinished()
        if done:
            Path("DONE").touch()
        return done

class Prints(Bolt):
    def process(self, tup):
        for part in range(5):
            print("LINE", tup.values[0], part, "x" * 1000, file=sys.STREAM)

class Made(Topology):
    config = {"streamlet.task.hang.secs": 1.0, "streamlet.task.hang.action": "replace"}
    numbers = Numbers.spec()
    prints = Prints.spec(inputs=[numbers])
"""

LINE = re.compile(r"LINE (\d+) (\d) x{1000}")


def wait_for(there: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not there.exists():
        assert time.monotonic() < deadline, "the run stands still"
        time.sleep(0.05)


def printed(text: str) -> list[tuple[int, int]]:
    """Return the lines that components printed, each of which must be whole."""
    lines = [line for line in text.splitlines() if "LINE" in line]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), [line[:80] for line, match in zip(lines, found, strict=True) if not match]
    return [(int(match[1]), int(match[2])) for match in found if match]


@pytest.fixture
def streamlet(tmp_path: Path) -> Any:
    return Streamlet(tmp_path)


@pytest.mark.parametrize("stream", ["stdout", "stderr", "__stdout__"])
def test_prints_that_nobody_reads_are_left_out_and_counted_and_hold_nothing_up(
    streamlet: Any, tmp_path: Path, stream: str
) -> None:
    """10 MiB into a pipe of 64 KiB, of which 4 MiB wait: the rest is missing by whole lines, which a line counts."""
    done, log = tmp_path / "done", tmp_path / "log"
    file = streamlet.write(FILE.replace("DONE", str(done)).replace("STREAM", stream))
    other = subprocess.DEVNULL
    options = {"stdout": subprocess.PIPE, "stderr": other} if "stdout" in stream else {"stderr": subprocess.PIPE}
    run = subprocess.Popen(
        [*streamlet.command, "run", str(file), "--until-caught-up", "--log-file", str(log), "-c",
         "streamlet.log.max.bytes=0"],
        env=streamlet.environment, text=True, **{"stdout": other, **options},
    )  # fmt: skip
    try:
        wait_for(done)  # nobody has read anything
        out, err = run.communicate(timeout=PATIENCE_S)
    finally:
        run.kill()
    assert run.returncode == 0
    there = printed(out if "stdout" in stream else err)
    assert there == sorted(there), "in their order"
    told = log.read_text()
    assert told.count("Nobody reads the standard") == 1 and "was started again" not in told and "hang" not in told
    (left_out,) = re.findall(r"([\d,]+) lines that components printed to the standard .* were left out", told)
    assert len(there) + int(left_out.replace(",", "")) == 10_000
    assert len(there) >= 3500, "what found room is there"


def test_prints_into_a_pipe_that_is_read_are_all_there(streamlet: Any, tmp_path: Path) -> None:
    file = streamlet.write(FILE.replace("DONE", str(tmp_path / "done")).replace("STREAM", "stdout"))
    done = streamlet("run", file, "--until-caught-up")
    assert done.returncode == 0 and len(printed(done.stdout)) == 10_000, done.stderr
    assert json.loads(streamlet("run", file, "--until-caught-up", "--json").stdout.splitlines()[-1])["drained"]
