"""Topics filled and read back by librdkafka."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from streamlet.devcluster import DevCluster
from tests.patience import PATIENCE_S
from tests.replicas import partitions_of

Row = tuple[int, int, bytes | None, bytes | None, int]
"""Partition, offset, key, value, time in ms."""


def fill(cluster: DevCluster, topic: str, count: int, first: int = 0) -> None:
    """Produce the values ``first`` to ``first + count``; every seventh has no key."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, value=b"%d" % number, key=None if number % 7 == 0 else b"k%d" % (number % 100))
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def rows_of(cluster: DevCluster, topic: str, isolation: str = "read_committed") -> list[Row]:
    """Every record of a topic, in order of partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "witness",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    numbers = partitions_of(cluster.bootstrap_servers, topic)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
    found: list[Row] = []
    left = len(numbers)
    while left:
        for message in consumer.consume(10_000, timeout=0.2):
            if message.error() is not None:
                left -= 1  # the end of a partition
                continue
            _kind, time_ms = message.timestamp()
            found.append((message.partition(), message.offset(), message.key(), message.value(), time_ms))
    consumer.close()
    return sorted(found)
