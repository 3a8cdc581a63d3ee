"""kill -9 at seeded moments, with trees pending: every line reaches the witness, no commit is ahead of it."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.faults import rounds
from tests.faults.rig import Rig, rig, wait_for

pytestmark = pytest.mark.real

LINES = 12_000
KILLS = 4


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", ["count", "spout", "run"])
def test_k7_a_kill_loses_nothing(cluster: DevCluster, tmp_path: Path, kind: str, number: int) -> None:
    """Of the counting worker, of the spout's worker, of the whole run (then started again)."""
    rounds.play(cluster, tmp_path, kind, random.SystemRandom().getrandbits(32), LINES)


@pytest.mark.parametrize("role", ["count", "spout"])
def test_a1_a2_a_worker_that_is_killed_at_each_of_four_commits_loses_nothing(
    cluster: DevCluster, tmp_path: Path, role: str
) -> None:
    """As soon as ZooKeeper has the commit; its answer may be on its way."""
    with rig(cluster, tmp_path, LINES, random.SystemRandom().getrandbits(32)) as made:
        run = made.start(made.topology(pause_s=rounds.PAUSE_S))
        made.wait_for_done(0.1, run.tail)
        pending = []
        for _ in range(KILLS):
            before = made.watcher.offsets()
            wait_for("a commit", lambda before=before: made.watcher.offsets() != before, told=run.tail)
            victim = worker_of(made, role)
            pending.append(made.evidence.read().pending_at(time.monotonic_ns()))
            os.kill(victim, signal.SIGKILL)
            wait_for("its successor", lambda victim=victim: worker_of(made, role) != victim, told=run.tail)
        assert min(pending) > 0, "nothing was pending: this fault proves nothing"
        result = run.finish()
        assert result["reason"] == "caught_up"
        assert sorted(worker["epoch"] for worker in result["workers"]) == [1, 1 + KILLS]
        made.check()


def worker_of(made: Rig, role: str) -> int:
    """The process of the spout, or of the counting bolts without it."""
    spout = made.evidence.read().pid_of("spout")
    return spout if role == "spout" else made.evidence.pid_of("count", but=spout)
