"""The wait for executors: said when it lasts, and ended by a paragraph. A scripted session."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.spark import backend
from streamlet.backends.spark.backend import SparkBackend
from streamlet.backends.spark.loss import Loss, SparkLost
from streamlet.backends.spark.masters import ClusterView, SparkApplication
from streamlet.backends.spark.parcels import Sent
from streamlet.backends.spark.spark_session import Executor
from streamlet.base.errors import BadInput
from streamlet.base.log_line import LogLine
from streamlet.runtime.worker.loading import load_topology
from tests.marked_processes import NUMBERED

FILE = NUMBERED


class ScriptedSession:
    """Executors come one look after the other; the last list stays."""

    def __init__(self, master: str, looks: Sequence[list[Executor]]) -> None:
        self.master, self.local, self.ours = master, master.startswith("local"), True
        self._looks = list(looks)
        self.gone: list[Loss | None] = [None]
        self.placed: set[str] = set()
        self.asked_without: list[str] = []

    def conf(self) -> dict[str, str]:
        return {}

    def application_id(self) -> str:
        return "app-1"

    def driver_host(self) -> str:
        return "10.0.0.1"

    def waits(self, group: str) -> bool:
        return group not in self.placed

    def running_jobs(self, without: str) -> list[str]:
        self.asked_without.append(without)
        return ["job 7 (nightly report)"]

    def cluster(self) -> ClusterView:
        return ClusterView(
            1, 2, 2, 512, (SparkApplication("app-0", "etl", "ann", 1), SparkApplication("app-1", "me", "me", 1))
        )

    def lost(self) -> Loss | None:
        return self.gone.pop(0) if len(self.gone) > 1 else self.gone[0]

    def executors(self) -> list[Executor]:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


class Heard:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_event(self, line: LogLine) -> None:
        self.texts.append(line.text)


@pytest.fixture
def request_of_two(monkeypatch: pytest.MonkeyPatch) -> RunRequest:
    monkeypatch.setattr(backend, "TOLD_AFTER_S", 0.0)
    return RunRequest(load_topology(FILE), {"streamlet.spark.slots.timeout.secs": 0.3}, file=FILE, workers=2)


def test_a_slow_start_is_told_once_and_waited_for(request_of_two: RunRequest) -> None:
    """On this machine for minutes: its executors do come."""
    one = Executor("0", 1, 0)
    session, heard = ScriptedSession("local-cluster[2,1,1024]", [[], [], [one], [one, one]]), Heard()
    assert backend._await_slots(session, request_of_two, heard, Stop()) == "2 executors and 2 task slots"  # type: ignore[arg-type]
    assert heard.texts == ["Waiting for executors, for up to 300 s: 0 executors and 0 task slots so far"]


def test_an_application_that_is_stopped_is_not_waited_for(request_of_two: RunRequest) -> None:
    """It still answers, and has no executors: the time would pass, and slots be said to be missing."""
    session = ScriptedSession("spark://h:7077", [[Executor("0", 1, 0)], []])
    session.gone = [None, Loss.STOPPED]
    request_of_two.conf["streamlet.spark.slots.timeout.secs"] = 600.0  # type: ignore[index]
    with pytest.raises(SparkLost, match="stopped before the topology ran"):
        backend._await_slots(session, request_of_two, Heard(), Stop())  # type: ignore[arg-type]


def test_a_step_that_fails_on_an_application_that_is_gone_is_told_as_that() -> None:
    session = ScriptedSession("spark://h:7077", [[]])
    for gone, expected in ((None, BadInput), (Loss.STOPPED, SparkLost), (Loss.JVM_ENDED, SparkLost)):
        session.gone = [gone]
        with pytest.raises(expected), backend._told_if_lost(session):  # type: ignore[arg-type]
            raise BadInput("no Python")
    with pytest.raises(backend.Cancelled), backend._told_if_lost(session):  # type: ignore[arg-type]
        raise backend.Cancelled


def test_a_cluster_without_room_is_told_with_what_it_has(request_of_two: RunRequest) -> None:
    session, heard = ScriptedSession("spark://h:7077", [[Executor("0", 1, 0)]]), Heard()
    with pytest.raises(BadInput, match=r"spark://h:7077 has 1 slot.*runs job 7 \(nightly report\).*1 by etl of ann"):
        backend._await_slots(session, request_of_two, heard, Stop())  # type: ignore[arg-type]
    assert heard.texts == ["Waiting for task slots, for up to 0.3 s: 1 executor and 1 task slot so far"]


def test_a_session_of_a_program_is_not_advised_to_take_an_option_of_the_command_line(
    request_of_two: RunRequest,
) -> None:
    session = ScriptedSession("local[1]", [[Executor("driver", 1, 0)]])
    session.ours = False
    with pytest.raises(BadInput, match=r"Give workers=1, or make the session with more: \.master\('local\[2\]'\)"):
        backend._await_slots(session, request_of_two, Heard(), Stop())  # type: ignore[arg-type]


def test_executors_with_too_few_cores_for_a_task_are_not_taken_for_executors_that_do_not_report(
    request_of_two: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has a slot; the driver's address would be looked at for nothing."""
    session = ScriptedSession("spark://h:7077", [[Executor("0", 0, 0, cores=2)]])
    monkeypatch.setattr(session, "conf", lambda: {"spark.task.cpus": "4"})
    with pytest.raises(
        BadInput, match=r"A task wants 4 cores \(spark\.task\.cpus\), and executors .* have 2: .*Lower"
    ) as it:
        backend._await_slots(session, request_of_two, Heard(), Stop())  # type: ignore[arg-type]
    assert "reach the driver" not in it.value.message


