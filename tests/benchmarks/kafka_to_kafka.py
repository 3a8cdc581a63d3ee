"""From topic to topic: KafkaSpout to KafkaBolt against a loop, Bytewax and Quix Streams, in one interleaved run.

    python -m tests.benchmarks.kafka_to_kafka [--lines 500000] [--rounds 3]

Each system reads lines, makes a key of the first word and a value of the line in capitals, and writes both with acks of
all replicas, idempotent. Prints records/s (median, and every round), ratios, and the CPU time of the system's processes
for a record, start and end included: that figure depends least on what else runs on the machine. The output topic's
broker stamps each record as it is appended; the clock goes from the first stamp to the last. A figure is shown only if
librdkafka reads back exactly the records that the lines give, each once.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.devcluster.dev_cluster import DevCluster
from tests.benchmarks.word_count import generate

HERE = Path(__file__).parent
TOPIC = "lines"
PARTITIONS = 2
EXACTLY = "topology.delivery=exactly-once"


def cpu_of_children_s() -> float:
    """Return the CPU seconds of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Rig:
    """The broker, the truth, and how each system is run."""

    def __init__(self, cluster: DevCluster, lines: int) -> None:
        self.servers = cluster.bootstrap_servers
        self.lines = lines
        self.truth = Counter((line.split(" ", 1)[0].encode(), line.upper().encode()) for line in generate(lines))
        self.runs = 0
        self.cpu_us: dict[str, list[float]] = defaultdict(list)
        """CPU microseconds a record, of each run of a system."""
        self.name = ""
        """The system that runs now."""

    def run(self, *command: str, **environment: str) -> float:
        """Run a system to its end; records/s."""
        self.runs += 1
        output = f"out-{self.runs}"
        topic = NewTopic(output, PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"})
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([topic])[output].result(30)
        env = {"BENCHMARK_BOOTSTRAP": self.servers, "BENCHMARK_TOPIC": TOPIC, "BENCHMARK_OUTPUT": output}
        before = cpu_of_children_s()
        subprocess.run(
            [sys.executable, *command], check=True, env={**os.environ, **env, **environment}, stdout=subprocess.DEVNULL
        )
        self.cpu_us[self.name].append((cpu_of_children_s() - before) / self.lines * 1e6)
        return self.rate(output)

    def streamlet(self, workers: int, *settings: str, **environment: str) -> float:
        """``streamlet run`` to its end; records/s."""
        command = ["-m", "streamlet", "run", str(HERE / "topology_kafka_to_kafka.py"), "--until-caught-up", "--json"]
        more = [part for setting in settings for part in ("-c", setting)]
        return self.run(*command, "--workers", str(workers), *more, **environment)

    def rate(self, output: str) -> float:
        """Records/s by the stamps of a topic's records, after these were compared with the truth."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": output, "enable.auto.commit": False})
        consumer.assign([TopicPartition(output, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        found: Counter[tuple[bytes | None, bytes | None]] = Counter()
        first, last = float("inf"), 0.0
        while messages := consumer.consume(10_000, 3.0):
            stamps = [message.timestamp()[1] for message in messages]
            first, last = min(first, *stamps), max(last, *stamps)
            found.update((message.key(), message.value()) for message in messages)
        consumer.close()
        if found != self.truth:
            raise SystemExit(f"{output} has {found.total()} records instead of {self.lines}, or others: no figure")
        return self.lines / (last - first) * 1000


def main() -> None:
    """Run everything, print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.kafka_to_kafka",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lines", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only systems whose name has this text")
    options = parser.parse_args()
    with DevCluster(kafka="4", figures=True) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        cluster.produce(TOPIC, generate(options.lines))
        rig = Rig(cluster, options.lines)
        bytewax = str(HERE / "rivals" / "bytewax_kafka_to_kafka.py") + ":flow"
        systems: dict[str, Callable[[], float]] = {
            "streamlet, 1 worker": lambda: rig.streamlet(1),
            "streamlet by batch, 1 worker": lambda: rig.streamlet(1, BENCHMARK_BY_BATCH="1"),
            "streamlet by batch, 2 workers": lambda: rig.streamlet(2, BENCHMARK_BY_BATCH="1"),
            "streamlet, exactly once, 1 worker": lambda: rig.streamlet(1, EXACTLY),
            "streamlet by batch, exactly once, 1 worker": lambda: rig.streamlet(1, EXACTLY, BENCHMARK_BY_BATCH="1"),
            "streamlet by batch, exactly once, 2 workers": lambda: rig.streamlet(2, EXACTLY, BENCHMARK_BY_BATCH="1"),
            "bytewax, 1 worker": lambda: rig.run("-m", "bytewax.run", bytewax),
            "quix streams, 1 process": lambda: rig.run(str(HERE / "rivals" / "quix_kafka_to_kafka.py")),
            "confluent-kafka loop": lambda: rig.run(str(HERE / "rivals" / "loop_kafka_to_kafka.py")),
        }
        rates: dict[str, list[float]] = {name: [] for name in systems if options.only in name}
        for _ in range(options.rounds):
            for name, row in rates.items():
                rig.name = name
                row.append(systems[name]())
                print(f"  {name}: {row[-1]:,.0f} records/s", file=sys.stderr, flush=True)
    report(rates, rig.cpu_us)


def report(rates: dict[str, list[float]], cpu_us: dict[str, list[float]]) -> None:
    """Print the table and the ratios."""
    middle = {name: statistics.median(row) for name, row in rates.items()}
    for name, row in rates.items():
        rounds = ", ".join(f"{rate:,.0f}" for rate in row)
        print(f"{name:44} {middle[name]:10,.0f} /s  {statistics.median(cpu_us[name]):5.1f} us   {rounds}")
    print()
    for name in rates:
        for rival in ("bytewax, 1 worker", "quix streams, 1 process", "confluent-kafka loop"):
            if name.startswith("streamlet") and rival in middle:
                print(f"{name:44} : {rival:24} {middle[name] / middle[rival]:.2f} x")
        same = name.replace(", exactly once", "")
        if same != name and same in middle:
            print(f"{name:44} : {'at least once':24} {middle[name] / middle[same]:.2f} x")


if __name__ == "__main__":
    main()
