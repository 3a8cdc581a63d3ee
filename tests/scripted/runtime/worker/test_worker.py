"""A worker process whose coordinator is the test: what it reports and when, and how it ends."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlet.model.plan import fingerprint, make_plan
from streamlet.model.settings import resolve
from streamlet.runtime.tasks.in_hand import holding
from streamlet.runtime.worker.channel import ChannelClosed, ControlChannel
from streamlet.runtime.worker.loading import load_topology
from streamlet.runtime.worker.messages import (
    Beat,
    Book,
    Close,
    Event,
    Failed,
    FromWorker,
    Initialized,
    Linked,
    Lost,
    Pause,
    Quiet,
    Ready,
    State,
    Stopped,
    Unfit,
    Whole,
    WorkerPlan,
    from_worker,
)
from streamlet.runtime.worker.page_file import make_page
from streamlet.tracking.roots import owner_task
from tests.patience import PATIENCE_S

FILE = """
import os, sys

from streamlet import Bolt, Spout, Topology

class Numbers(Spout):
    outputs = ["n"]
    left = 3

    def next_tuple(self):
        if self.left:
            self.left -= 1
            self.emit([self.left], tup_id=self.left)

    def caught_up(self):
        return not self.left

class Sink(Bolt):
    def initialize(self, conf, context):
        self.log(f"epoch {context.epoch} in {os.environ.get('PLACE', 'no place')}")

    def process(self, tup): ...

    def process_tick(self, tup):
        self.log("ticked")

    def cleanup(self):
        self.log("cleaned up")

