"""The coordinator is interrupted, interrupted twice, or killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from streamlet.cli.interrupts import SAME_S
from streamlet.devcluster import DevCluster
from tests.faults.rig import rig, wait_for

DRAINED_WITHIN_S = 5.0
"""From the signal, as documented: drain, last commit, cleanup."""

PROCESSES_END_S = 2.0
"""For the scheduler of a busy machine: interpreters ending, and the keeper telling their status."""

pytestmark = pytest.mark.real


def test_ctrl_c_drains_commits_and_a_new_start_repeats_nothing(cluster: DevCluster, tmp_path: Path) -> None:
    """SIGINT: over in time with 130, every emitted line stored and committed; the next run begins with the next line.

    What the result says (exit status, committed offsets) is what the shell and ZooKeeper say.
    """
    with rig(cluster, tmp_path, 10_000, seed=5, hurts=1) as made:
        file = made.topology()
        run = made.start(file)
        asked_ns = made.hurt(run, 0.3, lambda: os.kill(run.process.pid, signal.SIGINT))
        left_s = DRAINED_WITHIN_S + PROCESSES_END_S - (time.monotonic_ns() - asked_ns) / 1e9
        status = run.process.status(left_s)
        (result,) = run.events("result")
        assert (result["reason"], result["drained"], result["pending"]) == ("interrupted", True, 0)
        assert result["exit_status"] == status == 130, run.tail()
        assert {row["partition"]: row["committed"] for row in result["partitions"]} == made.watcher.offsets()
        assert not run.alive()
        assert len(made.evidence.read().done) == sum(made.watcher.offsets().values()) < made.evidence.total
        made.start(file).finish()
        made.check()
        assert all(len(times) == 1 for times in made.evidence.seen.values()), "a line came twice"


def test_a_second_ctrl_c_ends_the_run_without_its_drain(cluster: DevCluster, tmp_path: Path) -> None:
    """The drain waits for a tree that never completes, for up to a minute; whoever asks twice does not."""
    with rig(cluster, tmp_path, 4_000, seed=6) as made:
        run = made.start(made.topology(swallow=("0-100-0",)), streamlet_drain_timeout_secs=60.0)
        made.wait_for_done(0.3, run.tail)
        os.kill(run.process.pid, signal.SIGINT)
        wait_for("the drain", lambda: "raining" in run.process.said(), told=run.tail)
        time.sleep(2 * SAME_S)
        os.kill(run.process.pid, signal.SIGINT)
        assert run.process.status(10) == 130
        wait_for("every process to be gone", lambda: not run.alive(), 5, run.alive)
        assert made.watcher.offsets()[0] <= 100
        made.start().finish()
        made.check()


def test_workers_do_not_outlive_their_coordinator(cluster: DevCluster, tmp_path: Path) -> None:
    """kill -9 of ``streamlet run`` alone: 5 s later no worker is there, nor the directory of their sockets."""
    with rig(cluster, tmp_path, 40_000, seed=7, hurts=1) as made:
        file = made.topology()
        run = made.start(file)
        workers = made.evidence.pids
        made.hurt(run, 0.3, run.kill)
        wait_for("the workers to end", lambda: not run.alive(), 5, run.alive)
        assert len(workers()) == 2
        assert not list(run.scratch.iterdir()), "the directory of the sockets was left behind"
        made.start(file).finish()
        made.check()


def test_a_machine_that_stood_still_goes_on(cluster: DevCluster, tmp_path: Path) -> None:
    """All processes are stopped for longer than a worker may be silent, and wake up one after the other."""
    with rig(cluster, tmp_path, 10_000, seed=10) as made:
        # More than a busy machine is silent by itself, and less than it is stopped.
        run = made.start(streamlet_worker_timeout_secs=10.0, streamlet_worker_heartbeat_secs=0.2)
        made.wait_for_done(0.3, run.tail)
        everybody = [run.process.pid, *made.evidence.pids()]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(11.0)  # the fault itself: as long as it lasts
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.5)
        result = run.finish()
        assert [worker["epoch"] for worker in result["workers"]] == [1, 1]
        made.check()
