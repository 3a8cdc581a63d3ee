"""Record batches (format v2, KIP-98), as columns.

One flat loop a batch, varints inlined with a path for one byte and for two, keys and values as slices of one
``bytes``; values that all records share (base offset, timestamp, epoch) are kept once. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from struct import Struct

from streamlet.kafka.records.varint import read_raw_varint, read_varint

HEADER = Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max timestamp, producer id and
epoch, base sequence, record count: 61 bytes."""

LENGTH_END = 12
"""The length counts the bytes after this one."""
CRC_FROM = 21
"""The checksum covers the bytes after this one: the attributes first."""

_CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
_LEAST_RECORD = 7

Headers = tuple[tuple[str, bytes | None], ...]


class TimestampType(IntEnum):
    """The clock of the timestamps: the producer's, or the broker's at append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header of a batch, read before its records are unpacked."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """The last offset; compaction keeps it even when the last record is gone."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The number of the compression codec; see Compression."""
        return self.attributes & _CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """The clock of the timestamps."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether it was written in a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction's end marker, which no user gets."""
        return bool(self.attributes & CONTROL)


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records as columns of equal length; offsets and timestamps are deltas to the header's base.

    ``offset_deltas`` is a range when nothing was compacted away. ``raw_headers`` holds only the records
    that have headers, undecoded, by index. A batch with nothing to deliver (control, aborted, compacted)
    has empty columns and still says with ``next_offset`` where to read on.
    """

    header: BatchHeader
    offset_deltas: Sequence[int]
    timestamp_deltas: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    raw_headers: dict[int, bytes]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def base_offset(self) -> int:
        """The offset of the first record, as it was written."""
        return self.header.base_offset

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.header.next_offset

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the append, -1 for unknown."""
        return self.header.partition_leader_epoch

    @property
    def timestamp_type(self) -> TimestampType:
        """The clock of the timestamps."""
        return self.header.timestamp_type

    def offsets(self) -> Sequence[int]:
        """Return absolute offsets, a range where the batch has no holes."""
        base, deltas = self.header.base_offset, self.offset_deltas
        if isinstance(deltas, range):
            return range(base + deltas.start, base + deltas.stop)
        return [base + delta for delta in deltas]

    def timestamps(self) -> list[int]:
        """Return milliseconds since 1970, with log-append time the batch's own for all."""
        if self.header.attributes & LOG_APPEND_TIME:
            return [self.header.max_timestamp] * len(self.values)
        base = self.header.base_timestamp
        return [base + delta for delta in self.timestamp_deltas]

    def headers(self, index: int) -> Headers:
        """Return the headers of record ``index``."""
        raw = self.raw_headers.get(index)
        return () if raw is None else decode_headers(raw)

    def starting_at(self, offset: int) -> RecordBatch:
        """Return the batch without the records before ``offset``."""
        # A fetch answers with whole batches: the first one may begin before the offset that was asked for.
        skip = bisect_left(self.offset_deltas, offset - self.header.base_offset)
        if not skip:
            return self
        return replace(
            self,
            offset_deltas=self.offset_deltas[skip:],
            timestamp_deltas=self.timestamp_deltas[skip:],
            keys=self.keys[skip:],
            values=self.values[skip:],
            raw_headers={index - skip: raw for index, raw in self.raw_headers.items() if index >= skip},
        )


def empty_batch(header: BatchHeader) -> RecordBatch:
    """Return a batch that delivers no record."""
    return RecordBatch(header, range(0), (), (), (), {})


def decode_headers(raw: bytes) -> Headers:
    """Return record headers from bytes that :func:`check_headers` has accepted."""
    # A name that is not UTF-8, which librdkafka can write, must not cost the record: it is read as Java reads it.
    count, pos = read_varint(raw, 0)
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, pos = read_varint(raw, pos)
        name, pos = raw[pos : pos + size], pos + size
        size, pos = read_varint(raw, pos)
        value = None
        if size != -1:
            value, pos = raw[pos : pos + size], pos + size
        found.append((name.decode("utf-8", "replace"), value))
    return tuple(found)


def check_headers(raw: bytes) -> None:
    """Raise ValueError or IndexError unless the bytes are exactly a record's headers."""
    count, pos = read_varint(raw, 0)
    end = len(raw)
    if not 0 <= count * 2 <= end - pos:
        raise ValueError(f"{count} headers in {end} bytes")
    for part in range(count * 2):
        byte = raw[pos]
        if byte < 128 and not byte & 1:
            pos += 1 + (byte >> 1)
        else:
            size, pos = read_varint(raw, pos)
            if size < -(part & 1):  # a value may be null (-1), a name may not
                raise ValueError(f"a header part of {size} bytes")
            pos += max(size, 0)
    if pos != end:
        raise ValueError(f"the headers have {pos} bytes, where {end} are left of the record")