class T(Topology):
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers], config={"topology.tick.tuple.freq.secs": 3600})
"""


class Coordinator:
    """The other end of one worker's channel. Wait with ``until``."""

    def __init__(self, plan: Any) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "streamlet.runtime.worker.worker", str(theirs.fileno())]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with theirs:
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environ)
        self.channel = ControlChannel.inherited(ours)
        self.heard: list[FromWorker] = []
        self.channel.send(plan)

    def until(self, kind: type[FromWorker], fits: Callable[[Any], bool] = lambda message: True) -> Any:
        """Read until a message of this kind has come that fits; return it."""
        deadline, seen = time.monotonic() + PATIENCE_S, 0
        while time.monotonic() < deadline:
            for message in self.heard[seen:]:
                if isinstance(message, kind) and fits(message):
                    return message
            seen = len(self.heard)
            self.heard += [from_worker(raw, 2, 2) for raw in self.channel.receive(wait=True)]
        raise AssertionError(f"no {kind.__name__} came, but {[type(message).__name__ for message in self.heard]}")

    def begin(self) -> None:
        """Bring the worker up: one worker has no peers to link with."""
        ready = self.until(Ready)
        self.channel.send(Book(1, {0: (1, *ready.address)}))
        self.until(Initialized)
        assert self.until(Linked).version == 1
        self.channel.send(Whole(1))

    def ended(self) -> int:
        """Return the exit status of the process, when it has ended."""
        return self.process.wait(PATIENCE_S)

    def read_rest(self) -> None:
        try:
            while True:
                self.heard += [from_worker(raw, 2, 2) for raw in self.channel.receive(wait=True)]
        except ChannelClosed:
            pass

    def close(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def plan(tmp_path: Path) -> WorkerPlan:
    """The plan of a topology of one worker."""
    file, folder = tmp_path / f"{tmp_path.name}.py", tmp_path / "run"  # a module is imported once a process
    file.write_text(FILE)
    folder.mkdir()
    topology = load_topology(file)
    return WorkerPlan(
        began=False,
        worker=0,
        epoch=1,
        workers=1,
        file=str(file),
        attribute=None,
        fingerprint=fingerprint(make_plan(topology, 1)),
        conf=dict(resolve(topology.config, {"streamlet.until.caught.up": True})),
        overrides={},
        run_id=b"r" * 16,
        secret=b"s" * 32,
        listen_host="",
        folder=str(folder),
        heartbeat_s=0.1,
        debug=False,
        keeps_log=False,
        page="",
        careful=[],
        careful_s=0.0,
        crashes={},
        modules={},
        files={},
        code_folder="",
        build="",
    )


@pytest.fixture
def worker_of() -> Iterator[Callable[[Any], Coordinator]]:
    made: list[Coordinator] = []

    def make(plan: Any) -> Coordinator:
        made.append(Coordinator(plan))
        return made[-1]

    yield make
    for one in made:
        one.close()


def events(coordinator: Coordinator) -> list[str]:
    return [message.text for message in coordinator.heard if isinstance(message, Event)]


def test_a_worker_runs_drains_and_closes_as_it_is_told(
    plan: WorkerPlan, worker_of: Callable[[Any], Coordinator]
) -> None:
    """No tuple flows before the run is whole; the end is reported at once, and the last numbers count everything."""
    conf = {**plan.conf, "topology.environment": {"PLACE": "the plan"}}
    coordinator = worker_of(dataclasses.replace(plan, conf=conf))
    coordinator.until(Initialized)
    early = coordinator.until(Beat, lambda beat: beat.tasks)
    assert not any(snapshot["emitted"] for snapshot in early.tasks.values())
    coordinator.begin()
    state = coordinator.until(State, lambda state: state.caught_up)
    assert state.drained and state.done and state.traffic is None, "the pause for good has not begun"
    coordinator.channel.send(Pause())
    assert coordinator.until(State, lambda state: state.traffic is not None).traffic == [{}, {}]
    coordinator.channel.send(Quiet(1))
    coordinator.until(State, lambda state: state.quiet == 1)
    coordinator.channel.send(Close(clean=True, settled=True))
    assert coordinator.until(Stopped) == Stopped([], {})
    last = [message for message in coordinator.heard if isinstance(message, Beat)][-1]
    assert [snapshot["acked"] for snapshot in last.tasks.values()] == [3, 3]
    assert events(coordinator) == ["epoch 1 in the plan", "ticked", "cleaned up"]
    assert coordinator.ended() == 0


def test_a_stop_that_is_not_clean_calls_no_cleanup_and_gives_no_tick(
    plan: WorkerPlan, worker_of: Callable[[Any], Coordinator]
) -> None:
    coordinator = worker_of(plan)
    coordinator.begin()
    coordinator.channel.send(Close(clean=False))
    coordinator.until(Stopped)
    assert events(coordinator) == ["epoch 1 in no place"] and coordinator.ended() == 0


def test_another_topology_in_the_file_than_the_coordinators_is_refused(
    plan: WorkerPlan, worker_of: Callable[[Any], Coordinator]
) -> None:
    coordinator = worker_of(dataclasses.replace(plan, fingerprint="0" * 64))
    failed = coordinator.until(Failed)
    assert "found another topology than the coordinator did" in failed.message and not failed.retriable
    assert coordinator.ended() == 1
    coordinator.read_rest()
    assert not any(isinstance(message, Ready | Stopped) for message in coordinator.heard)


def test_a_file_that_does_not_import_in_a_worker_is_reported_with_what_may_differ(
    plan: WorkerPlan, worker_of: Callable[[Any], Coordinator]
) -> None:
    """The user's input is not bad: where the run was started it could be imported."""
    Path(plan.file).write_text("import no_such_module_here")
    failed = worker_of(plan).until(Failed)
    assert failed.message.startswith(f"In worker 0, on importing {plan.file} there:")
    assert "no_such_module_here" in failed.message and failed.status == 1


def test_a_component_that_cannot_start_is_named_and_nothing_is_closed_cleanly(
    plan: WorkerPlan, worker_of: Callable[[Any], Coordinator]
) -> None:
    Path(plan.file).write_text(FILE.replace('self.log(f"epoch', 'raise OSError("no disk")  # self.log(f"epoch'))
    coordinator = worker_of(plan)
    failed = coordinator.until(Failed)
    assert "sink (task 2) raised OSError in initialize" in failed.message and "no disk" in failed.message
    assert coordinator.ended() == 1
    coordinator.read_rest()
    assert events(coordinator) == []


@pytest.mark.parametrize("first", [Close(clean=True), Whole(1)], ids=["stop", "whole"])
def test_a_worker_without_a_plan_ends_in_silence(first: Any, worker_of: Callable[[Any], Coordinator]) -> None:
    """It is no worker yet, and has nothing to say."""
    coordinator = worker_of(first)
    assert coordinator.ended() == 1
    coordinator.read_rest()
    assert coordinator.heard == []


def test_a_worker_that_is_given_up_leaves_the_sockets_of_the_others(
    plan: WorkerPlan, worker_of: Callable[[Any], Coordinator]
) -> None:
    """It may have stood still, and have a successor whose socket lies in the folder: its parent lives."""
    coordinator = worker_of(plan)
    coordinator.until(Ready)
    coordinator.channel.close()
    coordinator.ended()
    assert Path(plan.folder).exists()


def test_a_worker_that_hangs_asks_for_its_replacement_with_each_heartbeat(
    plan: WorkerPlan, worker_of: Callable[[Any], Coordinator]
) -> None:
    """One that asks once is never replaced where the coordinator could not do it just then."""
    hangs = FILE.replace("def process(self, tup): ...", "def process(self, tup):\n        import time; time.sleep(1e6)")
    Path(plan.file).write_text(hangs)
    conf = {**plan.conf, "streamlet.task.hang.secs": 0.2, "streamlet.task.hang.action": "replace"}
    coordinator = worker_of(dataclasses.replace(plan, conf=conf))
    coordinator.begin()
    coordinator.until(Unfit, lambda _: sum(isinstance(message, Unfit) for message in coordinator.heard) >= 3)
    told = [text for text in events(coordinator) if "has been in process of sink (task 2)" in text]
    assert len(told) == 1, "the user reads of it once"


def test_a_hang_is_named_without_a_word_on_the_loops_page_or_a_call_of_its_spout(
    tmp_path: Path, plan: WorkerPlan, worker_of: Callable[[Any], Coordinator]
) -> None:
    """The loop may go on at any moment: two threads would write one page, and call one spout."""
    hangs = FILE.replace("def process(self, tup): ...", "def process(self, tup):\n        import time; time.sleep(1e6)")
    asked = "def lasting_id(self, tup_id):\n        raise OSError('asked')\n\n    def caught_up(self):"
    Path(plan.file).write_text(hangs.replace("def caught_up(self):", asked))
    page = make_page(str(tmp_path / "page"), 9)
    conf = {**plan.conf, "streamlet.task.hang.secs": 0.2, "streamlet.task.hang.action": "replace"}
    coordinator = worker_of(dataclasses.replace(plan, conf=conf, page=str(tmp_path / "page")))
    coordinator.begin()
    unfit = coordinator.until(Unfit, lambda _: sum(isinstance(message, Unfit) for message in coordinator.heard) >= 3)
    assert (unfit.task, unfit.values) == (2, "[2]") and [owner_task(root) for root in unfit.roots] == [1]
    held = holding(page)
    assert held is not None and (held.task, held.call, held.values) == (2, "process", "")


def test_a_worker_whose_coordinator_hangs_up_ends_though_its_bolt_never_returns(
    plan: WorkerPlan, worker_of: Callable[[Any], Coordinator]
) -> None:
    """Else a killed coordinator would leave processes behind, at work for nobody."""
    hangs = FILE.replace("def process(self, tup): ...", "def process(self, tup):\n        import time; time.sleep(1e6)")
    Path(plan.file).write_text(hangs)
    coordinator = worker_of(dataclasses.replace(plan, conf={**plan.conf, "streamlet.task.hang.secs": 0.2}))
    coordinator.begin()
    (hang,) = coordinator.until(Beat, lambda beat: beat.hanging).hanging
    assert (hang["task"], hang["call"], hang["tuple"]) == (2, "process", "[2]")
    coordinator.channel.close()
    assert coordinator.ended() == 1


THREAD = """
import threading

from streamlet import BadEmit, Bolt, Spout, Topology

class Numbers(Spout):
    outputs = ["n"]

    def initialize(self, conf, context):
        self.handed_over = 0
        threading.Thread(target=self.emit_on, daemon=True).start()

    def emit_on(self):
        try:
            while True:
                self.emit([self.handed_over])
                self.handed_over += 1
        except BadEmit:
            self.log(f"handed over {self.handed_over}")

    def next_tuple(self): ...

class Sink(Bolt):
    def process(self, tup): ...

class T(Topology):
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers])
"""


def test_what_threads_have_handed_over_is_taken_though_the_run_is_not_whole_again(
    tmp_path: Path, plan: WorkerPlan, worker_of: Callable[[Any], Coordinator]
) -> None:
    """Nobody says that it is: with a worker that died before the end, or in it, it never will be."""
    for died_first in (True, False):
        file = tmp_path / f"thread_{died_first}_{tmp_path.name}.py"
        file.write_text(THREAD)
        placed = fingerprint(make_plan(load_topology(file), 2))
        coordinator = worker_of(dataclasses.replace(plan, file=str(file), workers=2, fingerprint=placed))
        coordinator.begin()
        lost = Lost(1, 1, "was killed by SIGKILL")
        for message in (lost, Pause([1])) if died_first else (Pause(), lost):
            coordinator.channel.send(message)
        coordinator.until(State, lambda state: state.traffic is not None and state.idle)
        coordinator.until(Beat, lambda beat: any(beat.emitted.values()))
