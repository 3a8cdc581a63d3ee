"""Batches from the bytes of a fetch: bounds, checksum, format, compression, read_committed.

Java's rules (``CompletedFetch``): an aborted transaction begins to hide its producer's batches at the first
batch that reaches its first offset and stops at its abort marker; control batches are never delivered; the
last batch may be cut off and is then left for the next fetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

import crc32c

from streamlet.kafka.errors import CorruptRecord, DecompressedTooLarge, UnsupportedRecordFormat
from streamlet.kafka.records.batch import (
    CRC_FROM,
    HEADER,
    LENGTH_END,
    BatchHeader,
    RecordBatch,
    decode_records,
    empty_batch,
    parse_header,
)
from streamlet.kafka.records.compression import CodecError, Compression, decompress

DECOMPRESSED_LIMIT = 128 * 1024 * 1024
"""Bytes that one batch may unpack to."""
Aborted = tuple[int, int]
"""An aborted transaction: producer id, and its first offset."""

_PREFIX = Struct(">qi")
_CONTROL_KEY = Struct(">hh")
_ABORT = 0
_MAGIC_AT = 16
_LEAST_LENGTH = HEADER.size - LENGTH_END


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
                f"read. Read on behind it, at offset {header.next_offset}, and take what it holds with another client; "
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
        "replica; if it stays, read on behind it by hand and restore what it held."
    )


def _old_format(options: ReadOptions, offset: int, magic: int) -> UnsupportedRecordFormat:
    return UnsupportedRecordFormat(
        f"Topic {options.topic!r}, partition {options.partition}, offset {offset} holds records in format "
        f"v{magic}, written before Kafka 0.11 (or with log.message.format.version below it). This client "
        "reads format v2 only: copy the topic with a Java client of version 3, or start behind those records."
    )
