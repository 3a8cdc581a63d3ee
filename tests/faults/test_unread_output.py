"""Of standard output and standard error, one that nobody reads holds back no line of the other."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Streamlet
from tests.faults.rig import wait_for
from tests.patience import PATIENCE_S

FILE = """
import itertools, os, time
from streamlet import Bolt, ReliableSpout, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    numbers = itertools.count(1)
    def next_tuple(self):
        n = next(self.numbers)
        self.emit([n], tup_id=n)

class FailsOnce(Bolt):
    failed = False
    def initialize(self, conf, context):
        self.file = open(os.environ["FOLDER"] + "/done", "a", buffering=1)
    def process(self, tup):
        time.sleep(0.002 if tup.values[0] < int(os.environ["SLOW_FROM"]) else 5)
        if tup.values[0] == 20 and not self.failed:
            self.failed = True
            raise ValueError("the first error")
        print("PRINTED" + 2000 * "x")
        self.log(f"said {tup.values[0]}") if os.environ["SAYS"] else None
        self.file.write(f"{tup.values[0]}\\n")

class Unread(Topology):
    config = {"topology.max.spout.pending": 20}
    numbers = Numbers.spec()
    fails = FailsOnce.spec(inputs=[numbers])
"""


class UnreadRun:
    """A run with one stream in a full pipe, and the other in a file."""

    def __init__(self, folder: Path, *more: str, unread: str = "stdout", slow_from: int = 10**9) -> None:
        self.reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
        os.set_blocking(writer, True)
        self.folder = folder
        command = Streamlet(folder)
        file = command.write(FILE)
        environ = {
            **command.environment,
            "FOLDER": str(folder),
            "SAYS": "yes" if more else "",
            "SLOW_FROM": str(slow_from),
        }
        arguments = [*command.command, "run", str(file), "--workers", "2", *more]
        with (folder / "said").open("w") as said:
            streams = {"stdout": writer, "stderr": said} if unread == "stdout" else {"stdout": said, "stderr": writer}
            self.process = subprocess.Popen(arguments, env=environ, **streams)  # type: ignore[call-overload]
        os.close(writer)

    @property
    def said(self) -> str:
        """What stands on the stream that is read."""
        return (self.folder / "said").read_text()

    def done(self) -> int:
        """How many tuples the bolt has processed."""
        file = self.folder / "done"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def lacking(self) -> int:
        """How many lines standard output lacks, as standard error says."""
        (count,) = re.findall(r"Standard output lacks ([\d,]+) lines? or more: nobody read it in time\.", self.said)
        return int(count.replace(",", ""))


Start = Callable[..., UnreadRun]


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[Start]:
    made: list[UnreadRun] = []

    def start(*more: str, **options: Any) -> UnreadRun:
        made.append(UnreadRun(tmp_path, *more, **options))
        return made[-1]

    yield start
    for run in made:
        os.close(run.reader)
        run.process.kill()
        run.process.wait()


def test_an_error_is_shown_at_once_and_what_is_left_out_is_counted_beside_an_output_that_nobody_reads(
    unread: Start,
) -> None:
    run = unread()
    shown = "ValueError: the first error\n"
    wait_for("the first error", lambda: shown in run.said, PATIENCE_S, told=lambda: run.said)
    wait_for("a hundred tuples", lambda: run.done() > 100, PATIENCE_S)
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(PATIENCE_S) == 143, run.said
    assert "Traceback" in run.said and "Draining" in run.said
    (left_out,) = re.findall(r"([\d,]+) lines that components printed to the standard output were left out", run.said)
    assert int(left_out.replace(",", "")) >= 100
    assert run.lacking() == 1, "the result"


def test_events_that_nobody_reads_are_counted_on_standard_error_after_a_signal(unread: Start) -> None:
    run = unread("--json")
    wait_for("a hundred tuples", lambda: run.done() > 100, PATIENCE_S, told=lambda: run.said[-2000:])
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(PATIENCE_S) == 143, run.said
    assert "Draining" in run.said
    assert run.lacking() >= run.done(), "each has said a line, and the pipe had no room"


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_the_last_words_of_a_kill_come_beside_an_output_that_nobody_reads(unread: Start, more: Any) -> None:
    run = unread(*more, slow_from=105)  # so the run is not over at the second signal
    wait_for("a hundred tuples", lambda: run.done() > 100, PATIENCE_S, told=lambda: run.said[-2000:])
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.5)  # a second signal, not the first once more
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(PATIENCE_S) == 130, run.said
    assert "Killed, not drained" in run.said
    if more:
        assert run.lacking() >= 100


def test_numbers_and_the_result_are_shown_beside_a_standard_error_that_nobody_reads(unread: Start) -> None:
    run = unread(unread="stderr")
    wait_for("the error", lambda: run.done() > 100, PATIENCE_S)
    before = run.said.count("   fails ")
    wait_for("a status", lambda: run.said.count("   fails ") > before, PATIENCE_S, told=lambda: run.said[-2000:])
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(PATIENCE_S) == 143
    assert "everything that was emitted is done." in run.said.splitlines()[-1]
