"""Whole record batches of any kind (format v2), control batches and gaps too: what logs hold.

The producer encodes record by record instead (``kafka/records/appending.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamlet.kafka.records.appending import encode_record, framed_batch
from streamlet.kafka.records.compression import Compression, compress
from streamlet.kafka.records.record_batch import CONTROL_BATCH, LOG_APPEND_TIME, TRANSACTIONAL, Headers


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
    """Fields of the header of a batch to write."""

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
    """Return a whole batch; offset deltas default to 0, 1, 2 ...

    Raises ValueError for timestamps beyond 64 bits.
    """
    fields = fields or BatchFields()
    base_timestamp = records[0].timestamp if records else -1
    rows = [(index if row.offset_delta is None else row.offset_delta, row) for index, row in enumerate(records)]
    body = b"".join(
        encode_record(row.key, row.value, row.headers, row.timestamp - base_timestamp, delta) for delta, row in rows
    )
    last = records[-1].offset_delta if records else None
    last_delta = fields.last_offset_delta
    if last_delta is None:
        last_delta = last if last is not None else max(len(records) - 1, 0)
    attributes = int(fields.compression)
    max_timestamp = max((record.timestamp for record in records), default=-1)
    if fields.log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = fields.log_append_time
    attributes |= TRANSACTIONAL if fields.transactional else 0
    attributes |= CONTROL_BATCH if fields.control else 0
    return framed_batch(
        compress(fields.compression, body),
        len(records),
        attributes,
        (base_timestamp, max_timestamp),
        (fields.producer_id, fields.producer_epoch, fields.base_sequence),
        last_delta,
        fields.base_offset,
        fields.partition_leader_epoch,
    )
