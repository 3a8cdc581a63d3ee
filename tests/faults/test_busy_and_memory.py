"""Workers that are silent or die without a word: busy, hung, or killed for memory; each is called what it is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.outcome import TreesFailed, TuplesLeft
from streamlet.backends.processes import ProcessesBackend
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

pytestmark = pytest.mark.faults

GROUPS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
LIMIT = 200 << 20

FILE = """
import ctypes, os, re, resource, time
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology
from streamlet.runtime.worker.loop import WorkerLoop

COUNT = 300
SECONDS = {seconds}
FOLDER = Path(__file__).parent
GROUP = "{group}"

class Numbers(ReliableSpout):
    outputs = ["n"]
    def initialize(self, conf, context):
        self.n = 0
    def next_tuple(self):
        if self.n < COUNT:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == COUNT and not self.has_unfinished()
    def given_up(self, tup_id, values, fails):
        with (FOLDER / "given_up").open("a") as file:
            file.write(f"{{tup_id}}\\n")

def match(length):
    began = time.thread_time()
    re.match(r"(a+)+$", "a" * length + "b")
    return time.thread_time() - began

def regex():
    seconds, length = match(20), 20
    while seconds < SECONDS:  # each letter more doubles the time
        seconds, length = 2 * seconds, length + 1
    match(length)

def sleep_with_the_lock():
    ctypes.PyDLL(None).sleep(600)

def allocate():
    blocks = [bytearray(b"x") * (16 << 20) for _ in range(64)]

def limited():
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, resource.RLIM_INFINITY))
    try:
        blocks = [bytearray(64 << 20) for _ in range(64)]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

def in_our_code():
    def no_memory(loop, live):
        raise MemoryError
    if not (FOLDER / "once").exists():
        (FOLDER / "once").touch()
        WorkerLoop._collect = no_memory

class Bad(Bolt):
    def initialize(self, conf, context):
        if GROUP:
            Path(GROUP, "cgroup.procs").write_text(str(os.getpid()))
    def process(self, tup):
        if tup.values[0] == 123:
            {how}()

class Made(Topology):
    numbers = Numbers.spec()
    bad = Bad.spec(inputs=[numbers])
