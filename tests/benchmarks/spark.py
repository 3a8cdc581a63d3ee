"""A resident topology on Spark's executors: against worker processes, and against Structured Streaming.

    python -m tests.benchmarks.spark [--lines 1500000] [--rounds 3] [--rates 100 1000] [--seconds 40] [--only TEXT]

Three jobs, each printed with its ratios or milliseconds, all beside one real broker:

- words: the word count to the end of its topic, on processes and on executors, with one and with two workers,
  interleaved; lines a second. Every run must have counted the generator's words.
- live: from a record's append to its last ack at steady rates, and from its append to the end of the micro-batch that
  counted it, in a query of Structured Streaming over Spark's own connector, triggered without a pause.
- start: from the command, and from ``run`` in a session that stands, to the first tuple counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from streamlet.backends import SparkBackend
from streamlet.base.environment import environment
from streamlet.devcluster import DevCluster
from tests.benchmarks.live import Load, report
from tests.benchmarks.live import Rig as LiveRig
from tests.benchmarks.spark_source import stop
from tests.benchmarks.topology_word_count import WordCount
from tests.benchmarks.word_count import TOPIC, Rig, generate
from tests.spark_connector import connector
from tests.spark_home import linked_home

HERE = Path(__file__).parent
SLOTS = (1, 2)
SPARK_LEAD_S = 15.0
"""Seconds until a session and its executors are there."""
SPARK_WARM_UP_S = 20.0
"""Seconds of load that do not count: the first micro-batches take several seconds each."""


def on_spark(workers: int) -> list[str]:
    """Return the options of ``streamlet run`` for so many executors of one core."""
    return ["--workers", str(workers), "--spark", f"local-cluster[{workers},1,1024]"]


def count_words(cluster: DevCluster, lines: int, rounds: int) -> None:
    """Print lines/s on processes and on executors, in turns, and their ratio."""
    cluster.create_topic(TOPIC, 2)
    cluster.produce(TOPIC, generate(lines))
    rig = Rig(cluster, lines)
    for workers in SLOTS:
        ways = {"processes": ["--workers", str(workers)], "Spark": on_spark(workers)}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            for name in sorted(ways, reverse=number % 2 == 1):
                rates[name].append(rig.run_with(ways[name]))
        ratios = [there / here for there, here in zip(rates["Spark"], rates["processes"], strict=True)]
        shown = ", ".join(f"{name} {statistics.median(found):,.0f}/s" for name, found in rates.items())
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(
            f"words, {workers} workers: {shown}, Spark : processes {statistics.median(ratios):.2f} ({each})", flush=True
        )


def live(cluster: DevCluster, rates: list[int], seconds: float) -> None:
    """Print the milliseconds of lines on executors, and of those in a query of Structured Streaming."""
    rig = LiveRig(cluster)
    _, jars = connector()
    query = [str(HERE / "rivals" / "live_structured.py"), ",".join(map(str, jars))]
    systems = {
        "Spark executors": lambda *run: rig.streamlet(*run, *on_spark(1)),
        "Structured Str.": lambda *run: rig.rival(*run, *query),
    }
    with tempfile.TemporaryDirectory() as folder, environment({"SPARK_HOME": str(linked_home(Path(folder)))}):
        for rate in rates:
            load = Load(rate, 5.0, seconds)
            for name, start in systems.items():
                report(name, load, [rig.measure(start, load, SPARK_LEAD_S, SPARK_WARM_UP_S)])


def start(cluster: DevCluster, rounds: int) -> None:
    """Print the seconds to a first tuple: from the command, and from ``run`` in a session that stands."""
    topic = "starts"
    cluster.create_topic(topic, 2)
    cluster.produce(topic, generate(1000))
    hosts = f"kafka://{cluster.bootstrap_servers}"
    cold, warm = [], []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "streamlet", "run", str(HERE / "topology_word_count.py"), "--json"]
            command += ["--until-caught-up", *on_spark(2), "-c", f"benchmark.out={out}", "-c", f"lines.hosts={hosts}"]
            started = time.time()
            subprocess.run(
                [*command, "-c", f"lines.id=cold{number}", "-c", f"lines.topic={topic}"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            cold.append(_first(out) - started)
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR").getOrCreate()
    try:
        for number in range(rounds + 1):
            with tempfile.TemporaryDirectory() as out:
                settings = {"benchmark.out": out, "lines.hosts": hosts, "lines.id": f"warm{number}"}
                started = time.time()
                WordCount.run(
                    backend=SparkBackend(spark),
                    workers=2,
                    until_caught_up=True,
                    settings={**settings, "lines.topic": topic},
                )
                warm.append(_first(out) - started)
    finally:
        stop(spark)
    # The first run in a session pays for the executors and their first Python.
    print(f"start to first tuple: command {_shown(cold)}; session {warm[0]:.2f} s, then {_shown(warm[1:])}", flush=True)


def _first(out: str) -> float:
    """Return when the first tuple was counted, seconds since the epoch."""
    firsts = [json.loads(path.read_text())["first"] for path in Path(out).glob("*.json")]
    return min(first for first in firsts if first)


def _shown(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s ({', '.join(f'{each:.2f}' for each in seconds)})"


def main() -> None:
    """Run the jobs whose name has the text of ``--only``."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lines", type=int, default=1_500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with DevCluster(kafka="4", figures=True) as cluster:
        if options.only in "words":
            count_words(cluster, options.lines, options.rounds)
        if options.only in "live":
            live(cluster, options.rates, options.seconds)
        if options.only in "start":
            start(cluster, options.rounds)


if __name__ == "__main__":
    main()
