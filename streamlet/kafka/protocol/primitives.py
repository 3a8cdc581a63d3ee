"""The protocol's scalars. Every length is checked against the remaining bytes before it is used."""

from __future__ import annotations

import base64
from struct import Struct

from streamlet.kafka.errors import MalformedFrame

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")
UINT16 = Struct(">H")

_NULL_UUID = bytes(16)


class Reader:
    """A cursor over one frame. ``data`` is not copied: slices are views into it."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = memoryview(data)
        self.pos = 0
        self.end = len(data)

    @property
    def remaining(self) -> int:
        """The number of bytes left."""
        return self.end - self.pos

    def take(self, size: int) -> memoryview:
        """Return the next ``size`` bytes as a view. Raises MalformedFrame."""
        start = self.pos
        stop = start + size
        if size < 0 or stop > self.end:
            raise MalformedFrame(f"a length of {size} at byte {start}, where {self.end - start} bytes remain")
        self.pos = stop
        return self.data[start:stop]

    def fixed(self, layout: Struct) -> int:
        """Return one integer of a fixed layout. Raises MalformedFrame."""
        start = self.pos
        stop = start + layout.size
        if stop > self.end:
            raise MalformedFrame(f"the frame ends at byte {self.end}, inside of the number at byte {start}")
        self.pos = stop
        value: int = layout.unpack_from(self.data, start)[0]
        return value

    def uvarint(self) -> int:
        """Return an unsigned varint of at most 32 bits. Raises MalformedFrame."""
        data, pos = self.data, self.pos
        value = shift = 0
        # Five bytes hold 35 bits: a value above 32 bits is refused below, and a sixth byte never read.
        while pos < self.end and shift < 35:
            byte = data[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    break
                self.pos = pos
                return value
            shift += 7
        raise MalformedFrame(f"a variable-length number at byte {self.pos} does not end where it must")

    def text(self, size: int) -> str:
        """Return ``size`` bytes of UTF-8 as text. Raises MalformedFrame."""
        start = self.pos
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError as err:
            raise MalformedFrame(f"the string at byte {start} is not UTF-8") from err


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def uuid_text(raw: bytes | memoryview) -> str | None:
    """Return a topic id as Kafka's tools print it.

    URL-safe base64, 22 characters; None for the zero id.
    """
    data = bytes(raw)
    if data == _NULL_UUID:
        return None
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def uuid_bytes(text: str | None) -> bytes:
    """Return the 16 bytes of a topic id's text. Raises ValueError."""
    if text is None:
        return _NULL_UUID
    raw = base64.urlsafe_b64decode(text + "==")
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a topic id (16 bytes in URL-safe base64)")
    return raw
