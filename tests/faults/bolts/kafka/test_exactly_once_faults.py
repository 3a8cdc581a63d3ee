"""Exactly once from topic to topic while workers are killed and stand still, on three workers of their own.

A bolt fails now and then, too. The witness is librdkafka, which reads committed records only.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streamlet.devcluster import DevCluster
from tests.marked_processes import Marked, streamlet
from tests.patience import PATIENCE_S
from tests.read_back import read_back
from tests.seeds import seeds
from tests.worker_pids import worker_pid

pytestmark = pytest.mark.real

LINES = 20_000

FILE = """
import os, random, time
from streamlet import Bolt, Topology
from streamlet.bolts.kafka import KafkaBolt
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

class Twice(Bolt):
    outputs = ["line"]
    def initialize(self, conf, context):
        with open(f"FOLDER/pid.{context.worker}", "w") as file:
            file.write(str(os.getpid()))
    def process(self, tup):
        time.sleep(0.0003)
        self.emit([tup.values[0] + " a"])
        if random.random() < FLAKY:
            raise ValueError("now and then")
        self.emit([tup.values[0] + " b"])

class Here(Twice):
    def process(self, tup):
        self.emit(tup.values)

class Copied(Topology):
    config = {"topology.delivery": "DELIVERY"}
    lines = KafkaSpout.spec(config=SpoutConfig(
        KafkaHosts("SERVERS"), "LINES", id="COPY", retry_initial_delay_ms=20, start_timeout_ms=60000
    ), par=2)
    twice = Twice.spec(inputs=[lines], par=2)
    here = Here.spec(inputs=[twice], par=3)
    out = KafkaBolt.spec(inputs=[here], hosts="SERVERS", topic="COPY", MORE)
"""


class Rig:
    """Numbered lines in a topic, a run that makes two records of each, and what a reader finds in the end."""

    def __init__(self, cluster: DevCluster, folder: Path, lines: str, copy: str) -> None:
        self.cluster, self.folder, self.lines, self.copy = cluster, folder, lines, copy
        self.truth = Counter(b"%06d %b" % (number, end) for number in range(LINES) for end in (b"a", b"b"))
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
        )
        for number in range(LINES):
            producer.produce(lines, b"%06d" % number, partition=number % 4)
            if number % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def start(
        self,
        delivery: str = "exactly-once",
        more: str = "",
        flaky: float = 0.0005,
        workers: int = 3,
        spark: bool = False,
    ) -> Marked:
        text = FILE.replace("SERVERS", self.cluster.bootstrap_servers).replace("DELIVERY", delivery)
        text = text.replace("FOLDER", str(self.folder))
        text = text.replace("LINES", self.lines).replace("COPY", self.copy)
        (self.folder / "copied.py").write_text(text.replace("MORE", more).replace("FLAKY", str(flaky)))
        log = (self.folder / "log").open("a")
        settings = {"TMPDIR": str(self.folder)}
        try:
            command = ["run", "copied.py", "--workers", str(workers), "--until-caught-up", "--json"]
            return streamlet(
                [*command, *(["--backend", "spark"] if spark else [])],
                settings,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        finally:
            log.close()

    def until_written(self, count: int, run: Marked) -> None:
        """Wait for so many records in the copy, markers and aborted ones among them."""
        deadline = time.monotonic() + PATIENCE_S
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "ends"})
        while sum(consumer.get_watermark_offsets(TopicPartition(self.copy, at), 10)[1] for at in range(2)) < count:
            assert time.monotonic() < deadline and run.process.poll() is None, self.said()
            time.sleep(0.05)
        consumer.close()

    def pid(self, worker: int) -> int:
        return worker_pid(self.folder, worker)

    def said(self) -> str:
        return (self.folder / "log").read_text()[-20_000:]

    def end_of(self, run: Marked) -> Counter[bytes | None]:
        """Wait for the run's end; return the records of the copy that are committed."""
        run.process.wait(PATIENCE_S)
        assert run.process.returncode == 0, self.said()
        return Counter(row.value for row in read_back(self.cluster, self.copy, self.truth.total(), within_s=90))


@pytest.fixture
def rig(cluster: DevCluster, tmp_path: Path, make_topic: Callable[..., str]) -> Rig:
    return Rig(cluster, tmp_path, make_topic(cluster, 4), make_topic(cluster, 2))


def kill_each(rig: Rig, run: Marked, seed: int, workers: int = 3) -> None:
    for kill in range(workers):
        rig.until_written((kill + 1) * LINES // 3, run)
        os.kill(rig.pid((seed + kill) % workers), signal.SIGKILL)
        time.sleep(1.0)


@pytest.mark.parametrize("seed", seeds("exactly-once-kills"))
def test_with_each_worker_killed_and_a_bolt_that_fails_each_record_is_there_once(rig: Rig, seed: int) -> None:
    run = rig.start()
    try:
        kill_each(rig, run, seed)
        found = rig.end_of(run)
    finally:
        run.end()
    assert found == rig.truth


@pytest.mark.spark
@pytest.mark.parametrize("seed", seeds("exactly-once-kills-on-spark"))
def test_on_executors_with_each_slot_killed_each_record_is_there_once(rig: Rig, seed: int) -> None:
    run = rig.start(workers=2, spark=True)
    try:
        kill_each(rig, run, seed, workers=2)
        found = rig.end_of(run)
    finally:
        run.end()
    assert found == rig.truth


def test_the_same_at_least_once_writes_records_twice(rig: Rig) -> None:
    """So that the test above can fail."""
    run = rig.start("at-least-once")
    try:
        kill_each(rig, run, 0)
        found = rig.end_of(run)
    finally:
        run.end()
    assert rig.truth.keys() == found.keys()
    assert found.total() > rig.truth.total()


def test_workers_that_stand_still_beyond_the_time_of_a_transaction_write_nothing_twice(rig: Rig) -> None:
    """Each in turn, for longer than the broker keeps a transaction open, and not long enough to be replaced."""
    run = rig.start(more="transaction_timeout_ms=2000")
    try:
        for worker in range(3):
            rig.until_written((worker + 1) * LINES // 3, run)
            pid = rig.pid(worker)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(5)
            os.kill(pid, signal.SIGCONT)
        found = rig.end_of(run)
    finally:
        run.end()
    assert found == rig.truth


def test_a_worker_that_wakes_after_it_was_replaced_writes_nothing_more(rig: Rig) -> None:
    """The one that writes stands still until another has its place, with a transaction open."""
    run = rig.start()
    try:
        rig.until_written(LINES // 2, run)
        stopped = [rig.pid(worker) for worker in range(3)]
        for pid in stopped[:2]:
            os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_S
        while [rig.pid(worker) for worker in range(2)] == stopped[:2]:
            assert time.monotonic() < deadline, rig.said()
            time.sleep(0.1)
        time.sleep(2)
        for pid in stopped[:2]:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue
        found = rig.end_of(run)
    finally:
        run.end()
    assert found == rig.truth


def test_a_run_that_is_killed_whole_leaves_nothing_that_its_successor_writes_again(rig: Rig) -> None:
    run = rig.start()
    try:
        rig.until_written(LINES // 2, run)
        for worker in range(3):
            os.kill(rig.pid(worker), signal.SIGSTOP)
        os.kill(run.process.pid, signal.SIGKILL)
        for worker in range(3):
            os.kill(rig.pid(worker), signal.SIGKILL)
        run.process.wait(PATIENCE_S)
    finally:
        run.end()
    run = rig.start()
    try:
        found = rig.end_of(run)
    finally:
        run.end()
    assert found == rig.truth
