"""Slots without Spark: jobs that are threads or plain processes, the listener and the supervision real."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.run_certificate import SETTING, certificate_of
from streamlet.backends.run_coordinator import RunCoordinator, RunFailed
from streamlet.backends.spark import launcher as launcher_module
from streamlet.backends.spark.launcher import SlotLauncher
from streamlet.backends.spark.loss import Loss, SparkLost
from streamlet.base.log_line import LogLine
from streamlet.model.settings import resolve
from streamlet.runtime.links import handshake
from streamlet.runtime.links.dialing import Secured, dial
from streamlet.runtime.links.handshake import Hello, Refused
from streamlet.runtime.links.tls import LinkTls
from streamlet.runtime.links.wire import MAX_CONTROL_FRAME
from streamlet.runtime.supervision.worker_states import HeldUp
from streamlet.runtime.worker.channel import ControlChannel
from streamlet.runtime.worker.loading import load_topology
from streamlet.runtime.worker.messages import Initialized, Pause
from tests.marked_processes import NUMBERED, REPOSITORY
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = NUMBERED
RUN, SECRET = b"r" * 16, b"s" * 32

SLOT = """
import ctypes, json, sys
ctypes.CDLL(None).prctl(1, 9)
from streamlet.backends.spark.slot import run_slot
facts = json.load(sys.stdin)
for name in ("run_id", "secret", "certificate"):
    facts[name] = bytes.fromhex(facts[name])
