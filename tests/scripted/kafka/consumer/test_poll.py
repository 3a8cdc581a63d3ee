"""A poll that brings nothing says why, where the reason is no quiet topic."""

from __future__ import annotations

import logging
import time

import pytest

from streamlet.base.errors import SettingError
from streamlet.devcluster.machine import free_ports
from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.consumer import poll as idle_reasons
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import SILENCE
from tests.scripted.fake_cluster import FakeCluster


def poll_until(consumer: Consumer, caplog: pytest.LogCaptureFixture, words: str) -> str:
    """Poll until a warning holds the words; all warnings."""
    deadline = time.monotonic() + PATIENCE_S
    while words not in caplog.text:
        assert time.monotonic() < deadline, caplog.text
        assert consumer.poll(timeout_ms=50) == {}
    return caplog.text


def test_a_broker_that_is_not_there_is_told_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its address and what the connection said."""
    monkeypatch.setattr(idle_reasons, "TOLD_AFTER_S", 0.1)
    (port,) = free_ports(1)
    with caplog.at_level(logging.WARNING), Consumer(bootstrap_servers=f"127.0.0.1:{port}") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        said = poll_until(consumer, caplog, "no Kafka broker has answered")
        assert f"127.0.0.1:{port}" in said and "Connection refused" in said
        for _ in range(5):
            consumer.poll(timeout_ms=20)
        assert caplog.text.count("no Kafka broker has answered") == 1


def test_a_pattern_that_matches_nothing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Without a word, a pattern of the beginning of a name looks like topics that are quiet."""
    with FakeCluster({"lines": 1, "lines-2": 1}) as cluster:
        broker = cluster.broker.on(ApiKey.JOIN_GROUP, SILENCE)
        with (
            caplog.at_level(logging.WARNING),
            Consumer(bootstrap_servers=broker.address, group_id="g", enable_auto_commit=False) as consumer,
        ):
            consumer.subscribe(pattern="line")
            said = poll_until(consumer, caplog, "The pattern 'line' matches none of the 2 topics")
            assert "whole name" in said
            for _ in range(5):
                consumer.poll(timeout_ms=20)
            assert caplog.text.count("matches none") == 1
            consumer.subscribe(pattern="line.*")
            consumer.poll(timeout_ms=20)
            caplog.clear()
            consumer.subscribe(pattern="nothing")
            poll_until(consumer, caplog, "The pattern 'nothing' matches none of the 2 topics")


def test_one_assignor_by_name_is_asked_for_as_a_list() -> None:
    with pytest.raises(SettingError, match=r"must be a list: write \['range'\]"):
        Consumer("t", bootstrap_servers="h:1", group_id="g", partition_assignment_strategy="range")
