"""A record on which a bolt raises, perhaps in another worker, is named in the run's log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.marked_processes import streamlet
from tests.patience import PATIENCE_S
from tests.scripted.fake_cluster import FakeCluster

FILE = """
from streamlet import Bolt, Topology
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

class Enrich(Bolt):
    def process(self, tup):
        if tup.values[0] == "7":
            raise ValueError("no 7")

class Orders(Topology):
    lines = KafkaSpout.spec(config=SpoutConfig(KafkaHosts("ADDRESS"), "lines", id="failing", retry_limit=2))
    enrich = Enrich.spec(inputs=[lines])
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_record_on_which_a_bolt_raises_is_named_in_the_log_once(tmp_path: Path, workers: str) -> None:
    """Its next failures, which follow at once, are only counted; at last it stops the run."""
    with FakeCluster().fill("lines", 20) as cluster:
        (tmp_path / "orders.py").write_text(FILE.replace("ADDRESS", cluster.broker.address))
        arguments = ["run", "orders.py", "--until-caught-up", "--workers", workers]
        run = streamlet(arguments, {"TMPDIR": str(tmp_path)}, cwd=tmp_path)
        try:
            _, errors = run.process.communicate(timeout=PATIENCE_S)
        finally:
            run.end()
    said = " ".join(errors.split())
    named = (
        r"lines: topic lines, partition 0, offset 7 failed in enrich \(ValueError: no 7\): try 1 of 3, the next one in"
    )
    assert len(re.findall(named, said)) == 1, said
    assert len(re.findall("offset 7 failed in", said)) == 1 and "partition 0, offset 7 failed 3 times" in said
