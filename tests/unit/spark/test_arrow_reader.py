"""Columns of records as an Arrow batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest

from streamlet.kafka.consumer.errors import LogTruncated
from streamlet.kafka.consumer.records import Chunk, DecodedChunk, columns_of
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.records.record_batch import LOG_APPEND_TIME, BatchHeader, RecordBatch
from streamlet.spark import arrow_reader
from streamlet.spark.arrow_reader import _read, after_gap, as_batch
from streamlet.spark.options import Use, read_options
from streamlet.spark.planning import DataLost, TaskRange

TP = TopicPartition("t", 3)
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
SCHEMA = pyarrow.schema(
    [
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("timestamp", pyarrow.timestamp("us", tz="UTC")),
        ("timestampType", pyarrow.int32()),
    ]
)


def chunk(
    base: int, deltas: range | list[int], attributes: int = 0, raw: dict[int, bytes] | None = None
) -> DecodedChunk:
    count = len(deltas)
    header = BatchHeader(base, 100, 0, 2, 0, attributes, max(deltas), 1000, 9000, -1, -1, -1, count)
    keys, values = [None] * count, [b"v%d" % (base + delta) for delta in deltas]
    batch = RecordBatch(header, deltas, list(range(count)), keys, values, raw or {})
    return DecodedChunk(Chunk(TP, batch, 0, count), keys, values)


def test_records_before_the_end_become_rows_and_later_ones_do_not() -> None:
    columns = columns_of(TP, [chunk(10, range(3)), chunk(20, [0, 5, 9], LOG_APPEND_TIME)])
    rows = as_batch(columns, 26, SCHEMA, False).to_pylist()
    assert [row["offset"] for row in rows] == [10, 11, 12, 20, 25]
    assert [row["value"] for row in rows] == [b"v10", b"v11", b"v12", b"v20", b"v25"]
    assert [row["timestampType"] for row in rows] == [0, 0, 0, 1, 1]
    assert [row["timestamp"].timestamp() for row in rows] == [1.0, 1.001, 1.002, 9.0, 9.0]
    assert {(row["topic"], row["partition"], row["key"]) for row in rows} == {("t", 3, None)}


def test_headers_are_a_list_and_null_where_a_record_has_none() -> None:
    schema = SCHEMA.append(pyarrow.field("headers", HEADERS))
    raw = {1: bytes([4, 2]) + b"a" + bytes([2]) + b"x" + bytes([2]) + b"b" + bytes([1])}
    rows = as_batch(columns_of(TP, [chunk(0, range(2), raw=raw)]), 9, schema, True).to_pylist()
    assert rows[0]["headers"] is None
    assert rows[1]["headers"] == [{"key": "a", "value": b"x"}, {"key": "b", "value": None}]
    assert as_batch(columns_of(TP, [chunk(0, range(2))]), 9, schema, True).column("headers").null_count == 2


def test_after_a_gap_a_read_goes_on_at_the_first_offset_that_is_there() -> None:
    part = TaskRange("t", 3, 10, 100)
    assert after_gap(part, 20, 50, None) == (50, 100)
    assert after_gap(part, 20, 500, None) == (100, 100)
    assert after_gap(part, 20, 0, None) == (100, 100)


def test_of_a_log_that_was_cut_all_new_records_of_the_range_are_read() -> None:
    part = TaskRange("t", 3, 10, 100)
    assert after_gap(part, 20, 0, 300) == (20, 100)
    assert after_gap(part, 20, 50, 70) == (50, 70)
    assert after_gap(part, 20, 0, 15) == (15, 15)
    assert after_gap(part, 20, 200, 300) == (100, 100)


class CutLog:
    """A consumer of a log that was cut at 2 and has five records now."""

    def __init__(self) -> None:
        self._at, self._told = 0, False

    def assign(self, _: object) -> None: ...

    def seek(self, _: TopicPartition, offset: int) -> None:
        self._at = offset

    def position(self, _: TopicPartition) -> int:
        return self._at

    def beginning_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {TP: 0}

    def end_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {TP: 5}

    def poll_columns(self, _: float) -> dict[TopicPartition, Any]:
        if self._at == 3 and not self._told:
            self._told = True
            raise LogTruncated("cut", {TP: 2})
        base = self._at
        self._at = 5 if self._told else 3
        return {TP: columns_of(TP, [chunk(base, range(self._at - base))])}


def test_a_read_of_a_log_that_was_cut_ends_where_the_log_now_ends(caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}
    consumer: Any = CutLog()
    part = TaskRange("t", 3, 0, 100)
    with pytest.raises(DataLost, match="now ends at offset 5; the batch goes on at 3 and ends at 5"):
        list(_read(consumer, part, read_options(given, Use.BATCH_READ), SCHEMA))
    options = read_options({**given, "failOnDataLoss": "false"}, Use.BATCH_READ)
    consumer = CutLog()
    rows = [row["offset"] for batch in _read(consumer, part, options, SCHEMA) for row in batch.to_pylist()]
    assert rows == [0, 1, 2, 3, 4]
    assert "its log was cut" in caplog.text


class LogEnds:
    """An administrator of a cut log whose last record's transaction is open."""

    def __init__(self, **_: Any) -> None: ...

    def __enter__(self) -> LogEnds:
        return self

    def __exit__(self, *_: object) -> None: ...

    def list_offsets(self, _: object, isolation_level: str) -> dict[TopicPartition, Any]:
        return {TP: SimpleNamespace(offset=5 if isolation_level == "read_uncommitted" else 4)}


def test_a_cut_log_is_read_to_its_end_and_not_to_the_last_stable_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_reader, "Admin", LogEnds)
    monkeypatch.setattr(CutLog, "end_offsets", lambda *_: {TP: 4})
    given = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t", "kafka.isolation.level": "read_committed"}
    options = read_options({**given, "failOnDataLoss": "false"}, Use.BATCH_READ)
    consumer: Any = CutLog()
    batches = _read(consumer, TaskRange("t", 3, 0, 100), options, SCHEMA)
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == [0, 1, 2, 3, 4]
