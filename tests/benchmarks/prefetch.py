"""What fetching ahead brings a user who works between polls, from a broker that is some milliseconds away.

    python -m tests.benchmarks.prefetch [--polls 100] [--rounds 3] [--delay-ms 0 5 20] [--work-ms 1 5 20]

The same consumer with and without it, interleaved; a relay in a process of its own holds every byte back, half of the
delay on each way. One answer a poll. Where the answer takes d and the user works w, a poll takes d + w one after the
other and max(d, w) side by side: *theory* is their ratio, d measured by a user who works for no time at all.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.devcluster import DevCluster
from streamlet.devcluster.machine import free_ports
from streamlet.kafka import Consumer, TopicPartition

TOPIC = "prefetch"
ANSWER_BYTES = 256 * 1024
RECORD_BYTES = 1024


def fill(servers: str, records: int) -> None:
    """Produce records into one partition."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)], operation_timeout=20)[TOPIC].result(30)
    # Batches well below an answer: a broker sends whole ones, so larger ones would be an answer each.
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": ANSWER_BYTES // 16})
    for number in range(records):
        producer.produce(TOPIC, b"x" * RECORD_BYTES, partition=0)
        if number % 10_000 == 0:
            producer.flush(30)
    assert producer.flush(60) == 0


@contextmanager
def relay(port: int, target: int) -> Iterator[Callable[[float], None]]:
    """Let ``port`` lead to ``target``; give what sets the delay, in milliseconds there and back."""
    command = [sys.executable, "-m", "tests.benchmarks.delaying_relay", str(port), str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def delay(milliseconds: float) -> None:
            assert process.stdin is not None
            process.stdin.write(f"{milliseconds / 2}\n")
            process.stdin.flush()
            ready()

        def ready() -> None:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

        ready()
        try:
            yield delay
        finally:
            process.kill()


def poll_s(servers: str, polls: int, work_s: float, *, prefetch: bool) -> float:
    """Seconds of one poll with the user's work after it."""
    tp = TopicPartition(TOPIC, 0)
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", max_partition_fetch_bytes=ANSWER_BYTES
    ) as consumer:
        consumer._fetcher.prefetch = prefetch
        consumer.assign([tp])
        consumer.position(tp)
        answers = 0
        begun = time.perf_counter()
        while answers < polls:
            # One answer a poll: without prefetch each is waited for.
            if any(map(len, consumer.poll_columns(1000).values())):
                answers += 1
                time.sleep(work_s)  # the user's work, which needs no CPU of ours
        return (time.perf_counter() - begun) / polls


def main() -> int:
    """Measure every delay and work, print a line for each."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.prefetch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--polls", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay-ms", type=float, nargs="+", default=[0.0, 5.0, 20.0])
    parser.add_argument("--work-ms", type=float, nargs="+", default=[1.0, 5.0, 20.0])
    asked = parser.parse_args()
    relay_port, zookeeper_port, broker_port = free_ports(3)
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay_port}"}
    ports = (zookeeper_port, broker_port)
    servers = f"127.0.0.1:{relay_port}"
    with (
        relay(relay_port, broker_port) as delay,
        DevCluster("3.9", figures=True, broker_settings=advertised, preferred_ports=ports) as cluster,
    ):
        assert cluster.bootstrap_servers.endswith(f":{broker_port}")
        fill(servers, (asked.polls + 2) * (ANSWER_BYTES // RECORD_BYTES))
        for delay_ms in asked.delay_ms:
            delay(delay_ms)
            alone_s = poll_s(servers, asked.polls, 0.0, prefetch=False)
            for work_ms in asked.work_ms:
                measure(servers, asked.polls, asked.rounds, delay_ms, work_ms, alone_s)
    return 0


def measure(servers: str, polls: int, rounds: int, delay_ms: float, work_ms: float, alone_s: float) -> None:
    """Print one line: milliseconds a poll with and without, their ratio and the theory's."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        for prefetch, found in taken.items():
            found.append(poll_s(servers, polls, work_ms / 1000, prefetch=prefetch))
    ahead, serial = (statistics.median(taken[prefetch]) for prefetch in (True, False))
    work_s = work_ms / 1000
    theory = (alone_s + work_s) / max(alone_s, work_s)
    print(
        f"delay {delay_ms:4.0f} ms  work {work_ms:4.0f} ms   ahead {ahead * 1000:6.1f} ms a poll   "
        f"one after the other {serial * 1000:6.1f}   {serial / ahead:.2f}x   (theory {theory:.2f})",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
