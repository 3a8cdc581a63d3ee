"""From a record's append to the broker's log to the last ack of its tree, at a steady rate.

    python -m tests.benchmarks.latency [--rates 1000 20000 60000] [--seconds 15] [--workers 2]

A producer of librdkafka writes lines at each rate in turn; the broker stamps each on its append (LogAppendTime,
milliseconds) and the spout notes when its tree was complete. Prints p50, p99 and the worst, of the records behind the
first two seconds. The stamps are read back with confluent-kafka.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from array import array
from itertools import cycle
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from streamlet.devcluster.dev_cluster import DevCluster
from tests.benchmarks.word_count import generate

HERE = Path(__file__).resolve().parent
WARM_UP_S = 2.0
TICK_S = 0.002
"""The producer writes what is due this often."""


def produce(servers: str, topic: str, rate: int, seconds: float) -> int:
    """Lines at a steady rate; how many."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "queue.buffering.max.messages": 1_000_000})
    lines = cycle([line.encode() for line in generate(10_000)])
    started, sent = time.monotonic(), 0
    while (passed := time.monotonic() - started) < seconds:
        for _ in range(int(passed * rate) - sent):
            producer.produce(topic, next(lines), partition=0)
            sent += 1
        producer.poll(0)
        time.sleep(TICK_S)
    if producer.flush(30):
        raise SystemExit("the producer could not deliver everything: no figure")
    return sent


def appended(servers: str, topic: str, count: int) -> list[int]:
    """The broker's stamp of each offset, ms."""
    settings = {"bootstrap.servers": servers, "group.id": "stamps", "fetch.queue.backoff.ms": 1}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    stamps: list[int] = []
    while len(stamps) < count:
        stamps += [message.timestamp()[1] for message in consumer.consume(10_000, 1.0)]
    consumer.close()
    return stamps


def measure(cluster: DevCluster, rate: int, seconds: float, workers: int) -> None:
    """One rate; prints its line."""
    topic = f"paced-{rate}"
    cluster.create_topic(topic, 1, configs={"message.timestamp.type": "LogAppendTime"})
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "streamlet", "run", str(HERE / "topology_latency.py"), "--json"]
        command += ["-t", str(int(seconds + 6)), "--workers", str(workers), "-c", f"benchmark.out={out}"]
        command += ["-c", f"lines.hosts=kafka://{cluster.bootstrap_servers}", "-c", f"lines.id=r{rate}"]
        command += ["-c", f"lines.topic={topic}"]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(2.5)  # the run is there before the first record is; a late one would only be slow at first
        sent = produce(cluster.bootstrap_servers, topic, rate, seconds)
        if run.wait(timeout=60):
            raise SystemExit("the run failed: no figure")
        times = array("d")
        times.frombytes(Path(out, "acks.bin").read_bytes())
    acked = {int(offset): at for offset, at in zip(times[::2], times[1::2], strict=True)}
    if len(acked) != sent:
        raise SystemExit(f"{len(acked)} of {sent} records were acked: no figure")
    stamps = appended(cluster.bootstrap_servers, topic, sent)
    warm = stamps[0] + WARM_UP_S * 1000
    waits = sorted(acked[offset] * 1000 - stamp for offset, stamp in enumerate(stamps) if stamp >= warm)
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    told = f"p50 {p50:6.1f} ms, p99 {p99:6.1f} ms, worst {waits[-1]:6.1f} ms"
    print(f"{rate:8,} lines/s: {told} ({len(waits):,} records)", flush=True)


def main() -> None:
    """All rates."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.latency",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rates", type=int, nargs="+", default=[1000, 20_000, 60_000])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with DevCluster(kafka="4", figures=True) as cluster:
        for rate in options.rates:
            measure(cluster, rate, options.seconds, options.workers)


if __name__ == "__main__":
    main()
