"""From topic to topic while workers and brokers are killed: no record is missing, and what is there twice is said."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from streamlet.devcluster import DevCluster
from tests.marked_processes import Marked, streamlet
from tests.patience import PATIENCE_S
from tests.read_back import read_back
from tests.seeds import seeds
from tests.worker_pids import kill_worker

pytestmark = pytest.mark.real

LINES = 30_000

FILE = """
import os, time
from streamlet import Bolt, Topology
from streamlet.bolts.kafka import KafkaBolt
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

class Same(Bolt):
    outputs = ["line"]
    def initialize(self, conf, context):
        with open(f"pid.{context.worker}", "w") as file:
            file.write(str(os.getpid()))
    def process(self, tup):
        time.sleep(PAUSE)
        self.emit(tup.values)

class Copied(Topology):
    lines = KafkaSpout.spec(config=SpoutConfig(
        KafkaHosts("SERVERS"), "LINES", id="COPY", retry_initial_delay_ms=20, start_timeout_ms=60000
    ), par=2)
    same = Same.spec(inputs=[lines], par=2)
    out = KafkaBolt.spec(inputs=[same], hosts="SERVERS", topic="COPY", par=2, MORE)
"""


class Rig:
    """Numbered lines in a topic, a run that copies them into another, and what is there in the end."""

    def __init__(self, cluster: DevCluster, folder: Path, lines: str, copy: str) -> None:
        self.cluster, self.folder, self.lines, self.copy = cluster, folder, lines, copy
        self.truth = {b"%06d" % number for number in range(LINES)}
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
        )
        for at, value in enumerate(sorted(self.truth)):
            producer.produce(lines, value, partition=at % 2)
            if at % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def start(self, more: str = "", pause_s: float = 0.0002) -> Marked:
        names = {"SERVERS": self.cluster.bootstrap_servers, "LINES": self.lines, "COPY": self.copy, "MORE": more}
        text = FILE.replace("PAUSE", str(pause_s))
        for name, value in names.items():
            text = text.replace(name, value)
        (self.folder / "copied.py").write_text(text)
        command = ["run", "copied.py", "--workers", "2", "--until-caught-up", "--json"]
        with (self.folder / "log").open("w") as log:
            return streamlet(command, {"TMPDIR": str(self.folder)}, cwd=self.folder, stdout=log, stderr=log)

    def written(self) -> int:
        """How many records are in the copy, about: by its ends."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "ends"})
        try:
            return sum(consumer.get_watermark_offsets(TopicPartition(self.copy, at), 10)[1] for at in range(2))
        finally:
            consumer.close()

    def until_written(self, count: int, run: Marked) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.written() < count:
            assert time.monotonic() < deadline and run.process.poll() is None, self.said()
            time.sleep(0.05)

    def said(self) -> str:
        return (self.folder / "log").read_text()

    def end_of(self, run: Marked) -> tuple[Counter[bytes | None], dict[str, Any]]:
        """Wait for the run's end; the records of the copy, and the run's result."""
        run.process.wait(PATIENCE_S)
        assert run.process.returncode == 0, self.said()
        rows = read_back(self.cluster, self.copy, LINES)
        result = json.loads(self.said().splitlines()[-1])
        return Counter(row.value for row in rows), result


@pytest.fixture
def rig(cluster: DevCluster, tmp_path: Path, make_topic: Callable[..., str]) -> Rig:
    return Rig(cluster, tmp_path, make_topic(cluster, 2), make_topic(cluster, 2))


@pytest.mark.parametrize("seed", seeds("bolt-kills"))
def test_a_killed_worker_loses_no_record(rig: Rig, seed: int) -> None:
    """Three times, with records at the producer. Duplicates are those that at-least-once allows."""
    run = rig.start()
    try:
        for kill in range(3):
            rig.until_written((kill + 1) * LINES // 5, run)
            kill_worker(rig.folder, (seed + kill) % 2, run)
            time.sleep(1.0)
        found, _ = rig.end_of(run)
    finally:
        run.end()
    assert rig.truth - found.keys() == set()
    assert found.keys() - rig.truth == set()
    print(f"{found.total() - LINES} of {LINES} twice")


def test_a_broker_that_is_killed_and_comes_back_costs_no_record_and_fails_no_tuple(rig: Rig) -> None:
    """With idempotence nothing is there twice either: no tuple failed, so none came again."""
    run = rig.start()
    try:
        rig.until_written(LINES // 4, run)
        rig.cluster.restart(0, graceful=False)
        found, result = rig.end_of(run)
    finally:
        run.end()
    assert found == Counter(rig.truth)
    out = next(row for row in result["components"] if row["name"] == "out")
    assert (out["failed"], out["timed_out"]) == (0, 0)


def test_a_broker_that_stands_still_holds_the_run_up_and_nothing_fails(rig: Rig) -> None:
    """Memory for a few batches, so that it is full at once; the broker is stopped for longer than a tuple may take."""
    run = rig.start("buffer_memory=100_000")
    try:
        rig.until_written(LINES // 4, run)
        rig.cluster.pause(0)
        time.sleep(8)
        rig.cluster.resume(0)
        found, result = rig.end_of(run)
    finally:
        run.end()
    assert found == Counter(rig.truth)
    out = next(row for row in result["components"] if row["name"] == "out")
    assert out["failed"] == 0
    assert rig.said().count("waits with records for topic") <= 2, "once a worker"
    assert "hangs" not in rig.said()
