"""The coordinator's channels: whoever dials, whenever, nothing is left open or read for ever."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
from typing import Any

import pytest

from streamlet import Spout, Topology
from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.outcome import MOST_ERRORS
from streamlet.backends.run_coordinator import RunCoordinator
from streamlet.base.clock import ManualClock
from streamlet.base.log_line import LogLine
from streamlet.model.settings import resolve
from streamlet.runtime.links.wire import FrameWriter, pack
from streamlet.runtime.supervision.instructions import Instruction, Start
from streamlet.runtime.supervision.supervisor import Limits, WorkerState
from streamlet.runtime.tasks.in_hand import COUNT, Holding, InHand
from streamlet.runtime.tasks.task_stats import TaskStats
from streamlet.runtime.worker.channel import INHERITED_KEY, ControlChannel
from streamlet.runtime.worker.messages import (
    Beat,
    Complaint,
    Failed,
    Initialized,
    Linked,
    Lost,
    Ready,
    State,
    Stopped,
    Unfit,
    encode,
)
from tests.seeds import seeds
from tests.unit.runtime.worker.test_misshapen import mutated


class Quiet(Spout):
    outputs = ["n"]

    def next_tuple(self) -> None: ...

    def fail(self, tup_id: object) -> None: ...


class Alone(Topology):
    quiet = Quiet.spec()


class Nothing:
    """A launcher that starts nothing."""

    local, listen_host = True, ""

    def start(self, worker: int, epoch: int, adopt: Any) -> None: ...

    def kill(self, worker: int, epoch: int) -> None: ...

    def ask_why(self, workers: Any, tell: Any) -> None: ...

    def let_end(self, workers: Any) -> dict[int, str]:
        return {}

    def close(self) -> None: ...


class Blind:
    def on_status(self, status: Any) -> None: ...

    def on_event(self, line: LogLine) -> None: ...


@pytest.fixture
def coordinator() -> RunCoordinator:
    spec = Alone.__topology__
    made = RunCoordinator(RunRequest(spec, resolve(spec.config, {})), Blind(), Stop())
    made.launcher = Nothing()  # type: ignore[assignment]
    return made


def pair() -> tuple[ControlChannel, socket.socket]:
    ours, theirs = socket.socketpair()
    return ControlChannel.inherited(ours), theirs


def test_channels_that_come_at_the_end_are_closed(coordinator: RunCoordinator) -> None:
    """Those that nobody welcomed any more, and those that come later: their workers would wait for a plan."""
    early, early_end = pair()
    late, late_end = pair()
    coordinator.adopt(0, 1, early)
    coordinator._clear()
    others = [os.pipe2(os.O_NONBLOCK) for _ in range(8)]
    coordinator.adopt(0, 1, late)
    for read, write in others:
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
        os.close(read)
        os.close(write)
    for end in (early_end, late_end):
        with end:
            assert end.recv(1) == b""


def test_a_channel_of_a_worker_that_was_replaced_meanwhile_is_closed(coordinator: RunCoordinator) -> None:
    """It dialled late: its replacement's start is under way, and it must get no plan."""
    coordinator.supervisor.workers[0].epoch = 2
    channel, end = pair()
    with end:
        coordinator.adopt(0, 1, channel)
        coordinator._read()
        assert end.recv(1) == b"" and coordinator.channels == {}
    coordinator._clear()


def test_a_channel_that_another_replaces_is_read_no_more(coordinator: RunCoordinator) -> None:
    """Its end would be there to read in every look, and be nobody's to close."""
    worker = coordinator.supervisor.workers[0]
    ends = []
    for epoch in (1, 2):
        worker.epoch = epoch
        channel, end = pair()
        ends.append(end)
        coordinator.adopt(0, epoch, channel)
        coordinator._read()
    assert len(coordinator._selector.get_map()) == 2, "the wake pipe and the one channel"
    coordinator._clear()
    for end in ends:
        end.close()


def test_of_the_errors_of_all_workers_only_those_are_kept_that_the_end_repeats(coordinator: RunCoordinator) -> None:
    """Each worker that is replaced tells its first ones again, and each death on a known tuple is one."""
    coordinator._do(coordinator.supervisor.begin(0.0))
    channel, end = pair()
    coordinator._register_channel(0, 1, channel)
    for count in range(1000):
        for _ in range(2):
            coordinator._handle(0, 1, encode(Complaint(f"count raised ValueError: {count}.")))
    held = Holding(1, "process", 1, 0.0, (5,), (), "['a']")
    coordinator.supervisor.note_in_hand(0, 1, held)
    coordinator._note_deadly(0, 1, "was killed by SIGKILL")
    assert coordinator.complaints == [f"count raised ValueError: {count}." for count in range(MOST_ERRORS)]
    end.close()
    coordinator._clear()


