"""The coordinator stands still while its workers go on: stopped, not read, or its files on a disk that hangs."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.rig import wait_for
from tests.marked_processes import MAIN, REPOSITORY, Marked, streamlet
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
        (FOLDER / f"pid{context.epoch}.{os.getpid()}").touch()
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

    def __init__(self, folder: Path, *more: str, code: str = MAIN, **options: Any) -> None:
        self.folder = folder
        (folder / "chatty.py").write_text(FILE)
        arguments = ["run", "chatty.py", "--workers", "2", "--until-caught-up", *more]
        environ = {"FOLDER": str(folder), "TMPDIR": str(folder), **options.pop("environ", {})}
        self.said = folder / "said"
        with self.said.open("w") as said:
            options = {"stdout": subprocess.DEVNULL, "stderr": said, "start_new_session": True, **options}
            self.run: Marked = streamlet(arguments, environ, cwd=folder, code=code, **options)

    def done(self) -> int:
        """How many tuples the bolt has processed."""
        file = self.folder / "done"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def wait_for_more(self, count: int) -> None:
        """Until so many more tuples are done than now."""
        goal = self.done() + count
        wait_for(f"{goal} tuples", lambda: self.done() >= goal, told=lambda: f"{self.done()} are done")

    def kill_a_worker(self) -> None:
        """SIGKILL to the worker of the bolt, and wait until its replacement works."""
        (pid,) = [int(file.name.removeprefix("pid1.")) for file in self.folder.glob("pid1.*")]
        os.kill(pid, signal.SIGKILL)
        wait_for("a replacement", (self.folder / "epoch2").exists, 30)
        self.wait_for_more(100)

    def finish(self) -> str:
        """Let it come to its end, with nothing replaced; what it said on standard error."""
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


STOPPED_S = float(os.environ.get("STOPPED_S", "48"))
"""Many times as long as a worker may be silent here, and as a send once took."""


def test_a_coordinator_that_was_stopped_for_48_s_goes_on(chatting: Callable[..., Chatting]) -> None:
    """SIGSTOP of `streamlet run` alone, as Ctrl-Z does: its workers go on meanwhile, and so does the run afterwards."""
    run = chatting("-c", "streamlet.worker.timeout.secs=2", "-c", "streamlet.worker.heartbeat.secs=0.2")
    run.wait_for_more(300)
    os.kill(run.run.process.pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)  # the fault itself: as long as it lasts
    run.wait_for_more(300)
    os.kill(run.run.process.pid, signal.SIGCONT)
    run.wait_for_more(300)
    run.finish()


ENDED_WITHIN_S = 10.0
"""From a signal to the end of a run whose output nobody reads: draining, closing, and the last words' own limit."""


def test_a_reader_that_stands_still_holds_nothing_up(chatting: Callable[..., Chatting]) -> None:
    """Nobody reads standard output: workers are watched and replaced all the same; then all that was kept is read."""
    run = chatting("--json", stdout=subprocess.PIPE)
    run.wait_for_more(2000)
    run.kill_a_worker()
    time.sleep(2.0)  # the numbers of several seconds, of which the newest will be shown
    (run.folder / "enough").touch()
    out, _ = run.run.process.communicate(timeout=PATIENCE_S)
    assert run.run.process.returncode == 0, run.said.read_text()[-3000:]
    events = [json.loads(line) for line in out.splitlines()]
    assert events[0]["event"] == "start" and events[-1]["event"] == "result"
    assert [worker["epoch"] for worker in events[-1]["workers"]] == [1, 2]
    assert any("was started again" in event["text"] for event in events if event["event"] == "log")


class StoppedTerminal:
    """A terminal whose user has pressed Ctrl-S: nothing is written to it any more."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.shown = b""
        self.closed = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        while True:
            try:
                self.shown += os.read(self.ours, 1 << 16)
            except OSError:
                return

    def press(self, key: bytes) -> None:
        os.write(self.ours, key)

    def stop(self) -> None:
        """Ctrl-S, once something was shown."""
        wait_for("the table", lambda: b"numbers" in self.shown)
        self.press(b"\x13")
        time.sleep(0.5)
        before = len(self.shown)
        time.sleep(1.0)
        assert len(self.shown) == before, "the terminal is not stopped"

    def hang_up(self) -> None:
        """Close both ends."""
        if not self.closed:
            self.closed = True
            os.close(self.theirs)
            os.close(self.ours)


@pytest.fixture
def terminal() -> Iterator[StoppedTerminal]:
    made = StoppedTerminal()
    yield made
    made.hang_up()


def in_terminal(terminal: StoppedTerminal) -> dict[str, Any]:
    """Options of a process that has it as its own terminal."""
    return {"stdout": terminal.theirs, "stderr": terminal.theirs, "environ": {"TERM": "xterm"}}


def test_ctrl_s_holds_nothing_up(chatting: Callable[..., Chatting], terminal: StoppedTerminal) -> None:
    """The table stands still; a worker that dies is replaced. After Ctrl-Q the end is shown."""
    run = chatting(**in_terminal(terminal))
    terminal.stop()
    run.wait_for_more(2000)
    run.kill_a_worker()
    (run.folder / "enough").touch()
    time.sleep(2.0)
    terminal.press(b"\x11")
    assert run.run.process.wait(PATIENCE_S) == 0
    wait_for("the last line", lambda: b"everything that was emitted is done" in terminal.shown)


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGINT, signal.SIGINT]])
def test_a_run_whose_terminal_is_stopped_ends_in_time(
    chatting: Callable[..., Chatting], terminal: StoppedTerminal, signals: list[int]
) -> None:
    """By a signal, drained; by a second one, killed: neither waits for a terminal that nobody reads."""
    run = chatting(**in_terminal(terminal))
    terminal.stop()
    for number in signals:
        os.kill(run.run.process.pid, number)
        time.sleep(0.5)
    assert run.run.process.wait(ENDED_WITHIN_S) == 128 + signals[0]
    wait_for("all its processes to end", lambda: not run.run.family(), 5)


HUNG = """
import threading, prometheus_client
write = prometheus_client.write_to_textfile
written = []
def hang_from_the_third(path, registry):
    written.append(path)
    if len(written) >= 3:
        threading.Event().wait()
    write(path, registry)
