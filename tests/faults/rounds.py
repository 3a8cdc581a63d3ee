"""One round of each kind of kill: the same for the few of CI and the many of ``long_kills.py``."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from streamlet.testing import DevCluster
from tests.faults.rig import Rig, rig

KINDS = ("count", "spout", "run", "slot")


def play(cluster: DevCluster, folder: Path, kind: str, seed: int, lines: int, kills: int = 1) -> None:
    """Kill -9 of ``kind`` at a seeded moment between 10 % and 90 % of the lines, and everything that must hold.

    Several kills of slots share one run, each with a part of the lines to itself: Spark is slow to start.
    """
    chance = random.Random(f"{kind}-{seed}")
    shares = [0.1 + 0.8 * (part + chance.random()) / kills for part in range(kills)]
    kill = {"count": kill_count, "spout": kill_spout, "run": kill_run, "slot": kill_slots}[kind]
    with rig(cluster, folder, lines, seed) as made:
        times = kill(made, shares)
        made.check()
        for at, until in zip(times, [*times[1:], time.monotonic_ns()], strict=True):
            made.check_duplicates(at, until, spout_died=kind != "count")


def kill_count(made: Rig, shares: list[float]) -> list[int]:
    """The worker that counts and has no spout."""
    run = made.start()
    evidence = made.evidence
    at = made.hurt(
        run, shares[0], lambda: os.kill(evidence.pid_of("count", but=evidence.pid_of("spout")), signal.SIGKILL)
    )
    assert run.finish()["reason"] == "caught_up"
    return [at]


def kill_spout(made: Rig, shares: list[float]) -> list[int]:
    """The worker with the spout, its ledger of offsets and the acker."""
    run = made.start()
    at = made.hurt(run, shares[0], lambda: os.kill(made.evidence.pid_of("spout"), signal.SIGKILL))
    assert run.finish()["reason"] == "caught_up"
    return [at]


def kill_run(made: Rig, shares: list[float]) -> list[int]:
    """Coordinator and workers at once; then the same topology, with the same id, is started again."""
    file = made.topology()
    run = made.start(file)

    def kill() -> None:
        for pid in run.alive():
            os.kill(pid, signal.SIGKILL)

    at = made.hurt(run, shares[0], kill)
    again = made.start(file)
    assert again.finish()["reason"] == "caught_up"
    return [at]


def kill_slots(made: Rig, shares: list[float]) -> list[int]:
    """A Spark slot's Python worker: each time the one with the spout or the other, by seed."""
    run = made.start(backend="spark")
    evidence, times = made.evidence, []
    for share in shares:
        with_spout = made.random.random() < 0.5

        def kill(with_spout: bool = with_spout) -> None:
            spout = evidence.pid_of("spout")
            os.kill(spout if with_spout else evidence.pid_of("count", but=spout), signal.SIGKILL)

        times.append(made.hurt(run, share, kill))
    assert run.finish()["reason"] == "caught_up"
    return times
