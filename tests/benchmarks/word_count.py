"""Word count from a real broker: streamlet against Bytewax, Storm and a hand-written loop, in one interleaved run.

    python -m tests.benchmarks.word_count [--lines 1000000] [--rounds 3] [--storm]

``--storm`` adds Storm 2.8 in Java, in one JVM; it needs a JDK and Maven.

Prints lines/s (median, and every round), the number of processes beside each, and ratios. Every system must have
counted the same words as the generator did, or its figure is not shown. The clock of a system starts with its first
tuple and stops when all is counted; for streamlet that includes the last commit and the drain.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from streamlet.devcluster.dev_cluster import DevCluster

HERE = Path(__file__).parent
TOPIC = "lines"
BY_BATCH = "topology_word_count_by_batch.py"
STORM = "Storm 2.8.2, Java, one JVM"
PLAIN_PYTHON = """
import time
ends, rounds, counts = time.perf_counter() + 1.0, 0, {}
while time.perf_counter() < ends:
    for word in ("the", "quick", "brown", "fox"):
        counts[word] = counts.get(word, 0) + len([word, rounds])
    rounds += 1
print(rounds)
"""


def generate(lines: int) -> Iterator[str]:
    """Six words of three to nine letters a line, out of 5 000."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(5000)]
    for _ in range(lines):
        yield " ".join(rng.choices(words, k=6))


def two_processes(rounds: int) -> float:
    """What two processes of plain Python do at once, as a multiple of one alone: no second worker gives more here."""

    def done(processes: int) -> int:
        command = [sys.executable, "-c", PLAIN_PYTHON]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        return sum(int(each.communicate()[0]) for each in running)

    return statistics.median(done(2) / done(1) for _ in range(rounds))


class Rig:
    """The broker, the truth, and how each system is run."""

    def __init__(self, cluster: DevCluster, lines: int) -> None:
        self.cluster = cluster
        self.lines = lines
        self.truth: Counter[str] = Counter()
        for line in generate(lines):
            self.truth.update(line.split())
        self.run = 0

    def streamlet(self, workers: int, *settings: str, topology: str = "topology_word_count.py") -> float:
        """``streamlet run`` to the end; lines/s."""
        more = [word for setting in settings for word in ("-c", setting)]
        return self.run_with(["--workers", str(workers), *more], topology)

    def run_with(self, options: list[str], topology: str = "topology_word_count.py") -> float:
        """``streamlet run`` with some options, to the end; lines/s."""
        self.run += 1
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "streamlet", "run", str(HERE / topology)]
            command += ["--until-caught-up", "--json", *options, "-c", f"benchmark.out={out}"]
            command += ["-c", f"lines.hosts=kafka://{self.cluster.bootstrap_servers}", "-c", f"lines.id=r{self.run}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            return self.rate(Path(out))

    def rival(self, *command: str) -> float:
        """A rival's program to its end; lines/s."""
        with tempfile.TemporaryDirectory() as out:
            env = {
                **os.environ,
                "BENCHMARK_BOOTSTRAP": self.cluster.bootstrap_servers,
                "BENCHMARK_TOPIC": TOPIC,
                "BENCHMARK_LINES": str(self.lines),
                "BENCHMARK_OUT": out,
            }
            subprocess.run([sys.executable, *command], check=True, env=env, stdout=subprocess.DEVNULL)
            return self.rate(Path(out))

    def rate(self, folder: Path) -> float:
        """Lines/s from the files a system wrote, after its counts were compared with the truth."""
        results = [json.loads(path.read_text()) for path in folder.glob("*.json")]
        counted: Counter[str] = Counter()
        for result in results:
            counted.update(result["counts"])
        if counted != self.truth:
            raise SystemExit(f"counted {counted.total()} words instead of {self.truth.total()}: no figure")
        first = min(result["first"] for result in results if result["first"])
        return self.lines / (max(result["last"] for result in results) - first)

    def start_to_first_tuple(self) -> float:
        """Seconds from the command to the first tuple counted, two workers."""
        self.run += 1
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "streamlet", "run", str(HERE / "topology_word_count.py"), "-t", "3"]
            command += ["--json", "--workers", "2", "-c", f"benchmark.out={out}"]
            command += ["-c", f"lines.hosts=kafka://{self.cluster.bootstrap_servers}", "-c", f"lines.id=r{self.run}"]
            started = time.time()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            firsts = [json.loads(path.read_text())["first"] for path in Path(out).glob("*.json")]
            return min(first for first in firsts if first) - started