@pytest.mark.parametrize(("ending", "open_trees"), [(True, 7), (False, 0)])
def test_what_was_open_with_a_worker_that_ends_before_the_others(
    coordinator: RunCoordinator, ending: bool, open_trees: int
) -> None:
    """At the end of a run it stays undone in the result, whoever is reaped first; of one that is replaced it is
    replayed, so that only the counters are kept.
    """
    supervisor = coordinator.supervisor
    coordinator._do(supervisor.begin(0.0))
    channel, end = pair()
    coordinator._register_channel(0, 1, channel)
    snapshot = {**TaskStats().snapshot(), "emitted": 20, "failed": 5, "unreplayed": 5}
    coordinator._handle(0, 1, encode(Beat({1: snapshot}, [], 7, 7)))
    coordinator.started = 0.0
    if ending:
        coordinator._do(supervisor.end("interrupted", 1.0))
    coordinator._do(supervisor.gone(0, 1, "ended with status 0", 2.0))
    status = coordinator._status("ended")
    (row,) = status.components
    assert (status.pending, row.emitted, row.failed) == (open_trees, 20, 5)
    assert row.given_up == 0, "its spout hears of failures, and the next run may read what failed again"
    end.close()
    coordinator._clear()


def test_a_worker_whose_beats_have_no_numbers_is_told_apart_from_one_that_did_nothing(
    coordinator: RunCoordinator,
) -> None:
    coordinator._do(coordinator.supervisor.begin(0.0))
    coordinator.started = 0.0
    channel, end = pair()
    coordinator._register_channel(0, 1, channel)
    coordinator._handle(0, 1, encode(Beat({}, [], 0, 0)))
    assert coordinator._status().workers[0]["reported"], "nothing has flowed yet, so zeros are right"
    coordinator.supervisor.began = True
    assert not coordinator._status().workers[0]["reported"]
    coordinator._handle(0, 1, encode(Beat({1: TaskStats().snapshot()}, [], 0, 0)))
    assert coordinator._status().workers[0]["reported"]
    end.close()
    coordinator._clear()


