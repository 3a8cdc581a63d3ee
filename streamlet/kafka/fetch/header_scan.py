"""Contents of a fetch answer, read from its batch headers alone. Pure.

A reader wants to ask for the next records before it has unpacked the ones at hand. The headers (61 bytes each) say
where reading goes on, how many records come at most, and the leader epoch of the last batch.

Rule: the scan never raises and never judges. It stops at the first bytes that are not a whole v2 batch, and leaves
the error to :func:`streamlet.kafka.records.reading.read_batches`, which raises it when the reader comes there.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from streamlet.kafka.records.batch import HEADER, LENGTH_END

# Base offset, length, leader epoch, magic, last offset delta, record count: one unpack for each batch.
_FIELDS = Struct(">qiib6xi30xi")
_MAGIC_AT = 16
_HEADER_SIZE = HEADER.size
_LEAST_LENGTH = HEADER.size - LENGTH_END


class HeaderScan(NamedTuple):
    """Summary of the whole batches at the front of some bytes."""

    records_at_most: int
    """Compaction and aborted transactions may leave fewer to hand out."""
    next_offset: int
    """Offset to read on at behind these batches; the position itself when there is none."""
    leader_epoch: int
    """Of the last whole batch; the caller's value when there is none."""
    unreadable: bool
    """True when bytes came that decoding will refuse: a bad header, or no whole batch at all."""


def scan_headers(data: bytes | memoryview, position: int, leader_epoch: int = -1) -> HeaderScan:
    """Sum up the whole batches in ``data``, fetched from ``position``.

    ``leader_epoch`` is that of the record before ``position``, -1 when it is not known.
    """
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
