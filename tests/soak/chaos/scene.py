"""One slice of faults: servers, wires, a witness, a watcher of the offsets, and a run that is hurt and must go on.

Everything is looked at by one thread: whatever waits here calls ``pump``, which reads what the witness wrote, writes
ahead into the topic, and takes the memory of the run's processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.evidence import WORDS
from tests.faults.offset_watcher import OffsetWatcher
from tests.faults.rig import DEFAULTS, VOCABULARY, Kept, wait_for
from tests.faults.sweeper import kill, marked
from tests.soak.chaos.memory import Memory
from tests.soak.chaos.servers import Servers
from tests.soak.chaos.tally import Tally, by_the_deposed, owners

HERE = Path(__file__).parent
FAULTS = HERE.parents[1] / "faults"
TOPIC, ROOT = "lines", "/streamlet/chaos"
PARTITIONS = 4
WORKERS = 3
AHEAD = 15_000
"""Lines that stand in the topic unread, at least: so trees are always pending."""
STUCK_S = 120.0
"""Without a new line for so long, the run stands still for good."""
ORPHANS_S = 10.0
"""Workers end within five seconds of their coordinator; the rest is for a busy machine."""

SETTINGS = {
    # Few, so that what is measured is recovery, and not the time that a line waits in a queue.
    "topology.max.spout.pending": 100,
    # No tree times out: what recovers, does so by itself.
    "topology.message.timeout.secs": 900,
    # A slice has more deaths than any night of a user's.
    "streamlet.worker.restarts.max": 100_000,
}


class Stuck(Exception):
    """What had to happen did not."""


@dataclass
class Started:
    """One ``streamlet run``: its process, and what its journal says of its workers."""

    process: Kept
    mark: str
    journal: Path
    at: int = 0
    workers: dict[int, int] = field(default_factory=dict)
    """Worker -> the process that is it now."""
    killed: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """Process -> when the coordinator gave it up, and whether it lived on."""
    successor: dict[int, int] = field(default_factory=dict)
    """Process -> the one that took its place."""
    read: int = 0

    def follow(self) -> None:
        """Read what is new in the journal."""
        if not self.journal.exists():
            return
        with self.journal.open() as journal:
            journal.seek(self.at)
            while (line := journal.readline()).endswith("\n"):
                self.at = journal.tell()
                said = json.loads(line)
                if said["what"] == "started":
                    before = self.workers.get(said["worker"])
                    self.workers[said["worker"]] = said["pid"]
                    if before is not None:
                        self.successor[before] = said["pid"]
                else:
                    self.killed[said["pid"]] = said["ns"], said["undead"]

    def alive(self) -> list[int]:
        """Its processes, without the keeper of the first."""
        return [pid for pid in marked(self.mark) if not _is_keeper(pid)]


def _is_keeper(pid: int) -> bool:
    try:
        return b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


class Scene:
    """``with Scene(...) as scene``: everything runs. ``violations`` grows as things are seen that must not be."""

    def __init__(
        self, folder: Path, mark: str, seed: int, pause_s: float, timeout_s: float, say: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self.disk = folder / "d"
        """The file system of the run's temporary folder and metrics; small enough to be filled."""
        self.mark = mark
        self.seed = seed
        self.pause_s = pause_s
        self.timeout_s = timeout_s
        """A worker that is silent for so long is replaced."""
        self.say = say
        self.random = random.Random(seed)
        self.tally = Tally(PARTITIONS)
        self.memory = Memory()
        self.violations: list[str] = []
        self.runs: list[Started] = []
        self.produced = dict.fromkeys(range(PARTITIONS), 0)
        self.landed = 0
        self.writes_ahead = True
        self.ends = False
        """The run is about to end because we end it."""
        self._stack = contextlib.ExitStack()
        self._file = folder / "witness"
        self._witness_fd = -1
        self._next_memory_s = 0.0

    # -- life

    def __enter__(self) -> Scene:
        with self._stack:
            self._start_wires()
            self.servers = self._stack.enter_context(Servers(self.folder / "s", brokers=2))
            for group, at, to in self.servers.proxied:
                self.order({"do": "listen", "group": group, "at": at, "to": to})
            self._make_topic()
            self._start_witness()
            self.watcher = OffsetWatcher(self.servers.zookeeper, ROOT, PARTITIONS, *self.servers.data_dirs)
            self._stack.callback(self.watcher.close)
            self._stack.callback(self._end_runs)
            clock = self.folder / "clock"
            clock.write_bytes(bytes(16))
            self.topology = self._write_topology()
            self.start_run()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_wires(self) -> None:
        path = self.folder / "wires"
        wires = Kept([sys.executable, str(HERE / "wires.py"), str(path)], self.folder / "wires.log")
        self._stack.callback(wires.close)
        sock = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))

        def listens() -> bool:
            # The file is there from the bind on, a moment before anybody listens.
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                sock.connect(str(path))
                return True
            return False

        wait_for("the wires", listens, told=wires.said)
        self._orders, self._answers = sock, self._stack.enter_context(sock.makefile())

    def order(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Give the wires an order; what came of it."""
        self._orders.sendall(json.dumps(asked).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer

    def _start_witness(self) -> None:
        path = self.folder / "w"
        witness = Kept([sys.executable, str(FAULTS / "witness.py"), str(path), str(self._file)], self.folder / "w.log")
        self._stack.callback(witness.close)
        wait_for("the witness", self._file.exists, told=witness.said)
        self._witness_fd = os.open(self._file, os.O_RDONLY)
        self._stack.callback(os.close, self._witness_fd)

    def _make_topic(self) -> None:
        servers = {"bootstrap.servers": self.servers.bootstrap_servers}
        topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=len(self.servers.brokers))
        admin = AdminClient(servers)
        admin.create_topics([topic], operation_timeout=30)[TOPIC].result(60)
        self.producer = Producer({**servers, "linger.ms": 20, "enable.idempotence": True, "log_level": 2})
        wait_for("replicas in sync", lambda: self.servers.healthy(TOPIC))

    def _write_topology(self) -> Path:
        values = {**DEFAULTS, "pause_s": self.pause_s, "spouts": 2, "topic": TOPIC, "zk_root": "/streamlet"}
        values |= {"id": "chaos", "zookeeper": self.servers.proxied_zookeeper, "witness": str(self.folder / "w")}
        return write_topology(self.folder, values)

    # -- the run

    @property
    def run(self) -> Started:
        return self.runs[-1]

    def start_run(self) -> None:
        """As a service manager would: the same command each time."""
        number = len(self.runs) + 1
        journal = self.folder / f"journal-{number}"
        given = {**SETTINGS, "streamlet.worker.timeout.secs": self.timeout_s}
        settings = [part for key, value in given.items() for part in ("-c", f"{key}={value}")]
        command = [sys.executable, str(HERE / "proxied_run.py"), str(self.folder / "wires"), str(journal)]
        command += ["run", str(self.topology), "--workers", str(WORKERS), "--json", *settings]
        command += ["--metrics-file", str(self.disk / "metrics.prom")]
        name, _, value = f"{self.mark}-{number}.".partition("=")
        path = [str(HERE / "stepped_clock"), *(entry or os.getcwd() for entry in sys.path)]
        environment = {name: value, "TMPDIR": str(self.disk), "PYTHONPATH": os.pathsep.join(path)}
        environment["STREAMLET_TEST_CLOCK"] = str(self.folder / "clock")
        process = Kept(command, self.folder / f"run-{number}.log", environment)
        self.runs.append(Started(process, f"{name}={value}", journal))

    def _end_runs(self) -> None:
        for run in self.runs:
            run.process.close()
        while left := marked(self.mark):
            kill(left)
            time.sleep(0.05)

    def violation(self, text: str) -> None:
        """Something that must not be."""
        self.violations.append(text)
        self.say(f"VIOLATION: {text}")

    # -- what goes on all the time

    def pump(self) -> None:
        """Take in what there is, and sleep for a moment."""
        while data := os.read(self._witness_fd, 1 << 20):
            self.tally.feed(data)
        for run in self.runs[-2:]:
            run.follow()
        self._write_ahead()
        self.memory.look([self.run.process.pid, *self.run.workers.values()])
        self._listen()
        time.sleep(0.01)

    def _listen(self) -> None:
        """Look for the end of the run, and for words that nobody should have to read."""
        run = self.run
        with run.process.log.open(errors="replace") as log:
            log.seek(run.read)
            said = log.read()
            run.read = log.tell()
        for bad in ("bug of streamlet", "Traceback (most"):
            if bad in said:
                at = said.index(bad)
                self.violation(f"{run.process.log.name} says: {said[max(0, at - 500) : at + 3000]}")
        if run.process.ended and not self.ends:
            self.violation(f"the run ended by itself: {run.process.said()[-3000:]}")
            self.await_orphans(run)
            self.start_run()

    def _write_ahead(self) -> None:
        self.producer.poll(0)
        if not self.writes_ahead or sum(self.produced.values()) - self.tally.done > AHEAD:
            return
        for _ in range(500):
            partition = self.random.randrange(PARTITIONS)
            offset = self.produced[partition]
            words = " ".join(self.random.choice(VOCABULARY) for _ in range(WORDS))
            try:
                self.producer.produce(
                    TOPIC, f"{partition}-{offset} {words}", partition=partition, on_delivery=self._put
                )
            except BufferError:
                return
            self.produced[partition] += 1

    def _put(self, error: Any, message: Message) -> None:
        assert error is None, f"not written: {error}"
        value = message.value()
        assert value is not None and value.startswith(b"%d-%d " % (message.partition(), message.offset())), (
            "ids are not offsets"
        )
        self.landed += 1

    def work(self, seconds: float) -> None:
        """Let it run for so long."""
        pump_for(self.pump, seconds)

    def until(self, what: str, reached: Callable[[], Any], patience_s: float = STUCK_S) -> None:
        """Pump until it is so. Raises Stuck."""
        pump_until(self.pump, what, reached, patience_s, self.run.process.said)

    def await_orphans(self, run: Started) -> None:
        """All of a dead run's processes end by themselves, but for those that are stopped."""
        with contextlib.suppress(Stuck):
            self.until("orphans to end", lambda: not _awake(run.alive()), ORPHANS_S)
        if left := _awake(run.alive()):
            self.violation(f"{len(left)} processes outlive their coordinator by {ORPHANS_S:.0f} s")
            kill(left)

    # -- the end

    def finish(self) -> dict[str, Any]:
        """Let everything be done, end the run in order, and compare all that was written; the figures of the slice."""
        self.writes_ahead = False
        self.until("all records to be written", lambda: self.landed == sum(self.produced.values()))
        try:
            total = sum(self.produced.values())
            self.until("every line to be done", lambda: self.tally.done >= total, STUCK_S + total / 500)
        except Stuck as stuck:
            self.violation(str(stuck))
        self._stop_run()
        missing = self.tally.missing(self.produced)
        if missing:
            self.violation(f"{len(missing)} lines were lost, first {missing[:5]}")
        if left := self.run.alive():
            self.violation(f"{len(left)} processes were left behind")
        return self._figures(len(missing))

    def _stop_run(self) -> None:
        """As Ctrl-C does."""
        self.ends = True
        self.run.process.signal(signal.SIGINT)
        with contextlib.suppress(Stuck):
            self.until("the end of the run", lambda: self.run.process.ended, 40)
        if not self.run.process.ended:
            self.violation(f"SIGINT did not end the run within 40 s: {self.run.process.said()[-2000:]}")
            return
        status, said = self.run.process.status(1), self.run.process.said()
        (result,) = [json.loads(line) for line in said.splitlines() if line.startswith('{"event": "result"')] or [{}]
        if status != 130 or not result.get("drained"):
            self.violation(f"SIGINT after the last line: status {status}, {said[-1500:]}")

    def _figures(self, missing: int) -> dict[str, Any]:
        wait_for("healthy servers", lambda: self.servers.healthy(TOPIC))
        tally, history = self.tally, self.watcher.history()
        early, deposed = tally.too_early(history), by_the_deposed(history)
        for kind, found in (("passes an open line", early), ("by a deposed owner", deposed)):
            self.violations += [f"a commit {kind}: {version}" for version in found]
        self.violations += [f"a word of a deposed worker was taken: {late}" for late in tally.late[:3]]
        self.violations += self.memory.grown()
        offsets, ends = self.watcher.offsets(), self._log_ends()
        if not offsets == ends == self.produced:
            self.violation(f"committed {offsets}, in the log {ends}, written {self.produced}")
        return {
            "lines": tally.done,
            "tuples": tally.done * (1 + WORDS),
            "with_replays": tally.events,
            "replayed": tally.again,
            "lost": missing,
            "too_early": len(early),
            "by_the_deposed": len(deposed) + len(tally.late),
            "commits": sum(map(len, history.values())),
            "owners": owners(history),
            "refused": self.watcher.refused_since(0),
            "runs": len(self.runs),
            "memory": self.memory.figures(),
        }

    def _log_ends(self) -> dict[int, int]:
        """By librdkafka."""
        consumer = Consumer({"bootstrap.servers": self.servers.bootstrap_servers, "group.id": "ends"})
        try:
            return {n: consumer.get_watermark_offsets(TopicPartition(TOPIC, n), timeout=30)[1] for n in self.produced}
        finally:
            consumer.close()


def _awake(pids: list[int]) -> list[int]:
    """Those that are not stopped."""
    out = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TtZX":
                out.append(pid)
    return out


def pump_for(pump: Callable[[], None], seconds: float) -> None:
    """Pump for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pump()


def pump_until(
    pump: Callable[[], None], what: str, reached: Callable[[], Any], patience_s: float, said: Callable[[], str]
) -> None:
    """Pump until it is so. Raises Stuck, with the end of what the run ``said``."""
    deadline = time.monotonic() + patience_s
    while not reached():
        if time.monotonic() > deadline:
            raise Stuck(f"waited {patience_s:.0f} s for {what}. {said()[-2500:]}")
        pump()


def write_topology(folder: Path, values: dict[str, Any]) -> Path:
    """The topology under fault, with its settings filled in."""
    file = folder / "chaos_lines.py"
    text = (FAULTS / "topology.py").read_text()
    empty = "SETTINGS: dict[str, Any] = {}"
    assert empty in text
    file.write_text(text.replace(empty, f"SETTINGS: dict[str, Any] = {values!r}"))
    return file


def small_disk(path: Path, mebibytes: int) -> None:
    """Mount a file system of so many MiB, for this process and what it starts alone. Needs root."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "chaos", str(path)], check=True)


def fresh_folder() -> tuple[Path, str]:
    """A short one, for the sockets in it, and the mark of what is started there."""
    name = uuid.uuid4().hex[:10]
    folder = Path("/tmp") / f"slc{name}"
    folder.mkdir(mode=0o700)
    return folder, f"STREAMLET_TEST_RUN={name}"


def remove(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder / "d")], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(folder, ignore_errors=True)