facts["address"] = tuple(facts["address"])
print(json.dumps(run_slot(**facts)))
"""


class Waiting:
    """Jobs that last until they are cancelled."""

    def __init__(self) -> None:
        self.ends: dict[tuple[int, int], threading.Event] = {}
        self.cancelled: list[tuple[int, int]] = []
        self.gone: Loss | None = None

    def run(self, worker: int, epoch: int, address: tuple[str, int]) -> str:
        self.ends[worker, epoch] = threading.Event()
        self.ends[worker, epoch].wait(30)
        return "ended with status 0"

    def cancel(self, worker: int, epoch: int) -> None:
        self.cancelled.append((worker, epoch))
        self.ends[worker, epoch].set()

    def lost(self) -> Loss | None:
        return self.gone

    def held_up(self, workers: frozenset[tuple[int, int]]) -> HeldUp:
        return HeldUp()

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=target, name=name, daemon=True)


class Processes(Waiting):
    """Jobs that are processes: what a task does, without a task. A process that is killed is retried, as Spark does."""

    def __init__(self, run_id: bytes, secret: bytes, certificate: bytes) -> None:
        super().__init__()
        private = {"secret": secret.hex(), "certificate": certificate.hex()}
        self.facts = {"run_id": run_id.hex(), "folder": None, **private}
        self.running: dict[tuple[int, int], subprocess.Popen[str]] = {}

    def run(self, worker: int, epoch: int, address: tuple[str, int]) -> str:
        facts = {**self.facts, "address": address, "worker": worker, "epoch": epoch}
        facts |= {"unpacked": str(FILE.parent), "name": FILE.name, "origin": str(FILE.parent)}
        with subprocess.Popen(
            [sys.executable, "-c", SLOT],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            self.running[worker, epoch] = process
            said, _ = process.communicate(json.dumps(facts))
        return str(json.loads(said)[1]) if process.returncode == 0 else "its Python worker died, or its executor"

    def cancel(self, worker: int, epoch: int) -> None:
        self.cancelled.append((worker, epoch))
        self.running[worker, epoch].kill()


def wait_until(what: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def jobs() -> Waiting:
    return Waiting()


@pytest.fixture
def slots(jobs: Waiting, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlotLauncher]:
    monkeypatch.setattr(launcher_module, "RETURN_S", 0.1)
    launcher = SlotLauncher(jobs, "127.0.0.1", "127.0.0.1", RUN, SECRET)
    yield launcher
    launcher.close()


def test_slots_dial_the_name_that_the_driver_has_for_them(jobs: Waiting) -> None:
    """In a container it listens at an address of its own, and is found by another."""
    launcher = SlotLauncher(jobs, "127.0.0.1", "", RUN, SECRET, dialled_host="driver.example")
    try:
        assert launcher.address[0] == "driver.example" and launcher.address[1] > 0
    finally:
        launcher.close()


def call(launcher: SlotLauncher, worker: int, epoch: int, secret: bytes = SECRET, **other: object) -> Secured:
    facts = {"kind": handshake.CONTROL, "run_id": RUN, "worker": worker, "epoch": epoch, "wanted": 0, **other}
    return dial(("tcp", *launcher.address), Hello(**facts), secret, MAX_CONTROL_FRAME)  # type: ignore[arg-type]


def test_a_task_that_dials_becomes_a_channel(slots: SlotLauncher) -> None:
    """And messages pass in both directions."""
    adopted: list[tuple[int, int, ControlChannel]] = []
    slots.start(1, 3, lambda *what: adopted.append(what))
    secured = call(slots, 1, 3)
    wait_until(lambda: adopted)
    (worker, epoch, ours), theirs = adopted[0], ControlChannel(secured.sock, secured.writer, secured.reader)
    ours.send(Pause())
    theirs.send(Initialized())
    assert (worker, epoch) == (1, 3)
    assert (theirs.receive(), ours.receive()) == ([{"t": "pause", "gone": []}], [{"t": "initialized"}])
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    "other",
    [{"epoch": 2}, {"epoch": 4}, {"worker": 2}, {"kind": handshake.DATA}, {"run_id": b"x" * 16}, {"secret": b"x" * 32}],
)
def test_whoever_is_not_expected_is_refused(slots: SlotLauncher, other: dict[str, object]) -> None:
    """A lower epoch is a zombie, a higher one a lie."""
    adopted: list[object] = []
    slots.start(1, 3, lambda *what: adopted.append(what))
    with pytest.raises((Refused, OSError)):
        call(slots, **{"worker": 1, "epoch": 3, **other})  # type: ignore[arg-type]
    assert not adopted


def test_an_epoch_is_adopted_once(slots: SlotLauncher) -> None:
    """Spark may run a task twice; the second copy is told to go."""
    adopted: list[ControlChannel] = []
    slots.start(0, 1, lambda worker, epoch, channel: adopted.append(channel))
    first = call(slots, 0, 1)
    wait_until(lambda: adopted)
    with pytest.raises((Refused, OSError)):
        call(slots, 0, 1)
    adopted[0].close()
    first.sock.close()


def test_a_killed_slot_is_cancelled_and_can_no_longer_join(slots: SlotLauncher, jobs: Waiting) -> None:
    slots.start(0, 1, lambda *_: None)
    wait_until(lambda: jobs.ends)
    slots.kill(0, 1)
    wait_until(lambda: jobs.cancelled == [(0, 1)])
    with pytest.raises((Refused, OSError)):
        call(slots, 0, 1)


def test_the_end_of_a_job_is_told_once(slots: SlotLauncher, jobs: Waiting) -> None:
    slots.start(0, 1, lambda *_: None)
    wait_until(lambda: jobs.ends)
    assert slots.ended() == []
    jobs.ends[0, 1].set()
    ended: list[tuple[int, int, str]] = []
    wait_until(lambda: ended.extend(slots.ended()) or ended)
    assert (ended, slots.ended()) == ([(0, 1, "ended with status 0")], [])


def test_an_error_of_the_job_runner_is_told_not_lost(slots: SlotLauncher, jobs: Waiting) -> None:
    def fail(worker: int, epoch: int, address: tuple[str, int]) -> str:
        raise RuntimeError("no such thing")

    jobs.run = fail  # type: ignore[method-assign]
    slots.start(0, 1, lambda *_: None)
    ended: list[tuple[int, int, str]] = []
    wait_until(lambda: ended.extend(slots.ended()) or ended)
    assert "RuntimeError: no such thing" in ended[0][2]


def test_without_spark_nothing_is_started_again(slots: SlotLauncher, jobs: Waiting) -> None:
    """Twenty restarts on a JVM that is gone would only delay the news."""
    slots.start(0, 1, lambda *_: None)
    wait_until(lambda: jobs.ends)
    jobs.gone = Loss.JVM_ENDED
    jobs.ends[0, 1].set()
    with pytest.raises(SparkLost, match="driver JVM ended"):
        wait_until(lambda: slots.ended() and False)


def test_of_an_application_that_was_stopped_the_reason_is_told_that_one_of_its_slots_has(
    slots: SlotLauncher, jobs: Waiting
) -> None:
    """Its JVM lives on. The other slot says only that it came too late, and ends first."""
    says = [
        "was lost by Spark: org.apache.spark.SparkException: Job 2 cancelled because SparkContext was shut down.",
        "was lost by Spark: org.apache.spark.SparkException: Job aborted: Master removed our application: KILLED.",
    ]
    ends = [threading.Event(), threading.Event()]

    def run(worker: int, epoch: int, address: tuple[str, int]) -> str:
        ends[worker].wait(PATIENCE_S)
        return says[worker]

    jobs.run = run  # type: ignore[method-assign]
    for worker in (0, 1):
        slots.start(worker, 1, lambda *_: None)
    jobs.gone = Loss.STOPPED
    ends[0].set()
    threading.Timer(0.2, ends[1].set).start()
    with pytest.raises(SparkLost) as caught:
        wait_until(lambda: slots.ended() and False)
    assert (
        "application was stopped while the topology ran, and its executors with it (org.apache" in caught.value.message
    )
    assert "our application: KILLED). What is tracked and was not acked" in caught.value.message


def test_close_cancels_what_does_not_return_and_stops_listening(jobs: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_module, "RETURN_S", 0.1)
    launcher = SlotLauncher(jobs, "127.0.0.1", "127.0.0.1", RUN, SECRET)
    launcher.start(0, 1, lambda *_: None)
    wait_until(lambda: jobs.ends)
    launcher.close()
    assert jobs.cancelled == [(0, 1)]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(launcher.address, 1)


def test_why_slots_wait_is_looked_for_elsewhere_one_look_at_a_time(jobs: Waiting, slots: SlotLauncher) -> None:
    """A master that is gone answers late or never, and Spark may raise: the coordinator goes on."""
    answer, asked, told = threading.Event(), [], []
    held = HeldUp(frozenset({(1, 2)}), "waits for a task slot", "The master does not answer.")

    def held_up(workers: frozenset[tuple[int, int]]) -> HeldUp:
        asked.append(workers)
        answer.wait(PATIENCE_S)
        if len(asked) == 1:
            raise OSError
        return held

    jobs.held_up = held_up  # type: ignore[method-assign]
    for _ in range(3):
        slots.ask_why(held.workers, told.append)
    wait_until(lambda: asked)
    assert (asked, told) == ([held.workers], [])
    answer.set()
    wait_until(lambda: slots.ask_why(held.workers, told.append) or told)
    assert told[0] == held


# -- a whole run ---------------------------------------------------------------------------------------------------


class Run:
    """The numbered topology on two slots that are processes."""

    def __init__(self, out: Path, **settings: object) -> None:
        topology = load_topology(FILE)
        conf = resolve(topology.config, {"out": str(out), "streamlet.until.caught.up": True, **settings})
        self.request = RunRequest(topology, conf, file=FILE, workers=2, until_caught_up=True, seconds=PATIENCE_S)
        self.watcher = Watcher()
        self.coordinator = RunCoordinator(self.request, self.watcher, Stop())
        self.trust = self.coordinator.run_id, self.coordinator.secret, self.coordinator.certificate
        self.jobs = Processes(*self.trust)
        self.out = out

    def go(self) -> None:
        self.result = self.coordinator.run(SlotLauncher(self.jobs, "127.0.0.1", "", *self.trust))

    def witness(self) -> list[int]:
        path = self.out / "witness"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_run_over_tcp_counts_right_and_leaves_no_slot(tmp_path: Path, tls: bool) -> None:
    """Slots that dial, links by the address each reaches the coordinator from, a clean end."""
    run = Run(tmp_path, **{"streamlet.links.tls": tls})
    run.go()
    assert (run.result.reason, run.result.drained) == ("caught_up", True)
    assert sorted(run.witness()) == list(range(1000))
    sums: dict[str, int] = {"0": 0, "1": 0}
    for line in (tmp_path / "sums.jsonl").read_text().splitlines():
        sums = {key: sums[key] + value for key, value in json.loads(line).items()}
    assert sums == {str(parity): sum(n * n for n in range(parity, 1000, 2)) for parity in (0, 1)}
    assert all(process.returncode == 0 for process in run.jobs.running.values())
    assert run.jobs.cancelled == []


def test_a_slot_without_the_certificate_is_no_channel_of_an_encrypted_run() -> None:
    """Though it knows run, worker, epoch and secret: the control channel is encrypted like the links."""
    pem, other = (certificate_of({SETTING: True}, name) for name in (RUN, b"x" * 16))
    launcher = SlotLauncher(Waiting(), "127.0.0.1", "127.0.0.1", RUN, SECRET, pem)
    adopted: list[tuple[int, int, ControlChannel]] = []
    try:
        launcher.start(1, 3, lambda *what: adopted.append(what))
        hello = Hello(handshake.CONTROL, RUN, 1, 3, 0)
        for tls in (None, LinkTls(other)):
            with pytest.raises((Refused, OSError)):
                dial(("tcp", *launcher.address), hello, SECRET, MAX_CONTROL_FRAME, tls)
        assert not adopted
        secured = dial(("tcp", *launcher.address), hello, SECRET, MAX_CONTROL_FRAME, LinkTls(pem))
        wait_until(lambda: adopted)
        secured.sock.close()
        adopted[0][2].close()
    finally:
        launcher.close()


def test_what_users_print_is_told(tmp_path: Path) -> None:
    """An executor's standard output is a file nobody looks at."""
    run = Run(tmp_path)
    run.go()
    assert len([text for text in run.watcher.texts if text.startswith("sums of ")]) == 2


