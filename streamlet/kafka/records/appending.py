"""Records encoded one by one as they are appended, and their batch (format v2). Pure.

A record is encoded once, when it is appended, relative to its batch: the bytes that are kept are the bytes that go out.
:func:`encode_record` covers every case; the producer's append path has the usual case written out in line, with
:data:`VARINT` as its table.
"""

from __future__ import annotations

import crc32c

from streamlet.kafka.records.compression import Compression
from streamlet.kafka.records.record_batch import CRC_FROM, HEADER, LENGTH_END, TRANSACTIONAL, Headers
from streamlet.kafka.records.varint import read_varint, varint

HEADER_SIZE = HEADER.size
TABLE_SIZE = 8192
VARINT = tuple(varint(value) for value in range(TABLE_SIZE))
"""The varints of small numbers: nearly all lengths and deltas of a record are small."""

_NULL = varint(-1)
_PLAIN_MOST = TABLE_SIZE - 20


def encode_record(
    key: bytes | None, value: bytes | None, headers: Headers, timestamp_delta: int, offset_delta: int
) -> bytes:
    """Return one record of a batch. Raises ValueError for a delta beyond 64 bits."""
    parts = [b"\x00", _varint(timestamp_delta), _varint(offset_delta)]
    for field in (key, value):
        if field is None:
            parts.append(_NULL)
        else:
            parts.append(_varint(len(field)))
            parts.append(field)
    parts.append(_varint(len(headers)))
    for name, content in headers:
        raw = name.encode("utf-8")
        parts.append(_varint(len(raw)))
        parts.append(raw)
        parts.append(_NULL if content is None else _varint(len(content)) + content)
    body = b"".join(parts)
    return _varint(len(body)) + body


def encode_plain(key: bytes | None, value: bytes | None, timestamp_delta: int, offset_delta: int) -> bytes:
    """Return one record without headers, several times as fast."""
    # The fast path holds where every length and delta is in the table; other records go the general way.
    if value is None or offset_delta >= TABLE_SIZE or not 0 <= timestamp_delta < TABLE_SIZE:
        return encode_record(key, value, (), timestamp_delta, offset_delta)
    size = len(value)
    lead, place = VARINT[timestamp_delta], VARINT[offset_delta]
    if key is None:
        if size > _PLAIN_MOST:
            return encode_record(key, value, (), timestamp_delta, offset_delta)
        length = VARINT[size]
        body = VARINT[size + len(lead) + len(place) + len(length) + 3]
        return b"%b\0%b%b\1%b%b\0" % (body, lead, place, length, value)
    wide = len(key)
    if size + wide > _PLAIN_MOST:
        return encode_record(key, value, (), timestamp_delta, offset_delta)
    first, length = VARINT[wide], VARINT[size]
    body = VARINT[size + wide + len(lead) + len(place) + len(first) + len(length) + 2]
    return b"%b\0%b%b%b%b%b%b\0" % (body, lead, place, first, key, length, value)


def shifted_record(record: bytes, timestamp_shift: int, offset_delta: int) -> bytes:
    """Return a record as part of another batch: its time moved, its offset replaced."""
    _size, pos = read_varint(record, 0)
    timestamp_delta, after = read_varint(record, pos + 1)
    _offset_delta, after = read_varint(record, after)
    body = b"".join((b"\x00", _varint(timestamp_delta + timestamp_shift), _varint(offset_delta), record[after:]))
    return _varint(len(body)) + body


def timestamp_delta_of(record: bytes) -> int:
    """Return the milliseconds between the batch's base timestamp and the record."""
    _size, pos = read_varint(record, 0)
    return read_varint(record, pos + 1)[0]


def upper_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the largest size of a record of these fields."""
    size = 5 + 1 + 10 + 5 + 5 + 5 + 5 + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size


def seal_batch(
    body: bytes,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: Compression,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """Return a whole batch of ``count`` records around ``body``.

    ``producer``: id, epoch, base sequence.
    """
    attributes = int(compression) | (TRANSACTIONAL if transactional else 0)
    return framed_batch(body, count, attributes, (base_timestamp, max_timestamp), producer, count - 1)


def framed_batch(
    body: bytes,
    count: int,
    attributes: int,
    timestamps: tuple[int, int],
    producer: tuple[int, int, int],
    last_offset_delta: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return a batch with any header; ``timestamps``: base and maximum."""
    header = bytearray(
        HEADER.pack(
            base_offset,
            HEADER.size - LENGTH_END + len(body),
            leader_epoch,
            2,
            0,
            attributes,
            last_offset_delta,
            *timestamps,
            *producer,
            count,
        )
    )
    crc = crc32c.crc32c(body, crc32c.crc32c(memoryview(header)[CRC_FROM:]))
    header[CRC_FROM - 4 : CRC_FROM] = crc.to_bytes(4, "big")
    return b"".join((header, body))


def _varint(value: int) -> bytes:
    return VARINT[value] if 0 <= value < TABLE_SIZE else varint(value)
