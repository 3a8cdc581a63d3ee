"""A write before its job begins."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from streamlet.spark import sink
from streamlet.spark.options import Use, write_options
from streamlet.spark.source import KafkaDataSource


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


@pytest.mark.parametrize("writer", ["writer", "streamWriter"])
def test_a_batch_and_each_epoch_of_a_stream_ask_for_it(writer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "Producer", Asked)
    Asked.topics = []
    options = {"kafka.bootstrap.servers": "localhost:1", "topic": "out"}
    schema = StructType([StructField("value", StringType())])
    assert getattr(KafkaDataSource(options), writer)(schema, overwrite=False) is not None
    assert Asked.topics == ["out"]
