"""A worker that stands still is replaced; when it wakes up, it is nobody."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from streamlet.runtime.links import handshake
from streamlet.runtime.links.dialing import dial
from streamlet.runtime.links.handshake import Hello, Refused
from streamlet.runtime.links.wire import MAX_DATA_FRAME
from tests.faults.inside import Inside, NeverKills
from tests.faults.rig import rig, wait_for

pytestmark = pytest.mark.real

QUICK = {"streamlet_worker_timeout_secs": 2.0, "streamlet_worker_heartbeat_secs": 0.2}
"""A heartbeat that is late on a busy machine is followed by others in time."""


def test_k4_a_zombie_is_fenced_at_every_door(cluster: DevCluster, tmp_path: Path) -> None:
    """Links, offset node and control channel are closed to it: it counts nothing, commits nothing and ends.

    Offsets are in ZooKeeper here. In both stores: ``test_one_owner.py``, where whole runs are stopped and wake up.
    """
    with rig(cluster, tmp_path, 6_000, seed=1, partitions=1) as made:
        # The spout has its worker to itself, so that all it does must pass a link; and it commits rarely, so that
        # it surely has something to commit when it wakes up.
        file = made.topology(splits=1, counts=1, spout={"state_update_interval_ms": 2000}, pause_s=0.02)
        run = Inside(made, 3, file=file, **QUICK)
        launcher = run.launcher = NeverKills(str(run.coordinator.directory))
        with run:
            made.wait_for_done(0.1, run.told)
            committed = wait_for("a first commit", lambda: made.watcher.offsets()[0], told=run.told)
            wait_for("more to commit", lambda: len(made.evidence.read().done) > committed + 200, told=run.told)
            zombie = made.evidence.pid_of("spout")
            assert made.evidence.pending_at(time.monotonic_ns()) > 0
            os.kill(zombie, signal.SIGSTOP)
            wait_for("its successor", lambda: made.evidence.read().pid_of("spout") != zombie, told=run.told)
            done = len(made.evidence.done)
            wait_for("the successor's work", lambda: len(made.evidence.read().done) > done + 200, told=run.told)
            refuses_the_old_epoch(run)
            woken = time.monotonic_ns()
            os.kill(zombie, signal.SIGCONT)
            (process,) = launcher.undead
            assert process.pid == zombie
            process.wait(5)
            assert len(made.evidence.read().done) < made.evidence.total, "the run was over before the zombie was"
            assert run.finish().reason == "caught_up"
        made.check()
        (versions,) = made.watcher.history().values()
        assert {version.owner_epoch for version in versions} == {1, 2}
        assert all(version.owner_epoch == 2 for version in versions if version.written_ns >= woken)
        assert made.watcher.refused_since(woken) > 0, "the zombie did not even try to commit"
        late = [word for word, ns, spout in made.evidence.stored if ns >= woken and spout == zombie]
        assert not late, f"counted although the zombie had sent them: {late[:5]}"


def refuses_the_old_epoch(run: Inside) -> None:
    """Worker 1 lets worker 0 in as its second epoch, not as its first, though the secret is the right one."""
    coordinator = run.coordinator
    address = coordinator.supervisor.workers[1].address
    version = coordinator.supervisor.version
    assert address is not None
    admitted = dial(
        address, Hello(handshake.DATA, coordinator.run_id, 0, 2, 1, version), coordinator.secret, MAX_DATA_FRAME
    )
    admitted.sock.close()
    with pytest.raises(Refused):
        dial(address, Hello(handshake.DATA, coordinator.run_id, 0, 1, 1, version), coordinator.secret, MAX_DATA_FRAME)


def test_a_worker_that_stands_still_is_killed_and_replaced(cluster: DevCluster, tmp_path: Path) -> None:
    """SIGSTOP of the spout's worker: the coordinator makes sure that it never wakes up."""
    with rig(cluster, tmp_path, 8_000, seed=2, hurts=1) as made:
        run = made.start(**QUICK)
        made.wait_for_done(0.2, run.tail)
        stopped = made.evidence.pid_of("spout")
        at = made.hurt(run, 0.2, lambda: os.kill(stopped, signal.SIGSTOP), stays=stopped)
        assert run.finish()["reason"] == "caught_up"
        assert not Path(f"/proc/{stopped}").exists()
        told = [event["text"] for event in run.events("log") if "stopped by a signal" in event["text"]]
        assert len(told) == 1 and "at work in" not in told[0]
        made.check()
        made.check_duplicates(at, time.monotonic_ns(), spout_died=True)
