"""Faults at random, at a run that must lose nothing; in slices whose results add up in a file.

    python -m tests.soak.long_faults --minutes 60 [--seed N] [--faults N] [--results FILE] [--only "kill worker"]

Prints seed, schedule and each fault's outcome, then the table of all slices in FILE. Ends with 1 when anything did not
hold, in this slice or in one before. With the seed, ``--minutes`` and ``--pause`` a slice plays the same faults again.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import logging
import random
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.faults.sweeper import sweeping
from tests.soak.chaos import figures
from tests.soak.chaos.deeds import Deeds
from tests.soak.chaos.scene import Scene, fresh_folder, remove, small_disk
from tests.soak.chaos.schedule import steps

SLICE_MINUTES = 20.0
"""A slice has its own servers, topic and run, and its whole evidence is compared at its end."""
DEFAULT_TIMEOUT_S, SHORT_TIMEOUT_S = 10.0, 3.0
"""Of workers that are silent, in slices with an even seed and an odd one. After the default, a deposed owner's session
in ZooKeeper has ended with it; after the short one it wakes up with a session that may still write, if it is let."""
PAUSE_S = 0.03
"""For each batch of the counting bolts: some hundred lines a second, which two cores have time for."""
DISK_MIB = 16
CLONE_NEWNS = 0x20000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.long_faults", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="in slices of at most twenty")
    parser.add_argument("--faults", type=int, default=1 << 30, help="at most so many, in all slices")
    parser.add_argument("--seed", type=int, help="of the first slice; the next ones count on from it")
    parser.add_argument("--results", type=Path, help="add the slices to those in this file, and print the sum")
    parser.add_argument("--only", help='a kind of fault, such as "stop worker"; others are passed over')
    parser.add_argument("--pause", type=float, default=PAUSE_S, help="seconds of work for each batch of 64 words")
    parser.add_argument("--timeout", type=float, help="of silent workers, in seconds; by default as the seed has it")
    parser.add_argument("--busy", action="store_true", help="the machine has other work: tell times, judge none")
    asked = parser.parse_args()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # it tells each connection that we cut
    own_mounts()
    seed = random.SystemRandom().getrandbits(31) if asked.seed is None else asked.seed
    ends, left = time.monotonic() + asked.minutes * 60, asked.faults
    made: list[dict[str, Any]] = []
    while (minutes := (ends - time.monotonic()) / 60) > 0 and left > 0 and (not made or minutes > 1):
        made.append(play(seed + len(made), min(minutes, SLICE_MINUTES), left, asked))
        left -= len(made[-1]["faults"])
        if not made[-1]["figures"]:
            break
    everything = figures.load(asked.results) if asked.results else made
    print(figures.table(everything))
    wrong = figures.verdict(everything, judge_times=not asked.busy)
    print("\n".join(f"NOT HELD: {line}" for line in wrong) or "everything held")
    return 1 if wrong else 0


def play(seed: int, minutes: float, most: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One slice; its results, which are in the file after each fault, so that nothing is lost with this process."""
    timeout_s = asked.timeout or (SHORT_TIMEOUT_S if seed % 2 else DEFAULT_TIMEOUT_S)
    one: dict[str, Any] = {
        "timeout_s": timeout_s,
        "id": f"{int(time.time())}-{seed}", "seed": seed, "commit": commit(), "minutes": round(minutes, 2),
        "pause": asked.pause, "only": asked.only, "faults": [], "violations": [], "figures": None, "seconds": 0.0,
    }  # fmt: skip
    began = time.monotonic()
    with workplace() as (folder, mark):
        say(f"slice in {folder}: --seed {seed} --minutes {minutes:.1f}, commit {one['commit']}")
        try:
            with Scene(folder, mark, seed, asked.pause, timeout_s, say) as scene:
                one["violations"] = scene.violations
                hurt(scene, one, began + minutes * 60, most, asked)
                one["figures"] = scene.finish()
        except Exception:
            one["violations"].append(f"the slice broke off: {traceback.format_exc()}")
            say(one["violations"][-1])
        one["seconds"] = round(time.monotonic() - began, 1)
        keep(asked.results, one)
        if one["violations"]:
            keep_logs(folder, one["id"])
    say(f"slice {one['id']}: {one['figures']}, {len(one['violations'])} violations")
    return one


def hurt(scene: Scene, one: dict[str, Any], until: float, most: int, asked: argparse.Namespace) -> None:
    """Fault after fault, until the time is over."""
    deeds = Deeds(scene)
    for step in steps(one["seed"]):
        if asked.only and " ".join(step.kind) != asked.only:
            continue
        if time.monotonic() + step.gap_s + step.hold_s > until or len(one["faults"]) >= most:
            return
        say(f"  {step}")
        for outcome in deeds.play(step):
            one["faults"].append(outcome.as_row())
            fenced = "" if outcome.fenced_s is None else f", fenced after {outcome.fenced_s:.2f} s"
            say(
                f"    #{outcome.number}: {outcome.pending} pending; {outcome.seen}; {outcome.went_on} lines meanwhile"
                f"{fenced}; through after {outcome.recovery_s:.2f} s; load {outcome.load}"
            )
        one["seconds"] = round(time.monotonic() - until + one["minutes"] * 60, 1)
        keep(asked.results, one)


def keep(results: Path | None, one: dict[str, Any]) -> None:
    if results is not None:
        figures.add(results, one)


def keep_logs(folder: Path, name: str) -> None:
    """Logs and journals of a slice that went wrong, for whoever looks into it."""
    kept = Path("/tmp") / f"chaos-{name}"
    kept.mkdir()
    for file in [*folder.glob("*.log"), *folder.glob("journal-*"), *folder.glob("s/*/server.log"), folder / "witness"]:
        if file.exists() and file.stat().st_size < 512 << 20:
            shutil.copy(file, kept / f"{file.parent.name}-{file.name}")
    say(f"logs: {kept}")


@contextlib.contextmanager
def workplace() -> Any:
    """A folder with a small disk in it, and the mark of what is started there; all of it goes with this process."""
    folder, mark = fresh_folder()
    with sweeping(mark, folder):
        try:
            small_disk(folder / "d", DISK_MIB)
            yield folder, mark
        finally:
            remove(folder)


def own_mounts() -> None:
    """A name space of mounts for this process and its children: what is mounted here goes with them."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        sys.exit("This needs root: it mounts small disks, to fill them.")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def commit() -> str:
    """What is tried."""
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return said.stdout.strip()


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
