"""What prefetch brings a user who works 5 ms a poll: the same run with it and without, interleaved.

python -m tests.benchmarks.prefetch [--records 100000] [--rounds 5] [--work-ms 5]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, TopicPartition

TOPIC = "prefetch"


def fill(servers: str, records: int) -> None:
    """Records of 1 KiB in one partition."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)], operation_timeout=20)[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    for number in range(records):
        producer.produce(TOPIC, b"x" * 1024, partition=0)
        if number % 10_000 == 0:
            producer.flush(30)
    assert producer.flush(60) == 0


def run(servers: str, records: int, work_s: float, *, prefetch: bool) -> float:
    """Records a second."""
    tp = TopicPartition(TOPIC, 0)
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", max_partition_fetch_bytes=256 * 1024
    ) as consumer:
        consumer._fetcher.prefetch = prefetch
        consumer.assign([tp])
        consumer.position(tp)
        begun, seen = time.perf_counter(), 0
        while seen < records:
            # One answer a poll, small enough for the socket to hold: without prefetch each is waited for.
            seen += sum(map(len, consumer.poll_columns(1000).values()))
            time.sleep(work_s)  # the user's work, which needs no CPU of ours
        return seen / (time.perf_counter() - begun)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.prefetch", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work-ms", type=float, default=5.0)
    asked = parser.parse_args()
    rates: dict[bool, list[float]] = {True: [], False: []}
    with DevCluster("4") as cluster:
        fill(cluster.bootstrap_servers, asked.records)
        for _ in range(asked.rounds):
            for prefetch, found in rates.items():
                found.append(run(cluster.bootstrap_servers, asked.records, asked.work_ms / 1000, prefetch=prefetch))
    middle = {prefetch: statistics.median(found) for prefetch, found in rates.items()}
    print(f"with prefetch {middle[True]:9.0f}/s   without {middle[False]:9.0f}/s   {middle[True] / middle[False]:.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