def test_of_a_heartbeat_the_trees_of_spouts_are_what_is_done(
    coordinator: RunCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever bolts have acked: where links never last, that is the same tuples again and again."""
    told: list[Any] = []
    monkeypatch.setattr(coordinator.supervisor, "completed", lambda *given, tracked: told.append((*given, tracked)))
    nothing = TaskStats().snapshot()
    spout, failing, bolt = {**nothing, "acked": 5}, {**nothing, "failed": 2}, {**nothing, "acked": 70, "executed": 70}
    for tasks, pending in (({1: spout, 2: bolt}, 0), ({2: bolt}, 0), ({1: failing}, 0), ({1: nothing}, 3)):
        coordinator._note_progress(0, 1, Beat(tasks, [], pending, pending), 1.0)
    assert told == [(0, 1, 5, True), (0, 1, 0, False), (0, 1, 0, True), (0, 1, 0, True)]
    coordinator._clear()


def test_the_tuple_that_a_replaced_worker_hung_in_is_named_at_the_end(
    coordinator: RunCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of a run that gave it up would guess otherwise."""
    coordinator._do(coordinator.supervisor.begin(0.0))
    record = coordinator.supervisor.workers[0]
    record.state, record.holding = WorkerState.UP, Holding(1, "process", 1, 0.0, (7,), values="[20]")
    monkeypatch.setattr(coordinator, "_read_page", lambda *_: None)
    monkeypatch.setattr(coordinator, "_do", lambda _: None)
    coordinator._replace_unfit(0, 1, Unfit("has been in one call for 41 s"), 1.0)
    (told,) = coordinator.complaints
    assert told.startswith("Worker 0 was replaced because it has been in one call for 41 s") and "tuple [20]" in told
    monkeypatch.undo()
    coordinator._clear()


def test_a_worker_that_hangs_in_a_slice_of_many_is_replaced_for_the_one_it_names(
    coordinator: RunCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator._do(coordinator.supervisor.begin(0.0))
    coordinator._new_page(0, 1)
    page = InHand(coordinator.pages[0])
    page.note_call(1, "process", 3.0)
    page.words[COUNT] = 64
    coordinator.supervisor.workers[0].state = WorkerState.UP
    done: list[Instruction] = []
    monkeypatch.setattr(coordinator, "_do", done.extend)
    coordinator._replace_unfit(0, 1, Unfit("has been in one call for 41 s", 1, [7], "[20]"), 1.0)
    (lost,) = (one for one in done if isinstance(one, Lost))
    assert lost.roots == [7] and "on the tuple [20]" in lost.how
    monkeypatch.undo()
    coordinator._clear()


def test_a_worker_that_is_started_again_leaves_no_page(coordinator: RunCoordinator) -> None:
    """A run of months has deaths without number, and its folder may lie in memory."""
    for epoch in (1, 2, 4):
        coordinator._new_page(0, epoch)
    coordinator._new_page(1, 1)
    assert sorted(path.name for path in coordinator.directory.glob("hand-*")) == ["hand-0.4", "hand-1.1"]
    coordinator._clear()


def test_nothing_is_started_nor_written_once_the_run_is_killed(coordinator: RunCoordinator) -> None:
    """The kill ends the workers first: to the coordinator one has died. It may be starting another just then."""
    started: list[int] = []
    killed: list[int] = []
    coordinator.stop.on_kill(lambda: killed.append(len(started)))

    def start(worker: int, epoch: int, adopt: Any) -> None:
        started.append(epoch)
        coordinator.stop.kill()

    coordinator.launcher.start = start  # type: ignore[method-assign]
    for epoch in (1, 2):
        coordinator._do([Start(0, epoch)])
    assert started == [1] and killed == [1, 1, 1], "what is started during a kill is killed after it"
    shutil.rmtree(coordinator.directory)
    assert coordinator._new_page(0, 2) == "" and not coordinator.directory.exists()


def test_what_a_killed_worker_said_in_the_same_read_counts_no_more(coordinator: RunCoordinator) -> None:
    """A worker that asks to be replaced sends its heartbeat with that: its counters would count twice."""
    supervisor = coordinator.supervisor
    coordinator._do(supervisor.begin(0.0))
    coordinator.started = 0.0
    ours, theirs = pair()
    coordinator._register_channel(0, 1, ours)
    worker = ControlChannel.inherited(theirs)
    snapshot = {**TaskStats().snapshot(), "emitted": 20}
    beat = Beat({1: snapshot}, [], 7, 7, handed={1: 3})
    for message in (Ready(["unix", "/s", 0], 1), Initialized(), Linked(1), beat, Unfit("hangs"), beat):
        worker.send(message)
    coordinator._receive(0, 1, ours)
    assert supervisor.workers[0].state is WorkerState.GONE
    (row,) = coordinator._status().components
    assert coordinator.numbers.beats == {} and (row.emitted, row.lost) == (20, 3)
    worker.close()
    coordinator._clear()


class Restarting(Nothing):
    """Counts what is started and killed."""

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []
        self.killed: list[tuple[int, int]] = []

    def start(self, worker: int, epoch: int, adopt: Any) -> None:
        self.started.append((worker, epoch))

    def kill(self, worker: int, epoch: int) -> None:
        self.killed.append((worker, epoch))


def test_a_worker_is_dead_before_its_channel_is_closed(coordinator: RunCoordinator) -> None:
    """It would take the end of its channel for the coordinator's, and remove everybody's sockets."""
    coordinator._do(coordinator.supervisor.begin(0.0))
    channel, end = pair()
    coordinator._register_channel(0, 1, channel)

    class Looking(Nothing):
        def kill(self, worker: int, epoch: int) -> None:
            assert end.recv(1 << 16, socket.MSG_DONTWAIT), "the plan"
            with pytest.raises(BlockingIOError):
                end.recv(1, socket.MSG_DONTWAIT)

    coordinator.launcher = Looking()  # type: ignore[assignment]
    coordinator._do(coordinator.supervisor.gone(0, 1, "was silent for 10 s", 1.0))
    assert end.recv(1) == b""
    end.close()
    coordinator._clear()


def test_an_error_that_comes_while_the_run_ends_is_its_reason_and_begins_no_second_end(
    coordinator: RunCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a last tick: the first one counts, and nobody is told that a spout ends the run."""
    told: list[str] = []
    monkeypatch.setattr(coordinator, "_say", lambda _level, text, _worker, _epoch: told.append(text))
    coordinator._do(coordinator.supervisor.begin(0.0))
    coordinator.supervisor.end("time", 1.0)
    for message in ("the first", "the second"):
        coordinator._failed(0, 1, Failed(message, 1, "", False, drains=True), 2.0)
    assert coordinator.ends_by is not None and coordinator.ends_by.message == "the first"
    assert (coordinator.failure, coordinator.supervisor.ending, told) == (None, "time", [])


@pytest.mark.parametrize("seed", seeds("coordinator"))
def test_5000_messages_that_no_worker_sends_end_workers_and_not_the_run(
    coordinator: RunCoordinator, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded ones with one field changed, and bytes, over a true channel; numbers of it are shown afterwards."""
    rng = random.Random(seed)
    launcher = coordinator.launcher = Restarting()  # type: ignore[assignment]
    clock = coordinator.clock = coordinator.awake = ManualClock()  # type: ignore[assignment]
    coordinator.started = 0.0
    supervisor = coordinator.supervisor
    supervisor.limits = Limits(restarts=10_000)
    coordinator._do(supervisor.begin(clock.monotonic()))
    theirs: socket.socket | None = None
    refused = 0
    monkeypatch.setattr(coordinator, "_failed", lambda *_: None)  # that a worker may say, and it ends the run
    for number in range(5000):
        epoch = supervisor.workers[0].epoch
        if theirs is None:
            ours, theirs = pair()
            coordinator._register_channel(0, epoch, ours)
            writer = FrameWriter(INHERITED_KEY)
            theirs.recv(1 << 16)  # the plan
        frame = writer.frame(pack(mutated(rng)) if rng.random() < 0.7 else rng.randbytes(rng.randrange(100)))
        if number % 10 == 0:
            frame = b"\xff" + rng.randbytes(len(frame))  # announced as longer than any may be
        with contextlib.suppress(OSError):
            theirs.sendall(frame)
        coordinator._receive(0, epoch, coordinator.channels[0][1])
        coordinator.failure = None  # "failed" is what a worker may say
        coordinator._status()
        if 0 not in coordinator.channels or supervisor.workers[0].state is WorkerState.GONE:
            refused += 1
            coordinator._do(supervisor.gone(0, epoch, "hung up", clock.monotonic()))
            coordinator._close_channel(0, epoch)
            theirs.close()
            theirs = None
            clock.advance(10.0)
            coordinator._do(supervisor.tick(clock.monotonic()))
    assert refused > 1000 and len(launcher.started) == refused + 1 == len(launcher.killed) + 1
    if theirs is not None:
        theirs.close()
    coordinator._clear()


@pytest.mark.parametrize("stood_still_s", [48.0, 86_400.0])
def test_a_coordinator_that_stood_still_goes_on(stood_still_s: float) -> None:
    """Two workers that beat all the time: neither their silence, nor a drain, nor a last word is late for it."""
    clock = ManualClock()
    spec = Alone.__topology__
    coordinator = RunCoordinator(RunRequest(spec, resolve(spec.config, {}), workers=1), Blind(), Stop(), clock=clock)
    launcher = coordinator.launcher = Restarting()  # type: ignore[assignment]
    launcher.ended = list  # type: ignore[attr-defined]
    supervisor = coordinator.supervisor
    coordinator.started = clock.monotonic()
    coordinator._do(supervisor.begin(coordinator.awake.monotonic()))
    ours, theirs = pair()
    worker = ControlChannel.inherited(theirs)
    coordinator.adopt(0, 1, ours)

    def look(seconds: float) -> None:
        clock.advance(seconds)
        coordinator._step()

    look(0.05)
    for message in (Ready(["unix", "/s", 0], 1), Initialized(), Linked(1)):
        worker.send(message)
        look(0.05)
    assert supervisor.whole
    # Longer than any time-out, and every heartbeat of it waits in the channel.
    for _ in range(int(min(stood_still_s, 1000))):
        worker.send(Beat({}, [], 7, 7))
    look(stood_still_s)
    look(0.05)
    assert supervisor.whole and coordinator._status().pending == 7
    coordinator.stop.ask()
    look(0.05)
    assert supervisor.ending and not supervisor.stopping
    look(stood_still_s)
    worker.send(State(True, False, True, ({}, {})))
    look(0.05)
    worker.send(State(True, False, True, ({}, {}), idle=True, quiet=1))
    look(0.05)
    assert supervisor.drained, "its answer to the pause was read before its time was over"
    look(stood_still_s)
    worker.send(Stopped([]))
    look(0.05)
    assert supervisor.over and not supervisor.unclosed
    assert launcher.started == [(0, 1)] and launcher.killed == []
    worker.close()
    coordinator._clear()
