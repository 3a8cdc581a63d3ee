"""Questions about a log: how they end when an answer is no good."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka.consumer import positions as offset_queries
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.positions import OffsetQueries
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Broker, TopicPartition


def test_c8_an_answer_that_cannot_be_read_fails_the_question_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener counts the answers of all leaders: its bug must not leave who asked waiting for a time-out."""
    asked: list[RequestFuture[Any]] = []

    def list_offsets(*_: Any, **__: Any) -> RequestFuture[Any]:
        asked.append(RequestFuture())
        return asked[-1]

    monkeypatch.setattr(offset_queries, "list_offsets", list_offsets)
    leaders = [Broker(number, "h", 9000 + number) for number in range(2)]
    client: Any = SimpleNamespace(cluster=SimpleNamespace(leader_for=lambda tp: leaders[tp.partition]))
    config = ConsumerConfig.of({"bootstrap_servers": "b:1"})
    queries = OffsetQueries(client, config, ManualClock().monotonic)
    tps = [TopicPartition("t", number) for number in range(2)]
    result = queries._round(dict.fromkeys(tps, -1), {})
    asked[0].complete({tps[0]: None})  # no row of an answer
    assert isinstance(result.exception, KafkaError) and "AttributeError" in str(result.exception)
    asked[1].complete({})
    assert result.failed
