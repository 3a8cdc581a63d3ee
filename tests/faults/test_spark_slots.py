"""kill -9 of Python workers of Spark slots, with trees pending: nothing is lost, and the run ends by itself."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.faults.rig import Rig, rig
from tests.marked_processes import command_line, parent

LINES = 24_000


@pytest.mark.real
@pytest.mark.spark
def test_killed_slots_lose_nothing(cluster: DevCluster, tmp_path: Path) -> None:
    """Three kills in one run, for Spark takes its time to start: of the counting slot, of the spout's, of either."""
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    with rig(cluster, tmp_path, LINES, seed, hurts=3) as made:
        run = made.start(backend="spark")
        for role, low, high in (("count", 0.1, 0.3), ("spout", 0.4, 0.6), (None, 0.7, 0.9)):
            victim = role or chance.choice(["count", "spout"])
            made.hurt(run, chance.uniform(low, high), lambda victim=victim: kill(made, victim))
        result = run.finish()
        assert result["reason"] == "caught_up"
        assert sum(worker["epoch"] for worker in result["workers"]) == 2 + 3
        made.check()


def kill(made: Rig, role: str) -> None:
    """The Python worker of a slot, and nothing else."""
    pid = made.evidence.pid_of(role, but=made.evidence.pid_of("spout") if role == "count" else None)
    assert "pyspark.daemon" in command_line(parent(pid))
    os.kill(pid, signal.SIGKILL)
