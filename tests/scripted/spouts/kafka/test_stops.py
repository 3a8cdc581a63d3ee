"""A run over KafkaSpout that is stopped at any moment and started again: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.marked_processes import streamlet
from tests.patience import PATIENCE_S
from tests.scripted.fake_cluster import FakeCluster
from tests.seeds import seeds
from tests.whole_batches import BatchFields, NewRecord, encode_batch

PARTITIONS, EACH = 4, 1000
STOPS = 4

FILE = """
import os, time
from streamlet import Bolt, Topology
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

class Store(Bolt):
    def initialize(self, conf, context):
        self.file = os.open("stored", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    def process(self, tup):
        os.write(self.file, f"{tup.values[0]}\\n".encode())
        time.sleep(0.0002)

class Stored(Topology):
    config = {"topology.max.spout.pending": 200}
    lines = KafkaSpout.spec(config=SpoutConfig(
        KafkaHosts("ADDRESS"), "lines", id="stops", state_update_interval_ms=20
    ))
    store = Store.spec(inputs=[lines])
"""


@pytest.mark.parametrize("seed", seeds("stops"))
def test_a17_a_run_that_is_stopped_at_any_moment_repeats_nothing(tmp_path: Path, seed: int) -> None:
    """By SIGTERM or SIGINT, from the claim of its partitions on; a commit is nearly always on its way."""
    rng = random.Random(seed)
    stored = tmp_path / "stored"
    stored.touch()

    def lines() -> list[str]:
        return stored.read_text().split()

    with FakeCluster() as cluster:
        for partition in range(PARTITIONS):
            for base in range(0, EACH, 50):
                records = [NewRecord(f"{partition}-{offset}".encode()) for offset in range(base, base + 50)]
                cluster.log("lines", partition).append(encode_batch(records, BatchFields()))
        (tmp_path / "stored_lines.py").write_text(FILE.replace("ADDRESS", cluster.broker.address))
        for stop in range(STOPS + 1):
            last = stop == STOPS
            command = ["run", "stored_lines.py", "--workers", "2", *(["--until-caught-up"] if last else [])]
            run = streamlet(command, {"TMPDIR": str(tmp_path)}, cwd=tmp_path)
            number = rng.choice([signal.SIGTERM, signal.SIGINT])
            try:
                if not last:
                    goal = len(lines()) + rng.choice([0, 1, rng.randrange(PARTITIONS * EACH // STOPS // 2)])
                    before, deadline = len(cluster.commits), time.monotonic() + PATIENCE_S
                    while len(lines()) < goal or len(cluster.commits) == before:
                        assert time.monotonic() < deadline and run.process.poll() is None
                        time.sleep(rng.uniform(0, 0.02))
                    run.process.send_signal(number)
                _, errors = run.process.communicate(timeout=PATIENCE_S)
            finally:
                run.end()
            assert run.process.returncode == (0 if last else 128 + number), errors
            committed = {key: row.committed_offset for key, row in cluster.committed.items()}
            assert sum(committed.values()) == len(lines()) == len(set(lines())), (stop, committed)
        assert len(lines()) == PARTITIONS * EACH
