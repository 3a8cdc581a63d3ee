"""A standalone Spark cluster as ``streamlet dev up --spark`` starts it: a master and two workers, with their faults."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlet.backends.contract import RunStatus, Stop
from streamlet.backends.spark.masters import parse_master
from streamlet.backends.spark.spark_session import Session, open_session, wait_for_executors
from streamlet.base.errors import BadInput, StreamletError
from streamlet.base.log_line import LogLine
from streamlet.devcluster import resident
from streamlet.devcluster.installation import find_java
from streamlet.devcluster.jvm import Jvm
from streamlet.devcluster.machine import ProcessIdentity, free_ports, is_free
from streamlet.devcluster.spark_servers import LOOPBACK, find_spark, server_command
from tests.marked_processes import NUMBERED, REPOSITORY, Marked, command_line, descendants, parent, streamlet
from tests.patience import PATIENCE_S
from tests.real.backends.spark.test_executors import Watcher, run, started, witness
from tests.scripted.cli.test_dev import run as dev

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[resident.ResidentSpark]:
    """Up by the command, and down by it: nothing is left of any server."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patched.setattr(resident, "WELL_KNOWN_PORTS", tuple(free_ports(4)))
        try:
            told = json.loads(dev("up", "--kafka", "4", "--spark", "--json")[1])
            found = resident.require().spark
            assert found is not None and told["spark"]["master"] == found.master_url
            yield found
        finally:
            identities = [process.identity for process in resident.require().everything]
            ended = json.loads(dev("down", "--json")[1])
        assert len(ended["ended"]) == len(identities) == 4
        assert not any(identity.alive for identity in identities)
        assert all(is_free(server["port"]) for server in ended["ended"])
        assert os.listdir(resident.state_directory()) == ["lock"]


