"""Record batches (format v2, KIP-98): from the bytes of a fetch to columns of records. Pure.

Two ways lead into a fetch answer. :func:`scan_headers` reads the headers alone (61 bytes each), so that the next fetch
can leave before anything is unpacked; it never raises and never judges. :func:`read_batches` unpacks a batch when it
is asked for it, and raises the error of a damaged one.

The decoder is one flat loop a batch, varints inlined with a path for one byte and for two, keys and values as slices of
one ``bytes``; values that all records share (base offset, timestamp, epoch) are kept once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

import crc32c

from streamlet.kafka.errors import CorruptRecord, DecompressedTooLarge, UnsupportedRecordFormat
from streamlet.kafka.records.compression import CodecError, Compression, decompress
from streamlet.kafka.records.varint import read_raw_varint, read_varint

# -- the header ------------------------------------------------------------------------------------------------------

HEADER = Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max timestamp, producer id and
epoch, base sequence, record count: 61 bytes."""
LENGTH_END = 12
"""The length counts the bytes after this one."""
CRC_FROM = 21
"""The checksum covers the bytes after this one: the attributes first."""
_MAGIC_AT = 16
_HEADER_SIZE = HEADER.size
_LEAST_LENGTH = HEADER.size - LENGTH_END
_CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
DELETE_HORIZON = 0x40
TRANSACTIONAL = 0x10
CONTROL_BATCH = 0x20


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
        return bool(self.attributes & CONTROL_BATCH)


def parse_header(data: bytes | memoryview, pos: int) -> BatchHeader:
    """Return the header at ``pos``, where the caller has seen 61 bytes."""
    return BatchHeader(*HEADER.unpack_from(data, pos))


def first_time_ms(data: bytes | memoryview) -> int:
    """Return the time of the first batch, as of its header; -1: not known."""
    if len(data) < _HEADER_SIZE or data[_MAGIC_AT] != 2:
        return -1
    header = parse_header(data, 0)
    # With a delete horizon (KIP-534) the base is that horizon, which lies in the future.
    return header.max_timestamp if header.attributes & (LOG_APPEND_TIME | DELETE_HORIZON) else header.base_timestamp


# Base offset, length, leader epoch, magic, last offset delta, record count: one unpack for each batch.
_FIELDS = Struct(">qiib6xi30xi")


class HeaderScan(NamedTuple):
    """Summary of the whole batches at the front of some bytes."""

    records_at_most: int
    """Compaction and aborted transactions may leave fewer to hand out."""
    next_offset: int
    """Offset to read on at after these batches; the position itself when there is none."""
    leader_epoch: int
    """Of the last whole batch; the caller's value when there is none."""
    unreadable: bool
    """True when bytes came that decoding will refuse: a bad header, or no whole batch at all."""


def scan_headers(data: bytes | memoryview, position: int, leader_epoch: int = -1) -> HeaderScan:
    """Sum up the whole batches in ``data``, fetched from ``position``.

    ``leader_epoch`` is that of the record before ``position``, -1 when it is not known.
    """
    # The scan stops at the first bytes that are not a whole v2 batch, and leaves the error to read_batches: that raises
    # it when the reader comes there, after the records before it.
    pos, size = 0, len(data)
    count, found = 0, position
    while size - pos > _MAGIC_AT:
        # Formats before v2 have the magic byte at the same place, but another header: nothing else is read of them.
        if data[pos + _MAGIC_AT] != 2:
            return HeaderScan(count, found, leader_epoch, True)
        if size - pos < _HEADER_SIZE:
            break
        base, length, epoch, _magic, delta, records = _FIELDS.unpack_from(data, pos)
        if length < _LEAST_LENGTH or delta < 0:
            return HeaderScan(count, found, leader_epoch, True)
        end = pos + LENGTH_END + length
        if end > size:  # brokers cut the last batch of an answer at the byte limit
            break
        if records > 0:
            count += records
        # The first batch may begin below the position, and a wholly older one would lead back.
        found = max(found, base + delta + 1)
        leader_epoch, pos = epoch, end
    # The first batch always comes whole: bytes without one are damage, not a cut tail.
    return HeaderScan(count, found, leader_epoch, size > 0 and pos == 0)


# -- the records -----------------------------------------------------------------------------------------------------

_LEAST_RECORD = 7
Headers = tuple[tuple[str, bytes | None], ...]


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

    def timestamp(self, index: int) -> int:
        """Return the time of record ``index``, in milliseconds since 1970."""
        header = self.header
        is_log_append = header.attributes & LOG_APPEND_TIME
        return header.max_timestamp if is_log_append else header.base_timestamp + self.timestamp_deltas[index]

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


def decode_records(header: BatchHeader, data: bytes, start: int = 0) -> RecordBatch:
    """Return the uncompressed records of ``data`` from ``start`` on.

    Raises ValueError or IndexError for malformed ones.
    """
    # Long: the three columns of numbers and the key are read by the same few lines, written out each time: a call for
    # each would double the cost of a record.
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
        raise ValueError(f"{size - pos} bytes after the last of {count} records")
    if offset_deltas is None:
        if count > header.last_offset_delta + 1:
            raise ValueError("the offsets of the records do not fit the batch")
        return RecordBatch(header, range(count), timestamp_deltas, keys, values, raw_headers)
    rising = all(low < high for low, high in pairwise([-1, *offset_deltas, header.last_offset_delta + 1]))
    if not rising:
        raise ValueError("the offsets of the records do not rise within the batch")
    return RecordBatch(header, offset_deltas, timestamp_deltas, keys, values, raw_headers)


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


# -- from the bytes of a fetch to batches ----------------------------------------------------------------------------

