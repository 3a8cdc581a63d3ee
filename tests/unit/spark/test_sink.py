"""A write before its job begins."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.spark import sink
from streamlet.spark.options import Use, write_options


class Asked:
    """A producer that notes how it was made and what it is asked."""

    made: dict[str, Any]
    topics: list[str]

    def __init__(self, **settings: Any) -> None:
        Asked.made, Asked.topics = settings, []

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None: ...

    def partitions_for(self, topic: str) -> None:
        Asked.topics.append(topic)


def test_the_topic_of_a_write_is_asked_for_before_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an executor four tries of a task would wait for it, a minute each."""
    monkeypatch.setattr(sink, "Producer", Asked)
    servers = {"kafka.bootstrap.servers": "localhost:1", "topic": "out"}
    sink.find_topic(write_options(servers, Use.BATCH_WRITE))
    assert Asked.topics == ["out"] and Asked.made["max_block_ms"] == 10_000
    sink.find_topic(write_options({**servers, "kafka.max.block.ms": "3000"}, Use.BATCH_WRITE))
    assert Asked.made["max_block_ms"] == 3000
