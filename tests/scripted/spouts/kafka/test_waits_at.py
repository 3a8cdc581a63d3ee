"""The bolt at which the oldest open record of a partition waits is found, in another worker too."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.marked_processes import streamlet
from tests.patience import PATIENCE_S
from tests.scripted.fake_cluster import FakeCluster

FILE = """
from streamlet import Bolt, Topology
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

class Pass(Bolt):
    outputs = ["value"]
    def process(self, tup):
        self.emit(tup.values)

class Keep(Bolt):
    auto_ack = False
    kept = None
    def process(self, tup):
        if tup.values[0] == "7":
            self.kept = tup
        else:
            self.ack(tup)

class Kept(Topology):
    config = {"topology.message.timeout.secs": 12}
    lines = KafkaSpout.spec(config=SpoutConfig(KafkaHosts("ADDRESS"), "lines", id="kept"))
    passed = Pass.spec(inputs=[lines])
    keep = Keep.spec(inputs=[passed])
"""


def test_the_oldest_open_record_of_a_partition_is_found_at_the_bolt_that_keeps_it(tmp_path: Path) -> None:
    with FakeCluster().fill("lines", 20) as cluster:
        (tmp_path / "kept.py").write_text(FILE.replace("ADDRESS", cluster.broker.address))
        run = streamlet(["run", "kept.py", "--json", "--workers", "3"], {"TMPDIR": str(tmp_path)}, cwd=tmp_path)
        found, deadline = set(), time.monotonic() + PATIENCE_S
        try:
            assert run.process.stdout is not None
            while not found:
                assert time.monotonic() < deadline and run.process.poll() is None
                rows = json.loads(run.process.stdout.readline()).get("partitions", ())
                found |= {(row["oldest_open"], row["waits_at"]) for row in rows if row["waits_at"]}
        finally:
            run.end()
    assert found == {(7, "keep")}
