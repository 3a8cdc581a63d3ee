"""A poll that brings nothing says why, where the reason is no quiet topic."""

from __future__ import annotations

import logging

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, TopicPartition
from tests.scripted.kafka.consumer.test_poll import poll_until


def test_a_topic_or_partition_that_is_not_there_is_told_once(
    kafka39: DevCluster, caplog: pytest.LogCaptureFixture
) -> None:
    kafka39.create_topic("idle-reasons", 2)
    wanted = [TopicPartition("no-such-topic", 0), TopicPartition("idle-reasons", 7)]
    with caplog.at_level(logging.WARNING), Consumer(bootstrap_servers=kafka39.bootstrap_servers) as consumer:
        consumer.assign(wanted)
        poll_until(consumer, caplog, "Topic 'no-such-topic' cannot be read")
        poll_until(consumer, caplog, "Partition 7 of topic 'idle-reasons' cannot be read: the topic has 2 partitions")
        for _ in range(5):
            consumer.poll(timeout_ms=50)
        assert caplog.text.count("Topic 'no-such-topic' cannot be read") == 1
