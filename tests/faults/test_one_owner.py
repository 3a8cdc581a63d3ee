"""Two runs with one id, in both stores: at no moment do both emit, and a run that slept emits and commits nothing.

The witness is a file that all spouts append to, before and after each emit: the kernel puts the lines in order.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.coordination.zookeeper import ZooKeeperNodeStore
from streamlet.devcluster import DevCluster
from streamlet.kafka.admin import Admin
from tests.faults.rig import Kept, wait_for

pytestmark = pytest.mark.real

PARTITIONS = 4
SESSION_S = 6.0
"""The shortest that a broker takes unless it is told otherwise."""

TOPOLOGY = """
import os, time
from streamlet import Bolt, Grouping, Topology
from streamlet.spouts.kafka import *

def note(kind, what):
    os.write(FILE, f"{kind} RUN {os.getpid()} {time.monotonic_ns()} {what}\\n".encode())

FILE = os.open(WITNESS, os.O_WRONLY | os.O_APPEND)

class Noted(KafkaSpout):
    def bind(self, port):
        super().bind(port)
        for name in ("emit", "emit_each"):
            setattr(self, name, self.noted(getattr(self, name)))

    def noted(self, emit):
        def noting(tuples, *ids):
            many = emit.__name__ == "emit_each"
            values = [row[0] for row in tuples] if many else [tuples[0]]
            note("b", ",".join(values))
            emit(tuples, *ids)
            note("e", "-")
        return noting

class Sleeps(Bolt):
    outputs = []
    def process(self, tup):
        note("p", tup.values[0])
        time.sleep(0.002)

class Lines(Topology):
    config = {"topology.max.spout.pending": 20}
    lines = Noted.spec(config=SpoutConfig(CONFIG), par=2)
    sleeps = Sleeps.spec(inputs={lines: Grouping.shuffle()}, par=2)