def test_slots_of_a_local_master_that_another_job_holds_are_waited_for_as_on_a_cluster(
    request_of_two: RunRequest,
) -> None:
    session, heard = ScriptedSession("local-cluster[2,1,1024]", [[Executor("0", 1, 1), Executor("1", 1, 1)]]), Heard()
    with pytest.raises(BadInput, match=r"job 7 \(nightly report\)"):
        backend._await_slots(session, request_of_two, heard, Stop())  # type: ignore[arg-type]
    told = "Waiting for task slots, for up to 0.3 s: 2 executors and 2 task slots, 2 of them busy so far"
    assert heard.texts == [told]


def test_executors_that_spark_has_excluded_have_no_slot_for_a_run(request_of_two: RunRequest) -> None:
    """It would begin, and wait for a worker that gets no place."""
    found = [Executor("0", 1, 0), Executor("1", 1, 0, excluded=True)]
    session, heard = ScriptedSession("local-cluster[2,1,1024]", [found]), Heard()
    with pytest.raises(BadInput, match=r"has 1 slot.*Spark has excluded executor 1 after failed tasks"):
        backend._await_slots(session, request_of_two, heard, Stop())  # type: ignore[arg-type]


class ProbedSession(ScriptedSession):
    """Its job blocks until its group is cancelled; a cancel before the job is there is lost, as Spark loses it."""

    def __init__(self) -> None:
        super().__init__("spark://127.0.0.1:7077", [[Executor("0", 2, 0)]])
        self.context = self
        self.running: str | None = None
        self.ended = threading.Event()

    def driver_host(self) -> str:
        return "127.0.0.1"

    def bind_host(self) -> str:
        return "127.0.0.1"

    def run_tasks(self, group: str) -> None:
        self.running = group
        if not self.ended.wait(30):
            raise TimeoutError
        raise RuntimeError(f"job of {group} was cancelled")

    def cancelJobGroup(self, group: str) -> None:
        if group == self.running:
            self.ended.set()


def test_a_stop_during_the_check_leaves_no_job_in_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    session, stop = ProbedSession(), Stop()
    stop.ask()

    def run_tasks(given: ProbedSession, task: object, count: int, group: str, description: str) -> None:
        given.run_tasks(group)

    monkeypatch.setattr(backend, "run_tasks", run_tasks)
    monkeypatch.setattr(backend, "spark_thread", lambda target, name: threading.Thread(target=target, daemon=True))
    with pytest.raises(backend.Cancelled):
        backend._probe(session, 2, stop)  # type: ignore[arg-type]
    assert session.ended.is_set()


