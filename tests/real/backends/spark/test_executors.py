"""The real thing: workers on the executors of a local cluster, which share nothing with the test but the machine."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends import run_certificate
from streamlet.backends.contract import RunRequest, RunResult, RunStatus, Stop
from streamlet.backends.run_certificate import SETTING, certificate_of
from streamlet.backends.spark import SparkBackend, parcels, preflight
from streamlet.backends.spark.jobs import run_tasks, spark_thread
from streamlet.backends.spark.loss import SparkLost
from streamlet.backends.spark.masters import DEFAULT_MASTER, parse_master
from streamlet.backends.spark.packing import make_pack
from streamlet.backends.spark.spark_session import Session, open_session
from streamlet.base.errors import BadInput
from streamlet.base.log_line import LogLine
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from streamlet.runtime.worker.log_lines import shown_text
from tests.marked_processes import NUMBERED, command_line, parent
from tests.patience import PATIENCE_S
from tests.shared_files import shared_files
from tests.spark_classes import archive

pytestmark = pytest.mark.spark

FILE = NUMBERED


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """One Spark application for all tests here: it takes seconds to start. The backend uses it, and leaves it."""
    session = open_session(parse_master(DEFAULT_MASTER, 1), "tests", debug=False, cancelled=lambda: False)
    yield session
    session.close()


class Watcher:
    """Keeps what it is told, and calls ``look`` with each status."""

    def __init__(self, look: Callable[[RunStatus], None] | None = None) -> None:
        self.events: list[str] = []
        self.look = look

    def on_status(self, status: RunStatus) -> None:
        if self.look is not None:
            self.look(status)

    def on_event(self, line: LogLine) -> None:
        self.events.append(shown_text(line))


def run(out: Path, watcher: Watcher, workers: int = 2, stop: Stop | None = None, **settings: object) -> RunResult:
    topology = load_topology(FILE)
    conf = resolve(topology.config, {"out": str(out), "streamlet.until.caught.up": True, **settings})
    request = RunRequest(topology, conf, file=FILE, workers=workers, until_caught_up=True, seconds=PATIENCE_S)
    return SparkBackend().run(request, watcher, stop or Stop())


def witness(out: Path) -> list[int]:
    path = out / "witness"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def started(out: Path) -> set[tuple[int, int, int]]:
    """(epoch, process, its parent) of every task that was initialised."""
    return {tuple(json.loads(line)[1:4]) for line in (out / "started.jsonl").read_text().splitlines()}


def python_daemons(session: Session) -> dict[int, int]:
    """Python daemon -> executor JVM, read off the process tree below the driver's JVM."""
    assert session.process is not None
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            pid, above = int(entry.name), parent(int(entry.name))
            executor = "CoarseGrainedExecutorBackend" in " ".join(command_line(above)) and parent(above)
        except OSError:
            continue
        if executor == session.process.pid and "pyspark.daemon" in command_line(pid):
            found[pid] = above
    return found


def archives(session: Session) -> list[Path]:
    """Unpacked archives of tasks, wherever executors put them."""
    assert session.directory is not None
    return [path for path in session.directory.rglob("streamlet-*") if path.is_dir()]