"""


def run(
    folder: Path, how: str, group: str = "", seconds: float = 6.0, **conf: Any
) -> tuple[Watcher, RunResult | TreesFailed]:
    file = folder / f"bad_{how}_{len(conf)}.py"
    file.write_text(FILE.format(how=how, group=group, seconds=seconds))
    topology = load_topology(file)
    settings = {
        "streamlet.until.caught.up": True,
        "streamlet.worker.heartbeat.secs": 0.2,
        "streamlet.worker.timeout.secs": 2,
        "streamlet.worker.restarts.max": 5,
        "topology.message.timeout.secs": PATIENCE_S,
        **conf,
    }
    request = RunRequest(
        topology, resolve(topology.config, settings), file=file, workers=2, until_caught_up=True, seconds=PATIENCE_S
    )
    watcher = Watcher()
    try:
        return watcher, ProcessesBackend().run(request, watcher, Stop())
    except TreesFailed as failed:
        return watcher, failed


def epochs(watcher: Watcher) -> int:
    return max(row["epoch"] for status in watcher.statuses for row in status.workers)


def test_a_worker_that_holds_the_interpreter_and_works_is_left_alone(tmp_path: Path) -> None:
    """Three times the silence that a dead one may keep."""
    watcher, result = run(tmp_path, "regex")
    assert isinstance(result, RunResult) and result.reason == "caught_up"
    assert epochs(watcher) == 1 and result.components["bad"].acked == 300
    (told,) = (text for text in watcher.texts if "uses its processor" in text)
    assert told.startswith("worker 1 (bad) has been silent for 2 s") and "at work in bad (task 2)" in told
    assert any(row["state"] == "busy" for status in watcher.statuses for row in status.workers)


def test_work_without_a_word_has_a_limit(tmp_path: Path) -> None:
    conf = {"streamlet.worker.busy.timeout.secs": 3, "streamlet.tuple.crashes.max": 1}
    watcher, result = run(tmp_path, "regex", seconds=60.0, **conf)
    assert isinstance(result, TreesFailed)
    assert (tmp_path / "given_up").read_text() == "123\n"
    assert any("though it used its processor at work in bad" in text for text in watcher.texts)


def test_a_worker_that_holds_the_interpreter_and_does_nothing_is_replaced_and_its_tuple_found(tmp_path: Path) -> None:
    watcher, result = run(tmp_path, "sleep_with_the_lock")
    assert isinstance(result, TreesFailed)
    assert (tmp_path / "given_up").read_text() == "123\n"
    told = [text for text in watcher.texts if "and used no processor time at work in bad (task 2)" in text]
    assert 3 <= len(told) <= 5 and sum("on the tuple [123]" in text for text in told) == 3
    # The last words name it as they name a tuple that crashes its worker: "took longer than" sent users elsewhere.
    assert "used no processor time at work in bad (task 2) on the tuple [123]" in str(result)


def test_a_drain_names_a_worker_that_holds_the_interpreter_and_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "silent_at_the_end.py"
    file.write_text(FILE.format(how="sleep_with_the_lock", group="", seconds=60.0))
    topology = load_topology(file)
    settings = {"streamlet.worker.heartbeat.secs": 0.2, "streamlet.stop.timeout.secs": 0.5}
    conf = resolve(topology.config, {**settings, "streamlet.drain.timeout.secs": 5})
    watcher = Watcher()
    with pytest.raises(TuplesLeft):
        ProcessesBackend().run(RunRequest(topology, conf, file=file, workers=2, seconds=2), watcher, Stop())
    (told,) = (text for text in watcher.texts if "the end of the run waits for" in text)
    assert "Nothing was processed for 3 s" in told and "waits for worker 1 (bad) at work in bad (task 2)" in told


@contextlib.contextmanager
def limited_group() -> Iterator[str]:
    """Make a control group with a limit of memory; skip the test where that may not be done."""
    for top in GROUPS:
        own = top / f"streamlet-test-{os.getpid()}"
        try:
            own.mkdir()
        except OSError:
            continue
        try:
            limits = [own / "memory.limit_in_bytes", own / "memory.max"]
            next(limit for limit in limits if limit.exists()).write_text(str(LIMIT))
            yield str(own)
            return
        except (OSError, StopIteration):
            continue
        finally:
            with contextlib.suppress(OSError):
                own.rmdir()
    pytest.skip("no control group with a limit of memory may be made here: the kernel's killer was not tried")


def test_a_death_for_memory_is_called_that(tmp_path: Path) -> None:
    """The kernel kills the worker for the limit of its control group, at one tuple each time."""
    with limited_group() as group:
        watcher, result = run(tmp_path, "allocate", group)
        assert isinstance(result, TreesFailed)
        assert (tmp_path / "given_up").read_text() == "123\n"
        said = "was killed by SIGKILL by the kernel's out-of-memory killer, for the memory limit of 200 MiB"
        told = [text for text in watcher.texts if said in text]
        assert 3 <= len(told) <= 5 and sum("on the tuple [123]" in text for text in told) == 3
        assert all(f"of its control group /{Path(group).name}" in text for text in told)


def test_memory_that_is_refused_to_a_bolt_costs_one_tuple_and_is_called_that(tmp_path: Path) -> None:
    """By the limit of the process itself: the bolt's own MemoryError."""
    watcher, _ = run(tmp_path, "limited")
    (told_once,) = (text for text in watcher.texts if "MemoryError" in text and "bad (task 2) raised" in text)
    assert "The process is out of memory (its limit is " in told_once or "The process is out of memory." in told_once
    assert epochs(watcher) == 1, "one tuple has failed, nothing else"


def test_out_of_memory_in_our_own_code_costs_the_worker_and_not_the_run(tmp_path: Path) -> None:
    watcher, result = run(tmp_path, "in_our_code")
    assert isinstance(result, RunResult) and result.reason == "caught_up"
    assert any("worker 1 (epoch 1) was replaced because it ran out of memory at" in text for text in watcher.texts)
    assert epochs(watcher) == 2
