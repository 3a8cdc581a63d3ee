"""The four codecs: what each takes, what each writes, and the limit of what is unpacked."""

from __future__ import annotations

import gzip
import random
import tracemalloc

import cramjam
import pytest

from streamlet.kafka.records.compression import CodecError, Compression, compress, decompress

PACKING = [codec for codec in Compression if codec is not Compression.NONE]


@pytest.mark.parametrize("codec", PACKING)
def test_what_unpacks_to_too_much_is_refused_with_bounded_memory(codec: Compression) -> None:
    """A few kilobytes that stand for 64 MiB cost no more than the limit."""
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(CodecError) as caught:
            decompress(codec, bomb, 1 << 20)
        assert caught.value.too_large
        assert tracemalloc.get_traced_memory()[1] < len(bomb) * 2 + (8 << 20)
    finally:
        tracemalloc.stop()
    assert len(decompress(codec, bomb, 64 << 20)) == 64 << 20


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 1_000_000])
def test_exactly_the_limit_is_allowed(codec: Compression, size: int) -> None:
    """One byte less is not."""
    data = random.Random(size).randbytes(size)
    packed = compress(codec, data)
    assert decompress(codec, packed, size) == data
    if size:
        with pytest.raises(CodecError):
            decompress(codec, packed, size - 1)


def test_concatenated_frames_are_read_to_the_end() -> None:
    """gzip members, lz4 and zstd frames may follow one another; reading only the first would lose records."""
    one, two = b"a" * 70_000, b"b" * 3
    assert decompress(Compression.GZIP, gzip.compress(one) + gzip.compress(two), 1 << 20) == one + two
    for codec in (Compression.LZ4, Compression.ZSTD):
        assert decompress(codec, compress(codec, one) + compress(codec, two), 1 << 20) == one + two


def test_snappy_comes_raw_and_framed() -> None:
    """librdkafka writes it raw, Java in xerial's blocks."""
    data = b"hello " * 20_000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), 1 << 20) == data
    assert decompress(Compression.SNAPPY, compress(Compression.SNAPPY, data), 1 << 20) == data


def test_an_lz4_frame_of_ours_has_independent_blocks() -> None:
    """Java refuses the other kind."""
    assert compress(Compression.LZ4, b"x" * 100)[4] & 0x20


@pytest.mark.parametrize("codec", PACKING)
def test_truncated_and_foreign_bytes_are_codec_errors(codec: Compression) -> None:
    """Never a crash, and never taken for a full buffer (which would be tried again with a larger one)."""
    packed = compress(codec, random.Random(2).randbytes(5000))
    for bad in (packed[:-1], packed[: len(packed) // 2], packed[:3], b"no such codec" * 9):
        with pytest.raises(CodecError) as caught:
            decompress(codec, bad, 1 << 20)
        assert not caught.value.too_large


def test_the_numbers_are_those_of_a_batchs_attributes() -> None:
    """A wrong one would be read with another codec by every other client."""
    assert [(codec.name, int(codec)) for codec in Compression] == [
        ("NONE", 0), ("GZIP", 1), ("SNAPPY", 2), ("LZ4", 3), ("ZSTD", 4)
    ]  # fmt: skip


@pytest.mark.parametrize("codec", list(Compression))
def test_equal_bytes_are_packed_into_equal_bytes(codec: Compression) -> None:
    """No time of the packing stands in a gzip header: a batch that is packed again is the same."""
    data = b"line " * 500
    assert compress(codec, data) == compress(codec, data)
    assert codec is Compression.NONE or len(compress(codec, data)) < len(data) // 4


def test_java_reads_our_snappy_in_blocks_of_32_kib() -> None:
    """xerial's framing: magic, version 1, compatible with 1, then length and block."""
    packed = compress(Compression.SNAPPY, bytes(70_000))
    assert packed[:16] == b"\x82SNAPPY\0" + (1).to_bytes(4, "big") * 2
    sizes, at = [], 16
    while at < len(packed):
        length = int.from_bytes(packed[at : at + 4], "big")
        sizes.append(cramjam.snappy.decompress_raw_len(packed[at + 4 : at + 4 + length]))
        at += 4 + length
    assert sizes == [32_768, 32_768, 4_464]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x82SNAPPY\0\0\0", "inside of its header"),
        (b"\x82SNAPPY\0" + bytes(8) + b"\0\0", "inside of a block length"),
        (b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\x09abc", "a snappy block of 9 bytes, where 3 remain"),
        (b"\x82SNAPPY\0" + bytes(8) + b"\xff\xff\xff\xff", "a snappy block of -1 bytes, where 0 remain"),
        (b"\xff\xff\xff\xff\x0f\0", "6 bytes of snappy claim to unpack to 4294967295"),
    ],
)
def test_a_snappy_frame_that_lies_is_refused_before_anything_is_unpacked(data: bytes, words: str) -> None:
    with pytest.raises(CodecError, match=words):
        decompress(Compression.SNAPPY, data, 1 << 40)


def test_the_limit_counts_all_snappy_blocks_together() -> None:
    packed = compress(Compression.SNAPPY, bytes(70_000))
    assert len(decompress(Compression.SNAPPY, packed, 70_000)) == 70_000
    with pytest.raises(CodecError, match="more than") as caught:
        decompress(Compression.SNAPPY, packed, 69_999)
    assert caught.value.too_large