def test_counts_are_right_and_workers_are_children_of_two_executors(session: Session, tmp_path: Path) -> None:
    """The same file as on worker processes, with a module that lies beside it; nothing stays behind."""
    watcher = Watcher()
    result = run(tmp_path, watcher)
    assert (result.reason, result.drained) == ("caught_up", True)
    assert sorted(witness(tmp_path)) == list(range(1000))
    sums = {"0": 0, "1": 0}
    for line in (tmp_path / "sums.jsonl").read_text().splitlines():
        sums = {key: sums[key] + value for key, value in json.loads(line).items()}
    assert sums == {str(parity): sum(n * n for n in range(parity, 1000, 2)) for parity in (0, 1)}
    daemons = python_daemons(session)
    parents = [above for _, _, above in started(tmp_path)]
    assert len(parents) == 2
    assert {daemons[above] for above in parents} == set(daemons.values())
    assert len(set(daemons.values())) == 2
    assert any("2 executors" in text for text in watcher.events)
    places = [(row["host"], row["executor"]) for row in result.status.workers]
    assert places in ([(socket.gethostname(), first), (socket.gethostname(), other)] for first, other in ("01", "10"))
    for row in result.status.workers:
        where = f"executor {row['executor']} of {row['host']}, process {row['pid']}."
        assert any(text.endswith(f"worker {row['worker']} (epoch 1) is on {where}") for text in watcher.events)
    assert session.lost() is None
    assert session.context.statusTracker().getActiveJobsIds() == []
    assert archives(session) == []
    assert not [pid for _, pid, _ in started(tmp_path) if Path(f"/proc/{pid}").exists()]


def test_an_executor_that_spark_has_excluded_is_known_and_has_no_slot(session: Session, tmp_path: Path) -> None:
    """The events of Spark's own tracker of failed tasks are sent here."""
    scheduler = session.context._jvm.org.apache.spark.scheduler
    bus = session.context._jsc.sc().listenerBus()
    bus.post(scheduler.SparkListenerExecutorExcluded(1, "1", 1))
    try:
        bus.waitUntilEmpty()
        assert {each.id: each.excluded for each in session.executors()} == {"0": False, "1": True}
        with pytest.raises(BadInput, match=r"has 1 slot.*Spark has excluded executor 1 after failed tasks"):
            run(tmp_path, Watcher())
    finally:
        bus.post(scheduler.SparkListenerExecutorUnexcluded(2, "1"))
        bus.waitUntilEmpty()
    assert not any(each.excluded for each in session.executors())


def test_driver_and_executors_start_with_the_archive_of_classes_where_there_is_one(
    session: Session, tmp_path: Path
) -> None:
    """Java passes over an archive of other jars, or of another order of them, without a word; tests would be slow."""
    found = archive()
    if found is None or not found.exists():
        pytest.skip("python -m tests.spark_classes has not made an archive")
    run(tmp_path, Watcher())
    assert session.process is not None
    for jvm in {session.process.pid, *python_daemons(session).values()}:
        assert str(found) in Path(f"/proc/{jvm}/maps").read_text(), command_line(jvm)


def test_a_status_callback_that_raises_ends_the_run_with_its_error_and_leaves_no_slot(
    session: Session, tmp_path: Path
) -> None:
    """Here one that asks for Spark's page: without ``spark.ui.enabled`` the session has no address of it."""

    def look(status: RunStatus) -> None:
        if status.state == "running":
            session.context.uiWebUrl.strip()

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'strip'"):
        run(tmp_path, Watcher(look), **{"numbers.count": 1_000_000})
    assert session.lost() is None
    deadline = time.monotonic() + PATIENCE_S
    while session.context.statusTracker().getActiveJobsIds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not [pid for _, pid, _ in started(tmp_path) if Path(f"/proc/{pid}").exists()]


@pytest.mark.faults
def test_a_slot_whose_python_worker_is_killed_is_resubmitted(session: Session, tmp_path: Path) -> None:
    """With the next epoch, while trees are pending; every id reaches the witness and the run ends by itself."""
    pending: list[int] = []

    def kill(status: RunStatus) -> None:
        victim = {worker["worker"]: worker["pid"] for worker in status.workers}[1]
        if not pending and status.state == "running" and len(witness(tmp_path)) > 500 and status.pending:
            pending.append(status.pending)
            os.kill(victim, signal.SIGKILL)

    # Slower than what comes: trees are pending whenever one looks.
    result = run(tmp_path, Watcher(kill), **{"numbers.count": 6000, "numbers.per.second": 1500.0, "numbers.nap": 0.002})
    assert pending
    assert result.reason == "caught_up"
    assert set(witness(tmp_path)) == set(range(6000))
    workers = {worker["worker"]: worker["epoch"] for worker in result.status.workers}
    assert workers == {0: 1, 1: 2}
    assert len(started(tmp_path)) == 3


