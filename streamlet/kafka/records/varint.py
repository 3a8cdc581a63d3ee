"""Zig-zag varints of the record format (KIP-98): the careful forms; batch loops inline the fast path."""

from __future__ import annotations


def read_raw_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the unsigned value of a varint, and the position after it.

    Raises ValueError for more than 64 bits, IndexError when ``data`` ends inside of it.
    """
    value = shift = 0
    while shift < 70:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, pos
        shift += 7
    raise ValueError("a variable-length number of more than 64 bits")


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return a signed (zig-zag) varint, and the position after it."""
    raw, pos = read_raw_varint(data, pos)
    return (raw >> 1) ^ -(raw & 1), pos


def varint(value: int) -> bytes:
    """Return the zig-zag varint of a signed value. Raises ValueError beyond 64 bits."""
    raw = (value << 1) ^ (value >> 63)
    if raw >> 64:
        raise ValueError(f"{value} does not fit into 64 bits")
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