def test_an_error_of_a_worker_names_the_users_file(tmp_path: Path) -> None:
    """And ends the run with that very paragraph."""
    run = Run(tmp_path / "not there")
    with pytest.raises(RunFailed, match="not there") as caught:
        run.go()
    assert str(FILE.parent) in caught.value.trace


class WithoutPlace(Processes):
    """Worker 1 gets no place from its first start on, until somebody has been told why."""

    def __init__(self, run_id: bytes, secret: bytes, certificate: bytes) -> None:
        super().__init__(run_id, secret, certificate)
        self.place = threading.Event()

    def run(self, worker: int, epoch: int, address: tuple[str, int]) -> str:
        if worker == 1:
            self.place.wait(PATIENCE_S)
        return super().run(worker, epoch, address)

    def held_up(self, workers: frozenset[tuple[int, int]]) -> HeldUp:
        assert workers == {(1, 1)}
        return HeldUp(workers, "waits for a task slot", "The master does not answer at h:7077.")


def test_the_reason_why_a_slot_waits_reaches_the_notice_about_waiting(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.jobs = WithoutPlace(*run.trust)
    place, tell = run.jobs.place, run.watcher.on_event

    def on_event(line: LogLine) -> None:
        tell(line)
        if "No tuple has flowed" in line.text:
            place.set()

    run.watcher.on_event = on_event  # type: ignore[method-assign]
    run.go()
    assert run.result.reason == "caught_up"
    (said,) = [text for text in run.watcher.texts if "No tuple has flowed" in text]
    assert "waits for a task slot. The master does not answer at h:7077." in said