@pytest.mark.faults
def test_an_executor_that_dies_takes_its_slot_along_and_no_other(session: Session, tmp_path: Path) -> None:
    """Spark starts another executor, the slot's next epoch runs there."""
    killed: list[int] = []

    def kill(status: RunStatus) -> None:
        if not killed and status.state == "running" and len(witness(tmp_path)) > 500:
            daemons = python_daemons(session)
            victim = {worker["worker"]: worker["pid"] for worker in status.workers}[1]
            killed.append(daemons[parent(victim)])
            os.kill(killed[0], signal.SIGKILL)

    result = run(tmp_path, Watcher(kill), **{"numbers.count": 6000, "numbers.per.second": 1500.0})
    assert killed
    assert result.reason == "caught_up"
    assert set(witness(tmp_path)) == set(range(6000))
    assert {worker["worker"]: worker["epoch"] for worker in result.status.workers}[0] == 1


EDITED = """
import os
from {beside} import VERSION as BESIDE
from streamlet import Bolt, Spout, Topology

VERSION = "first"

class Endless(Spout):
    outputs = ["n"]
    answers_for_failures = True  # the test kills a worker, and asks for nothing but the code
    n = 0
    def next_tuple(self):
        self.n += 1
        self.emit([self.n], tup_id=self.n)

class Writes(Bolt):
    def initialize(self, conf, context):
        from {late} import VERSION as LATE
        self.line = f"{{context.epoch}} {{VERSION}} {{BESIDE}} {{LATE}}\\n".encode()
        self.file = os.open({seen!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    def process(self, tup):
        os.write(self.file, self.line)

class Edited(Topology):
    config = {{"topology.max.spout.pending": 10}}
    endless = Endless.spec()
    writes = Writes.spec(inputs=[endless])
"""


@pytest.mark.faults
def test_a_worker_that_is_replaced_on_an_executor_runs_the_code_of_the_start(session: Session, tmp_path: Path) -> None:
    """Of the topology's file, of one that it imports, and of one that is imported in a method."""
    name, seen, stop = tmp_path.name, tmp_path / "seen", Stop()
    beside, late, file = (tmp_path / f"{kind}_{name}.py" for kind in ("beside", "late", "edited"))
    for path in (beside, late):
        path.write_text('VERSION = "first"\n')
    file.write_text(EDITED.format(beside=beside.stem, late=late.stem, seen=str(seen)))
    killed: list[int] = []

    def edit_then_kill(status: RunStatus) -> None:
        lines = seen.read_text().splitlines() if seen.exists() else []
        if lines and not killed:
            for path in (beside, late, file):
                path.write_text(path.read_text().replace("first", "second"))
            killed.append({worker["worker"]: worker["pid"] for worker in status.workers}[1])
            os.kill(killed[0], signal.SIGKILL)
        if any(line.startswith("2") for line in lines):
            stop.ask()

    topology = load_topology(file)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, workers=2, seconds=PATIENCE_S)
    assert SparkBackend().run(request, Watcher(edit_then_kill), stop).reason == "interrupted"
    assert set(seen.read_text().splitlines()) == {"1 first first first", "2 first first first"}


