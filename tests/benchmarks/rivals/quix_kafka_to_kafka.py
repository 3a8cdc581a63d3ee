"""Quix Streams from topic to topic: one process, at least once by commits each five seconds, its own defaults.

Environment: BENCHMARK_BOOTSTRAP, BENCHMARK_TOPIC, BENCHMARK_OUTPUT (the topic to write to, and the consumer group).
"""

from __future__ import annotations

import os

from confluent_kafka import Consumer, TopicPartition
from quixstreams import Application


def count_records(servers: str, topic: str) -> int:
    """Return how many records the topic holds now."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "count"})
    numbers = consumer.list_topics(topic).topics[topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in numbers]
    consumer.close()
    return sum(ends)


def main() -> None:
    """Copy every line up to the end that the topic had at the start."""
    servers, output = os.environ["BENCHMARK_BOOTSTRAP"], os.environ["BENCHMARK_OUTPUT"]
    app = Application(
        broker_address=servers,
        consumer_group=output,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        producer_extra_config={"enable.idempotence": True, "linger.ms": 5},
        consumer_extra_config={"fetch.queue.backoff.ms": 1},
        loglevel="WARNING",
    )
    lines = app.topic(os.environ["BENCHMARK_TOPIC"], value_deserializer="str")
    capitals = app.topic(output, value_serializer="str", key_serializer="str")
    words = app.dataframe(lines)
    words = words.apply(str.upper, metadata=False)
    words.to_topic(capitals, key=lambda line: line.split(" ", 1)[0].lower())
    app.run(count=count_records(servers, os.environ["BENCHMARK_TOPIC"]))


if __name__ == "__main__":
    main()