def decode_records(header: BatchHeader, data: bytes, start: int = 0) -> RecordBatch:
    """Return the uncompressed records of ``data`` from ``start`` on.

    Raises ValueError or IndexError for malformed ones.
    """
    # The three columns of numbers and the key are read by the same few lines, written out each time: a call for each
    # would double the cost of a record.
    count, pos, size = header.record_count, start, len(data)
    # The count is not believed before it fits into the bytes: lists of its size are built below.
    if count < 0 or count * _LEAST_RECORD > size - start:
        raise ValueError(f"{count} records in {size - start} bytes")
    # None while the offsets are 0, 1, 2 ..., as they nearly always are: a range then takes the place of a list.
    offset_deltas: list[int] | None = None
    timestamp_deltas: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    raw_headers: dict[int, bytes] = {}
    add_timestamp, add_key, add_value = timestamp_deltas.append, keys.append, values.append
    for twice in range(0, count + count, 2):
        raw = data[pos]
        pos += 1
        if raw > 127:
            more = data[pos]
            if more < 128:
                raw += (more << 7) - 128
                pos += 1
            else:
                raw, pos = read_raw_varint(data, pos - 1)
        # Twice the end of the record: an odd (negative) length then never equals twice a position.
        end2 = pos + pos + raw
        raw = data[pos + 1]
        pos += 2
        if raw > 127:
            more = data[pos]
            if more < 128:
                raw += (more << 7) - 128
                pos += 1
            else:
                raw, pos = read_raw_varint(data, pos - 1)
        add_timestamp(-(raw + 1 >> 1) if raw & 1 else raw >> 1)
        raw = data[pos]
        pos += 1
        if raw > 127:
            more = data[pos]
            if more < 128:
                raw += (more << 7) - 128
                pos += 1
            else:
                raw, pos = read_raw_varint(data, pos - 1)
        if raw != twice or offset_deltas is not None:
            if offset_deltas is None:
                offset_deltas = list(range(twice >> 1))
            offset_deltas.append(-(raw + 1 >> 1) if raw & 1 else raw >> 1)
        raw = data[pos]
        pos += 1
        if raw == 1:
            add_key(None)
        else:
            if raw > 127:
                raw, pos = read_raw_varint(data, pos - 1)
            if raw & 1:
                raise ValueError(f"record {twice >> 1} has a key of negative length")
            stop = pos + (raw >> 1)
            add_key(data[pos:stop])
            pos = stop
        raw = data[pos]
        pos += 1
        if raw == 1:
            add_value(None)
        else:
            if raw > 127:
                more = data[pos]
                if more < 128:
                    raw += (more << 7) - 128
                    pos += 1
                else:
                    raw, pos = read_raw_varint(data, pos - 1)
            if raw & 1:
                raise ValueError(f"record {twice >> 1} has a value of negative length")
            stop = pos + (raw >> 1)
            add_value(data[pos:stop])
            pos = stop
        if data[pos] == 0:
            pos += 1
        else:
            # Checked now, decoded when asked for: by then the record is handed out, and an error would lose it.
            stop = end2 >> 1
            raw_headers[twice >> 1] = headers = data[pos:stop]
            check_headers(headers)
            pos = stop
        if pos + pos != end2 or pos > size:
            raise ValueError(f"record {twice >> 1} is not as long as it says")
    if pos != size:
        raise ValueError(f"{size - pos} bytes behind the last of {count} records")
    if offset_deltas is None:
        if count > header.last_offset_delta + 1:
            raise ValueError("the offsets of the records do not fit the batch")
        return RecordBatch(header, range(count), timestamp_deltas, keys, values, raw_headers)
    rising = all(low < high for low, high in pairwise([-1, *offset_deltas, header.last_offset_delta + 1]))
    if not rising:
        raise ValueError("the offsets of the records do not rise within the batch")
    return RecordBatch(header, offset_deltas, timestamp_deltas, keys, values, raw_headers)


def parse_header(data: bytes | memoryview, pos: int) -> BatchHeader:
    """Return the header at ``pos``, where the caller has seen 61 bytes."""
    return BatchHeader(*HEADER.unpack_from(data, pos))
