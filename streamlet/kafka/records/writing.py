"""Record batches (format v2) written: what the producer stands on, and the other half of the round trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import crc32c

from streamlet.kafka.records.batch import CRC_FROM, HEADER, LENGTH_END, Headers
from streamlet.kafka.records.compression import Compression, compress
from streamlet.kafka.records.varint import varint

_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_SMALL = [varint(value) for value in range(8192)]
_NULL = varint(-1)


@dataclass(frozen=True, slots=True)
class NewRecord:
    """One record to write; ``timestamp`` in ms since 1970."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = 0
    headers: Headers = ()
    offset_delta: int | None = None


@dataclass(frozen=True, slots=True)
class BatchFields:
    """What stands in the header of a batch to write."""

    base_offset: int = 0
    compression: Compression = Compression.NONE
    partition_leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: bool = False
    log_append_time: int | None = None
    last_offset_delta: int | None = None


def encode_batch(records: Sequence[NewRecord], fields: BatchFields | None = None) -> bytes:
    """One whole batch. Timestamps must fit 64 bits; offset deltas default to 0, 1, 2 ..."""
    fields = fields or BatchFields()
    base_timestamp = records[0].timestamp if records else -1
    body = b"".join([_encode_record(index, record, base_timestamp) for index, record in enumerate(records)])
    last = records[-1].offset_delta if records else None
    last_delta = fields.last_offset_delta
    if last_delta is None:
        last_delta = last if last is not None else max(len(records) - 1, 0)
    attributes = int(fields.compression)
    max_timestamp = max((record.timestamp for record in records), default=-1)
    if fields.log_append_time is not None:
        attributes |= _LOG_APPEND_TIME
        max_timestamp = fields.log_append_time
    attributes |= _TRANSACTIONAL if fields.transactional else 0
    attributes |= _CONTROL if fields.control else 0
    body = compress(fields.compression, body)
    out = bytearray(
        HEADER.pack(
            fields.base_offset,
            HEADER.size - LENGTH_END + len(body),
            fields.partition_leader_epoch,
            2,
            0,
            attributes,
            last_delta,
            base_timestamp,
            max_timestamp,
            fields.producer_id,
            fields.producer_epoch,
            fields.base_sequence,
            len(records),
        )
    )
    out += body
    out[CRC_FROM - 4 : CRC_FROM] = crc32c.crc32c(memoryview(out)[CRC_FROM:]).to_bytes(4, "big")
    return bytes(out)


def _encode_record(index: int, record: NewRecord, base_timestamp: int) -> bytes:
    delta = index if record.offset_delta is None else record.offset_delta
    parts = [b"\x00", _varint(record.timestamp - base_timestamp), _varint(delta)]
    for field in (record.key, record.value):
        if field is None:
            parts.append(_NULL)
        else:
            parts.append(_varint(len(field)))
            parts.append(field)
    parts.append(_varint(len(record.headers)))
    for name, value in record.headers:
        raw = name.encode("utf-8")
        parts.append(_varint(len(raw)))
        parts.append(raw)
        parts.append(_NULL if value is None else _varint(len(value)) + value)
    body = b"".join(parts)
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < 8192 else varint(value)