@pytest.mark.faults
def test_a_worker_that_hangs_is_replaced_and_cannot_come_back(session: Session, tmp_path: Path) -> None:
    """Stopped until it was replaced, then resumed: it ends by itself, and nothing of it is counted."""
    stopped: list[int] = []
    over = threading.Event()

    def pause(status: RunStatus) -> None:
        if not stopped and status.state == "running" and len(witness(tmp_path)) > 500:
            stopped.append({worker["worker"]: worker["pid"] for worker in status.workers}[1])
            os.kill(stopped[0], signal.SIGSTOP)

    def resume() -> None:
        while not over.wait(0.02):
            if len(started(tmp_path)) >= 3 and stopped:
                try:
                    os.kill(stopped[0], signal.SIGCONT)
                except ProcessLookupError:
                    return  # Spark's cancel came first

    resumer = threading.Thread(target=resume)
    (tmp_path / "started.jsonl").touch()
    resumer.start()
    try:
        settings = {"numbers.count": 6000, "numbers.per.second": 1500.0, "streamlet.worker.timeout.secs": 2.0}
        result = run(tmp_path, Watcher(pause), **settings)
    finally:
        over.set()
        resumer.join()
    assert stopped
    assert result.reason == "caught_up"
    assert set(witness(tmp_path)) == set(range(6000))
    deadline = time.monotonic() + 10
    while Path(f"/proc/{stopped[0]}").exists():
        assert time.monotonic() < deadline, "the zombie lives"
        time.sleep(0.05)


def test_slots_that_others_hold_are_not_waited_for(session: Session, tmp_path: Path) -> None:
    """One paragraph with the number of slots and what has them, instead of a run that hangs."""

    def sleeping(batches: Any) -> Any:
        time.sleep(PATIENCE_S)
        yield from batches

    def run_it() -> None:
        with contextlib.suppress(Exception):  # cancelled below
            run_tasks(session, sleeping, 1, "another", "nightly report")

    long = spark_thread(run_it, "another job")
    long.start()
    try:
        while not any(executor.busy for executor in session.executors()):
            time.sleep(0.05)
        with pytest.raises(
            BadInput, match=r"wants 3 workers.* has 2 slots, 1 of them .*runs job \d+ \(nightly report\)"
        ):
            run(tmp_path, Watcher(), workers=3)
    finally:
        session.context.cancelJobGroup("another")
        long.join(PATIENCE_S)


