"""A worker that is killed before its first commit: its replacement begins where the run began."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.marked_processes import streamlet
from tests.patience import PATIENCE_S
from tests.scripted.fake_cluster import FakeCluster
from tests.whole_batches import BatchFields, NewRecord, encode_batch
from tests.worker_pids import kill_worker

FILE = """
import os
from streamlet import Bolt, Topology
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

class Store(Bolt):
    def initialize(self, conf, context):
        with open(f"pid.{context.worker}", "w") as file:
            file.write(str(os.getpid()))
        self.file = os.open("stored", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    def process(self, tup):
        os.write(self.file, f"{tup.values[0]}\\n".encode())

class Stored(Topology):
    lines = KafkaSpout.spec(config=SpoutConfig(
        KafkaHosts("ADDRESS", refresh_freq_secs=3600), "lines", id="killed",
        start_offset="latest", state_update_interval_ms=3_600_000,
    ))
    store = Store.spec(inputs=[lines])
"""


def test_a_worker_that_is_killed_before_its_first_commit_skips_nothing(tmp_path: Path) -> None:
    """Neither what came since the start, nor a partition that was made since and that no look has seen."""
    stored = tmp_path / "stored"
    stored.touch()

    def until(reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline and run.process.poll() is None, stored.read_text()
            time.sleep(0.02)

    with FakeCluster({"lines": 1}) as cluster:
        cluster.write("lines", "before")
        (tmp_path / "stored_lines.py").write_text(FILE.replace("ADDRESS", cluster.broker.address))
        run = streamlet(["run", "stored_lines.py"], {"TMPDIR": str(tmp_path)}, cwd=tmp_path)
        try:
            until(lambda: bool(cluster.commits))
            cluster.write("lines", "a")
            until(lambda: "a" in stored.read_text())
            with cluster.changed:
                cluster.log("lines", 1).append(encode_batch([NewRecord(b"c")], BatchFields()))
            kill_worker(tmp_path, 0, run)
            cluster.write("lines", "b")
            until(lambda: {"b", "c"} <= set(stored.read_text().split()))
        finally:
            run.end()
    assert sorted(stored.read_text().split()) == ["a", "a", "b", "c"]
