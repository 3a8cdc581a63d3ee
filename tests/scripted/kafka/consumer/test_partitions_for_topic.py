"""``partitions_for_topic`` of what is there, of what is not, and of brokers that are not."""

from __future__ import annotations

import time

import pytest

from streamlet.devcluster.machine import free_ports
from streamlet.kafka import Consumer
from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.protocol.messages.metadata import MetadataBroker, MetadataRequest, MetadataResponse, MetadataTopic
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.fake_broker import FakeBroker


def test_a_topic_that_is_not_there_has_none() -> None:
    """Told long before default_api_timeout_ms (60 s), as kafka-python's users expect it."""
    with FakeBroker(topics={"t": 2}) as broker, Consumer(bootstrap_servers=broker.address) as consumer:
        start = time.monotonic()
        assert consumer.partitions_for_topic("nosuch") is None
        assert consumer.partitions_for_topic("nosuch", timeout=0.1) is None
        assert time.monotonic() - start < 30
        assert consumer.partitions_for_topic("t") == {0, 1}


def test_a_broker_that_has_just_started_is_asked_again() -> None:
    """For a moment it knows of no topic."""
    with FakeBroker(topics={"t": 2}) as broker, Consumer(bootstrap_servers=broker.address) as consumer:
        nothing = MetadataResponse(
            brokers=(MetadataBroker(node_id=1, host="127.0.0.1", port=broker.port),),
            topics=(MetadataTopic(error_code=3, name="t"),),
        )
        broker.on(ApiKey.METADATA, nothing, nothing, lambda request: broker.metadata(request))
        assert consumer.partitions_for_topic("t") == {0, 1}


def test_a_topic_that_is_being_made_is_waited_for() -> None:
    """It has no leader yet, for longer than a topic may be missing."""
    with FakeBroker(topics={"t": 2}) as broker, Consumer(bootstrap_servers=broker.address) as consumer:
        begun = time.monotonic()

        def later(request: MetadataRequest) -> MetadataResponse:
            if time.monotonic() - begun > 2:
                return broker.metadata(request)
            topics = tuple(MetadataTopic(error_code=5, name=row.name) for row in request.topics or ())
            member = MetadataBroker(node_id=1, host="127.0.0.1", port=broker.port)
            return MetadataResponse(brokers=(member,), topics=topics)

        broker.on(ApiKey.METADATA, later)
        assert consumer.partitions_for_topic("t") == {0, 1}


def test_brokers_that_do_not_answer_have_not_said_that_it_is_missing() -> None:
    (port,) = free_ports(1)
    said = rf"no broker has answered.*127\.0\.0\.1:{port}.*bootstrap_servers"
    with Consumer(bootstrap_servers=f"127.0.0.1:{port}") as consumer, pytest.raises(ClientTimeout, match=said):
        consumer.partitions_for_topic("t", timeout=0.2)
