"""Dead letters within exactly once while workers are killed: none is lost, and none is there twice.

At least once would write some a second time. The witness is librdkafka, which reads committed records only.
"""

from __future__ import annotations

import json
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

COUNT = 6_000

FILE = """
import os, time
from streamlet import Bolt, Topology
from streamlet.bolts.kafka import KafkaBolt
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

def decoded(record):
    number = int(record.value)
    if number % 100 == 7:
        raise ValueError(f"cannot decode {number}")
    return [[number]]

class Judge(Bolt):
    outputs = ["number"]
    def initialize(self, conf, context):
        with open(f"pid.{context.worker}", "w") as file:
            file.write(str(os.getpid()))
    def process(self, tup):
        number = tup.values[0]
        time.sleep(0.0005)
        self.emit([number])
        if number % 100 == 13:
            self.dead_letter(tup, f"not wanted: {number}")
        elif number % 2500 == 1234:
            raise ValueError(f"unlucky {number}")

class Judged(Topology):
    config = {"topology.delivery": "exactly-once"}
    numbers = KafkaSpout.spec(config=SpoutConfig(
        KafkaHosts("SERVERS"), "NUMBERS", id="GOOD", scheme=decoded, retry_limit=1, retry_initial_delay_ms=20,
        on_poison="dead-letter", dead_letter_topic="LETTERS", start_timeout_ms=60000
    ), par=2, outputs=["number"])
    judge = Judge.spec(inputs=[numbers], par=2)
    out = KafkaBolt.spec(inputs=[judge], hosts="SERVERS", topic="GOOD")
"""


def is_poison(number: int) -> bool:
    return number % 100 in (7, 13) or number % 2500 == 1234


class Rig:
    """Numbers in a topic, one in fifty of them poison, and a run over them on two workers."""

    def __init__(self, cluster: DevCluster, folder: Path, numbers: str, good: str, letters: str) -> None:
        self.cluster, self.folder, self.good, self.letters = cluster, folder, good, letters
        text = FILE.replace("SERVERS", cluster.bootstrap_servers).replace("NUMBERS", numbers)
        (folder / "judged.py").write_text(text.replace("LETTERS", letters).replace("GOOD", good))
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
        )
        for number in range(COUNT):
            producer.produce(numbers, b"%d" % number, partition=number % 4)
        assert producer.flush(60) == 0

    def start(self) -> Marked:
        with (self.folder / "log").open("w") as log:
            command = ["run", "judged.py", "--workers", "2", "--until-caught-up", "--json"]
            return streamlet(command, {"TMPDIR": str(self.folder)}, cwd=self.folder, stdout=log, stderr=log)

    def said(self) -> str:
        return (self.folder / "log").read_text()

    def until_letters(self, count: int, run: Marked) -> None:
        """Wait for so many records in the dead-letter topic, markers and aborted ones among them."""
        deadline = time.monotonic() + PATIENCE_S
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "ends"})
        while sum(consumer.get_watermark_offsets(TopicPartition(self.letters, at), 10)[1] for at in range(2)) < count:
            assert time.monotonic() < deadline and run.process.poll() is None, self.said()[-20_000:]
            time.sleep(0.02)
        consumer.close()


@pytest.fixture
def rig(cluster: DevCluster, tmp_path: Path, make_topic: Callable[..., str]) -> Rig:
    return Rig(cluster, tmp_path, make_topic(cluster, 4), make_topic(cluster, 2), make_topic(cluster, 2))


@pytest.mark.parametrize("seed", seeds("exactly-once-letters"))
def test_with_a_worker_killed_each_record_is_in_one_of_the_two_topics_once(rig: Rig, seed: int) -> None:
    """A worker that dies forgets which records it has given up: they fail again, and their letters were aborted."""
    poison = {*filter(is_poison, range(COUNT))}
    run = rig.start()
    try:
        rig.until_letters(len(poison) // 4, run)
        os.kill(worker_pid(rig.folder, seed % 2), signal.SIGKILL)
        run.process.wait(PATIENCE_S)
    finally:
        run.end()
    assert run.process.returncode == 0, rig.said()[-20_000:]
    letters = Counter(int(row.value or b"") for row in read_back(rig.cluster, rig.letters, len(poison), within_s=90))
    assert letters == Counter(poison)
    good = Counter(int(row.value or b"") for row in read_back(rig.cluster, rig.good, COUNT - len(poison), within_s=90))
    assert good == Counter({*range(COUNT)} - poison)
    spout = json.loads(rig.said().splitlines()[-1])["components"][0]
    assert spout["kept"] == spout["given_up"], "of those of the workers that lived"
