"""What a machine does to a run: takes its temporary folder, descriptors and processor away, and steps its clock."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.faults.rig import wait_for
from tests.marked_processes import REPOSITORY, Marked, streamlet
from tests.patience import PATIENCE_S

FILE = """
import os, resource, threading, time
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

FOLDER = Path(os.environ["FOLDER"])

def leak():
    # As a component does that never closes its files, from now on.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == 100:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    threading.Thread(target=take_all, daemon=True).start()

def take_all():
    while True:
        try:
            os.open(os.devnull, os.O_RDONLY)
        except OSError:
            time.sleep(0.001)

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
        if self.done % 100 == 0:
            # Put in place whole: whoever reads it while it is written would read nothing.
            (FOLDER / "seen.new").write_text(f"{self.done} {time.time()}")
            (FOLDER / "seen.new").replace(FOLDER / "seen")

class Made(Topology):
    config = {"topology.max.spout.pending": 50}
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers])
"""


class Start(Protocol):
    def __call__(self, leak: str = ..., *arguments: str, **environ: str) -> Marked: ...


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[Marked] = []
    (tmp_path / "temporary").mkdir()

    def begin(leak: str = "pass", *arguments: str, **environ: str) -> Marked:
        (tmp_path / "made.py").write_text(FILE.replace("LEAK", leak))
        environ = {"FOLDER": str(tmp_path), "TMPDIR": str(tmp_path / "temporary"), **environ}
        command = ["run", "made.py", "--workers", "2", "--until-caught-up", *arguments]
        begun.append(streamlet(command, environ, cwd=tmp_path, start_new_session=True, stderr=subprocess.STDOUT))
        wait_for("tuples", (tmp_path / "works.1").exists)
        return begun[-1]

    yield begin
    for each in begun:
        each.end()


def kill_the_bolt(folder: Path, epoch: int = 1, patience_s: float = 30) -> None:
    """SIGKILL to the worker of the bolt; its replacement must get tuples."""
    os.kill(int((folder / f"1.{epoch}").read_text()), signal.SIGKILL)
    wait_for("a replacement that works", (folder / f"works.{epoch + 1}").exists, patience_s)


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


def seconds_beside_the_loop(pid: int) -> float:
    """Processor time of a worker's threads but for its main one, which is the loop's."""
    beside = [path for path in Path(f"/proc/{pid}/task").iterdir() if path.name != str(pid)]
    assert beside
    ticks = [(path / "stat").read_text().rpartition(")")[2].split()[11:13] for path in beside]
    return sum(map(int, chain.from_iterable(ticks))) / os.sysconf("SC_CLK_TCK")


def does_not_spin(pid: int, seconds: float) -> bool:
    worked_s = seconds_beside_the_loop(pid)
    time.sleep(seconds)  # the time that is measured
    return seconds_beside_the_loop(pid) - worked_s < seconds / 4


def test_a_worker_without_descriptors_links_again_and_does_not_spin(start: Start, tmp_path: Path) -> None:
    """Its component takes every descriptor that becomes free, so that of the link that was lost, too."""
    run = start("leak()")
    kill_the_bolt(tmp_path)
    assert does_not_spin(int((tmp_path / "0.1").read_text()), 1.0)
    said = finish(tmp_path, run)
    assert not (tmp_path / "0.2").exists(), f"the one without descriptors was replaced: {said}"


def test_a_worker_whose_last_descriptor_is_gone_says_so_does_not_spin_and_closes(start: Start, tmp_path: Path) -> None:
    """The one that is kept went to the first replacement; the second waits at a door that cannot be opened."""
    run = start("leak()")
    kill_the_bolt(tmp_path)
    os.kill(int((tmp_path / "1.2").read_text()), signal.SIGKILL)
    wait_for("another replacement", (tmp_path / "1.3").exists)
    assert does_not_spin(int((tmp_path / "0.1").read_text()), 2.0)
    run.process.send_signal(signal.SIGTERM)
    said, _ = run.process.communicate(timeout=PATIENCE_S)
    assert "no file descriptor left" in said and "ulimit -n" in said
    assert "Traceback" not in said and not (tmp_path / "works.3").exists(), said


def more_done(folder: Path) -> tuple[int, float]:
    """Wait for a thousand tuples more; their number, and the wall clock of the bolt by then."""

    def done() -> tuple[int, float]:
        words = (folder / "seen").read_text().split() if (folder / "seen").exists() else []
        return (int(words[0]), float(words[1])) if len(words) == 2 else (0, 0.0)

    before = done()[0]
    wait_for("a thousand tuples more", lambda: done()[0] >= before + 1000)
    return done()


def finished(folder: Path, run: Marked) -> dict[str, Any]:
    """End a run that was started with ``--json``; its result."""
    (folder / "enough").touch()
    said, _ = run.process.communicate(timeout=PATIENCE_S)
    assert run.process.returncode == 0, said
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert result["event"] == "result" and result["reason"] == "caught_up"
    return result


def nothing_happened(result: dict[str, Any]) -> None:
    """Nobody was replaced, no tree failed."""
    assert [row["epoch"] for row in result["workers"]] == [1, 1]
    assert all(row["failed"] == row["timed_out"] == 0 for row in result["components"]), result["components"]


JSON = ("--json",)


def test_a6_a_worker_that_stands_still_for_a_moment_costs_nothing(start: Start, tmp_path: Path) -> None:
    """SIGSTOP for a second, of each worker in turn: it goes on where it was."""
    run = start("pass", *JSON)
    for worker in "01":
        pid = int((tmp_path / f"{worker}.1").read_text())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.0)  # the fault itself: as long as it lasts
        os.kill(pid, signal.SIGCONT)
        more_done(tmp_path)
    nothing_happened(finished(tmp_path, run))


def test_a7_a_run_that_gets_a_twentieth_of_a_processor_replaces_nobody(start: Start, tmp_path: Path) -> None:
    """All its processes at once, as under a quota: they stand for 950 ms of each second, past a time-out in all."""
    run = start("pass", *JSON)
    everybody = run.family()
    assert len(everybody) == 3
    for _ in range(14):
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.95)  # the fault itself
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
    more_done(tmp_path)
    nothing_happened(finished(tmp_path, run))


QUOTA_S = float(os.environ.get("QUOTA_S", "14"))
PERIOD_US = 100_000


@contextlib.contextmanager
def cpu_group(share: float) -> Iterator[Path]:
    """A control group of the kernel with a share of one processor."""
    group = Path("/sys/fs/cgroup") / ("cpu" if Path("/sys/fs/cgroup/cpu").is_dir() else "") / f"streamlet-{os.getpid()}"
    quota_us = int(share * PERIOD_US)
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_period_us").write_text(f"{PERIOD_US}")
                (group / "cpu.cfs_quota_us").write_text(f"{quota_us}")
            else:
                (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        except OSError as error:
            pytest.skip(f"no control group here has a quota: {error}")
        yield group
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
    finally:
        deadline = time.monotonic() + PATIENCE_S
        while group.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                group.rmdir()
            time.sleep(0.05)


def throttled(group: Path) -> int:
    """How many periods the group has waited through."""
    words = (group / "cpu.stat").read_text().split()
    return int(words[words.index("nr_throttled") + 1])


def test_a7_a_run_under_a_quota_of_a_twentieth_of_a_processor_replaces_nobody(start: Start, tmp_path: Path) -> None:
    """Coordinator and workers in a control group of the kernel's; they want far more than they get."""
    with cpu_group(0.05) as group:
        run = start("pass", *JSON)
        for pid in run.family():
            (group / "cgroup.procs").write_text(f"{pid}")
        time.sleep(QUOTA_S)  # the fault itself: longer than the time-out of a worker
        assert throttled(group) > QUOTA_S / 2 / (PERIOD_US / 1e6), "the quota was to be felt"
        for pid in run.family():
            (group.parent / "cgroup.procs").write_text(f"{pid}")
        more_done(tmp_path)
        nothing_happened(finished(tmp_path, run))


