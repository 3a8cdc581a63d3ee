"""Batches that we write, read by Kafka's own dump tool: checksum, codec and every record."""

from __future__ import annotations

import re
from pathlib import Path

from streamlet.devcluster import DevCluster
from streamlet.kafka.records.compression import Compression
from tests.whole_batches import BatchFields, NewRecord, encode_batch


def test_kafkas_dump_tool_reads_our_batches(kafka39: DevCluster, tmp_path: Path) -> None:
    """All codecs, nulls and headers: valid for Java, with the offsets and sizes that were meant."""
    records = [
        NewRecord(
            None if n % 7 == 0 else b"line %d " % n * (n % 50),
            None if n % 3 == 0 else b"k%d" % n,
            1_700_000_000_000 + n,
            (("h", b"v"), ("null", None)) if n % 5 == 0 else (),
        )
        for n in range(200)
    ]
    segment = tmp_path / "00000000000000000000.log"
    batches = [encode_batch(records, BatchFields(200 * codec, codec, producer_id=9)) for codec in Compression]
    segment.write_bytes(b"".join(batches))
    text = kafka39.dump_segments([segment])
    assert text.count("isvalid: true") == len(batches) and "isvalid: false" not in text
    for codec in Compression:
        assert f"compresscodec: {codec.name.lower()}" in text
    found = re.findall(r"\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+)", text)
    meant = [
        (
            str(200 * codec + n),
            str(row.timestamp),
            str(-1 if row.key is None else len(row.key)),
            str(-1 if row.value is None else len(row.value)),
        )
        for codec in Compression
        for n, row in enumerate(records)
    ]
    assert found == meant