"""


@dataclass
class Told:
    """One line of the witness."""

    kind: str
    run: str
    pid: int
    ns: int
    values: list[str]


@dataclass
class Scene:
    """A topic, its witness, and runs that all have one id."""

    cluster: DevCluster
    folder: Path
    hosts: str
    """The settings of the spout beside topic and id, as Python."""
    store: str = "group"
    topic: str = field(default_factory=lambda: f"one{uuid.uuid4().hex[:10]}")
    runs: dict[str, Kept] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def fed(self, a_second: int = 300) -> Iterator[set[str]]:
        """Write records at a steady rate meanwhile; yields the values that are in the log so far."""
        written: set[str] = set()
        over = threading.Event()

        def delivered(error: object, message: Any) -> None:
            # One of a topic that is new may be refused for its partition: it is nowhere, and nobody can send it on.
            if error is None:
                written.add(message.value().decode())

        def feed() -> None:
            producer = Producer(
                {"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 1, "enable.idempotence": True}
            )
            for number in itertools.count():
                if over.wait(1 / a_second):
                    break
                producer.produce(self.topic, f"fed-{number}", partition=number % PARTITIONS, on_delivery=delivered)
                producer.poll(0)
            assert producer.flush(30) == 0

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield written
        finally:
            over.set()
            thread.join()

    def fill(self, each: int = 15_000) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(30)
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
        )
        for partition in range(PARTITIONS):
            for offset in range(each):
                producer.produce(self.topic, f"{partition}-{offset}", partition=partition)
                producer.poll(0)
        assert producer.flush(60) == 0
        self.witness.touch()

    @property
    def witness(self) -> Path:
        return self.folder / "witness"

    def start(self, run: str, *more: str) -> Kept:
        """Start ``streamlet run`` under this name."""
        file = self.folder / f"lines_{run}.py"
        config = f"{self.hosts}, topic={self.topic!r}, id={self.topic!r}, state_update_interval_ms=200"
        text = TOPOLOGY.replace("RUN", run).replace("WITNESS", repr(str(self.witness))).replace("CONFIG", config)
        file.write_text(text)
        self.marks[run] = f"STREAMLET_TEST_RUN={uuid.uuid4()}"
        name, _, value = self.marks[run].partition("=")
        command = [sys.executable, "-m", "streamlet", "run", str(file), "--workers", "2", "--json", *more]
        environment = {name: value, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.runs[run] = Kept(command, self.folder / f"{run}.log", environment)
        return self.runs[run]

    def processes(self, run: str) -> list[int]:
        """All processes of a run, the workers first."""
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                there = self.marks[run].encode() in Path(f"/proc/{pid}/environ").read_bytes()
                keeper = b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if there and not keeper:
                found.append(pid)
        return sorted(found, key=lambda pid: pid == self.runs[run].pid)

    def told(self) -> list[Told]:
        # Whole lines: a reader may see the first half of one that is being written.
        whole = self.witness.read_text().rpartition("\n")[0]
        rows = [line.split() for line in whole.splitlines()]
        return [Told(row[0], row[1], int(row[2]), int(row[3]), row[4].split(",")) for row in rows]

    def emits(self, run: str, after_ns: int = 0) -> list[Told]:
        """What a run emitted: a line before and one after each call."""
        return [row for row in self.told() if row.run == run and row.ns > after_ns and row.kind != "p"]

    def sent(self, run: str, after_ns: int) -> set[str]:
        """Values that a run emitted after that moment and that came to a bolt of it."""
        rows = [row for row in self.told() if row.run == run and row.ns > after_ns]
        emitted, processed = ({value for row in rows if row.kind == kind for value in row.values} for kind in "bp")
        return emitted & processed

    def sent_by_all(self) -> set[str]:
        """Values that came to a bolt of any run."""
        return {value for row in self.told() if row.kind == "p" for value in row.values}

    def wait_for_emits(self, run: str, count: int = 60, after_ns: int = 0, patience_s: float = 60.0) -> int:
        """Until it has emitted so often; when the first of them was (ns)."""
        rows = wait_for(
            f"emits of run {run}",
            lambda: (found := self.emits(run, after_ns)) and len(found) >= count and found,
            patience_s,
            lambda: self.said(),
        )
        return int(rows[0].ns)

    def said(self) -> str:
        return "\n".join(f"--- {name}\n{run.said()[-3000:]}" for name, run in self.runs.items())

    def never_both(self) -> list[str]:
        """The runs in the order of their turns. Fails when the turn of one lies within another's."""
        turns: list[str] = []
        for row in self.told():
            if row.kind != "p" and (not turns or turns[-1] != row.run):
                turns.append(row.run)
        assert len(turns) == len(set(turns)), f"both emitted: {turns[:20]}\n{self.said()}"
        return turns

    def error_of(self, run: str, patience_s: float = 60.0) -> str:
        """Wait for its end by an error; what it said."""
        assert self.runs[run].status(patience_s) not in (0, 130), self.said()
        return self.runs[run].said()

    def committed(self) -> dict[int, tuple[int, str]]:
        """Partition -> offset and the run that committed it."""
        texts = self.in_zookeeper() if self.store == "zookeeper" else self.in_group()
        nodes = {number: json.loads(text) for number, text in texts.items()}
        return {number: (node["offset"], node["topology"]["id"]) for number, node in nodes.items()}

    def in_group(self) -> dict[int, str]:
        # Not by librdkafka: confluent-kafka 2.x gives the text with what follows it in memory.
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            rows = admin.list_group_offsets(self.topic)
        return {tp.partition: row.metadata for tp, row in rows.items()}

    def in_zookeeper(self) -> dict[int, str]:
        nodes = ZooKeeperNodeStore(self.cluster.zookeeper)
        try:
            found = [nodes.get(f"/streamlet/{self.topic}/partition_{number}") for number in range(PARTITIONS)]
        finally:
            nodes.close()
        return {number: node[0].decode() for number, node in enumerate(found) if node is not None}

    def close(self) -> None:
        for run in self.runs:
            for pid in self.processes(run):
                os.kill(pid, signal.SIGCONT)
            self.runs[run].close()


def scene(request: pytest.FixtureRequest, folder: Path, store: str) -> Scene:
    if store == "group":
        cluster: DevCluster = request.getfixturevalue("kafka4")
        hosts = f"KafkaHosts({cluster.bootstrap_servers!r})"
    else:
        cluster = request.getfixturevalue("kafka39")
        hosts = f"ZkHosts({cluster.zookeeper!r}), zk_root='/streamlet'"
    return Scene(cluster, folder, f"{hosts}, session_timeout_ms={int(SESSION_S * 1e3)}", store)


