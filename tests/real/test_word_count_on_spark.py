"""The very word count of ``topologies/``, from a real broker, on the executors of a real Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.command_line import ROOT
from tests.marked_processes import command_line, parent, streamlet
from tests.real.word_counts import counted, random_lines


@pytest.mark.spark
def test_the_counts_are_right_and_workers_are_children_of_executors(
    kafka39: DevCluster, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Which process is whose is read off the process tree while lines are counted."""
    topic = make_topic(kafka39, partitions=2)
    kafka39.produce(topic, random_lines())
    truth = Counter(word for line in kafka39.console_consume(topic, max_messages=20_000) for word in line.split())
    arguments = ["run", str(ROOT / "topologies" / "word_count.py"), "--backend", "spark", "--workers", "2"]
    arguments += [
        "--until-caught-up",
        "--json",
        "-c",
        f"lines.hosts=zk://{kafka39.zookeeper}",
        "-c",
        f"lines.id={topic}",
    ]
    # Few open trees at a time, so that there is time to look.
    arguments += ["-c", f"lines.topic={topic}", "-c", "word_count.out=counts", "-c", "topology.max.spout.pending=4"]
    started = streamlet(arguments, {"TMPDIR": str(tmp_path)}, cwd=tmp_path)
    executors: dict[int, int] = {}
    try:
        assert started.process.stdout is not None
        for line in started.process.stdout:
            event = json.loads(line)
            if event["event"] == "status" and event["state"] == "running":
                for worker in event["workers"]:
                    daemon = parent(worker["pid"])
                    assert "pyspark.daemon" in command_line(daemon)
                    assert "org.apache.spark.executor.CoarseGrainedExecutorBackend" in command_line(parent(daemon))
                    executors[worker["worker"]] = parent(daemon)
        started.process.wait(60)
        assert started.process.stderr is not None
        assert started.process.returncode == 0, started.process.stderr.read()
    finally:
        started.end()
    assert len(set(executors.values())) == 2
    assert (event["event"], event["reason"], event["drained"]) == ("result", "caught_up", True)
    assert counted(tmp_path / "counts") == truth
