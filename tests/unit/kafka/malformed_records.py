"""Record batches and packed data for :mod:`tests.unit.kafka.malformed`: what is given, and what is taken out of it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import crc32c

from streamlet.kafka.records.compression import CodecError, Compression, compress, decompress
from streamlet.kafka.records.record_batch import HEADER, ReadOptions, RecordBatch, parse_header, read_batches
from streamlet.kafka.records.varint import read_raw_varint
from tests.unit.kafka.malformed import Span
from tests.whole_batches import BatchFields, NewRecord, encode_batch

LOGS = Path(__file__).parent / "records/golden"
UNPACKED_LIMIT = 64 * 1024


def batch_frames() -> list[bytes]:
    """Single batches as Java's producer and librdkafka wrote them, control and compacted ones too, and some of ours."""
    found = []
    for path in sorted(LOGS.glob("*.log")):
        data = path.read_bytes()
        at = 0
        while at < len(data):
            end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            if end - at < 3000:
                found.append(data[at:end])
            at = end
    zeros = [NewRecord(bytes(40_000)) for _ in range(5)]
    found += [encode_batch(zeros, BatchFields(9, codec)) for codec in Compression if codec is not Compression.NONE]
    return found


def batch_spans(frame: bytes) -> list[Span]:
    """Of the header the fields; of records that are not packed each number, key, value and header."""
    spans, at = [], 0
    for code in HEADER.format[1:]:
        size = {"q": 8, "i": 4, "I": 4, "b": 1, "h": 2}[code]
        spans.append(Span(at, at + size, "fixed"))
        at += size
    header = parse_header(frame, 0)
    if header.codec != Compression.NONE:
        spans += [Span(at, len(frame), "bytes")] * 12
        return spans
    for _ in range(header.record_count):
        at = varint_span(frame, at, spans)[1]
        spans.append(Span(at, at + 1, "fixed"))
        at = varint_span(frame, varint_span(frame, at + 1, spans)[1], spans)[1]
        for _field in ("key", "value"):
            at = sized_span(frame, at, spans)
        count, at = varint_span(frame, at, spans)
        for _header in range(count):
            at = sized_span(frame, sized_span(frame, at, spans), spans)
    assert at == len(frame)
    return spans


def varint_span(frame: bytes, at: int, spans: list[Span]) -> tuple[int, int]:
    raw, stop = read_raw_varint(frame, at)
    spans.append(Span(at, stop, "varint"))
    return (raw >> 1) ^ -(raw & 1), stop


def sized_span(frame: bytes, at: int, spans: list[Span]) -> int:
    size, at = varint_span(frame, at, spans)
    if size > 0:
        spans.append(Span(at, at + size, "bytes"))
    return at + max(size, 0)


def with_length_and_checksum(frame: bytes) -> bytes:
    """Made right again, so that the decoder is met and not the checksum."""
    if len(frame) < HEADER.size:
        return frame
    raw = bytearray(frame)
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    raw[17:21] = crc32c.crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


def read_records(frame: bytes, rng: random.Random) -> None:
    """Read committed or not, from the batch's start or its middle, some transaction aborted."""
    position = int.from_bytes(frame[:8], "big", signed=True) + rng.randrange(3) if len(frame) > 8 else 0
    options = ReadOptions("t", 0, position, rng.random() < 0.5, rng.random() < 0.5, UNPACKED_LIMIT)
    use_batches(read_batches(frame, options, [(rng.randrange(3), 0), (1000, 0)]))


def use_batches(batches: Iterable[RecordBatch]) -> None:
    """Everything a reader takes out of them."""
    for batch in batches:
        columns = (batch.offsets(), batch.timestamps(), batch.keys, batch.values)
        assert len({len(column) for column in columns}) == 1
        for index in range(len(batch)):
            batch.headers(index)


def packed_frames() -> list[bytes]:
    """Each codec's name and its data: what brokers had, and bombs."""
    found = []
    for frame in batch_frames():
        codec = parse_header(frame, 0).codec
        if codec != Compression.NONE:
            found.append(bytes([codec]) + frame[HEADER.size :])
    bomb = bytes(8 << 20)
    return found + [bytes([codec]) + compress(codec, bomb) for codec in Compression if codec is not Compression.NONE]


def unpack(frame: bytes, _rng: random.Random) -> None:
    """By the codec that the first byte names. Its error is inner: a reader always makes a CorruptRecord of it."""
    try:
        data = decompress(Compression(1 + (frame[0] if frame else 0) % 4), frame[1:], UNPACKED_LIMIT)
        assert len(data) <= UNPACKED_LIMIT
    except CodecError as err:
        assert str(err)