def test_executors_of_another_python_are_refused(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what the executors themselves answer to a driver of another version."""
    monkeypatch.setattr(session.context, "pythonVer", "3.99")
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with pytest.raises(BadInput, match=f"executors run Python {here} and this is Python 3.99"):
        run(tmp_path, Watcher())


def test_what_pyspark_lacks_on_the_executors_is_named_before_anything_runs(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python of the executors that finds another ``py4j`` first, as if it had been installed otherwise."""
    (tmp_path / "py4j.py").write_text("""raise ModuleNotFoundError("No module named 'py4j'")\n""")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(session.context, "pythonExec", str(python))
    with pytest.raises(BadInput, match=r"cannot import py4j.*beside the executors' Python"):
        run(tmp_path, Watcher())
    assert witness(tmp_path) == []


def test_a_package_that_executors_lack_is_named_with_host_and_command(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked of every executor before anything runs there."""
    monkeypatch.setattr(preflight, "COMPILED", ("msgpack", "no_such_codec"))
    said = f"on {socket.gethostname()} .*cannot import no_such_codec.*{sys.executable} -m pip install 'no_such_codec'"
    with pytest.raises(BadInput, match=said):
        run(tmp_path, Watcher())


def test_executors_without_a_way_to_the_coordinator_are_named_with_its_address(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They reach Spark's driver. Nobody listens at the address that the coordinator is said to have."""
    monkeypatch.setattr(Session, "driver_host", lambda self: "127.0.0.9")
    said = rf"{socket.gethostname()} cannot reach the driver at 127\.0\.0\.9:\d+ \(.*efused"
    with pytest.raises(BadInput, match=said):
        run(tmp_path, Watcher())
    assert witness(tmp_path) == []


@pytest.fixture
def bare_python(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors whose Python has no package at all; Spark brings its own."""
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(session.context, "pythonExec", str(tmp_path / "bare" / "bin" / "python"))


@pytest.mark.usefixtures("bare_python")
def test_a_bare_python_on_the_executors_is_refused_without_an_archive_and_serves_with_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot import msgpack, crc32c, cramjam .*`streamlet pack.*--archive"):
        run(tmp_path, Watcher())
    archive = tmp_path / "env.tar.gz"
    make_pack(archive, ["sortedcontainers"])
    watcher = Watcher()
    result = run(tmp_path, watcher, **{"streamlet.spark.archive": archive})
    assert (result.reason, sorted(witness(tmp_path))) == ("caught_up", list(range(1000)))
    assert any("task slots and the archive env.tar.gz (" in text for text in watcher.events)


def test_shared_files_lie_on_each_executor_and_an_edited_one_is_sent_again(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same session, in pieces."""
    monkeypatch.setattr(parcels, "PIECE", 4000)
    shared = shared_files(tmp_path)
    topology = importlib.import_module("tests.topologies.reads_shared").ReadsShared
    for two in (2, 22):
        out = tmp_path / str(two)
        out.mkdir()
        shared["numbers"].write_text(json.dumps({"one": 1, "two": two}))
        topology.run(backend="spark", workers=2, settings={"out": str(out), "streamlet.shared": shared})
        told = [json.loads(path.read_text()) for path in out.glob("found-*.json")]
        assert {**told[0][0], **told[1][0]} == {"one": 1, "two": two}
        places = [Path(row[1]) for row in told]
        assert len({*places}) == 2 and all(path.name == "numbers.json" for path in places)
        # Spark's folder for blocks, which goes with the executor.
        assert all(any(part.startswith("blockmgr-") for part in path.parts) for path in places)
        assert all(row[3] == "read" for row in told)


def test_neither_secret_nor_certificate_is_in_a_file_setting_environment_or_argument(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They travel in the task and nowhere else. Links and control channels are encrypted, with that certificate."""
    secret = b"known to this test, in 32 bytes "
    monkeypatch.setattr(secrets, "token_bytes", lambda count: secret)
    pem = certificate_of({SETTING: True}, b"run")
    monkeypatch.setattr(run_certificate, "_made", lambda name: pem)
    key = pem.splitlines()[1]
    looked: list[str] = []

    def look(status: RunStatus) -> None:
        if status.state != "running" or session.directory is None:
            return
        pids = [worker["pid"] for worker in status.workers]
        pids += [parent(pid) for pid in pids] + [parent(parent(pid)) for pid in pids]
        proc = [Path(f"/proc/{pid}/{name}") for pid in pids for name in ("environ", "cmdline")]
        files = [Path(here) / name for here, _, names in os.walk(session.directory) for name in names]
        looked.extend(str(path) for path in [*proc, *files])
        for path in [*proc, *files]:
            try:
                data = path.read_bytes()
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            assert not any(form in data for form in (secret, secret.hex().encode(), key)), path

    watcher = Watcher(look)
    result = run(tmp_path, watcher, **{"numbers.count": 800, "numbers.per.second": 300.0, SETTING: True})
    assert sorted(witness(tmp_path)) == list(range(800)) and result.drained
    assert any(name.endswith("stderr") for name in looked)
    said = str(session.conf()) + str(watcher.events)
    assert secret.decode() not in said and key.decode() not in said


@pytest.mark.faults
def test_without_its_jvm_a_run_ends_and_says_so(
    session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a sentence, without tracebacks of libraries. The last test of the session. Restarting slots on nothing would
    only delay the news.
    """

    def kill(status: RunStatus) -> None:
        if status.state == "running" and session.process is not None:
            session.process.kill()

    with pytest.raises(SparkLost, match="driver JVM ended"):
        run(tmp_path, Watcher(kill), **{"numbers.count": 100_000, "numbers.per.second": 500.0})
    wait_for_the_end(session)
    said = capfd.readouterr()
    assert "Traceback" not in caplog.text + said.out + said.err


def wait_for_the_end(session: Session) -> None:
    """Executors and their Python workers go with the driver's JVM."""
    deadline = time.monotonic() + 10
    while python_daemons(session):
        assert time.monotonic() < deadline, "executors live on"
        time.sleep(0.05)