prometheus_client.write_to_textfile = hang_from_the_third
"""


def test_a_metrics_file_on_a_disk_that_hangs_holds_nothing_up(chatting: Callable[..., Chatting]) -> None:
    """A write that never returns, as on a server of files that is away: the run goes on, and says so at the end."""
    run = chatting("--metrics-file", "m.prom", code=HUNG + MAIN)
    run.wait_for_more(3000)
    run.kill_a_worker()
    (run.folder / "enough").touch()
    run.run.process.communicate(timeout=PATIENCE_S)
    said = run.said.read_text()
    assert run.run.process.returncode == 0, said[-3000:]
    assert "--metrics-file m.prom is out of date: its disk has not answered for" in said


def test_errors_that_cannot_be_written_end_nothing(chatting: Callable[..., Chatting]) -> None:
    """Standard error is a full disk: there is nowhere to say so, and the run goes on to its good end."""
    with open("/dev/full", "w") as full:
        run = chatting(stderr=full)
        run.wait_for_more(500)
        run.finish()


ON_A_SMALL_DISK = 'mount -t tmpfs -o size=200k small "$0" && { head -c "$1" /dev/zero > "$0/other"; shift; exec "$@"; }'
"""For sh: a disk of 200 kB at ``$0``, with ``$1`` bytes of others, then a program. Gone with the program."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="it mounts a small disk, to fill it")


def on_a_small_disk(disk: Path, taken: int, arguments: list[str], **environ: str) -> Marked:
    """``streamlet ...`` with a disk of its own that nobody else sees."""
    disk.mkdir()
    inside = [str(disk), str(taken), sys.executable, "-c", MAIN, *arguments]
    given = {"PYTHONPATH": str(REPOSITORY), "FOLDER": str(disk.parent), "TMPDIR": str(disk.parent), **environ}
    return Marked(["unshare", "-m", "sh", "-c", ON_A_SMALL_DISK, *inside], given, cwd=disk.parent)


@needs_root
def test_g2_a_disk_that_fills_up_under_a_run_costs_the_files_on_it_and_no_tuple(tmp_path: Path) -> None:
    """Of the log the disk takes the beginning; the lines that found no room, and the metrics file, are told."""
    (tmp_path / "chatty.py").write_text(FILE)
    files = ["--log-file", "disk/run.log", "--metrics-file", "disk/m.prom"]
    arguments = ["run", "chatty.py", "--workers", "2", "--until-caught-up", *files]
    run = on_a_small_disk(tmp_path / "disk", 0, arguments)
    try:
        done = tmp_path / "done"
        wait_for("a megabyte of lines", lambda: done.exists() and done.read_bytes().count(b"\n") > 3000)
        (tmp_path / "enough").touch()
        _, err = run.process.communicate(timeout=PATIENCE_S)
    finally:
        run.end()
    err = "\n".join(line for line in err.splitlines() if "sink: tuple" not in line)
    assert run.process.returncode == 0, err[-3000:]
    lines = done.read_text().split()
    assert sorted(map(int, lines)) == list(range(1, len(lines) + 1)), "a tuple was lost, or came twice"
    assert "--metrics-file disk/m.prom is out of date: No space left on device" in err
    assert re.search(r"log file disk/run.log lacks .* lines?: .*No space left", err), err


@needs_root
def test_g2_a_run_that_cannot_begin_for_a_full_disk_says_so(tmp_path: Path) -> None:
    """There is room for the folder, not for the code. With no room at all the next temporary folder is taken."""
    (tmp_path / "chatty.py").write_text(FILE + "# words\n" * 10_000)
    disk = tmp_path / "disk"
    run = on_a_small_disk(disk, 150_000, ["run", "chatty.py", "-t", "5"], TMPDIR=str(disk))
    try:
        _, err = run.process.communicate(timeout=PATIENCE_S)
    finally:
        run.end()
    assert run.process.returncode == 2 and "No space left on device" in err and "Make room there" in err, err
