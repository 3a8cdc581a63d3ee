"""A topology on a standalone Spark over three hosts, fed by Kafka at a steady rate, and a witness outside of it.

Everything is looked at by one thread: whatever waits here calls ``pump``, which reads what the witness wrote, feeds the
topic, and starts the run again where a fault has ended it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.devcluster import DevCluster
from streamlet.devcluster.jvm import is_stopped
from tests.faults.evidence import WORDS
from tests.faults.network import Network
from tests.faults.rig import DEFAULTS, VOCABULARY, Kept, wait_for
from tests.faults.spark_hosts import DRIVER, WORKERS, spark_hosts
from tests.faults.sweeper import kill, marked
from tests.marked_processes import lives
from tests.soak.chaos.scene import FAULTS, STUCK_S, Stuck, pump_for, pump_until, write_topology
from tests.soak.chaos.tally import Tally

TOPIC, GROUP, PORT = "lines", "chaos", 9092
PARTITIONS = 4
PAUSE_S = 0.03
"""For each batch of the counting bolts: some trees are open at any time."""
ENDS_S = 15.0
"""What belonged to a run has ended so long after it, on a busy machine too."""
RUN_MARK = "STREAMLET_TEST_RUN"

SETTINGS = {
    "topology.max.spout.pending": 500,
    # No tree times out: what recovers, does so by itself.
    "topology.message.timeout.secs": 900,
    # A soak has more deaths than any night of a user's.
    "streamlet.worker.restarts.max": 100_000,
}


class SparkScene:
    """``with SparkScene(...) as scene``: everything runs. ``violations`` grows as things are seen that must not be."""

    def __init__(self, folder: Path, seed: int, rate: float, conf: dict[str, Any], say: Callable[[str], None]) -> None:
        self.folder = folder
        self.say = say
        self.rate = rate
        self.conf = {**SETTINGS, **conf}
        self.random = random.Random(seed)
        self.tally = Tally(PARTITIONS)
        self.violations: list[str] = []
        self.runs: list[Kept] = []
        self.deposed: set[int] = set()
        """Workers that were stopped: whatever they do when they are woken up, they count no more."""
        self.produced = dict.fromkeys(range(PARTITIONS), 0)
        self.landed = 0
        self.most = 1 << 62
        """The feed ends at so many lines."""
        self.miscounts = 0
        """Masters that came back and counted an executor twice."""
        self.ends = False
        """The run is about to end because we end it."""
        self._began = time.monotonic()
        self._read = 0
        self._checked = dict.fromkeys(range(PARTITIONS), 0)
        self._mark = uuid.uuid4().hex
        self._stack = contextlib.ExitStack()

    # -- life

    def __enter__(self) -> SparkScene:
        with self._stack:
            self.network = self._stack.enter_context(Network(DRIVER, *WORKERS))
            self.spark = self._stack.enter_context(spark_hosts(self.network, self.folder))
            self._stack.callback(self._end_runs)
            with self.network.inside(DRIVER):
                self._start_kafka()
            self._start_witness()
            self.topology = self._write_topology()
            (self.folder / "t").mkdir()
            self.start_run()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_kafka(self) -> None:
        self.brokers = f"{self.network.address(DRIVER)}:{PORT}"
        settings = {"listeners": f"PLAINTEXT://0.0.0.0:{PORT},CONTROLLER://127.0.0.1:{PORT + 1}"}
        settings |= {"advertised.listeners": f"PLAINTEXT://{self.brokers}"}
        settings |= {"controller.quorum.voters": f"0@127.0.0.1:{PORT + 1}"}
        place = self.folder / "kafka"
        self._stack.enter_context(DevCluster("4", 1, place, broker_settings=settings, preferred_ports=(2181, PORT)))
        client = {"bootstrap.servers": self.brokers, "log_level": 2}
        topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        admin = AdminClient(client)
        admin.create_topics([topic], operation_timeout=30)[TOPIC].result(60)
        self.producer = Producer({**client, "linger.ms": 20, "enable.idempotence": True})
        self.commits = Consumer({**client, "group.id": GROUP})
        self._stack.callback(self.commits.close)

    def _start_witness(self) -> None:
        file = self.folder / "witness"
        command = [sys.executable, str(FAULTS / "witness.py"), str(self.folder / "w"), str(file)]
        witness = Kept(command, self.folder / "w.log")
        self._stack.callback(witness.close)
        wait_for("the witness", file.exists, told=witness.said)
        self._witness_fd = os.open(file, os.O_RDONLY)
        self._stack.callback(os.close, self._witness_fd)

    def _write_topology(self) -> Path:
        values = {**DEFAULTS, "pause_s": PAUSE_S, "spouts": 2, "topic": TOPIC, "zk_root": "/unused", "id": GROUP}
        values |= {"brokers": self.brokers, "witness": str(self.folder / "w")}
        return write_topology(self.folder, values)

    # -- the run

    @property
    def run(self) -> Kept:
        return self.runs[-1]

    def start_run(self) -> None:
        """As a service manager would: the same command each time."""
        number = len(self.runs) + 1
        settings = [part for key, value in self.conf.items() for part in ("-c", f"{key}={value}")]
        command = [sys.executable, "-m", "streamlet", "run", str(self.topology), "--spark", self.spark.url]
        command += ["--workers", "2", "--json", *settings]
        environ = {**self.spark.environ, RUN_MARK: f"{self._mark}-{number}.", "TMPDIR": str(self.folder / "t")}
        environ["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        with self.network.inside(DRIVER):
            self.runs.append(Kept(command, self.folder / f"run-{number}.log", environ))
        self._read = 0

    def start_again(self) -> None:
        """End the run, and all of it, by force; begin another."""
        number, below = len(self.runs), [pid for host in WORKERS for pid in self.spark.below(host)]
        self.ends = True
        self.run.close()
        self.await_end(number, below)
        self.start_run()
        self.ends = False

    def of_run(self, number: int) -> list[int]:
        """Living processes of a driver, by the number of its run: itself and its JVM."""
        return [pid for pid in marked(f"{RUN_MARK}={self._mark}-{number}.") if lives(pid)]

    def _end_runs(self) -> None:
        for run in self.runs:
            run.close()

    def workers(self) -> list[int]:
        """Python workers that have worked, are there, and neither are nor were stopped."""
        return [pid for pid in self.tally.began if pid not in self.deposed and lives(pid) and not is_stopped(pid)]

    # -- what goes on all the time

    def pump(self) -> None:
        """Take in what there is, and sleep for a moment."""
        while data := os.read(self._witness_fd, 1 << 20):
            self.tally.feed(data)
        self._feed()
        self._listen()
        time.sleep(0.01)

    def _feed(self) -> None:
        self.producer.poll(0)
        # Not before anybody reads: what waited then would be a backlog that hides how long a recovery takes.
        if not self.tally.newest:
            self._began = time.monotonic()
        due = min(self.most, int((time.monotonic() - self._began) * self.rate))
        for _ in range(min(500, due - sum(self.produced.values()))):
            partition = self.random.randrange(PARTITIONS)
            words = " ".join(self.random.choice(VOCABULARY) for _ in range(WORDS))
            line = f"{partition}-{self.produced[partition]} {words}"
            self.producer.produce(TOPIC, line, partition=partition, on_delivery=self._put)
            self.produced[partition] += 1

    def _put(self, error: Any, message: Any) -> None:
        assert error is None, f"not written: {error}"
        assert message.value().startswith(b"%d-%d " % (message.partition(), message.offset())), "ids are not offsets"
        self.landed += 1

    def _listen(self) -> None:
        """Look for the end of the run, and for words that nobody should have to read."""
        with self.run.log.open(errors="replace") as log:
            log.seek(self._read)
            said = log.read()
            self._read = log.tell()
        for bad in ("bug of streamlet", "Traceback (most"):
            if bad in said:
                at = said.index(bad)
                self.violation(f"{self.run.log.name} says: {said[max(0, at - 500) : at + 3000]}")
        if self.run.ended and not self.ends:
            self.violation(f"the run ended by itself: {self.run.said()[-3000:]}")
            self.await_end(len(self.runs), [])
            self.start_run()

    def work(self, seconds: float) -> None:
        """Let it run for so long."""
        pump_for(self.pump, seconds)

    def until(self, what: str, reached: Callable[[], Any], patience_s: float = STUCK_S) -> None:
        """Pump until it is so. Raises Stuck."""
        pump_until(self.pump, what, reached, patience_s, lambda: self.run.said())

    def violation(self, text: str) -> None:
        """Something that must not be."""
        self.violations.append(text)
        self.say(f"VIOLATION: {text}")

    def await_end(self, number: int, others: list[int]) -> None:
        """All processes of a dead run end by themselves: its driver's, and ``others``, which were its executors'."""

        def left() -> list[int]:
            return self.of_run(number) + [pid for pid in others if lives(pid)]

        ends, self.ends = self.ends, True
        with contextlib.suppress(Stuck):
            self.until("the processes of a dead run to end", lambda: not left(), ENDS_S)
        self.ends = ends
        if outlive := left():
            self.violation(f"{len(outlive)} processes outlive run {number} by {ENDS_S:.0f} s: {_names(outlive)}")
            kill(outlive)

    def check_commits(self) -> int:
        """No offset may be committed above a line that is not stored; how many were committed in all."""
        asked = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        found = {place.partition: max(0, place.offset) for place in self.commits.committed(asked, timeout=30)}
        self.pump()  # what was stored before these commits has been read after this
        for partition, offset in found.items():
            lines, since = self.tally.lines[partition], self._checked[partition]
            lines.reach(offset)
            early = [at for at in range(since, offset) if not lines.done[at]]
            if early or offset < since:
                self.violation(
                    f"offset {offset} of partition {partition} was committed after {since}: {early[:5]} open"
                )
            self._checked[partition] = max(since, offset)
        return sum(found.values())

    # -- the end

    def finish(self, least: int) -> dict[str, Any]:
        """Feed the rest, let it be done, end the run in order, and look at what there is; the figures."""
        total = self.most = max(least, sum(self.produced.values()))
        self.until("all lines to be fed", lambda: self.landed == total, STUCK_S + total / self.rate)
        self.until("every line to be done", lambda: self.tally.done >= total, STUCK_S + total / 500)
        below = [pid for host in WORKERS for pid in self.spark.below(host)]
        self._stop_run()
        if self.check_commits() != total:
            self.violation(f"{self.check_commits()} lines are committed, of {total}")
        missing = self.tally.missing(self.produced)
        if missing:
            self.violation(f"{len(missing)} lines were lost, first {missing[:5]}")
        self.violations += [f"a word of a deposed worker was taken: {late}" for late in self.tally.late[:3]]
        self.await_end(len(self.runs), below)
        left = [pid for host in WORKERS for pid in self.spark.below(host)]
        if left:
            self.violation(f"{len(left)} processes were left behind: {_names(left)}")
        return {
            "lines": self.tally.done, "tuples": self.tally.done * (1 + WORDS), "lost": len(missing),
            "again": self.tally.again, "runs": len(self.runs), "left": len(left), "folders": self._folders(),
            "miscounts": self.miscounts,
        }  # fmt: skip

    def _stop_run(self) -> None:
        """As Ctrl-C does."""
        self.ends = True
        self.run.signal(signal.SIGINT)
        with contextlib.suppress(Stuck):
            self.until("the end of the run", lambda: self.run.ended, 60)
        if not self.run.ended or self.run.status(1) != 130:
            self.violation(f"SIGINT did not end the run in order within 60 s: {self.run.said()[-2000:]}")

    def _folders(self) -> int:
        """Unpacked archives of slots, and temporary folders of drivers, that are there after the end."""
        return len([*self.folder.glob("*/local/**/streamlet-*"), *(self.folder / "t").iterdir()])


def _names(pids: list[int]) -> list[str]:
    """What they are, for a message."""
    out = []
    for pid in pids:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            out.append(f"{pid} {words[:60]} ... {words[-60:]}")
    return out