@pytest.fixture(scope="module")
def session(cluster: resident.ResidentSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One application of two slots, of the four that there are; its driver is where a user's file says."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "spark-defaults.conf").write_text(f"spark.driver.host {socket.gethostname()}\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_CONF_DIR", str(folder))
        session = open_session(parse_master(cluster.master_url, 1), "standalone", debug=False, cancelled=lambda: False)
    wait_for_executors(session, lambda found: len(found) == 2, PATIENCE_S, lambda: False)
    yield session
    session.close()


def executors_below(worker: ProcessIdentity) -> list[int]:
    """The executors' JVMs that a worker of Spark has started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and parent(int(entry.name)) == worker.pid:
                found += [int(entry.name)] if "CoarseGrained" in " ".join(command_line(int(entry.name))) else []
        except OSError:
            continue
    return found


def test_an_application_takes_as_many_cores_as_it_has_workers_and_the_rest_is_told(
    session: Session, tmp_path: Path
) -> None:
    """With who holds them: the master itself is asked."""
    with pytest.raises(BadInput) as caught:
        run(tmp_path, Watcher(), workers=3, **{"streamlet.spark.slots.timeout.secs": 0.5})
    said = caught.value.message
    assert "has 2 slots" in said
    assert "Of the cluster's 4 cores on 2 workers, 2 are taken. This application has the 2 cores that it may" in said, (
        said
    )
    view = session.cluster()
    assert view is not None and [(app.name, app.cores) for app in view.applications] == [("standalone", 2)]


def test_a_driver_host_that_the_user_set_is_kept_for_a_master_on_localhost(session: Session) -> None:
    """Its port may be a container's, and executors there: they are told that address, and not sent to a folder here."""
    assert (session.driver_host(), session.here) == (socket.gethostname(), False)


UNREACHABLE = """
import sys
from pyspark.sql import SparkSession
from numbered import Numbered
from streamlet import BadInput
from streamlet.backends import SparkBackend

if __name__ == "__main__":
    spark = SparkSession.builder.master(sys.argv[1]).config("spark.cores.max", "1").config(
        "spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.9").getOrCreate()
    settings = {"out": sys.argv[2], "streamlet.spark.slots.timeout.secs": 8}
    try:
        Numbered.run(backend=SparkBackend(spark), workers=1, settings=settings)
    except BadInput as error:
        print(error, flush=True)
"""


def test_a_driver_address_that_executors_cannot_reach_is_named(cluster: resident.ResidentSpark, tmp_path: Path) -> None:
    """They start, and never report."""
    (tmp_path / "program.py").write_text(UNREACHABLE)
    environ = {"PYTHONPATH": f"{NUMBERED.parent}:{REPOSITORY}", "PYSPARK_PYTHON": sys.executable}
    program = Marked([sys.executable, "program.py", cluster.master_url, str(tmp_path)], environ, cwd=tmp_path)
    try:
        said, complaints = program.process.communicate(timeout=PATIENCE_S)
    finally:
        program.end()
    assert "has 0 slots" in said and "its executors have reported 0" in said, said + complaints
    assert "can they reach the driver at 127.0.0.9? If not, set spark.driver.host" in said


def test_the_port_of_the_masters_page_is_told_from_the_masters_at_once(
    cluster: resident.ResidentSpark, tmp_path: Path
) -> None:
    """Spark alone would try for a minute, three times, and then say ``Too large frame``."""
    master = f"spark://{LOOPBACK}:{cluster.processes[0].page}"
    begun = streamlet(["run", str(NUMBERED), "--spark", master], {}, cwd=tmp_path, stderr=subprocess.STDOUT)
    try:
        said, _ = begun.process.communicate(timeout=PATIENCE_S)
    finally:
        begun.end()
    assert begun.process.returncode == 2, said
    assert "it is not a Spark master. Is it the master's web page?" in said
    assert "--debug" not in said, "Spark's own end was waited for"


@pytest.fixture
def third(cluster: resident.ResidentSpark, tmp_path: Path) -> Iterator[Callable[[], Jvm]]:
    """Starts one more worker of Spark, and kills it with its executors."""
    begun: list[Jvm] = []
    port, page = free_ports(2)

    def start() -> Jvm:
        java = find_java(wheel=False).path.parent.parent
        command = server_command(find_spark(), java, tmp_path, LOOPBACK, port, page, cluster.master_url)
        begun.append(Jvm("Spark worker 3", command, tmp_path / "server.log"))
        return begun[-1]

    yield start
    for jvm in begun:
        os.killpg(jvm.pid, signal.SIGKILL)
        jvm.kill()


def test_a_worker_of_spark_that_joins_later_gets_workers_of_a_run_that_waits_for_slots(
    cluster: resident.ResidentSpark, session: Session, third: Callable[[], Jvm], tmp_path: Path
) -> None:
    """Another application holds two of four cores; the run wants four workers, and says what it waits for."""
    gate = tmp_path / "gate"
    options = ["--workers", "4", "--until-caught-up", "-c", f"out={tmp_path}", "-c", f"numbers.gate={gate}"]
    options += ["-c", f"streamlet.spark.slots.timeout.secs={PATIENCE_S:g}"]
    command = ["run", str(NUMBERED), "--spark", cluster.master_url, *options]
    begun = streamlet(command, {}, cwd=tmp_path, stderr=subprocess.STDOUT)
    try:
        assert begun.process.stdout is not None
        said = ""
        while f"Waiting for task slots, for up to {PATIENCE_S:g} s" not in said:
            line = begun.process.stdout.readline()
            assert line, said
            said += line
        joined = third()
        deadline = time.monotonic() + PATIENCE_S
        while len(witness(tmp_path)) < 999:  # all but the last one, which the gate holds
            assert time.monotonic() < deadline and begun.process.poll() is None
            time.sleep(0.1)
        processes = {pid for _, pid, _ in started(tmp_path)}
        assert len(processes & {*descendants(joined.pid)}) == 2, "of four workers"
        gate.touch()
        last, _ = begun.process.communicate(timeout=PATIENCE_S)
        assert begun.process.returncode == 0, said + last
    finally:
        begun.end()
    assert sorted(witness(tmp_path)) == list(range(1000))


def kill_applications(page: str, name: str) -> None:
    """Press *kill* at the applications of a name on the page of Spark's master, as a person does."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), urllib.request.ProxyHandler({}))
    for row in browser.open(page, timeout=PATIENCE_S).read().decode().split("<tr")[1:]:
        if 'action="app/kill/"' in row and name in row:
            fields = dict(re.findall(r'name="(\w+)"\s+value="([^"]*)"', row))
            browser.open(f"{page}/app/kill/", urllib.parse.urlencode(fields).encode(), timeout=PATIENCE_S)


@pytest.mark.faults
def test_a_run_whose_application_is_killed_on_the_masters_page_ends_and_says_so(
    cluster: resident.ResidentSpark, tmp_path: Path
) -> None:
    """The driver's JVM lives on, so that slots could be started on nothing for as long as the run is to last."""
    settings = {"out": tmp_path, "numbers.count": 10**6, "numbers.per.second": 500.0}
    options = ["--workers", "2", *(word for key, value in settings.items() for word in ("-c", f"{key}={value}"))]
    command = ["run", str(NUMBERED), "--spark", cluster.master_url, *options]
    begun = streamlet(command, {}, cwd=tmp_path, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(witness(tmp_path)) < 100:
            assert time.monotonic() < deadline and begun.process.poll() is None
            time.sleep(0.1)
        kill_applications(f"http://{LOOPBACK}:{cluster.processes[0].page}", "numbered.py")
        said, _ = begun.process.communicate(timeout=PATIENCE_S)
    finally:
        begun.end()
    assert begun.process.returncode == 1, said
    error = said[said.index("Error: ") :]
    assert "The Spark application was stopped while the topology ran" in error, said
    assert "Master removed our application: KILLED" in error, said
    assert "Cannot call methods" not in said, said


@pytest.mark.faults
def test_a_lost_machine_and_a_dead_executor_lose_nothing(
    cluster: resident.ResidentSpark, session: Session, tmp_path: Path
) -> None:
    """The machine's slot goes on at the other one; ``dev up`` brings the machine back."""
    lost: list[str] = []
    gate = tmp_path / "gate"

    def hurt(status: RunStatus) -> None:
        if status.state != "running" or len(witness(tmp_path)) < 200:
            return
        epochs = sum(worker["epoch"] for worker in status.workers)
        if epochs < 2 + len(lost):
            return  # the coordinator has not seen it yet
        pid = {worker["worker"]: worker["pid"] for worker in status.workers}[1]
        executor = parent(parent(pid))
        if not lost:
            machine = next(each for each in cluster.processes[1:] if executor in executors_below(each.identity))
            assert machine.identity.kill()
            lost.append(machine.name)
        elif len(lost) == 1:
            os.kill(executor, signal.SIGKILL)
            lost.append("executor")
        else:
            gate.touch()

    settings = {"numbers.count": 3000, "numbers.per.second": 400.0, "numbers.gate": str(gate)}
    result = run(tmp_path, Watcher(hurt), **settings)
    assert len(lost) == 2
    assert result.reason == "caught_up"
    assert set(witness(tmp_path)) == set(range(3000))
    assert sum(worker["epoch"] for worker in result.status.workers) >= 2 + 2
    assert dev("status")[0] == 1
    again = json.loads(dev("up", "--json")[1])
    assert not again["already"] and again["spark"]["master"] == cluster.master_url
    deadline = time.monotonic() + PATIENCE_S
    while dev("status")[0] != 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)


# After the others: a master that was started again may grant no executors (docs/guide/spark-cluster.md).


@pytest.fixture
def master_up(cluster: resident.ResidentSpark) -> Iterator[None]:
    """The master lives before and after the test."""
    yield
    assert json.loads(dev("up", "--json")[1])["spark"]["master"] == cluster.master_url


def kill_master(cluster: resident.ResidentSpark) -> None:
    now = resident.require().spark
    assert now is not None and now.processes[0].identity.kill()


@pytest.mark.faults
def test_without_its_master_a_session_serves_runs_by_the_slots_it_has_and_says_why_there_are_no_more(
    cluster: resident.ResidentSpark, session: Session, master_up: None, tmp_path: Path
) -> None:
    kill_master(cluster)
    (tmp_path / "served").mkdir()
    assert run(tmp_path / "served", Watcher()).reason == "caught_up"
    with pytest.raises(BadInput) as caught:
        run(tmp_path, Watcher(), workers=3, **{"streamlet.spark.slots.timeout.secs": 0.5})
    said = caught.value.message
    assert "wants 3 workers" in said and "has 2 slots" in said
    assert f"does not answer at {cluster.master_url.removeprefix('spark://')} (Connection refused)" in said, said


REPLACED = "Removing worker"
"""Said by a master that takes a worker for a new one, and its executors for lost.

It does so where a worker registers of its own accord before it has answered the master that is back (`registerWorker`
of Spark's Master.scala).
"""


@pytest.mark.faults
def test_a_run_goes_on_while_its_master_is_away_and_when_it_is_back(
    cluster: resident.ResidentSpark, session: Session, master_up: None, tmp_path: Path
) -> None:
    """No worker begins anew."""
    gate = tmp_path / "gate"
    without: list[int] = []
    again: list[subprocess.Popen[bytes]] = []

    def look(status: RunStatus) -> None:
        stored = len(witness(tmp_path))
        if status.state != "running" or stored < 200:
            return
        if not without:
            kill_master(cluster)
            without.append(len(witness(tmp_path)))
        elif not again and stored > without[0]:
            # A process of its own: this is the thread of the coordinator, which must go on.
            again.append(
                subprocess.Popen([sys.executable, "-m", "streamlet", "dev", "up", "--json"], stdout=subprocess.DEVNULL)
            )
        elif again and again[0].poll() is not None:
            gate.touch()

    settings = {"numbers.count": 3000, "numbers.per.second": 400.0, "numbers.gate": str(gate)}
    watcher = Watcher(look)
    try:
        result = run(tmp_path, watcher, **settings)
    finally:
        for process in again:
            process.kill()
            process.wait()
    assert [process.returncode for process in again] == [0]
    assert result.reason == "caught_up"
    told = "\n".join(watcher.events)
    times = Counter(witness(tmp_path))
    assert sorted(times) == list(range(3000))
    now = resident.require().spark
    assert now is not None
    log = Path(now.processes[0].log).read_text().rpartition("New state: RECOVERING")[2]
    if REPLACED in log:  # Spark's executors are gone then, and what was open came again
        assert [worker["epoch"] for worker in result.status.workers] != [1, 1]
        return
    told += f"\nThe master's log:\n{log[-4000:]}"
    assert [worker["epoch"] for worker in result.status.workers] == [1, 1], told
    again_stored = [number for number, count in times.items() if count > 1]
    assert not again_stored, f"{len(again_stored)} were processed again, first {again_stored[:3]}: {told}"


@pytest.mark.faults
def test_a_run_whose_cluster_goes_away_names_the_master_that_does_not_answer(
    cluster: resident.ResidentSpark, session: Session, master_up: None, tmp_path: Path
) -> None:
    """Its workers ask for slots that nobody gives: neither their imports nor the others have anything to do with it."""
    gone: list[str] = []
    stop = Stop()

    class Listening(Watcher):
        def on_event(self, line: LogLine) -> None:
            super().on_event(line)
            if "No tuple has flowed" in line.text:
                stop.ask()

    def end_cluster(status: RunStatus) -> None:
        if status.state == "running" and len(witness(tmp_path)) >= 100 and not gone:
            now = resident.require().spark
            assert now is not None
            for server in now.processes[1:]:
                gone.append(server.name)
                for executor in executors_below(server.identity):
                    os.kill(executor, signal.SIGKILL)
                assert server.identity.kill()
            kill_master(cluster)

    watcher = Listening(end_cluster)
    settings = {"numbers.count": 10**6, "numbers.per.second": 400.0}
    with contextlib.suppress(StreamletError):  # what was open is left to the next run
        run(tmp_path, watcher, stop=stop, **settings)
    (said,) = [text for text in watcher.events if "No tuple has flowed" in text]
    assert said.count(f"waits for a task slot of {cluster.master_url}") == 2, said
    assert f"The master does not answer at {cluster.master_url.removeprefix('spark://')} (Connection refused)" in said
    assert "Nothing that was acked is lost" in said
