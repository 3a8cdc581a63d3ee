"""What 2 % poison records cost the others, with dead letters: three ways in one interleaved run.

    python -m tests.benchmarks.dead_letters [--records 300000] [--rounds 3] [--work-us 0]

One worker reads numbers from a topic; a bolt raises on poison, each of which is tried three times and goes to the dead
letters. Prints the records/s of those that are no poison, from the first that is done to the last (median, and every
round), and the ratios to the same records without poison: with ``on_poison="stop"``, and with dead letters on, which
keeps the records as they were read. A figure is shown only if all others are done and every poison record is in the
topic once. ``--work-us``: work of the bolt for a tuple; without any, all that is compared is streamlet's own path.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from streamlet.devcluster.dev_cluster import DevCluster
from tests.read_back import read_back

HERE = Path(__file__).parent
PARTITIONS = 2
EVERY = 50
"""One record in so many is poison."""

WAYS = {
    "without poison, stop": ("clean", "stop"),
    "without poison, dead letters": ("clean", "dead-letter"),
    "2 % poison, dead letters": ("poisoned", "dead-letter"),
}


class Rig:
    """The broker, and how each way is run."""

    def __init__(self, cluster: DevCluster, records: int, work_us: int, folder: Path) -> None:
        self.cluster, self.records, self.work_us, self.folder = cluster, records, work_us, folder
        self.runs = 0
        for topic in ("clean", "poisoned"):
            cluster.create_topic(topic, PARTITIONS)
            poison = topic == "poisoned"
            cluster.produce(topic, (f"{n:08d}" + "x" * (poison and n % EVERY == 0) for n in range(records)))

    def rate(self, topic: str, on_poison: str) -> float:
        """Run to the end; return the records/s of those that are no poison."""
        self.runs += 1
        letters, output = f"letters-{self.runs}", self.folder / f"out-{self.runs}"
        self.cluster.create_topic(letters, PARTITIONS)
        names = {
            "BOOTSTRAP": self.cluster.bootstrap_servers,
            "TOPIC": topic,
            "ID": letters,
            "LETTERS": letters,
            "ON_POISON": on_poison,
            "OUTPUT": str(output),
            "WORK_US": str(self.work_us),
        }
        file = str(HERE / "topology_dead_letters.py")
        subprocess.run(
            [sys.executable, "-m", "streamlet", "run", file, "--until-caught-up", "--json", "--workers", "1"],
            check=True,
            env={**os.environ, **{f"BENCHMARK_{name}": value for name, value in names.items()}},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        done, seconds = json.loads(output.read_text())
        poison = -(-self.records // EVERY) if topic == "poisoned" else 0
        kept = read_back(self.cluster, letters, poison) if poison else []
        if done != self.records - poison or len(kept) != poison or len({row.value for row in kept}) != poison:
            raise SystemExit(f"{done} of {self.records} done, {len(kept)} of {poison} dead letters: no figure")
        return float(done / seconds)


def main() -> None:
    """Run everything, print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.dead_letters",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work-us", type=int, default=0)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    with DevCluster(kafka="4", figures=True) as cluster, tempfile.TemporaryDirectory() as folder:
        rig = Rig(cluster, options.records, options.work_us, Path(folder))
        for _ in range(options.rounds):
            for name, row in rates.items():
                row.append(rig.rate(*WAYS[name]))
                print(f"  {name}: {row[-1]:,.0f} records/s", file=sys.stderr, flush=True)
    middle = {name: statistics.median(row) for name, row in rates.items()}
    for name, row in rates.items():
        rounds = ", ".join(f"{rate:,.0f}" for rate in row)
        print(f"{name:30} {middle[name]:10,.0f} /s   {rounds}")
    print()
    poisoned = middle["2 % poison, dead letters"]
    for name in list(WAYS)[:2]:
        print(f"2 % poison, dead letters : {name:30} {poisoned / middle[name]:.2f} x")


if __name__ == "__main__":
    main()
