"""``streamlet runs pause`` of a partition of a KafkaSpout: it stands, the others go on, nothing is read twice."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from streamlet.backends.living_runs import living_runs
from streamlet.backends.run_commands import ShowRun
from streamlet.devcluster import DevCluster
from tests.command_line import Streamlet, streamlet
from tests.patience import PATIENCE_S
from tests.spout_harness import Witness, witness4

__all__ = ["streamlet", "witness4"]

TOPOLOGY = """
from streamlet import Bolt, Topology
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

class Note(Bolt):
    def initialize(self, conf, context):
        self.out = open({seen!r}, "a", buffering=1)
    def process(self, tup):
        print(tup.values[0], file=self.out)

class {name}(Topology):
    lines = KafkaSpout.spec(config=SpoutConfig(
        KafkaHosts({servers!r}), {topic!r}, id={topic!r}, state_update_interval_ms=50, session_timeout_ms=6000,
    ))
    note = Note.spec(inputs=[lines])
"""


class Run:
    """A run over two partitions, which writes down what its bolt saw."""

    def __init__(self, streamlet: Streamlet, cluster: DevCluster, witness: Witness, topic: str) -> None:
        self.streamlet, self.witness, self.topic = streamlet, witness, topic
        self.seen = streamlet.folder / "seen"
        self.seen.touch()
        self.name = f"Parted{topic.replace('-', '')}"
        text = TOPOLOGY.format(seen=str(self.seen), name=self.name, servers=cluster.bootstrap_servers, topic=topic)
        self.process: subprocess.Popen[str] = streamlet.start("run", streamlet.write(text), "--workers", "1")

    def write(self, first: int, count: int) -> None:
        """As many records into each partition."""
        for partition in (0, 1):
            self.witness.produce(self.topic, [f"{partition}-{n}" for n in range(first, first + count)], partition)

    def numbers(self) -> list[list[int]]:
        """What was seen of each partition, in order."""
        rows = [line.split("-") for line in self.seen.read_text().splitlines()]
        return [[int(n) for number, n in rows if number == str(partition)] for partition in (0, 1)]

    def rows(self) -> list[dict[str, Any]]:
        (run,) = [run for run in living_runs() if run.topology == self.name]
        return sorted(run.ask(ShowRun()).content["partitions"], key=lambda row: int(row["partition"]))

    def until(self, holds: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline and self.process.poll() is None, self.numbers()
            time.sleep(0.05)


def test_a_paused_partition_stands_and_goes_on_where_it_was(
    streamlet: Streamlet, kafka4: DevCluster, witness4: Witness, make_topic: Any
) -> None:
    run = Run(streamlet, kafka4, witness4, make_topic(kafka4, partitions=2))
    run.write(0, 100)
    run.until(lambda: run.numbers() == [[*range(100)]] * 2)
    run.until(lambda: len(run.rows()) == 2)  # told with the next heartbeat
    part = ("--topic", run.topic, "--partition", "0")
    paused = streamlet("runs", "pause", run.name, *part, "--json")
    assert json.loads(paused.stdout)["paused"] == [f"lines {run.topic}/0"], paused.stderr
    run.until(lambda: [row["paused"] for row in run.rows()] == [True, False])
    run.write(100, 100)
    run.until(lambda: run.numbers()[1] == [*range(200)])
    run.until(lambda: run.rows()[1]["committed"] == 200)
    assert run.numbers()[0] == [*range(100)] and run.rows()[0]["committed"] == 100
    assert streamlet("runs", "resume", run.name, *part).returncode == 0
    run.until(lambda: [row["committed"] for row in run.rows()] == [200, 200])
    assert run.numbers() == [[*range(200)]] * 2, "a record came twice or not at all"
    assert streamlet("runs", "stop", run.name).returncode == 0
    assert run.process.wait(PATIENCE_S) == 0