def main() -> None:
    """Run everything, print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.word_count",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--storm", action="store_true")
    options = parser.parse_args()
    storm = str(HERE / "rivals" / "storm_word_count.py")
    if options.storm:
        subprocess.run([sys.executable, storm, "prepare"], check=True)
    with DevCluster(kafka="4", figures=True) as cluster:
        cluster.create_topic(TOPIC, 2)
        cluster.produce(TOPIC, generate(options.lines))
        rig = Rig(cluster, options.lines)
        bytewax = str(HERE / "rivals" / "bytewax_word_count.py") + ":flow"
        systems: dict[str, tuple[int, Callable[[], float]]] = {
            "streamlet, 1 worker": (1, lambda: rig.streamlet(1)),
            "streamlet, 2 workers": (2, lambda: rig.streamlet(2)),
            "streamlet by batch, 1 worker": (1, lambda: rig.streamlet(1, topology=BY_BATCH)),
            "streamlet by batch, 2 workers": (2, lambda: rig.streamlet(2, topology=BY_BATCH)),
            "streamlet, 1 worker, tracking off": (1, lambda: rig.streamlet(1, "topology.acker.executors=0")),
            "bytewax, 1 worker": (1, lambda: rig.rival("-m", "bytewax.run", bytewax)),
            "bytewax, 2 processes": (2, lambda: rig.rival("-m", "bytewax.testing", "-p2", "-w1", bytewax)),
            "confluent-kafka loop": (1, lambda: rig.rival(str(HERE / "rivals" / "loop_word_count.py"))),
        }
        if options.storm:
            systems[STORM] = (1, lambda: rig.rival(storm))
        rates: dict[str, list[float]] = {name: [] for name in systems}
        for _ in range(options.rounds):
            for name, (_, run) in systems.items():
                rates[name].append(run())
                print(f"  {name}: {rates[name][-1]:,.0f} lines/s", file=sys.stderr, flush=True)
        start_s = statistics.median(rig.start_to_first_tuple() for _ in range(options.rounds))
        scale = two_processes(options.rounds)
    report(systems, rates, start_s)
    print(f"plain Python, 2 processes : 1      {scale:.2f} x, beside the idle broker")


def report(systems: dict[str, tuple[int, Callable[[], float]]], rates: dict[str, list[float]], start_s: float) -> None:
    """The table and the ratios of issue and design."""
    print(f"{'system':36} {'processes':>9} {'lines/s':>10}   rounds")
    for name, (processes, _) in systems.items():
        rounds = ", ".join(f"{rate:,.0f}" for rate in rates[name])
        print(f"{name:36} {processes:9} {statistics.median(rates[name]):10,.0f}   {rounds}")
    middle = {name: statistics.median(values) for name, values in rates.items()}
    print()
    print(f"1 worker : Bytewax 1 worker        {middle['streamlet, 1 worker'] / middle['bytewax, 1 worker']:.2f} x")
    print(f"2 workers : Bytewax 1 worker       {middle['streamlet, 2 workers'] / middle['bytewax, 1 worker']:.2f} x")
    print(f"2 workers : Bytewax 2 processes    {middle['streamlet, 2 workers'] / middle['bytewax, 2 processes']:.2f} x")
    batch, two_by_batch = middle["streamlet by batch, 1 worker"], middle["streamlet by batch, 2 workers"]
    print(f"by batch : tuple by tuple, 1       {batch / middle['streamlet, 1 worker']:.2f} x")
    print(f"by batch, 1 : Bytewax 1 worker     {batch / middle['bytewax, 1 worker']:.2f} x")
    print(f"by batch, 2 workers : 1 worker     {two_by_batch / batch:.2f} x")
    if STORM in middle:
        print(f"2 workers : Storm in Java          {middle['streamlet, 2 workers'] / middle[STORM]:.2f} x")
    off = middle["streamlet, 1 worker, tracking off"]
    print(f"tracking on : off                  {middle['streamlet, 1 worker'] / off:.2f} x")
    print(f"start to first tuple, 2 workers    {start_s:.2f} s")


if __name__ == "__main__":
    main()
