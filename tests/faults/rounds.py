"""One round of each kind of kill: the same for the few of CI and the many of ``long_kills.py``."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from streamlet.devcluster import DevCluster
from tests.faults.rig import Rig, rig

KINDS = ("count", "spout", "run", "slot")
PAUSE_S = 0.012
"""For each batch of the counting bolts: a round has several commit intervals, so most kills come when one is due."""


def play(cluster: DevCluster, folder: Path, kind: str, seed: int, lines: int) -> None:
    """Kill -9 of ``kind`` at a seeded moment between 10 % and 90 % of the lines, and everything that must hold."""
    share = random.Random(f"{kind}-{seed}").uniform(0.1, 0.9)
    kill = {"count": kill_count, "spout": kill_spout, "run": kill_run, "slot": kill_slot}[kind]
    with rig(cluster, folder, lines, seed, hurts=1) as made:
        at = kill(made, share)
        made.check()
        made.check_duplicates(at, time.monotonic_ns(), spout_died=kind != "count")


def kill_count(made: Rig, share: float) -> int:
    """The worker that counts and has no spout."""
    run = made.start(made.topology(pause_s=PAUSE_S))
    evidence = made.evidence
    at = made.hurt(run, share, lambda: os.kill(evidence.pid_of("count", but=evidence.pid_of("spout")), signal.SIGKILL))
    assert run.finish()["reason"] == "caught_up"
    return at


def kill_spout(made: Rig, share: float) -> int:
    """The worker with the spout, its ledger of offsets and the acker."""
    run = made.start(made.topology(pause_s=PAUSE_S))
    at = made.hurt(run, share, lambda: os.kill(made.evidence.pid_of("spout"), signal.SIGKILL))
    assert run.finish()["reason"] == "caught_up"
    return at


def kill_run(made: Rig, share: float) -> int:
    """Coordinator and workers at once; then the same topology, with the same id, is started again."""
    file = made.topology(pause_s=PAUSE_S)
    run = made.start(file)

    def kill() -> None:
        for pid in run.alive():
            os.kill(pid, signal.SIGKILL)

    at = made.hurt(run, share, kill)
    again = made.start(file)
    assert again.finish()["reason"] == "caught_up"
    return at


def kill_slot(made: Rig, share: float) -> int:
    """A Spark slot's Python worker: the one with the spout or the other, by seed."""
    run = made.start(made.topology(pause_s=PAUSE_S), backend="spark")
    evidence = made.evidence
    with_spout = made.random.random() < 0.5

    def kill() -> None:
        spout = evidence.pid_of("spout")
        os.kill(spout if with_spout else evidence.pid_of("count", but=spout), signal.SIGKILL)

    at = made.hurt(run, share, kill)
    assert run.finish()["reason"] == "caught_up"
    return at
