"""Logs that Java's producer and librdkafka's wrote into a real broker, read by us (made by ``golden/make.py``)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from streamlet.kafka.records.compression import Compression
from streamlet.kafka.records.record_batch import ReadOptions, RecordBatch, TimestampType, read_batches

FOLDER = Path(__file__).with_name("golden")
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())


def log(name: str) -> bytes:
    return (FOLDER / f"{name}.log").read_bytes()


def rows(batches: Iterable[RecordBatch]) -> list[dict[str, Any]]:
    """In the form of ``expected.json``."""
    return [
        {
            "offset": offset,
            "timestamp": timestamp,
            "key": None if key is None else key.hex(),
            "value": None if value is None else [len(value), zlib.crc32(value)],
            "headers": [[n, None if v is None else v.hex()] for n, v in batch.headers(index)],
        }
        for batch in batches
        for index, (offset, timestamp, key, value) in enumerate(
            zip(batch.offsets(), batch.timestamps(), batch.keys, batch.values, strict=True)
        )
    ]


@pytest.mark.parametrize("name", EXPECTED)
def test_every_record_is_as_librdkafka_reads_it(name: str) -> None:
    """Offsets, timestamps, keys, values and headers; all records, and those of committed transactions."""
    expected = EXPECTED[name]
    assert expected["all"]
    everything = ReadOptions(name, 0, read_committed=False)
    assert rows(read_batches(log(name), everything)) == expected["all"]
    aborted = [(producer, first) for producer, first in expected["aborted"]]
    committed = rows(read_batches(log(name), ReadOptions(name, 0), aborted))
    assert committed == expected.get("committed", expected["all"])


@pytest.mark.parametrize("writer", ["java", "rdkafka"])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_the_golden_logs_really_hold_their_codec(writer: str, codec: str) -> None:
    """Some batch of each is packed with what its name says."""
    batches = read_batches(log(f"{writer}-{codec}"), ReadOptions("t", 0))
    assert Compression[codec.upper()] in {batch.header.codec for batch in batches}


def test_the_golden_logs_really_hold_what_they_are_for() -> None:
    """Control batches, aborted records, holes, tombstones, log-append time, null and empty values, headers."""
    transactions = list(read_batches(log("java-transactions"), ReadOptions("t", 0)))
    assert any(batch.header.is_control for batch in transactions)
    assert len(EXPECTED["java-transactions"]["committed"]) < len(EXPECTED["java-transactions"]["all"])
    compacted = list(read_batches(log("java-compacted"), ReadOptions("t", 0)))
    assert any(not isinstance(batch.offset_deltas, range) for batch in compacted)
    assert any(value is None for batch in compacted for value in batch.values)
    emptied = list(read_batches(log("rdkafka-emptied"), ReadOptions("t", 0)))
    assert sum(not len(batch) for batch in emptied) > 1, "what the cleaner leaves of a producer's last batch"
    stamps = {batch.timestamp_type for batch in read_batches(log("java-append-time"), ReadOptions("t", 0))}
    assert stamps == {TimestampType.LOG_APPEND_TIME}
    headed = [row for row in EXPECTED["java-headers"]["all"] if row["headers"]]
    assert any(value is None for row in headed for _, value in row["headers"])
    assert {None, ""} <= {row["key"] for row in EXPECTED["java-headers"]["all"]}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_position_leads_on_to_the_rest(name: str) -> None:
    """From any offset the same records follow, and ``next_offset`` never stands still."""
    expected = EXPECTED[name]["all"]
    last = expected[-1]["offset"]
    for position in range(expected[0]["offset"], last + 1, 7):
        batches = list(read_batches(log(name), ReadOptions(name, 0, position, read_committed=False)))
        assert rows(batches) == [row for row in expected if row["offset"] >= position]
        ends = [batch.next_offset for batch in batches]
        assert ends == sorted(set(ends)) and ends[-1] > last
