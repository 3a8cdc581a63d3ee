"""Calls that do not return: a lock, and a tuple that hangs its worker each time."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, RunResult, RunStatus, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.backends.outcome import RunFailed, TuplesLeft
from streamlet.backends.processes import ProcessesBackend
from streamlet.model.settings import resolve
from streamlet.runtime.tasks.slices import SLICE
from streamlet.runtime.worker.loading import load_topology
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

pytestmark = pytest.mark.faults

FILE = """
import threading, time
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

COUNT = 500
FOLDER = Path(__file__).parent

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 2
    n = 0
    def next_tuple(self):
        if self.n < COUNT:
            self.n += 1
            self.emit([f"number {self.n}"], tup_id=self.n)
    def caught_up(self):
        return self.n == COUNT and not self.has_unfinished()
    def given_up(self, tup_id, values, fails):
        (FOLDER / "given_up").open("a").write(f"{tup_id}\\n")

class Locked(Bolt):
    def initialize(self, conf, context):
        self.lock = threading.Lock()
    def process(self, tup):
        if tup.values[0] == "number 250":
            self.wait_for_the_lock()
    def wait_for_the_lock(self):
        self.lock.acquire()
        while not (FOLDER / "go").exists():
            time.sleep(0.05)
        self.lock.release()

class Hanging(Topology):
    numbers = Numbers.spec()
    locked = Locked.spec(inputs=[numbers])
"""


class Seeing(Watcher):
    """Lets the bolt go on once the hang has been told, and shown in two statuses."""

    def __init__(self, folder: Path, seconds: float) -> None:
        super().__init__()
        self.folder = folder
        self.seconds = seconds

    def on_status(self, status: RunStatus) -> None:
        super().on_status(status)
        hangs = [[row for row in shown.hanging if row["call"] == "process"] for shown in self.statuses]
        seen = [rows[0] for rows in hangs if rows]
        if len(seen) >= 2 and seen[-1]["seconds"] >= self.seconds:
            (self.folder / "go").touch()


def run(folder: Path, name: str = "hanging_calls.py", seconds: float = 0, **conf: Any) -> tuple[Seeing, RunResult]:
    file = folder / name
    file.write_text(FILE)
    topology = load_topology(file)
    settings = {"streamlet.until.caught.up": True, "streamlet.worker.heartbeat.secs": 0.2, **conf}
    request = RunRequest(
        topology, resolve(topology.config, settings), file=file, workers=2, until_caught_up=True, seconds=PATIENCE_S
    )
    watcher = Seeing(folder, seconds)
    return watcher, ProcessesBackend().run(request, watcher, Stop())


def test_what_waits_behind_a_hang_is_neither_timed_out_nor_given_up(tmp_path: Path) -> None:
    """The hang is three times as long as the time-out: only the tuple that hangs has used up its time."""
    conf = {"streamlet.task.hang.secs": 1, "topology.message.timeout.secs": 1}
    _, result = run(tmp_path, "hanging_for_long.py", 3, **conf)
    row = next(row for row in result.status.components if row.name == "numbers")
    assert result.reason == "caught_up" and not (tmp_path / "given_up").exists()
    assert row.acked == 500 and row.timed_out <= 1 and row.failed == row.timed_out


def test_a_run_that_ends_while_a_bolt_hangs_names_the_call_and_the_tuple_in_its_last_words(tmp_path: Path) -> None:
    file = tmp_path / "hanging_at_the_end.py"
    file.write_text(FILE)
    topology = load_topology(file)
    settings = {"streamlet.task.hang.secs": 1, "streamlet.worker.heartbeat.secs": 0.2, "streamlet.stop.timeout.secs": 1}
    conf = resolve(topology.config, {**settings, "streamlet.drain.timeout.secs": 1})
    request = RunRequest(topology, conf, file=file, workers=2, seconds=3)
    with pytest.raises(TuplesLeft) as failed:  # nobody makes "go"
        ProcessesBackend().run(request, Watcher(), Stop())
    said = str(failed.value)
    assert "open tuple trees of numbers" in said
    assert "it had been in process of locked (task 2) for" in said and "on ['number 250']" in said
    assert "streamlet.task.hang.action=replace" in said and "streamlet.stop.timeout.secs" not in said


def test_a_bolt_that_hangs_is_named_with_its_tuple_and_stack_and_goes_on(tmp_path: Path) -> None:
    threads = threading.active_count()
    watcher, result = run(tmp_path, **{"streamlet.task.hang.secs": 1})
    assert result.reason == "caught_up" and not (tmp_path / "given_up").exists()
    (told,) = (text for level, text in watcher.events if "has been in process of locked (task 2)" in text)
    assert "on a tuple from numbers, ['number 250']" in told and "Worker 1" in told
    assert "in wait_for_the_lock" in told and "bolt_task.py" not in told
    assert any("locked (task 2) went on after" in text for text in watcher.texts)
    # Of the statuses that show this call: on a machine that stands still for a moment another may hang, too.
    row = next(row for status in watcher.statuses for row in status.hanging if row["call"] == "process")
    assert (row["worker"], row["component"], row["task"]) == (1, "locked", 2)
    assert row["tuple"] == "['number 250']" and row["seconds"] >= 1
    assert not result.status.hanging and threading.active_count() == threads


UNTRACKED = """
import os, threading
from streamlet import Bolt, Spout, Topology

