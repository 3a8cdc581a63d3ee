"""The topics that a consumer may see."""

from __future__ import annotations

import time

import pytest

from streamlet.kafka import Consumer
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.protocol.messages.metadata import MetadataBroker, MetadataResponse, MetadataTopic
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.fake_broker import FakeBroker


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
