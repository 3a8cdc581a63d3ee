"""The hashes, against vectors of the clients that they must equal."""

from __future__ import annotations

import pytest

from streamlet.kafka.producer.partitioners import (
    crc32_partition,
    java_bytes_hash,
    java_hash,
    java_hash_partition,
    java_string_hash,
    murmur2,
    murmur2_partition,
)

# Java's own: org.apache.kafka.common.utils.UtilsTest#testMurmur2
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("data", "expected"), MURMUR2.items())
def test_p2_murmur2_equals_java_on_its_own_vectors(data: bytes, expected: int) -> None:
    """As a signed number; the partition clears the sign bit."""
    assert murmur2(data) == expected & 0xFFFFFFFF
    assert murmur2_partition(data, 7) == (expected & 0x7FFFFFFF) % 7


def word_by_word(data: bytes) -> int:
    """MurmurHash2 as its description has it, with Kafka's seed."""
    value, whole = 0x9747B28C ^ len(data), len(data) - len(data) % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        value = (value * 0x5BD1E995 ^ (word ^ word >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return value ^ value >> 15


def test_p2_murmur2_of_every_length_is_one_function() -> None:
    """Beyond the prepared layouts (256 bytes) too."""
    for data, expected in MURMUR2.items():
        assert word_by_word(data) == expected & 0xFFFFFFFF
    for size in (*range(300), 1000):
        for data in (b"\xff" * size, bytes(n * 37 % 251 for n in range(size))):
            assert murmur2(data) == word_by_word(data)


def test_p2_hash_codes_are_those_of_java() -> None:
    """What String.hashCode, Arrays.hashCode and Integer / Long.hashCode give in Java."""
    assert java_string_hash("hello") == 99162322
    assert java_string_hash("") == 0
    assert java_string_hash("polygenelubricants") == -(1 << 31)
    assert java_string_hash("😀") == 1772899  # two UTF-16 units
    assert java_bytes_hash(b"") == 1
    assert java_bytes_hash(b"\x01\x02\x03") == 30817
    assert java_bytes_hash(b"\xff") == 30
    assert java_hash(42) == 42 and java_hash(-1) == -1
    assert java_hash(1 << 32) == 1
    assert java_hash_partition("polygenelubricants", 5) == 0
    assert java_hash_partition(-1, 5) == 2, "the sign bit is cleared, as Utils.abs does: 2**31 - 1 is left"
    with pytest.raises(TypeError, match="float"):
        java_hash(1.5)


def test_p2_crc32_gives_librdkafkas_check_value() -> None:
    """The check value of CRC-32."""
    assert crc32_partition(b"123456789", 1 << 40) == 0xCBF43926
