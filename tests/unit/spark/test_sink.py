"""A write before its job begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from streamlet.base.errors import BadInput
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


HEADER = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        (
            "headers",
            pyarrow.array([None, [{"key": "h", "value": b"v"}], [None]], pyarrow.list_(HEADER)),
            r"null in place of a header.*`headers`.*filter\(headers, h -> h IS NOT NULL\)",
        ),
        ("partition", pyarrow.array([None, 0, -1], pyarrow.int32()), "-1 in its column `partition`.*from 0, or null"),
    ],
)
def test_a_row_that_no_record_can_be_made_of_is_refused_by_its_column(name: str, column: Any, said: str) -> None:
    """Before any row of its batch is handed over."""
    handed: list[Any] = []
    producer = SimpleNamespace(send=lambda *given: handed.append(given))
    batch = pyarrow.RecordBatch.from_pydict({"value": ["a", "b", "c"], name: column})
    columns = sink.WrittenColumns("out", has_key=False, has_headers=name == "headers", has_partition=name != "headers")
    with pytest.raises(BadInput, match=said):
        [*sink._send(producer, batch, columns)]  # type: ignore[arg-type]
    assert handed == []
    assert len([*sink._send(producer, batch.slice(0, 2), columns)]) == len(handed) == 2  # type: ignore[arg-type]
