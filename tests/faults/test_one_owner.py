"""Two runs with one id: at no moment do both emit, and a run that slept emits and commits nothing.

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

from streamlet.devcluster import DevCluster
from streamlet.kafka.admin import Admin
from tests.faults.rig import Kept, wait_for

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
    topic: str = field(default_factory=lambda: f"one{uuid.uuid4().hex[:10]}")
    runs: dict[str, Kept] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def fed(self, a_second: int = 300) -> Iterator[set[str]]:
        """Write records at a steady rate meanwhile; yields the values written so far."""
        written: set[str] = set()
        over = threading.Event()

        def feed() -> None:
            producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 1})
            while not over.wait(1 / a_second):
                value = f"fed-{len(written)}"
                producer.produce(self.topic, value, partition=len(written) % PARTITIONS)
                written.add(value)
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
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 5})
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
        rows = [line.split() for line in self.witness.read_text().splitlines()]
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
        # Not by librdkafka: confluent-kafka 2.x gives the text with what follows it in memory.
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            rows = admin.list_group_offsets(self.topic)
        return {tp.partition: (row.offset, json.loads(row.metadata)["topology"]["id"]) for tp, row in rows.items()}

    def close(self) -> None:
        for run in self.runs:
            for pid in self.processes(run):
                os.kill(pid, signal.SIGCONT)
            self.runs[run].close()


@pytest.fixture
def group(kafka4: DevCluster, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(
        kafka4, tmp_path, f"KafkaHosts({kafka4.bootstrap_servers!r}), session_timeout_ms={int(SESSION_S * 1e3)}"
    )
    scene.fill()
    yield scene
    scene.close()


@pytest.fixture
def live(kafka4: DevCluster, tmp_path: Path) -> Iterator[Scene]:
    """As ``group``, with an empty topic."""
    scene = Scene(
        kafka4, tmp_path, f"KafkaHosts({kafka4.bootstrap_servers!r}), session_timeout_ms={int(SESSION_S * 1e3)}"
    )
    scene.fill(0)
    yield scene
    scene.close()


def test_two_runs_with_one_id_never_emit_at_once(group: Scene) -> None:
    """The newer one takes over within seconds; the older one has stopped by then, and says why."""
    group.start("a")
    group.wait_for_emits("a")
    started = time.monotonic_ns()
    group.start("b")
    first = group.wait_for_emits("b")
    last = group.emits("a")[-1].ns
    print(f"the newer run emitted {(first - started) / 1e9:.2f} s after its start, {(first - last) / 1e6:.0f} ms later")
    said = group.error_of("a")
    assert f"took over topic '{group.topic}'" in said and "give each its own `id`" in said
    group.wait_for_emits("b", 200)
    assert group.never_both() == ["a", "b"]


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


def test_a_run_that_slept_longer_than_its_lease_emits_and_commits_nothing(group: Scene) -> None:
    group.start("a")
    group.wait_for_emits("a", 200)
    stopped = time.monotonic_ns()
    asleep = group.processes("a")
    for pid in reversed(asleep):
        os.kill(pid, signal.SIGSTOP)
    group.start("b")
    first = group.wait_for_emits("b", patience_s=SESSION_S + 40)
    wait_for("a commit of the newer run", lambda: len({run for _, run in group.committed().values()}) == 1)
    (owner,) = {run for _, run in group.committed().values()}
    woken = time.monotonic_ns()
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    said = group.error_of("a")
    assert "took over" in said, said
    group.wait_for_emits("b", 100, after_ns=time.monotonic_ns())
    print(f"the newer run emitted {(first - stopped) / 1e9:.2f} s after the older one had been stopped")
    late = group.emits("a", woken)
    # A process may be stopped in the middle of a turn. It ends that turn when it wakes; no tuple of it leaves.
    assert len(late) <= 4, f"{len(late)} emits after it woke\n{group.said()}"
    assert not group.sent("a", woken)
    assert {run for _, run in group.committed().values()} == {owner}


def test_a_run_that_slept_and_was_not_missed_goes_on_without_a_loss(group: Scene) -> None:
    """Nobody came meanwhile: it joins again, finds its claim in the store, and emits."""
    group.start("a")
    group.wait_for_emits("a", 200)
    asleep = group.processes("a")
    for pid in reversed(asleep):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(SESSION_S + 1)
    woken = time.monotonic_ns()
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    group.wait_for_emits("a", 100, after_ns=woken)


def test_the_next_run_starts_at_once_after_a_stop_and_after_a_session_when_all_was_killed(group: Scene) -> None:
    run = group.start("a")
    group.wait_for_emits("a")
    run.signal(signal.SIGINT)
    assert run.status(30) == 130
    group.start("b")
    group.wait_for_emits("b")
    for pid in group.processes("b"):
        os.kill(pid, signal.SIGKILL)
    killed = time.monotonic_ns()
    group.start("c")
    first = group.wait_for_emits("c", patience_s=SESSION_S + 40)
    print(f"emits {(first - killed) / 1e9:.2f} s after the older run was killed")
    assert group.never_both() == ["a", "b", "c"]


def kill_a_worker(group: Scene, run: str, look: Callable[[], Any] = lambda: None) -> float:
    """Kill the process that emits, wait for its successor's emits; the time in between in seconds."""
    victim = group.emits(run)[-1].pid
    at = time.monotonic_ns()
    os.kill(victim, signal.SIGKILL)
    known = {row.pid for row in group.told()}
    wait_for("its successor", lambda: {row.pid for row in group.emits(run, at)} - known, told=group.said)
    first = next(row.ns for row in group.emits(run, at) if row.pid not in known)
    return (first - at) / 1e9


def test_a_killed_workers_replacement_takes_its_place_without_waiting_for_the_session(group: Scene) -> None:
    group.start("a")
    group.wait_for_emits("a", 200)
    took = kill_a_worker(group, "a")
    print(f"the replacement emitted {took:.2f} s after the kill")
    assert took < SESSION_S, "it waited for the dead one's session to end"
    assert group.never_both() == ["a"]