DECOMPRESSED_LIMIT = 128 * 1024 * 1024
"""Bytes that one batch may unpack to."""
Aborted = tuple[int, int]
"""An aborted transaction: producer id, and its first offset."""
_PREFIX = Struct(">qi")
_CONTROL_KEY = Struct(">hh")
_ABORT = 0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading; records of the first batch before ``position`` are hidden."""

    topic: str
    partition: int
    position: int = 0
    read_committed: bool = True
    check_crcs: bool = True
    decompressed_limit: int = DECOMPRESSED_LIMIT


def read_batches(
    data: bytes | bytearray | memoryview, options: ReadOptions, aborted: Iterable[Aborted] = ()
) -> Iterator[RecordBatch]:
    """Yield each whole batch in order; hidden ones are empty, with ``next_offset``.

    Unpacks a batch only when it is asked for. Raises CorruptRecord, DecompressedTooLarge or
    UnsupportedRecordFormat, each naming topic, partition and offset; the batches before it have been given.
    """
    # Java's rules (CompletedFetch): an aborted transaction begins to hide its producer's batches at the first batch
    # that reaches its first offset and stops at its abort marker; control batches are never delivered.
    view = memoryview(data)
    pos, size = 0, len(view)
    transactions = _Transactions(aborted)
    while size - pos >= _MAGIC_AT + 1:
        base_offset, length = _PREFIX.unpack_from(view, pos)
        if view[pos + _MAGIC_AT] < 2:
            raise _old_format(options, base_offset, view[pos + _MAGIC_AT])
        if length < _LEAST_LENGTH:
            raise _corrupt(options, base_offset, f"the batch announces a length of {length} bytes")
        end = pos + LENGTH_END + length
        # The broker cuts the answer at its limit, in the middle of a batch: the rest comes with the next fetch.
        if end > size:
            return
        yield _read_one(view[pos:end], options, transactions)
        pos = end


def _read_one(view: memoryview, options: ReadOptions, transactions: _Transactions) -> RecordBatch:
    header = parse_header(view, 0)
    if header.magic != 2:
        raise _corrupt(options, header.base_offset, f"the batch has format {header.magic}, which is not known")
    if options.check_crcs:
        found = crc32c.crc32c(view[CRC_FROM:])
        if found != header.crc:
            reason = f"its checksum is {found:#010x}, and {header.crc:#010x} was stored with it"
            raise _corrupt(options, header.base_offset, reason)
    if header.last_offset_delta < 0:
        raise _corrupt(options, header.base_offset, f"its last offset delta is {header.last_offset_delta}")
    # An empty batch still has its next_offset: the position moves past records that nobody gets.
    if options.read_committed and transactions.hide(header):
        return empty_batch(header)
    # Batches before the position are not unpacked. A control batch is, as it may end the hiding of later ones.
    if header.next_offset <= options.position and not header.is_control:
        return empty_batch(header)
    batch = _unpack(view, header, options)
    if header.is_control:
        transactions.marker(batch)
        return empty_batch(header)
    return batch.starting_at(options.position) if header.base_offset < options.position else batch


def _unpack(view: memoryview, header: BatchHeader, options: ReadOptions) -> RecordBatch:
    try:
        if header.codec == Compression.NONE:
            return decode_records(header, bytes(view), HEADER.size)
        packed = bytes(view[HEADER.size :])
        data = decompress(Compression(header.codec), packed, options.decompressed_limit)
        return decode_records(header, data)
    except CodecError as err:
        if err.too_large:
            raise DecompressedTooLarge(
                f"The batch of topic {options.topic!r}, partition {options.partition}, at offset "
                f"{header.base_offset} has {len(view)} bytes and unpacks to more than "
                f"{options.decompressed_limit}, which is all this client holds, and no setting raises that. It was not "
                f"read. Read on after it, at offset {header.next_offset}, and take what it holds with another client; "
                "let its producer write smaller batches (batch_size)."
            ) from err
        raise _corrupt(options, header.base_offset, str(err)) from err
    except (ValueError, IndexError) as err:
        reason = "its records end in the middle" if isinstance(err, IndexError) else str(err)
        raise _corrupt(options, header.base_offset, reason) from err


class _Transactions:
    """The producers whose batches an aborted transaction hides at this point."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda row: row[1], reverse=True)
        self._hidden: set[int] = set()

    def hide(self, header: BatchHeader) -> bool:
        # Sorted by first offset and taken from the end: a transaction begins to hide at the first batch that reaches
        # it.
        coming = self._coming
        while coming and coming[-1][1] <= header.last_offset:
            self._hidden.add(coming.pop()[0])
        return header.is_transactional and not header.is_control and header.producer_id in self._hidden

    def marker(self, batch: RecordBatch) -> None:
        key = batch.keys[0] if batch.keys else None
        if key is not None and len(key) >= _CONTROL_KEY.size:
            _version, kind = _CONTROL_KEY.unpack_from(key, 0)
            if kind == _ABORT:
                self._hidden.discard(batch.header.producer_id)


def _corrupt(options: ReadOptions, offset: int, reason: str) -> CorruptRecord:
    return CorruptRecord(
        f"The batch of topic {options.topic!r}, partition {options.partition}, at offset {offset} cannot be "
        f"read: {reason}. It was damaged on the broker's disk or on its way. Try again from another "
        "replica; if it stays, read on after it by hand and restore what it held."
    )


def _old_format(options: ReadOptions, offset: int, magic: int) -> UnsupportedRecordFormat:
    return UnsupportedRecordFormat(
        f"Topic {options.topic!r}, partition {options.partition}, offset {offset} holds records in format "
        f"v{magic}, written before Kafka 0.11 (or with log.message.format.version below it). This client "
        "reads format v2 only: copy the topic with a Java client of version 3, or start after those records."
    )