@pytest.fixture(params=["group", "zookeeper"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    one = scene(request, tmp_path, request.param)
    one.fill()
    yield one
    one.close()


@pytest.fixture(params=["group", "zookeeper"])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """As ``runs``, with an empty topic."""
    one = scene(request, tmp_path, request.param)
    one.fill(0)
    yield one
    one.close()


def test_k4_two_runs_with_one_id_never_emit_at_once(runs: Scene) -> None:
    """The newer one takes over within seconds; the older one has stopped by then, and says why."""
    runs.start("a")
    runs.wait_for_emits("a")
    started = time.monotonic_ns()
    runs.start("b")
    first = runs.wait_for_emits("b")
    last = runs.emits("a")[-1].ns
    print(f"the newer run emitted {(first - started) / 1e9:.2f} s after its start, {(first - last) / 1e6:.0f} ms later")
    said = runs.error_of("a")
    assert f"took over topic '{runs.topic}'" in said and "give each its own `id`" in said
    runs.wait_for_emits("b", 200)
    assert runs.never_both() == ["a", "b"]


def test_run_after_run_takes_over_while_records_arrive_and_none_of_them_speaks_of_a_loss(live: Scene) -> None:
    """The older one commits what has arrived since the newer one first looked at the log."""
    with live.fed() as written:
        live.start("a")
        live.wait_for_emits("a")
        for older, newer in itertools.pairwise("abcd"):
            live.start(newer)
            live.wait_for_emits(newer)
            assert "took over" in live.error_of(older)
    wait_for("all that was written", lambda: written <= live.sent_by_all(), 60, live.said)
    assert live.never_both() == [*"abcd"]
    assert not re.search(r"truncated|is lost|are lost", live.said())


def test_k4_a_run_that_slept_longer_than_its_lease_emits_and_commits_nothing(runs: Scene) -> None:
    runs.start("a")
    runs.wait_for_emits("a", 200)
    stopped = time.monotonic_ns()
    asleep = runs.processes("a")
    for pid in reversed(asleep):
        os.kill(pid, signal.SIGSTOP)
    runs.start("b")
    first = runs.wait_for_emits("b", patience_s=SESSION_S + 40)
    wait_for("a commit of the newer run", lambda: len({run for _, run in runs.committed().values()}) == 1)
    (owner,) = {run for _, run in runs.committed().values()}
    woken = time.monotonic_ns()
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    said = runs.error_of("a")
    assert "took over" in said, said
    runs.wait_for_emits("b", 100, after_ns=time.monotonic_ns())
    print(f"the newer run emitted {(first - stopped) / 1e9:.2f} s after the older one had been stopped")
    late = runs.emits("a", woken)
    # A process may be stopped in the middle of a turn. It ends that turn when it wakes; no tuple of it leaves.
    assert len(late) <= 4, f"{len(late)} emits after it woke\n{runs.said()}"
    assert not runs.sent("a", woken)
    assert {run for _, run in runs.committed().values()} == {owner}


def test_a_run_that_slept_and_was_not_missed_goes_on_without_a_loss(runs: Scene) -> None:
    """Nobody came meanwhile: it joins again, finds its claim in the store, and emits."""
    runs.start("a")
    runs.wait_for_emits("a", 200)
    asleep = runs.processes("a")
    for pid in reversed(asleep):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(SESSION_S + 1)
    woken = time.monotonic_ns()
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    runs.wait_for_emits("a", 100, after_ns=woken)


def test_the_next_run_starts_at_once_after_a_stop_and_after_a_session_when_all_was_killed(runs: Scene) -> None:
    run = runs.start("a")
    runs.wait_for_emits("a")
    run.signal(signal.SIGINT)
    assert run.status(30) == 130
    runs.start("b")
    runs.wait_for_emits("b")
    for pid in runs.processes("b"):
        os.kill(pid, signal.SIGKILL)
    killed = time.monotonic_ns()
    runs.start("c")
    first = runs.wait_for_emits("c", patience_s=SESSION_S + 40)
    print(f"emits {(first - killed) / 1e9:.2f} s after the older run was killed")
    assert runs.never_both() == ["a", "b", "c"]


def kill_a_worker(runs: Scene, run: str, look: Callable[[], Any] = lambda: None) -> float:
    """Kill the process that emits, wait for its successor's emits; the time in between in seconds."""
    victim = runs.emits(run)[-1].pid
    at = time.monotonic_ns()
    os.kill(victim, signal.SIGKILL)
    known = {row.pid for row in runs.told()}
    wait_for("its successor", lambda: {row.pid for row in runs.emits(run, at)} - known, told=runs.said)
    first = next(row.ns for row in runs.emits(run, at) if row.pid not in known)
    return (first - at) / 1e9


def test_a_killed_workers_replacement_takes_its_place_without_waiting_for_the_session(runs: Scene) -> None:
    runs.start("a")
    runs.wait_for_emits("a", 200)
    took = kill_a_worker(runs, "a")
    print(f"the replacement emitted {took:.2f} s after the kill")
    assert took < SESSION_S, "it waited for the dead one's session to end"
    assert runs.never_both() == ["a"]
