"""ZooKeeper or the broker goes away for a while in the middle of a run."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.faults.rig import rig
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.real

SESSION_S = 10.0
"""How long a session of the spout lives without a word; ``coordination.zookeeper.SESSION_TIMEOUT_S``."""


@pytest.mark.parametrize(("how", "outage_s"), [("killed", 3.0), ("paused", SESSION_S + 1.5)])
def test_without_zookeeper_work_goes_on_and_commits_resume(
    cluster: DevCluster, tmp_path: Path, how: str, outage_s: float
) -> None:
    """Nothing is lost, nothing comes twice, nobody is restarted; the pause is longer than a session lives."""
    with rig(cluster, tmp_path, 10_000, seed=8) as made:
        run = made.start()
        made.wait_for_done(0.2, run.tail)
        cluster.stop_zookeeper() if how == "killed" else cluster.pause_zookeeper()
        over = time.monotonic() + outage_s
        try:
            made.wait_for_done(0.6, run.tail)
            time.sleep(max(0.0, over - time.monotonic()))  # the fault itself: as long as it lasts
        finally:
            cluster.start_zookeeper() if how == "killed" else cluster.resume_zookeeper()
        result = run.finish()
        assert [worker["epoch"] for worker in result["workers"]] == [1, 1]
        made.check()
        assert all(len(times) == 1 for times in made.evidence.seen.values()), "a line came twice"


def test_a_broker_that_stands_still_then_dies_and_comes_back(cluster: DevCluster, tmp_path: Path) -> None:
    """The spout waits, finds it again and reads on; nobody is restarted."""
    with rig(cluster, tmp_path, 10_000, seed=9) as made:
        # Small fetches: most of the topic has not been read when the broker goes.
        file = made.topology(spout={"fetch_size_bytes": 4096, "buffer_size_bytes": 8192})
        run = made.start(file)
        made.wait_for_done(0.2, run.tail)
        cluster.pause(0)
        time.sleep(3.0)  # the fault itself: as long as it lasts
        cluster.resume(0)
        made.wait_for_done(0.5, run.tail)
        cluster.kill(0)
        cluster.restart(0)
        result = run.finish()
        assert [worker["epoch"] for worker in result["workers"]] == [1, 1]
        made.check()


def test_a_run_that_ends_while_zookeeper_is_silent_says_what_the_next_one_reads_again(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """All was done, and not committed: it ended without a word, or was killed at its close and its spout blamed."""
    with rig(cluster, tmp_path, 10_000, seed=10) as made:
        run = made.start()
        made.wait_for_done(0.1, run.tail)
        cluster.pause_zookeeper()
        try:
            made.wait_for_done(0.2, run.tail)
            run.process.signal(signal.SIGTERM)
            assert run.process.status(PATIENCE_S) == 143, run.tail()
        finally:
            cluster.resume_zookeeper()
        result = run.events("result")[-1]
        behind = sum(row["uncommitted"] for row in result["partitions"])
        assert result["drained"] and not result["unclosed"] and behind > 0, run.tail()
        assert re.search(r"[\d,]+ offsets are done and could not be committed: .*They were for Zoo", run.process.said())
