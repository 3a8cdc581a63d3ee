"""A hand-written loop over confluent-kafka and a dict: no tracking, no commits, one process. The upper bound.

Environment as for the other rivals.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition


def main() -> None:
    """Count every word up to the end the topic had at the start."""
    topic = os.environ["BENCHMARK_TOPIC"]
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BENCHMARK_BOOTSTRAP"],
            "group.id": "loop",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    partitions = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
    left = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    counts: dict[str, int] = {}
    first = 0.0
    while left:
        for message in consumer.consume(1000, 1.0):
            first = first or time.time()
            left -= 1
            for word in message.value().decode().split():
                counts[word] = counts.get(word, 0) + 1
    result = {"first": first, "last": time.time(), "counts": counts}
    Path(os.environ["BENCHMARK_OUT"], "loop.json").write_text(json.dumps(result))
    consumer.close()


if __name__ == "__main__":
    main()
