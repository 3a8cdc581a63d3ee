"""The four codecs of record batches, each with a limit of its output.

Facts that shape this file: snappy comes raw or in xerial's block framing (Java writes the latter,
librdkafka the former); gzip members, lz4 frames and zstd frames may follow one another; and a few bytes of
any of them can announce gigabytes, so each output grows step by step up to the caller's limit and never
beyond.
"""

from __future__ import annotations

import gzip as _gzip
import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from types import ModuleType

import cramjam


class Compression(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CodecError(Exception):
    """Bytes that are invalid for the codec, or unpack beyond the limit."""

    def __init__(self, reason: str, *, too_large: bool = False) -> None:
        super().__init__(reason)
        self.too_large = too_large


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = Struct(">8sii")
_XERIAL_BLOCK = 32 * 1024
_LENGTH = Struct(">i")
_FIRST_GUESS = 64 * 1024
_BUFFER_FULL = "failed to write whole buffer"


def decompress(codec: Compression, data: bytes, limit: int) -> bytes:
    """Return ``data`` unpacked, at most ``limit`` bytes. Raises CodecError."""
    return _DECOMPRESS[codec](data, limit)


def compress(codec: Compression, data: bytes) -> bytes:
    """Return ``data`` packed as the Java client does it."""
    return _COMPRESS[codec](data)


def _too_large(limit: int) -> CodecError:
    return CodecError(f"it unpacks to more than {limit} bytes", too_large=True)


def _store(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _gunzip(data: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit
    while data:
        member = zlib.decompressobj(wbits=31)
        try:
            # One byte more than there is room for tells "exactly full" from "too much".
            part = member.decompress(data, room + 1)
        except zlib.error as err:
            raise CodecError(f"not valid gzip ({err})") from err
        room -= len(part)
        if room < 0:
            raise _too_large(limit)
        if not member.eof:
            raise CodecError("the gzip data ends in the middle")
        parts.append(part)
        data = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsnappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(data, limit)
    if len(data) < _XERIAL_HEADER.size:
        raise CodecError("the snappy framing ends inside of its header")
    parts: list[bytes] = []
    pos, end, room = _XERIAL_HEADER.size, len(data), limit
    while pos < end:
        if pos + 4 > end:
            raise CodecError("the snappy framing ends inside of a block length")
        size: int = _LENGTH.unpack_from(data, pos)[0]
        pos += 4
        if size < 0 or size > end - pos:
            raise CodecError(f"a snappy block of {size} bytes, where {end - pos} remain")
        part = _unsnappy_block(data[pos : pos + size], room)
        room -= len(part)
        parts.append(part)
        pos += size
    return b"".join(parts)


def _unsnappy_block(data: bytes, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        # Snappy cannot pack more than 64 bytes into three, so a larger claim is a lie that must allocate
        # nothing.
        if size > len(data) * 64:
            raise CodecError(f"{len(data)} bytes of snappy claim to unpack to {size}")
        if size > limit:
            raise _too_large(limit)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as err:
        raise CodecError(f"not valid snappy ({err})") from err


def _stepwise(module: ModuleType, name: str) -> Callable[[bytes, int], bytes]:
    """Return a function that unpacks into a buffer that grows."""

    def unpack(data: bytes, limit: int) -> bytes:
        if not data:
            raise CodecError(f"{name} data of no bytes")
        # The size in the frame's header is the sender's claim, and may be missing: the buffer starts at a usual ratio
        # and grows with proof. One byte above the limit tells "exactly full" from "too much".
        size = min(max(_FIRST_GUESS, 6 * len(data)), limit + 1)
        while True:
            room = bytearray(size)
            try:
                used: int = module.decompress_into(data, room)
            except cramjam.DecompressionError as err:
                # The library has one error class for bad data and for a full buffer; only the words differ.
                if _BUFFER_FULL not in str(err):
                    raise CodecError(f"not valid {name} ({err})") from err
                if size > limit:
                    raise _too_large(limit) from err
                size = min(size * 4, limit + 1)
                continue
            if used > limit:
                raise _too_large(limit)
            return bytes(memoryview(room)[:used])

    return unpack


def _xerial(data: bytes) -> bytes:
    # In the framing that Java writes: every client reads it.
    out = bytearray(_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1))
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        out += _LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _lz4(data: bytes) -> bytes:
    # Blocks are independent: Java refuses frames whose blocks refer to one another.
    packer = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    packer.compress(data)
    return bytes(packer.finish())


_DECOMPRESS: dict[Compression, Callable[[bytes, int], bytes]] = {
    Compression.NONE: _store,
    Compression.GZIP: _gunzip,
    Compression.SNAPPY: _unsnappy,
    Compression.LZ4: _stepwise(cramjam.lz4, "lz4"),
    Compression.ZSTD: _stepwise(cramjam.zstd, "zstd"),
}

_COMPRESS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: lambda data: data,
    Compression.GZIP: lambda data: _gzip.compress(data, compresslevel=6, mtime=0),
    Compression.SNAPPY: _xerial,
    Compression.LZ4: _lz4,
    Compression.ZSTD: lambda data: bytes(cramjam.zstd.compress(data, level=3)),
}
