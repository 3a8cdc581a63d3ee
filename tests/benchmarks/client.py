"""Our producer and consumer against aiokafka, kafka-python and confluent-kafka, on one real broker.

    pip install aiokafka kafka-python confluent-kafka
    python -m tests.benchmarks.client [--records 500000] [--rounds 3] [--sizes 100 1024]

Every client runs in a process of its own; the rounds are interleaved. Prints records/s (median, and every round), CPU
microseconds a record and peak memory of the process, then the ratios. What a producer says it wrote is compared with
the broker's log end, or there is no figure. acks=all, linger 5 ms, otherwise each client's defaults.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
from typing import NamedTuple

from streamlet.devcluster.dev_cluster import DevCluster
from tests.benchmarks.rivals.clients import JOBS, PARTITIONS

PRODUCERS = [name for name in JOBS if "-produce" in name]
CONSUMERS = [name for name in JOBS if "-consume" in name]
SLOW = "kafka-python"
"""A client that gets a quarter of the records: its rate does not depend on them, and it is slow."""


class Figure(NamedTuple):
    """One run of one client."""

    rate: float
    cpu_us: float
    peak_mib: float


class Rig:
    """The broker, and how a client is run against it."""

    def __init__(self, cluster: DevCluster, records: int) -> None:
        self.cluster = cluster
        self.records = records
        self._topics = 0

    def run(self, job: str, topic: str, size: int) -> Figure:
        """One client, one job."""
        records = self.records // 4 if job.startswith(SLOW) else self.records
        command = [sys.executable, "-m", "tests.benchmarks.rivals.clients", job, "--topic", topic]
        command += ["--servers", self.cluster.bootstrap_servers, "--records", str(records), "--size", str(size)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
        found = json.loads(done.stdout.splitlines()[-1])
        return Figure(found["records"] / found["seconds"], found["cpu_us"], found["peak_mib"])

    def produce(self, job: str, size: int) -> Figure:
        """Into a topic of its own, whose log end must be what was sent."""
        self._topics += 1
        topic = f"produced-{self._topics}"
        self.cluster.create_topic(topic, PARTITIONS)
        figure = self.run(job, topic, size)
        wanted = self.records // 4 if job.startswith(SLOW) else self.records
        stored = sum(self.cluster.log_end_offsets(topic).values())
        if stored != wanted:
            raise SystemExit(f"{job}: the broker has {stored} records instead of {wanted}: no figure")
        return figure


def measure(rig: Rig, size: int, rounds: int) -> dict[str, list[Figure]]:
    """All clients with values of this size; the consumers read what one producer wrote."""
    source = f"source-{size}"
    rig.cluster.create_topic(source, PARTITIONS)
    # Twice the records: a consumer that takes more than it needs in its last poll must find them.
    for _ in range(2):
        rig.run("confluent-kafka-produce", source, size)
    found: dict[str, list[Figure]] = {name: [] for name in (*PRODUCERS, *CONSUMERS)}
    for _ in range(rounds):
        for name, figures in found.items():
            figures.append(rig.produce(name, size) if name in PRODUCERS else rig.run(name, source, size))
            print(f"  {size} bytes, {name}: {figures[-1].rate:,.0f} records/s", file=sys.stderr, flush=True)
    return found


def report(size: int, found: dict[str, list[Figure]]) -> None:
    """The table and the ratios that were promised."""
    print(f"\n{f'values of {size} bytes':30} {'records/s':>10} {'CPU us':>8} {'peak MiB':>9}   rounds")
    middle: dict[str, float] = {}
    for name, figures in found.items():
        middle[name] = statistics.median(figure.rate for figure in figures)
        cpu = statistics.median(figure.cpu_us for figure in figures)
        peak = statistics.median(figure.peak_mib for figure in figures)
        rounds = ", ".join(f"{figure.rate:,.0f}" for figure in figures)
        print(f"{name:30} {middle[name]:10,.0f} {cpu:8.2f} {peak:9.0f}   {rounds}")
    for ours, theirs, wanted in (
        ("streamlet-consume-columns", "aiokafka-consume", "1.0, better 1.5"),
        ("streamlet-consume", "aiokafka-consume", "0.5, better 1.0"),
        ("streamlet-produce", "aiokafka-produce", "1.5, better 2.5"),
        ("streamlet-produce-many", "aiokafka-produce", "1.5, better 2.5"),
        ("streamlet-produce", "kafka-python-produce", "5"),
    ):
        print(f"{ours} : {theirs} = {middle[ours] / middle[theirs]:.2f} x (wanted {wanted})")


def main() -> None:
    """Run everything, print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.client",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1024])
    options = parser.parse_args()
    missing = [name for name in ("aiokafka", "kafka", "confluent_kafka") if importlib.util.find_spec(name) is None]
    if missing:
        parser.error(
            f"{', '.join(missing)} cannot be imported: pip install aiokafka kafka-python confluent-kafka first."
        )
    with DevCluster(kafka="4", figures=True) as cluster:
        rig = Rig(cluster, options.records)
        for size in options.sizes:
            report(size, measure(rig, size, options.rounds))


if __name__ == "__main__":
    main()