class Numbers(Spout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        while self.n < 2000:
            self.n += 1
            self.emit([self.n])

class Stuck(Bolt):
    def initialize(self, conf, context):
        self.done = os.open(os.path.splitext(__file__)[0] + ".done", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    def process(self, tup):
        if tup.values[0] == 5:
            threading.Event().wait()
        os.write(self.done, b"1")

class Hanging(Topology):
    numbers = Numbers.spec()
    stuck = Stuck.spec(inputs=[numbers])
"""


class Interrupting(Watcher):
    """Asks for the end after some statuses, as Ctrl-C does."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self.stop = stop

    def on_status(self, status: RunStatus) -> None:
        super().on_status(status)
        if len([one for one in self.statuses if one.state == "running"]) == 3:
            self.stop.ask()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", ["time", "interrupted", "replaced"])
def test_what_waited_untracked_behind_a_hang_is_numbered_and_fails_the_run(
    how: str, workers: int, tmp_path: Path
) -> None:
    """Nobody sends it again: in the worker's queue, or on its way there, where the worker has read nothing of it."""
    file = tmp_path / f"untracked_hang_{how}_{workers}.py"
    file.write_text(UNTRACKED)
    topology = load_topology(file)
    settings = {"streamlet.worker.heartbeat.secs": 0.2, "streamlet.stop.timeout.secs": 1}
    if how == "replaced":
        settings |= {"streamlet.task.hang.secs": 1, "streamlet.task.hang.action": "replace"}
    conf = resolve(topology.config, {**settings, "streamlet.drain.timeout.secs": 1})
    request = RunRequest(topology, conf, file=file, workers=workers, seconds=3 if how != "interrupted" else PATIENCE_S)
    stop, watcher = Stop(), Watcher()
    if how == "interrupted":
        watcher = Interrupting(stop)
    with pytest.raises(TuplesLeft, match=r"untracked tuples") as failed:
        ProcessesBackend().run(request, watcher, stop)
    assert failed.value.exit_status == 1
    lost = {row.name: row.lost for row in failed.value.result.status.components if row.lost}
    # By a count of the bolt's own, but for what the slice at work had done. Where the spout starts again with the bolt,
    # it hangs again, and more is lost.
    left = 2000 - file.with_suffix(".done").stat().st_size
    assert [*lost] == ["stuck"] and lost["stuck"] >= left and (how == "replaced" or lost["stuck"] <= left + SLICE)
    if how == "replaced":
        assert any("worker" in text and "along" in text and "for stuck" in text for text in watcher.texts)
    else:
        assert f"{lost['stuck']:,} untracked tuples for stuck" in failed.value.message
        assert "process of stuck" in failed.value.message or "at work in stuck" in failed.value.message


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_hangs_in_the_drain_is_ended_where_it_would_be_replaced(workers: int, tmp_path: Path) -> None:
    """The run stood until the drain's own end, which here is ten minutes away."""
    file = tmp_path / f"hanging_in_the_drain_{workers}.py"
    file.write_text(UNTRACKED)
    topology = load_topology(file)
    settings = {"streamlet.worker.heartbeat.secs": 0.2, "streamlet.drain.timeout.secs": 600}
    hang = {"streamlet.task.hang.secs": 4, "streamlet.task.hang.action": "replace"}
    conf = resolve(topology.config, settings | hang)
    request = RunRequest(topology, conf, file=file, workers=workers, seconds=1)
    watcher = Watcher()
    with pytest.raises(TuplesLeft, match=r"untracked tuples") as failed:
        ProcessesBackend().run(request, watcher, Stop())
    assert any("was ended because it has been in one call for" in text for text in watcher.texts), watcher.texts
    result = failed.value.result
    assert result.seconds < 300 and "at work in stuck (task 2) on the tuple [5]" in failed.value.message
    assert result.components["stuck"].lost >= 1900


SLOW_TO_CLOSE = """
import threading
from streamlet import Bolt, ReliableSpout, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < 500:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 500 and not self.has_unfinished()

class Closes(Bolt):
    def process(self, tup):
        pass
    def cleanup(self):
        threading.Event().wait()

class Hanging(Topology):
    numbers = Numbers.spec()
    closes = Closes.spec(inputs=[numbers])
"""


def test_a_worker_that_is_killed_in_cleanup_has_its_last_numbers_in_the_table(tmp_path: Path) -> None:
    """Not those of its last heartbeat, which here was before the first tuple."""
    file = tmp_path / "slow_to_close.py"
    file.write_text(SLOW_TO_CLOSE)
    topology = load_topology(file)
    settings = {"streamlet.until.caught.up": True, "streamlet.stop.timeout.secs": 1}
    conf = resolve(topology.config, {**settings, "streamlet.worker.heartbeat.secs": 5})
    request = RunRequest(topology, conf, file=file, workers=2, until_caught_up=True, seconds=PATIENCE_S)
    with pytest.raises(RunFailed, match="in cleanup of closes") as failed:
        ProcessesBackend().run(request, Watcher(), Stop())
    rows = {row.name: row for row in failed.value.result.status.components}
    assert (rows["closes"].executed, rows["closes"].acked, rows["closes"].lost) == (500, 500, 0)


HOLDS = UNTRACKED.replace("threading.Event().wait()", 're.match(r"(a+)+$", "a" * 60 + "b")').replace(
    "import os, threading", "import os, re"
)
"""The same in code that holds the interpreter: its worker has no thread that could count."""


@pytest.mark.parametrize("tracked", [False, True])
def test_what_a_worker_without_a_word_held_untracked_is_numbered_by_what_outlives_it(
    tracked: bool, tmp_path: Path
) -> None:
    """After Ctrl-C, too. Of what is tracked the spout hears, and nothing is told: whatever its class does then."""
    file = tmp_path / f"without_a_word_{'tracked' if tracked else 'untracked'}.py"
    file.write_text(HOLDS.replace("[self.n])", "[self.n], self.n)") if tracked else HOLDS)
    topology = load_topology(file)
    settings = {"streamlet.worker.heartbeat.secs": 0.2, "streamlet.stop.timeout.secs": 1}
    conf = resolve(topology.config, {**settings, "streamlet.drain.timeout.secs": 1})
    request = RunRequest(topology, conf, file=file, workers=1, seconds=PATIENCE_S)
    stop = Stop()
    threading.Timer(3.0, stop.ask).start()
    if tracked:
        result = ProcessesBackend().run(request, Watcher(), stop)
        assert result.reason == "interrupted" and result.unclosed
        return
    with pytest.raises(TuplesLeft, match=r"It left up to [0-9,]+ untracked tuples for stuck") as failed:
        ProcessesBackend().run(request, Watcher(), stop)
    assert failed.value.exit_status == 1 and not failed.value.result.drained
    rows = {row.name: row for row in failed.value.result.status.components}
    assert rows["stuck"].lost == failed.value.result.left["stuck"] > 0


POOL = """
import asyncio, time
from pathlib import Path
from streamlet import AsyncBolt, ReliableSpout, ThreadedBolt, Topology

COUNT = 300
FOLDER = Path(__file__).parent

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 0
    answers_for_failures = True
    n = 0
    sent = set()
    def next_tuple(self):
        self.n = min(COUNT, self.n + 1)
        if self.n not in self.sent:
            self.sent.add(self.n)
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == COUNT and not self.has_unfinished()
    def given_up(self, tup_id, values, fails):
        (FOLDER / "given_up").open("a").write(f"{tup_id}\\n")

class Pool(ThreadedBolt):
    threads = 4
    def process(self, tup):
        if 100 <= tup.values[0] < 104:
            time.sleep(9)
        with (FOLDER / "entered").open("a") as entered:
            entered.write(f"{tup.values[0]}\\n")

class Loop(AsyncBolt):
    async def process(self, tup):
        await asyncio.sleep(0.01)
        if tup.values[0] == 100:
            time.sleep(9)
        with (FOLDER / "entered").open("a") as entered:
            entered.write(f"{tup.values[0]}\\n")

class Pooled(Topology):
    config = {"topology.message.timeout.secs": 3, "streamlet.task.hang.secs": 1}
    numbers = Numbers.spec()
    pool = Pool.spec(inputs=[numbers])

class Looped(Topology):
    config = Pooled.config
    numbers = Numbers.spec()
    loop = Loop.spec(inputs=[numbers])
"""


@pytest.mark.parametrize(
    ("topology", "slow", "said"),
    [
        ("Pooled", [100, 101, 102, 103], "a tuple from numbers, [10"),
        ("Looped", [100], "[100], outside of the loop. It holds"),
    ],
)
def test_what_waits_for_the_threads_of_a_pool_that_hangs_is_not_given_up(
    topology: str, slow: list[int], said: str, tmp_path: Path
) -> None:
    """All threads, or the loop, are in calls for longer than the time-out: those of the calls alone took too long."""
    file = tmp_path / f"{topology.lower()}.py"
    file.write_text(POOL)
    loaded, seen = load_topology(file, topology), Watcher()
    settings = resolve(loaded.config, {"streamlet.until.caught.up": True})
    request = RunRequest(loaded, settings, file=file, attribute=topology, until_caught_up=True)
    result = ProcessesBackend().run(request, seen, Stop())
    assert result.reason == "caught_up"
    assert sorted(map(int, (tmp_path / "given_up").read_text().split())) == slow
    assert sorted(map(int, (tmp_path / "entered").read_text().split())) == [*range(1, 301)]
    (named, *_) = [text for text in seen.texts if "has been at work for" in text]
    assert said in named


BESIDE = """
import time
from pathlib import Path
from streamlet import AsyncBolt, Bolt, ReliableSpout, ThreadedBolt, Topology

FOLDER = Path(__file__).parent

class Numbers(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < 600:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 600 and not self.has_unfinished()

class Others(Numbers):
    pass

class Slow(Bolt):
    def process(self, tup):
        if tup.values[0] in (100, 300, 500):
            time.sleep(5)

class Pool(ThreadedBolt):
    def process(self, tup):
        pass

class Loop(AsyncBolt):
    async def process(self, tup):
        pass

class Sleeps(ThreadedBolt):
    def process(self, tup):
        if tup.values[0] == 1:
            (FOLDER / "begun").touch()
            time.sleep(9)

class Waits(Bolt):
    slept = False
    def process(self, tup):
        time.sleep(0.005)
        if not self.slept and (FOLDER / "begun").exists():
            self.slept = True
            time.sleep(7)

class Innocent(Topology):
    config = {"streamlet.task.hang.secs": 2}
    numbers = Numbers.spec()
    others = Others.spec()
    slow = Slow.spec(inputs=[others])
    pool = Pool.spec(inputs=[numbers])
    loop = Loop.spec(inputs=[numbers])

class Guilty(Topology):
    config = {"streamlet.task.hang.secs": 2}
    numbers = Numbers.spec()
    others = Others.spec()
    waits = Waits.spec(inputs=[others])
    sleeps = Sleeps.spec(inputs=[numbers])
"""


def beside(folder: Path, topology: str) -> tuple[Watcher, RunResult]:
    file = folder / f"beside_{topology.lower()}.py"
    file.write_text(BESIDE)
    loaded, seen = load_topology(file, topology), Watcher()
    settings = resolve(loaded.config, {"streamlet.until.caught.up": True, "streamlet.worker.heartbeat.secs": 0.2})
    request = RunRequest(loaded, settings, file=file, attribute=topology, workers=1, until_caught_up=True)
    return seen, ProcessesBackend().run(request, seen, Stop())


def test_bolts_whose_calls_have_returned_are_not_blamed_for_the_hang_of_another(tmp_path: Path) -> None:
    """Only the loop, which is in the other's call, could not take their results."""
    seen, result = beside(tmp_path, "Innocent")
    assert result.reason == "caught_up"
    warned = [text for level, text in seen.events if level == "warning"]
    assert any("has been in process of slow (task 3)" in text for text in warned)
    blamed = ("pool (task", "loop (task", "wait for pool", "wait for loop")
    assert not [text for text in warned if any(one in text for one in blamed)]
    assert {row["component"] for status in seen.statuses for row in status.hanging} == {"slow"}


def test_a_call_of_a_pool_that_hangs_is_named_while_the_loop_is_in_another_bolts_call(tmp_path: Path) -> None:
    seen, result = beside(tmp_path, "Guilty")
    assert result.reason == "caught_up"
    named = [at for at, text in enumerate(seen.texts) if "sleeps (task 4) has been at work for" in text]
    (went_on,) = [at for at, text in enumerate(seen.texts) if "waits (task 3) went on" in text]
    assert len(named) == 1 and "time.sleep(9)" in seen.texts[named[0]] and named[0] < went_on
    assert {"waits", "sleeps"} in [{row["component"] for row in status.hanging} for status in seen.statuses]


NO_ROOM = """
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from streamlet import AsyncBolt, Bolt, ReliableSpout, ThreadedBolt, Topology

FOLDER = Path(__file__).parent

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 0
    n = 0
    def next_tuple(self):
        if self.n < 200:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 200 and not self.has_unfinished()
    def given_up(self, tup_id, values, fails):
        (FOLDER / "given_up").open("a").write(f"{tup_id}\\n")

class Pool(ThreadedBolt):
    outputs = ["n"]
    threads = 4
    def process(self, tup):
        for _ in range(50):
            self.emit(tup.values)

class Loop(AsyncBolt):
    outputs = ["n"]
    async def process(self, tup):
        for _ in range(50):
            self.emit(tup.values)

class Own(Bolt):
    outputs = ["n"]
    auto_ack = False
    max_unacked = 20
    def initialize(self, conf, context):
        self.pool = ThreadPoolExecutor(4)
    def process(self, tup):
        self.pool.submit(self.ask, tup)
    def ask(self, tup):
        try:
            for _ in range(50):
                self.emit(tup.values, anchors=[tup])
            self.ack(tup)
        except Exception as error:
            self.fail(tup, error)

class Hangs(Bolt):
    def process(self, tup):
        if tup.values[0] == 40 and not (FOLDER / "hung").exists():
            (FOLDER / "hung").touch()
            time.sleep(8)

class Behind(Topology):
    config = {
        "streamlet.task.hang.secs": 2, "streamlet.threads.wait.secs": 2, "streamlet.threads.queue.max": 20,
        "topology.message.timeout.secs": 3,
    }
    numbers = Numbers.spec()
    pool = Pool.spec(inputs=[numbers])
    loop = Loop.spec(inputs=[numbers])
    own = Own.spec(inputs=[numbers])
    hangs = Hangs.spec(inputs=[pool, loop, own])
"""


@pytest.mark.parametrize("action", ["tell", "replace"])
def test_threads_that_wait_for_room_behind_the_hang_of_another_bolt_pay_nothing_for_it(
    action: str, tmp_path: Path
) -> None:
    """They wait in an emit of ours, longer than a hang, a time-out and the wait for room may take."""
    file = tmp_path / f"behind_{action}.py"
    file.write_text(NO_ROOM)
    loaded, seen = load_topology(file, "Behind"), Watcher()
    chosen = {"streamlet.worker.heartbeat.secs": 0.2, "streamlet.task.hang.action": action}
    settings = resolve(loaded.config, {"streamlet.until.caught.up": True, **chosen})
    request = RunRequest(loaded, settings, file=file, attribute="Behind", workers=1, until_caught_up=True)
    result = ProcessesBackend().run(request, seen, Stop())
    assert result.reason == "caught_up" and not (tmp_path / "given_up").exists()
    warned = [text for level, text in seen.events if level in ("warning", "error")]
    assert any("in process of hangs (task 5)" in text for text in warned)
    assert not [text for text in warned if re.search("(pool|loop|own) .task|NoRoom|refused", text)]
    assert {row["component"] for status in seen.statuses for row in status.hanging} <= {"hangs"}
    if action == "tell":
        assert sum(row.failed + row.errors for row in result.status.components) == 0


KEEPS_LOCK = """
import asyncio, ctypes, time
from streamlet import AsyncBolt, Bolt, ReliableSpout, ThreadedBolt, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < 1000:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 1000 and not self.has_unfinished()

class Pool(ThreadedBolt):
    threads = 4
    def process(self, tup):
        time.sleep(0.005)

class Loop(AsyncBolt):
    async def process(self, tup):
        await asyncio.sleep(0.005)

class Holds(Bolt):
    def process(self, tup):
        if tup.values[0] == AT:
            ctypes.PyDLL(None).sleep(5)
        time.sleep(WORK_S)

class Held(Topology):
    config = {"streamlet.task.hang.secs": 2}
    numbers = Numbers.spec()
    pool = Pool.spec(inputs=[numbers])
    loop = Loop.spec(inputs=[numbers])
    holds = Holds.spec(inputs=[numbers])
"""


@pytest.mark.parametrize("backend", [ProcessesBackend, InlineBackend])
@pytest.mark.parametrize(
    ("at", "work", "said"), [(60, "0", "on one of "), (300, "0.003", "on a tuple from numbers, [300]")]
)
def test_a_bolt_that_holds_the_interpreters_lock_is_named_afterwards_and_nobody_else(
    backend: type[Any], at: int, work: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No thread could look meanwhile. Those beside it were in calls, or full, and could not go on."""
    file = tmp_path / f"holds_{backend.name}_{at}.py"
    file.write_text(KEEPS_LOCK.replace("AT", str(at)).replace("WORK_S", work))
    loaded, seen = load_topology(file, "Held"), Watcher()
    settings = resolve(loaded.config, {"streamlet.until.caught.up": True, "streamlet.worker.heartbeat.secs": 0.2})
    request = RunRequest(loaded, settings, file=file, attribute="Held", workers=1, until_caught_up=True)
    result = backend().run(request, seen, Stop())
    assert result.reason == "caught_up"
    warned = [text for level, text in seen.events if level == "warning"] + [one.getMessage() for one in caplog.records]
    (named,) = [text for text in warned if "holds (task 4) was in process for 5 s " in text]
    assert said in named and "for 5 s of that no other thread of its process could run" in named
    assert not [text for text in warned if re.search("(pool|loop) .task|wait for (pool|loop)|File ", text)]
    assert {row["component"] for status in seen.statuses for row in status.hanging} <= {"holds"}


KEEPS_LOCK_ANYWHERE = """
import asyncio, ctypes, time
from pathlib import Path
from streamlet import AsyncBolt, Bolt, ReliableSpout, ThreadedBolt, Topology

COUNT = 1000
FOLDER = Path(__file__).parent

class Once:
    "Takes long once, at tuple 300, so that all are at work."
    done = False
    def take_long(self, place, here, at):
        if place == here and not self.done and at >= 300:
            self.done = True
            TAKE_LONG

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 1
    timer_interval_s = 0.05
    n = 0
    once = Once()
    def next_tuple(self):
        self.once.take_long("next_tuple", "WHERE", self.n)
        if self.n < COUNT:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def ack(self, tup_id):
        self.once.take_long("ack", "WHERE", self.n)
        super().ack(tup_id)
    def on_timer(self):
        self.once.take_long("on_timer", "WHERE", self.n)
    def close(self):
        self.once.take_long("close", "WHERE", COUNT)
    def caught_up(self):
        return self.n == COUNT and not self.has_unfinished()
    def given_up(self, tup_id, values, fails):
        (FOLDER / "given_up").open("a").write(f"{tup_id}\\n")

class Pool(ThreadedBolt):
    outputs = ["n"]
    threads = 2
    def process(self, tup):
        time.sleep(0.01)
        self.emit([tup.values[0]])

class Steady(Bolt):
    once = Once()
    def initialize(self, conf, context):
        self.once.take_long("initialize", "WHERE", COUNT)
    def process(self, tup):
        time.sleep(0.003)
    def cleanup(self):
        self.once.take_long("cleanup", "WHERE", COUNT)

class Sink(Bolt):
    def process(self, tup):
        pass

class Threads(ThreadedBolt):
    threads = 2
    once = Once()
    def process(self, tup):
        self.once.take_long("threads", "WHERE", tup.values[0])

class Coroutines(AsyncBolt):
    once = Once()
    async def process(self, tup):
        self.once.take_long("coroutines", "WHERE", tup.values[0])
        await asyncio.sleep(0.001)

class Held(Topology):
    config = {"streamlet.task.hang.secs": 1, "streamlet.queue.timeout.share": 0.08, "streamlet.threads.queue.max": 1}
    numbers = Numbers.spec()
    pool = Pool.spec(inputs=[numbers])
    sink = Sink.spec(inputs=[pool])
    steady = Steady.spec(inputs=[numbers])
    threads = Threads.spec(inputs=[numbers])
    coroutines = Coroutines.spec(inputs=[numbers])
"""


def told_slow(seen: Watcher, result: RunResult) -> list[str]:
    """Warnings that what waits for a bolt takes longer than the whole run did, which worked it all off."""
    waits = [(text, re.search(r"wait for \w+ take about ([\d,.]+) s", text)) for _, text in seen.events]
    return [text for text, took in waits if took and float(took[1].replace(",", "")) > result.status.elapsed_s]


def took_long(backend: type[Any], where: str, how: str, folder: Path) -> tuple[Watcher, RunResult]:
    """Run with one call that takes long somewhere; nothing of it may fail."""
    file = folder / f"{where}_{backend.name}.py"
    file.write_text(KEEPS_LOCK_ANYWHERE.replace("WHERE", where).replace("TAKE_LONG", how))
    loaded, seen = load_topology(file, "Held"), Watcher()
    settings = resolve(loaded.config, {"streamlet.until.caught.up": True, "streamlet.worker.heartbeat.secs": 0.2})
    request = RunRequest(loaded, settings, file=file, attribute="Held", workers=1, until_caught_up=True)
    result = backend().run(request, seen, Stop())
    assert result.reason == "caught_up" and not (folder / "given_up").exists()
    assert sum(row.failed + row.errors + row.timed_out for row in result.status.components) == 0
    return seen, result


@pytest.mark.parametrize("backend", [ProcessesBackend, InlineBackend])
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("next_tuple", r"numbers \(task 1\) was in next_tuple for 3 s, and "),
        ("ack", r"numbers \(task 1\) was in ack for 3 s, and "),
        ("on_timer", r"numbers \(task 1\) was in on_timer for 3 s, and "),
        ("close", r"numbers \(task 1\) was in close for 3 s, and "),
        ("initialize", r"steady \(task \d\) was in initialize for 3 s, and "),
        ("cleanup", r"steady \(task \d\) was in cleanup for 3 s, and "),
        ("threads", r"threads \(task \d\) was in process for 3 s on a tuple from numbers, \[3\d\d\], and "),
        (
            "coroutines",
            r"coroutines \(task \d\) was in process for 3 s on (one of \d+ tuples|a tuple from numbers.*), and",
        ),
    ],
)
def test_whoever_holds_the_interpreters_lock_is_named_and_no_bolt_is_slow_for_it(
    where: str, said: str, backend: type[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In a spout's call, on a pool's own thread, in a coroutine: beside it a pool and a bolt are at work."""
    seen, result = took_long(backend, where, "ctypes.PyDLL(None).sleep(3)", tmp_path)
    warned = [text for level, text in seen.events if level == "warning"] + [one.getMessage() for one in caplog.records]
    told = [text for text in warned if "interpreter's lock" in text]
    assert len(told) == 1, (warned, [(status.state, status.hanging) for status in seen.statuses])
    named = told[0]
    assert re.search(said, named) and "for 3 s of that no other thread of its process could run" in named
    others = [text for text in warned if text is not named]
    assert not [text for text in others if re.search("(pool|steady|sink) .task|File ", text)] and not told_slow(
        seen, result
    )
    assert {row["component"] for status in seen.statuses for row in status.hanging} <= {where, "numbers"}


BLOCKS = """
import time
from streamlet import Bolt, ReliableSpout, ThreadedBolt, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n in range(100, 500, 100):
            time.sleep(2)
        for _ in range(100 * (self.n < 500)):
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 500 and not self.has_unfinished()

class Pool(ThreadedBolt):
    outputs = ["n"]
    threads = 2
    def process(self, tup):
        time.sleep(0.005)
        for n in range(5):
            self.emit([n])

class Sink(Bolt):
    def process(self, tup):
        pass

class Blocked(Topology):
    config = {"streamlet.queue.timeout.share": 0.08, "streamlet.threads.queue.max": 1}
    numbers = Numbers.spec()
    pool = Pool.spec(inputs=[numbers])
    sink = Sink.spec(inputs=[pool])
"""


@pytest.mark.parametrize("backend", [ProcessesBackend, InlineBackend])
def test_a_pool_whose_emits_wait_while_a_spout_blocks_the_loop_is_not_told_to_be_slow(
    backend: type[Any], tmp_path: Path
) -> None:
    """Its threads wait for room, and nobody takes what they emit before ``next_tuple`` returns."""
    file = tmp_path / f"blocks_{backend.name}.py"
    file.write_text(BLOCKS)
    loaded, seen = load_topology(file, "Blocked"), Watcher()
    settings = resolve(loaded.config, {"streamlet.until.caught.up": True})
    request = RunRequest(loaded, settings, file=file, attribute="Blocked", workers=1, until_caught_up=True)
    result = backend().run(request, seen, Stop())
    assert result.reason == "caught_up" and sum(row.failed + row.timed_out for row in result.status.components) == 0
    assert not told_slow(seen, result)


ENDS = """
import asyncio, threading
from streamlet import AsyncBolt, Bolt, ReliableSpout, ThreadedBolt, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < 100:
            self.n += 1
            self.emit([self.n], tup_id=self.n)

def stand(tup):
    if tup.values[0] == 100:
        threading.Event().wait()

class Pool(ThreadedBolt):
    def process(self, tup):
        stand(tup)

class Loop(AsyncBolt):
    async def process(self, tup):
        stand(tup)

class Pooled(Topology):
    config = {"streamlet.task.hang.secs": 1, "streamlet.drain.timeout.secs": 4}
    numbers = Numbers.spec()
    last = Pool.spec(inputs=[numbers])

class Looped(Topology):
    config = Pooled.config
    numbers = Numbers.spec()
    last = Loop.spec(inputs=[numbers])

class Await(AsyncBolt):
    async def process(self, tup):
        if tup.values[0] == 100:
            await asyncio.Event().wait()

class Awaited(Topology):
    config = Pooled.config
    numbers = Numbers.spec()
    last = Await.spec(inputs=[numbers])
"""


@pytest.mark.parametrize("backend", [ProcessesBackend, InlineBackend])
@pytest.mark.parametrize("topology", ["Pooled", "Looped", "Awaited"])
def test_a_call_of_a_pool_that_hangs_at_the_end_is_named_in_the_last_words_and_the_result(
    topology: str, backend: type[Any], tmp_path: Path
) -> None:
    """Its worker could close, and nobody killed it."""
    file = tmp_path / f"ends_{topology.lower()}.py"
    file.write_text(ENDS)
    loaded, seen = load_topology(file, topology), Watcher()
    workers = 2 if backend is ProcessesBackend else 1
    conf = resolve(loaded.config, {})
    request = RunRequest(loaded, conf, file=file, attribute=topology, workers=workers, seconds=2)
    with pytest.raises(TuplesLeft) as failed:
        backend().run(request, seen, Stop())
    said = str(failed.value)
    assert "The drain's time of 4 s was over before all was done: last (task 2) had been in process for" in said
    assert "on [100], and it left 1 open tuple tree of numbers." in said
    result: Any = failed.value.result
    (row,) = result.status.hanging
    assert (row["worker"], row["component"], row["call"], row["tuple"]) == (workers - 1, "last", "process", "[100]")
    if workers > 1:
        (waits,) = [text for text in seen.texts if "the end of the run waits for" in text]
        assert "waits for worker 1 (last) while last (task 2) held a tuple: for" in waits
