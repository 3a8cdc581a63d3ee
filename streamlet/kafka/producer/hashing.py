"""The hashes that decide where a key goes, equal to those of the clients that came before (P2). Pure.

murmur2 is Java's default today, ``hashCode`` was that of Kafka 0.8, crc32 is librdkafka's.
"""

from __future__ import annotations

import zlib
from struct import Struct, unpack_from

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WORDS = {count: Struct(f"<{count}I") for count in range(1, 65)}


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (Java: ``Utils.murmur2``), as an unsigned 32-bit number."""
    length = len(data)
    h = _SEED ^ length
    count = length >> 2
    if count:
        words = _WORDS[count].unpack_from(data) if count <= 64 else unpack_from(f"<{count}I", data)
        for k in words:
            k = (k * 0x5BD1E995) & 0xFFFFFFFF
            k ^= k >> 24
            h = ((h * 0x5BD1E995) & 0xFFFFFFFF) ^ ((k * 0x5BD1E995) & 0xFFFFFFFF)
    rest = length & 3
    if rest:
        tail = length & ~3
        if rest == 3:
            h ^= data[tail + 2] << 16
        if rest >= 2:
            h ^= data[tail + 1] << 8
        h = ((h ^ data[tail]) * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def java_string_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 units, as a signed 32-bit number."""
    raw = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in unpack_from(f"<{len(raw) // 2}H", raw):
        value = (value * 31 + unit) & _MASK
    return _signed(value)


def java_bytes_hash(data: bytes) -> int:
    """``Arrays.hashCode(byte[])``, as a signed 32-bit number."""
    value = 1
    for byte in data:
        value = (value * 31 + (byte - 256 if byte > 127 else byte)) & _MASK
    return _signed(value)


def java_hash(key: object) -> int:
    """``hashCode`` of what Java would have: a String, a byte array, an Integer or a Long. TypeError for others."""
    if isinstance(key, str):
        return java_string_hash(key)
    if isinstance(key, (bytes, bytearray, memoryview)):
        return java_bytes_hash(bytes(key))
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int) and -(1 << 63) <= key < 1 << 63:
        if -(1 << 31) <= key < 1 << 31:
            return key
        return _signed((key ^ ((key & 0xFFFFFFFFFFFFFFFF) >> 32)) & _MASK)
    raise TypeError(f"Java's hashCode of {type(key).__name__} is not known: give a str, bytes or int as partition key")


def murmur2_partition(key: bytes, count: int) -> int:
    """Java's choice for a key among ``count`` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def java_hash_partition(key: object, count: int) -> int:
    """Kafka 0.8's choice: ``Utils.abs(key.hashCode) % count``, where abs clears the sign bit."""
    return (java_hash(key) & 0x7FFFFFFF) % count


def crc32_partition(key: bytes, count: int) -> int:
    """librdkafka's choice (``consistent``)."""
    return zlib.crc32(key) % count


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value