YEAR_S = 365 * 86400
STEPS_S = (3600, -3600, 10 * YEAR_S, -10 * YEAR_S, 2**31 - int(time.time()))
"""An hour and ten years, forward and back, and past the largest 32-bit time."""


def test_g1_a_wall_clock_that_is_stepped_moves_no_deadline(start: Start, tmp_path: Path) -> None:
    """Under the coordinator and both workers at once; no tree times out, nobody looks silent."""
    clock = tmp_path / "clock"
    clock.write_bytes(bytes(16))
    path = os.pathsep.join([str(REPOSITORY / "tests/soak/chaos/stepped_clock"), str(REPOSITORY)])
    run = start("pass", *JSON, PYTHONPATH=path, STREAMLET_TEST_CLOCK=str(clock))
    for step_s in STEPS_S:
        with clock.open("r+b") as file:
            file.write(struct.pack("<q", step_s * 10**9))
        more_done(tmp_path)
        _, seen_s = more_done(tmp_path)
        assert abs(seen_s - time.time() - step_s) < 600, "the step was not felt"
    nothing_happened(finished(tmp_path, run))


def test_g8_descriptors_and_threads_are_as_many_after_six_deaths_as_after_two(start: Start, tmp_path: Path) -> None:
    """Of the coordinator and of the worker that lives on: a channel, a page, links and threads each time."""
    run = start()
    lasting = [run.process.pid, int((tmp_path / "0.1").read_text())]

    def held() -> list[tuple[int, int]]:
        return [(len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))) for pid in lasting]

    for epoch in range(1, 7):
        kill_the_bolt(tmp_path, epoch, PATIENCE_S)
        if epoch == 2:
            before = held()
    # A handshake's thread, and what a dead worker had, may live on for a moment.
    wait_for("as many as before", lambda: all(now <= then for now, then in zip(held(), before, strict=True)), 30, held)
    finish(tmp_path, run)
