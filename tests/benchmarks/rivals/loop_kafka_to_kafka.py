"""A hand-written loop over confluent-kafka's consumer and producer: no tracking, no commits. The upper bound.

Environment: BENCHMARK_BOOTSTRAP, BENCHMARK_TOPIC, BENCHMARK_OUTPUT (the topic to write to).
"""

from __future__ import annotations

import os

from confluent_kafka import Consumer, Producer, TopicPartition


def main() -> None:
    """Copy every line up to the end that the topic had at the start."""
    topic, output = os.environ["BENCHMARK_TOPIC"], os.environ["BENCHMARK_OUTPUT"]
    servers = os.environ["BENCHMARK_BOOTSTRAP"]
    settings = {"bootstrap.servers": servers, "group.id": "loop", "enable.auto.commit": False}
    consumer = Consumer({**settings, "fetch.queue.backoff.ms": 1})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    partitions = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
    left = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    while left:
        for message in consumer.consume(1000, 1.0):
            left -= 1
            line = message.value().decode()
            while True:
                try:
                    producer.produce(output, line.upper().encode(), line.split(" ", 1)[0].encode())
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("records were left in the producer")
    consumer.close()


if __name__ == "__main__":
    main()
