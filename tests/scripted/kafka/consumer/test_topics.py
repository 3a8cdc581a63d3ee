"""The topics that a consumer may see."""

from __future__ import annotations

import time

import pytest

from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.protocol.messages.metadata import MetadataBroker, MetadataResponse, MetadataTopic
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.fake_broker import FakeBroker
from tests.scripted.fake_cluster import FakeCluster


def test_topics_are_names_without_kafkas_own_and_without_those_being_deleted() -> None:
    """Asked of the cluster, whatever is subscribed."""
    with FakeBroker(topics={"lines": 2}) as broker:
        answer = MetadataResponse(
            brokers=(MetadataBroker(node_id=1, host="127.0.0.1", port=broker.port),),
            topics=(
                MetadataTopic(error_code=0, name="lines"),
                MetadataTopic(error_code=0, name="words"),
                MetadataTopic(error_code=0, name="__consumer_offsets", is_internal=True),
                MetadataTopic(error_code=3, name="gone"),
            ),
        )
        broker.on(ApiKey.METADATA, answer)
        with Consumer(bootstrap_servers=broker.address) as consumer:
            assert consumer.topics(20) == {"lines", "words"}


def test_topics_without_a_broker_end_in_their_time() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        start = time.monotonic()
        with pytest.raises(KafkaError):
            consumer.topics(0.5)
        assert time.monotonic() - start < 10


def reader(cluster: FakeCluster) -> Consumer:
    return Consumer(bootstrap_servers=cluster.broker.address, fetch_max_wait_ms=50)


def asked(consumer: Consumer, broker: FakeBroker, seconds: float) -> list[set[str | None]]:
    """Poll for so long; return the topics of each metadata request meanwhile."""
    before, until = len(broker.seen(ApiKey.METADATA)), time.monotonic() + seconds
    while time.monotonic() < until:
        consumer.poll(50)
    return [{row.name for row in seen.request.topics} for seen in broker.seen(ApiKey.METADATA)[before:]]


def test_a_topic_that_is_read_no_longer_is_asked_for_no_more() -> None:
    """A deleted one was asked for each second, for ever; a broker that creates topics made it again."""
    with FakeCluster({"a": 1, "t": 1}) as cluster, reader(cluster) as consumer:
        consumer.assign([TopicPartition("a", 0)])
        asked(consumer, cluster.broker, 0.3)
        consumer.assign([TopicPartition("t", 0)])
        asked(consumer, cluster.broker, 0.3)
        del cluster.topics["a"]
        consumer._client.metadata.request_update()
        assert asked(consumer, cluster.broker, 2) == [{"t"}]
        consumer.unsubscribe()
        assert not consumer._client.metadata.topics


def test_a_topic_that_a_question_names_is_asked_for_no_longer_than_the_question_takes() -> None:
    with FakeCluster({"a": 1, "t": 1}) as cluster, reader(cluster) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        asked(consumer, cluster.broker, 0.3)
        assert consumer.partitions_for_topic("missing") is None
        assert consumer.partitions_for_topic("a") == {0}
        assert consumer.end_offsets([TopicPartition("a", 0), TopicPartition("t", 0)]).keys() == {
            TopicPartition("a", 0),
            TopicPartition("t", 0),
        }
        requests = asked(consumer, cluster.broker, 2)
        assert requests in ([], [{"t"}]), "no more than the one that the missing topic has called for"


def test_a_group_that_turns_to_another_topic_asks_for_the_first_no_more() -> None:
    """Neither its consumer nor its leader, which counts the partitions of what is shared out."""
    with FakeCluster({"a": 1, "t": 1}) as cluster:
        settings = {
            "bootstrap_servers": cluster.broker.address,
            "group_id": "g",
            "metadata_max_age_ms": 500,
            "fetch_max_wait_ms": 50,
        }
        with Consumer("a", **settings) as consumer:
            asked(consumer, cluster.broker, 1.5)
            consumer.subscribe(["t"])
            deadline = time.monotonic() + 20
            while consumer.assignment() != {TopicPartition("t", 0)}:
                assert time.monotonic() < deadline
                consumer.poll(50)
            del cluster.topics["a"]
            requests = asked(consumer, cluster.broker, 3)
            assert requests and all(names <= {"t"} for names in requests)
