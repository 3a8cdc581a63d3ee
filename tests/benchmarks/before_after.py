"""This tree against an older one, in one interleaved run: word count, producer and consumer on one real broker.

    git worktree add ../before COMMIT
    python -m tests.benchmarks.before_after ../before [--rounds 5] [--lines 400000] [--records 500000] [--only TEXT]
    python -m tests.benchmarks.before_after ../before --at-once [--rounds 5] [--lines 400000]

Every round runs each job once in both trees, in alternating order. Prints the ratio after : before of each round's
pair, for the rate and for the CPU (before : after, so that above 1 is better in both), with the median.

``--at-once``: the word count with one worker alone, in both trees at the same time, each on a core of its own, and the
cores change each round. What else the machine does meets both.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from streamlet.devcluster import DevCluster
from tests.benchmarks import client, word_count

HERE = Path(__file__).parents[2]
JOBS = ("streamlet-produce", "streamlet-produce-many", "streamlet-consume", "streamlet-consume-columns")


class Sample(NamedTuple):
    """One run of one job in one tree."""

    rate: float
    cpu_s: float


class Trees:
    """Runs jobs in either tree; the programs that measure are each tree's own."""

    def __init__(self, cluster: DevCluster, lines: int, records: int) -> None:
        self._cluster, self._records = cluster, records
        self._words = word_count.Rig(cluster, lines)
        self._number = 0

    def count_words(self, tree: Path, workers: int) -> Sample:
        """``streamlet run`` to the end of the topic."""
        with tempfile.TemporaryDirectory() as out:
            _, cpu_s = self._run(tree, self._word_count(tree, workers, out))
            return Sample(self._words.rate(Path(out)), cpu_s)

    def count_words_at_once(self, core_of: dict[Path, int]) -> dict[Path, Sample]:
        """Run the word count in each tree at the same time, in one worker, on the core given."""
        with tempfile.TemporaryDirectory() as folder:
            running = {}
            for tree, core in core_of.items():
                out = Path(folder) / str(core)
                out.mkdir()
                command = ["taskset", "-c", str(core), sys.executable, *self._word_count(tree, 1, str(out))]
                running[tree] = subprocess.Popen(
                    command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, stdout=subprocess.DEVNULL
                )
            found = {}
            for tree, core in core_of.items():
                _, status, used = os.wait4(running[tree].pid, 0)
                running[tree].returncode = os.waitstatus_to_exitcode(status)
                assert running[tree].returncode == 0, f"{tree} ended with {running[tree].returncode}"
                rate = self._words.rate(Path(folder) / str(core))
                found[tree] = Sample(rate, used.ru_utime + used.ru_stime)
            return found

    def _word_count(self, tree: Path, workers: int, out: str) -> list[str]:
        self._number += 1
        topology = tree / "tests" / "benchmarks" / "topology_word_count.py"
        command = ["-m", "streamlet", "run", str(topology), "--until-caught-up", "--json"]
        command += ["--workers", str(workers), "-c", f"benchmark.out={out}", "-c", f"lines.id=b{self._number}"]
        return [*command, "-c", f"lines.hosts=kafka://{self._cluster.bootstrap_servers}"]

    def client(self, tree: Path, job: str, source: str) -> Sample:
        """One of our clients' jobs; a producer writes into a topic of its own."""
        self._number += 1
        topic = source if "consume" in job else f"produced-{self._number}"
        if topic != source:
            self._cluster.create_topic(topic, client.PARTITIONS)
        command = ["-m", "tests.benchmarks.rivals.clients", job, "--topic", topic, "--size", "100"]
        command += ["--servers", self._cluster.bootstrap_servers, "--records", str(self._records)]
        found = json.loads(self._run(tree, command)[0].splitlines()[-1])
        return Sample(found["records"] / found["seconds"], found["cpu_us"])

    def _run(self, tree: Path, command: list[str]) -> tuple[str, float]:
        def cpu_s() -> float:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            return used.ru_utime + used.ru_stime

        before = cpu_s()
        env = {**os.environ, "PYTHONPATH": str(tree)}
        done = subprocess.run(
            [sys.executable, *command], check=True, cwd=tree, env=env, stdout=subprocess.PIPE, text=True, timeout=600
        )
        return done.stdout, cpu_s() - before


def main() -> None:
    """Run every job in both trees and print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.before_after", description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", type=int, default=400_000)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--only", default="", help="jobs whose name has this text")
    parser.add_argument("--at-once", action="store_true", help="one word count in each tree, at the same time")
    options = parser.parse_args()
    trees = (options.before.resolve(), HERE)
    with DevCluster(kafka="4", figures=True) as cluster:
        cluster.create_topic(word_count.TOPIC, 2)
        cluster.produce(word_count.TOPIC, word_count.generate(options.lines))
        if options.at_once:
            both = Trees(cluster, options.lines, 0)
            cores = sorted(os.sched_getaffinity(0))[:2]
            pairs = [
                both.count_words_at_once(dict(zip(trees, cores[:: 1 - number % 2 * 2], strict=True)))
                for number in range(options.rounds)
            ]
            _print("word count, both at once", [(found[trees[0]], found[trees[1]]) for found in pairs])
            return
        cluster.create_topic("source", client.PARTITIONS)
        rig = client.Rig(cluster, options.records)
        for _ in range(2):  # a consumer that takes more than it needs in its last poll must find them
            rig.run("streamlet-produce-many", "source", 100)
        both = Trees(cluster, options.lines, options.records)
        jobs: dict[str, Callable[[Path], Sample]] = {
            "word count, one worker": lambda tree: both.count_words(tree, 1),
            "word count, two workers": lambda tree: both.count_words(tree, 2),
            **{job: lambda tree, job=job: both.client(tree, job, "source") for job in JOBS},  # type: ignore[misc]
        }
        for name, job in jobs.items():
            if options.only not in name:
                continue
            samples = []
            for number in range(options.rounds):
                order = trees if number % 2 == 0 else trees[::-1]
                found = {tree: job(tree) for tree in order}
                samples.append((found[trees[0]], found[trees[1]]))
            _print(name, samples)


def _print(name: str, pairs: list[tuple[Sample, Sample]]) -> None:
    """Print the ratios of pairs: before, after."""
    rates = [after.rate / before.rate for before, after in pairs]
    cpus = [before.cpu_s / after.cpu_s for before, after in pairs]
    print(f"{name:28} rate {_shown(rates)}   CPU {_shown(cpus)}", flush=True)


def _shown(ratios: list[float]) -> str:
    """Return the median of the pairs' ratios, and each of them."""
    return f"{statistics.median(ratios):.3f} ({' '.join(f'{ratio:.2f}' for ratio in ratios)})"


if __name__ == "__main__":
    main()
