"""What is really in a topic, by librdkafka."""

from __future__ import annotations

import time
import uuid
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from streamlet.devcluster import DevCluster
from streamlet.devcluster.resident import Resident
from tests.replicas import partitions_of


class Row(NamedTuple):
    """One record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]]


def read_back(
    cluster: DevCluster | Resident,
    topic: str,
    at_least: int,
    *,
    isolation: str = "read_committed",
    within_s: float = 30,
) -> list[Row]:
    """Everything in the topic, by partition and offset; waits for ``at_least`` records and for every log's end."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": uuid.uuid4().hex,
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    try:
        numbers = partitions_of(cluster.bootstrap_servers, topic)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
        rows: list[Row] = []
        at_end: set[int] = set()
        deadline = time.monotonic() + within_s
        while len(rows) < at_least or len(at_end) < len(numbers):
            assert time.monotonic() < deadline, f"{len(rows)} of {at_least} records, ends of {at_end}"
            for message in consumer.consume(5000, 0.2):
                if message.error():
                    at_end.add(message.partition())
                    continue
                at_end.discard(message.partition())
                rows.append(
                    Row(
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                        message.headers() or [],
                    )
                )
        return sorted(rows)
    finally:
        consumer.close()
