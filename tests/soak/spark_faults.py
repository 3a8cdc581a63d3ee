"""Faults in a row on a standalone Spark over three hosts, under a topology that Kafka feeds and that must lose nothing.

    python -m tests.soak.spark_faults --faults 40 [--seed N] [--tuples 1000000] [--only "kill python"] [--tls]

Prints the seed, each fault with what was open and how long the recovery took, and the table. Ends with 1 when anything
did not hold. As root: the hosts are network namespaces, which end with the script, as does all that it has started.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.faults.evidence import WORDS
from tests.soak.chaos import figures, spark_figures
from tests.soak.chaos.scene import fresh_folder
from tests.soak.chaos.spark_deeds import SparkDeeds
from tests.soak.chaos.spark_scene import SparkScene
from tests.soak.long_faults import commit, say

RATE = 1700.0
"""Tuples a second: forty faults take about as long as a million tuples at this rate."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.spark_faults", description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--tuples", type=int, default=1_000_000, help="at least so many go through the topology")
    parser.add_argument("--rate", type=float, default=RATE, help="tuples a second")
    parser.add_argument("--only", choices=spark_figures.KINDS, help="faults of this kind alone")
    parser.add_argument("--tls", action="store_true", help="links are encrypted")
    parser.add_argument("--results", type=Path, help="add the run to those in this file, and print the sum")
    parser.add_argument("--busy", action="store_true", help="the machine has other work: tell times, judge none")
    asked = parser.parse_args()
    made = play(random.SystemRandom().getrandbits(31) if asked.seed is None else asked.seed, asked)
    runs = figures.add(asked.results, made) if asked.results else [made]
    print(spark_figures.table(runs))
    wrong = spark_figures.verdict(runs, judge_times=not asked.busy)
    print("\n".join(f"NOT HELD: {line}" for line in wrong) or "everything held")
    return 1 if wrong else 0


def play(seed: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One run of the script, with all its faults."""
    one: dict[str, Any] = {
        "id": f"{int(time.time())}-{seed}", "seed": seed, "commit": commit(), "tls": asked.tls, "faults": [],
        "violations": [], "figures": None, "seconds": 0.0,
    }  # fmt: skip
    began = time.monotonic()
    folder, _ = fresh_folder()
    say(f"run in {folder}: --seed {seed}, commit {one['commit']}")
    try:
        conf = {"streamlet.links.tls": "true"} if asked.tls else {}
        with SparkScene(folder, seed, asked.rate / (1 + WORDS), conf, say) as scene:
            one["violations"] = scene.violations
            hurt(scene, one, asked)
            one["figures"] = scene.finish(asked.tuples // (1 + WORDS))
    except Exception:
        one["violations"].append(f"the run broke off: {traceback.format_exc()}")
        say(one["violations"][-1])
    one["seconds"] = round(time.monotonic() - began, 1)
    if one["violations"]:
        keep_logs(folder, one["id"])
    shutil.rmtree(folder, ignore_errors=True)
    return one


def hurt(scene: SparkScene, one: dict[str, Any], asked: argparse.Namespace) -> None:
    """Fault after fault. After one that the run does not come through it is started again, which is a violation."""
    deeds = SparkDeeds(scene, one["seed"])
    kinds = spark_figures.schedule(one["seed"], asked.only)
    for number in range(1, asked.faults + 1):
        kind = next(kinds)
        outcome = deeds.play(number, kind)
        if outcome is None:
            continue
        one["faults"].append(outcome.as_row())
        say(
            f"  #{number} {kind}: {outcome.pending} trees open; {outcome.seen}; "
            f"through after {outcome.recovery_s:.2f} s; {scene.tally.done} lines done; load {outcome.load}"
        )


def keep_logs(folder: Path, name: str) -> None:
    """Logs of a run that went wrong, for whoever looks into it."""
    kept = Path(tempfile.gettempdir()) / f"spark-chaos-{name}"
    logs = [*folder.glob("*.log"), *folder.glob("*/server.log"), *folder.rglob("stderr")]
    for file in [*logs, folder / "witness"]:
        if file.exists():
            target = kept / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    say(f"logs: {kept}")


if __name__ == "__main__":
    sys.exit(main())
