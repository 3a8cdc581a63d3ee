"""Wait until brokers know of a topic, and until a follower may give out all that is in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from confluent_kafka.admin import PartitionMetadata


def partitions_of(servers: str, topic: str, at_least: int = 1) -> dict[int, PartitionMetadata]:
    """Return a topic's partitions, as librdkafka learns them, once each has a leader.

    A broker that did not make the topic hears of it a moment later, and names it without partitions until then.
    """
    admin = AdminClient({"bootstrap.servers": servers})
    deadline = time.monotonic() + PATIENCE_S
    while True:
        rows: dict[int, PartitionMetadata] = admin.list_topics(topic, timeout=20).topics[topic].partitions
        if len(rows) >= at_least and all(row.leader >= 0 for row in rows.values()):
            return rows
        assert time.monotonic() < deadline, f"{servers} know {len(rows)} partitions of {topic}"
        time.sleep(0.05)


def await_known(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Wait until each broker that answers knows the topic with all partitions and their leaders."""
    for server in bootstrap_servers.split(","):
        try:
            partitions_of(server, topic, partitions)
        except KafkaException:
            continue  # a test has stopped it


def await_follower(servers: str, topic: str, rack: str, records: int) -> None:
    """Wait until the follower of the rack gives out so many records of partition 0.

    ``acks=all`` says that a follower has them; that they are committed it hears with its next fetch, up to half a
    second later, and not at all of a leader that was stopped before.
    """
    settings = {"bootstrap.servers": servers, "group.id": "witness", "enable.auto.commit": False}
    consumer = Consumer({**settings, "client.rack": rack})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        deadline, read = time.monotonic() + PATIENCE_S, 0
        while read < records:
            assert time.monotonic() < deadline, f"{read} of {records} records of {topic} from {rack}"
            read += sum(message.error() is None for message in consumer.consume(1000, 0.2))
    finally:
        consumer.close()
