"""The coordinator's channels: whoever dials, whenever, nothing is left open or read for ever."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from streamlet import Spout, Topology
from streamlet.backends.coordinator import Coordinator
from streamlet.backends.ports import RunRequest, Stop
from streamlet.model.settings import resolve
from streamlet.runtime.control import ControlChannel
from streamlet.runtime.task_stats import TaskStats


class Quiet(Spout):
    outputs = ["n"]

    def next_tuple(self) -> None: ...


class Alone(Topology):
    quiet = Quiet.spec()


class Nothing:
    """A launcher that starts nothing."""

    listen = ("unix", "")

    def start(self, worker: int, epoch: int, adopt: Any) -> None: ...

    def kill(self, worker: int, epoch: int) -> None: ...

    def close(self) -> None: ...


class Blind:
    def on_status(self, status: Any) -> None: ...

    def on_event(self, level: str, text: str) -> None: ...


@pytest.fixture
def coordinator() -> Coordinator:
    spec = Alone.__topology__
    made = Coordinator(RunRequest(spec, resolve(spec.config, {})), Blind(), Stop())
    made.launcher = Nothing()  # type: ignore[assignment]
    return made


def pair() -> tuple[ControlChannel, socket.socket]:
    ours, theirs = socket.socketpair()
    return ControlChannel.inherited(ours), theirs


def test_channels_that_come_at_the_end_are_closed(coordinator: Coordinator) -> None:
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


def test_a_channel_that_another_replaces_is_read_no_more(coordinator: Coordinator) -> None:
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


@pytest.mark.parametrize(("ending", "open_trees"), [(True, 7), (False, 0)])
def test_what_was_open_with_a_worker_that_ends_before_the_others(
    coordinator: Coordinator, ending: bool, open_trees: int
) -> None:
    """At the end of a run it stays undone in the result, whoever is reaped first; of one that is replaced it is
    replayed, so that only the counters are kept.
    """
    supervisor = coordinator.supervisor
    coordinator._do(supervisor.begin(0.0))
    snapshot = {**TaskStats().snapshot(), "emitted": 20}
    coordinator._handle(0, 1, {"t": "beat", "tasks": {1: snapshot}, "partitions": [], "pending": 7, "unfinished": 7})
    coordinator.started = 0.0
    if ending:
        coordinator._do(supervisor.end("interrupted", 1.0))
    coordinator._do(supervisor.gone(0, 1, "ended with status 0", 2.0))
    status = coordinator._status("ended")
    assert (status.pending, status.components[0].emitted) == (open_trees, 20)
    coordinator._clear()
