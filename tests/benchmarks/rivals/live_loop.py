"""A hand-written loop over confluent-kafka under live load: notes when each line was counted.

Environment: BENCHMARK_BOOTSTRAP, BENCHMARK_TOPIC, BENCHMARK_OUT, BENCHMARK_SECONDS.
"""

from __future__ import annotations

import os
import time
from array import array
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition


def main() -> None:
    """Count words until the time is over."""
    until = time.monotonic() + float(os.environ["BENCHMARK_SECONDS"])
    settings = {"group.id": "loop", "enable.auto.commit": False, "fetch.queue.backoff.ms": 1}
    consumer = Consumer({"bootstrap.servers": os.environ["BENCHMARK_BOOTSTRAP"], **settings})
    consumer.assign([TopicPartition(os.environ["BENCHMARK_TOPIC"], 0, 0)])
    counts: dict[str, int] = {}
    times = array("d")
    while time.monotonic() < until:
        # One by one: ``consume`` waits for a full batch or its time-out.
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            for word in message.value().decode().split():
                counts[word] = counts.get(word, 0) + 1
            times.extend((message.offset(), time.time()))
    Path(os.environ["BENCHMARK_OUT"], "loop.bin").write_bytes(times.tobytes())
    consumer.close()


if __name__ == "__main__":
    main()