def test_an_address_at_which_nothing_can_listen_is_told_with_the_settings_that_name_it() -> None:
    """192.0.2.0/24 is for documentation: no machine has it."""

    class Away(ProbedSession):
        def bind_host(self) -> str:
            return "192.0.2.9"

    with pytest.raises(BadInput, match=r"listen here at 192\.0\.2\.9.*spark\.driver\.bindAddress.*spark\.driver\.host"):
        backend._probe(Away(), 2, Stop())  # type: ignore[arg-type]


def test_a_slot_on_a_late_executor_has_time_to_unpack() -> None:
    """On top of the time that every worker has."""
    start = "streamlet.worker.start.timeout.secs"
    request = RunRequest(load_topology(FILE), {start: 30.0}, file=FILE, workers=2)
    assert backend._with_time_to_unpack(request, Sent()).conf[start] == 30.0
    assert backend._with_time_to_unpack(request, Sent(size=1 << 30)).conf[start] == 30.0 + 512
    assert request.conf[start] == 30.0


def test_a_run_beside_one_that_has_made_its_own_session_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slots are that run's, and it ends with that run."""
    request = RunRequest(load_topology(FILE), {}, file=FILE, workers=1, master="local[1]")
    monkeypatch.setattr(backend.preflight, "check_java", lambda environ: None)
    monkeypatch.setattr(backend, "active_session", lambda: None)
    closed: list[bool] = []
    session = SimpleNamespace(close=lambda: closed.append(True), kill=lambda: None, conf=dict, lost=lambda: None)
    session.master, session.pins_threads, session.taken_back = "local[1]", lambda: True, ()
    monkeypatch.setattr(backend, "open_session", lambda *_: session)
    refused: list[str] = []

    def await_slots(*_: object) -> str:
        with pytest.raises(BadInput) as caught:
            SparkBackend()._run_on_session(b"", None, request, Heard(), Stop(), 0.0)  # type: ignore[arg-type]
        refused.append(str(caught.value))
        raise backend.Cancelled

    monkeypatch.setattr(backend, "_await_slots", await_slots)
    for _ in range(2):
        SparkBackend()._run_on_session(b"", None, request, Heard(), Stop(), 0.0)  # type: ignore[arg-type]
    assert len(refused) == len(closed) == 2, "the end of a run makes room for the next one"
    assert "SparkBackend(spark)" in refused[0]


def test_a_start_that_fails_leaves_nothing_in_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where nothing can listen at the address that the user has set."""
    folder = tmp_path / "run"
    folder.mkdir()
    coordinator = SimpleNamespace(directory=folder, run_id=b"", secret=b"", certificate=b"", look=lambda: None)
    closed: list[bool] = []
    jobs = SimpleNamespace(close=lambda: closed.append(True), kill=lambda: None)

    def launcher(*_: object) -> None:
        raise OSError("cannot assign requested address")

    monkeypatch.setattr(backend, "RunCoordinator", lambda *_: coordinator)
    monkeypatch.setattr(backend, "SparkJobs", lambda *_, **__: jobs)
    monkeypatch.setattr(backend, "SlotLauncher", launcher)
    start = "streamlet.worker.start.timeout.secs"
    request = RunRequest(load_topology(FILE), {start: 30.0}, file=FILE, workers=2)
    session = SimpleNamespace(here=True, driver_host=lambda: "h", bind_host=lambda: "h")
    with pytest.raises(OSError, match="cannot assign"):
        SparkBackend()._run(session, b"", Sent(), request, Heard(), Stop())  # type: ignore[arg-type]
    assert closed == [True] and not folder.exists()


def test_the_last_of_several_runs_at_once_gives_py4j_its_logger_back(caplog: pytest.LogCaptureFixture) -> None:
    """Whichever ends first: the others still keep it quiet."""
    logger, root = logging.getLogger("py4j"), logging.getLogger()
    caplog.set_level(logging.DEBUG, "py4j")
    one, other = backend._quiet_py4j(), backend._quiet_py4j()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert (logger.level, backend._is_not_of_py4j in root.filters) == (logging.WARNING, True)
    other.__exit__(None, None, None)
    assert (logger.level, backend._is_not_of_py4j in root.filters) == (logging.DEBUG, False)
