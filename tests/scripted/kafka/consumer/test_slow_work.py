"""The program of docs/guide/consumer.md whose work takes longer than a member may be silent."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from streamlet.kafka.protocol.schema import ApiKey
from tests.docs.pages import ROOT, blocks
from tests.patience import PATIENCE_S
from tests.scripted.fake_cluster import FakeCluster

WORK_S = 1.7
"""More than the longest pause between two polls that the program is given."""


def _die_with_us() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def test_c6_paused_partitions_keep_the_membership_while_others_work_and_each_commit_follows_its_work(
    tmp_path: Path,
) -> None:
    """It joins once and never leaves; a partition's second piece begins when the first is committed."""
    page = ROOT / "docs" / "guide" / "consumer.md"
    (block,) = (block for block in blocks(page) if block.says.get("file") == "slow_work.py")
    program = tmp_path / "slow_work.py"
    program.write_text(
        block.text.replace('{"group_id"', '{"max_poll_interval_ms": 1500, "max_poll_records": 2, "group_id"')
    )
    with FakeCluster({"t": 2}).fill("t", 2, 4) as cluster:
        process = subprocess.Popen(
            [sys.executable, str(program), cluster.broker.address, "t", str(WORK_S)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            preexec_fn=_die_with_us,
        )
        try:
            deadline = time.monotonic() + PATIENCE_S
            while len(cluster.commits) < 3:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait(10)
        assert sorted(list(commit.items()) for commit in cluster.commits) == [[(0, 2)], [(1, 2)], [(1, 4)]]
        assert [len(cluster.broker.seen(key)) for key in (ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP)] == [1, 0]
