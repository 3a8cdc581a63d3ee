"""The header that serializers with a schema registry write before each key and value.

One byte 0, then the schema's id (4 bytes, big-endian). Protobuf writes the message's place in its file after that: a
count and so many indexes, as zigzag varints; a single 0 stands for the first message. Source: Confluent's wire format.
"""

from __future__ import annotations

from streamlet.spouts.kafka.errors import UnreadableData

Data = bytes | memoryview

MAGIC = 0
SIZE = 5
MOST_INDEXES = 64
"""Levels of messages within messages; more is not this header."""


def split_header(data: Data, without: str = "framed=False") -> tuple[int, Data]:
    """Return the schema's id, and the bytes after the header. Raises UnreadableData.

    ``without``: what to say to the scheme where the topic has no such headers, for the error.
    """
    if len(data) < SIZE or data[0] != MAGIC:
        raise UnreadableData(
            "it does not begin with a schema registry's header (a byte 0 and a schema id of 4 bytes): it has "
            f"{len(data)} bytes and begins with {bytes(data[:8])!r}; if the topic has no such headers, say {without}"
        )
    return int.from_bytes(data[1:SIZE], "big"), data[SIZE:]


def skip_message_indexes(data: Data) -> Data:
    """Return the bytes after a Protobuf record's message indexes. Raises UnreadableData."""
    count, at = _varint(data, 0)
    if not 0 <= count <= MOST_INDEXES:
        raise UnreadableData(f"its header names {count} message indexes, which no Protobuf serializer writes")
    for _ in range(count):
        _, at = _varint(data, at)
    return data[at:]


def _varint(data: Data, at: int) -> tuple[int, int]:
    """Return the zigzag varint at ``at``, and the place after it."""
    raw = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
    raise UnreadableData("its header ends within the message indexes")
