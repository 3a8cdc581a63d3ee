"""Messages as field tables, and one generic codec that is compiled from them for each version.

A message is a dataclass whose fields are declared with :func:`wire`. The declaration *is* the schema: kind,
the versions that have the field, the first that allows null, its tag. :func:`codec_of` turns a class and
a version into two closures (encode, decode) and keeps them. The rules are those of the protocol's own
description language (Java: ``generator/``): compact lengths and tagged fields in flexible versions; a field
that a version lacks is left out when it has its default, and refused otherwise unless it is ``ignorable``;
unknown tagged fields are skipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct as Layout
from struct import error as struct_error
from typing import Any, TypeVar, dataclass_transform

from streamlet.kafka.errors import MalformedFrame
from streamlet.kafka.protocol import primitives as p
from streamlet.kafka.protocol.primitives import Reader

# A codec carries values of any field kind; the dataclasses give them their static types.
Encode = Callable[[Any, bytearray], None]
Decode = Callable[[Reader], Any]

NEVER = 1 << 15
"""A version that no API will reach."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Codec:
    """Writer and reader of one kind in one version; ``least``: its fewest bytes."""

    encode: Encode
    decode: Decode
    least: int


class Kind:
    """The type of a field; builds the codec for a version."""

    def codec(self, version: int, flexible: bool, nullable: bool) -> Codec:
        """Return the codec; ``flexible``: compact lengths, ``nullable``: None is allowed."""
        raise NotImplementedError


class _Fixed(Kind):
    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def codec(self, version: int, flexible: bool, nullable: bool) -> Codec:
        layout = self._layout
        pack = layout.pack

        def encode(value: Any, out: bytearray) -> None:
            out += pack(value)

        return Codec(encode, lambda reader: reader.fixed(layout), layout.size)


class _Bool(Kind):
    def codec(self, version: int, flexible: bool, nullable: bool) -> Codec:
        def encode(value: Any, out: bytearray) -> None:
            out.append(1 if value else 0)

        return Codec(encode, lambda reader: reader.fixed(p.INT8) != 0, 1)


class _Uuid(Kind):
    def codec(self, version: int, flexible: bool, nullable: bool) -> Codec:
        def encode(value: Any, out: bytearray) -> None:
            out += p.uuid_bytes(value)

        return Codec(encode, lambda reader: p.uuid_text(reader.take(16)), 16)


def _length_codec(flexible: bool, layout: Layout) -> tuple[Callable[[int, bytearray], None], Decode, int]:
    """Return writer, reader and least size of a length (-1 = null)."""
    if flexible:
        return (
            lambda size, out: p.write_uvarint(out, size + 1),
            lambda reader: reader.uvarint() - 1,
            1,
        )

    def write(size: int, out: bytearray) -> None:
        out += layout.pack(size)

    return write, lambda reader: reader.fixed(layout), layout.size


def _write_null(write_length: Callable[[int, bytearray], None], nullable: bool, out: bytearray) -> None:
    if not nullable:
        raise ValueError("None where the protocol has no null")
    write_length(-1, out)


class _Sized(Kind):
    """Strings and byte strings: a length, then the bytes."""

    def __init__(self, layout: Layout, to_bytes: Callable[[Any], Any], take: Callable[[Reader, int], Any]) -> None:
        self._layout, self._to_bytes, self._take = layout, to_bytes, take

    def codec(self, version: int, flexible: bool, nullable: bool) -> Codec:
        write_length, read_length, least = _length_codec(flexible, self._layout)
        to_bytes, take = self._to_bytes, self._take

        def encode(value: Any, out: bytearray) -> None:
            if value is None:
                _write_null(write_length, nullable, out)
                return
            raw = to_bytes(value)
            write_length(len(raw), out)
            out += raw

        def decode(reader: Reader) -> Any:
            size = read_length(reader)
            if size == -1 and nullable:
                return None
            return take(reader, size)

        return Codec(encode, decode, least)


class Array(Kind):
    """A sequence of one kind, read as a tuple."""

    def __init__(self, item: Kind | type) -> None:
        self._item = item if isinstance(item, Kind) else Struct(item)

    def codec(self, version: int, flexible: bool, nullable: bool) -> Codec:
        write_length, read_length, least = _length_codec(flexible, p.INT32)
        item = self._item.codec(version, flexible, False)
        encode_item, decode_item, item_least = item.encode, item.decode, max(item.least, 1)

        def encode(value: Any, out: bytearray) -> None:
            if value is None:
                _write_null(write_length, nullable, out)
                return
            write_length(len(value), out)
            for element in value:
                encode_item(element, out)

        def decode(reader: Reader) -> Any:
            count = read_length(reader)
            if count == -1 and nullable:
                return None
            # A count must fit into the remaining bytes before a list of its size is made: the sender may be hostile.
            if count < 0 or count * item_least > reader.remaining:
                raise MalformedFrame(
                    f"an array of {count} items of at least {item_least} bytes each at byte {reader.pos}, "
                    f"where {reader.remaining} bytes remain"
                )
            return tuple([decode_item(reader) for _ in range(count)])

        return Codec(encode, decode, least)


class Struct(Kind):
    """A nested message."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def codec(self, version: int, flexible: bool, nullable: bool) -> Codec:
        return codec_of(self._cls, version, flexible)


INT8: Kind = _Fixed(p.INT8)
INT16: Kind = _Fixed(p.INT16)
INT32: Kind = _Fixed(p.INT32)
INT64: Kind = _Fixed(p.INT64)
BOOL: Kind = _Bool()
UUID: Kind = _Uuid()
STRING: Kind = _Sized(p.INT16, lambda text: text.encode("utf-8"), Reader.text)
BYTES: Kind = _Sized(p.INT32, lambda raw: raw, lambda reader, size: bytes(reader.take(size)))
RECORDS: Kind = _Sized(p.INT32, lambda raw: raw, Reader.take)
"""Like BYTES, but read as a view into the frame: records are not copied."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One row of a field table: kind, versions, first nullable version, tag."""

    kind: Kind
    since: int
    until: int
    nullable_since: int
    tag: int | None
    ignorable: bool


_REQUIRED: Any = dataclasses.MISSING


def wire(
    kind: Kind | type,
    *,
    default: Any = _REQUIRED,
    since: int = 0,
    until: int = NEVER,
    nullable_since: int = NEVER,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field; ``since`` and ``until`` are versions, both inclusive.

    A field that one of the versions lacks needs a default. ``ignorable``: such a version is written without the field,
    whatever its value.
    """
    row = Wire(kind if isinstance(kind, Kind) else Struct(kind), since, until, nullable_since, tag, ignorable)
    return dataclasses.field(default=default, metadata={"wire": row})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def message(cls: type[_T]) -> type[_T]:
    """Make ``cls`` a frozen dataclass; its fields must be declared in wire order."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


_codecs: dict[tuple[type, int, bool], Codec] = {}


def codec_of(cls: type, version: int, flexible: bool) -> Codec:
    """Return the codec of ``cls`` in ``version``, compiled on first use. Any thread."""
    known = _codecs.get((cls, version, flexible))
    if known is None:
        known = _codecs[cls, version, flexible] = _compile(cls, version, flexible)
    return known


# Compiled once for each class and version: the tables are walked here, and what runs for a message is a loop over the
# fields that its version has.
def _compile(cls: type, version: int, flexible: bool) -> Codec:
    plain: list[tuple[str, Codec]] = []
    tagged: dict[int, tuple[str, Codec, Any]] = {}
    absent: list[tuple[str, Any]] = []
    for spec in dataclasses.fields(cls):
        row: Wire = spec.metadata["wire"]
        if not row.since <= version <= row.until:
            if not row.ignorable:
                absent.append((spec.name, spec.default))
            continue
        codec = row.kind.codec(version, flexible, version >= row.nullable_since)
        if row.tag is None:
            plain.append((spec.name, codec))
        elif flexible:
            tagged[row.tag] = (spec.name, codec, spec.default)
    encode = _encoder(cls, version, flexible, plain, tagged, absent)
    decode = _decoder(cls, flexible, plain, tagged)
    return Codec(encode, decode, sum(codec.least for _, codec in plain) + (1 if flexible else 0))


def _encoder(
    cls: type,
    version: int,
    flexible: bool,
    plain: list[tuple[str, Codec]],
    tagged: dict[int, tuple[str, Codec, Any]],
    absent: list[tuple[str, Any]],
) -> Encode:
    def encode(value: Any, out: bytearray) -> None:
        # A value that the version cannot carry is refused: dropped in silence, the broker would do something else than
        # the caller asked for. Fields whose loss is harmless are declared ignorable.
        for name, default in absent:
            if getattr(value, name) != default:
                raise ValueError(f"{cls.__name__}.{name} cannot be sent in version {version}, which lacks it")
        for name, codec in plain:
            try:
                codec.encode(getattr(value, name), out)
            except (struct_error, ValueError, AttributeError, TypeError) as err:
                raise ValueError(f"{cls.__name__}.{name} = {getattr(value, name)!r}: {err}") from err
        if flexible:
            _encode_tags(value, tagged, out)

    return encode


def _encode_tags(value: Any, tagged: dict[int, tuple[str, Codec, Any]], out: bytearray) -> None:
    present = [
        (tag, codec, getattr(value, name))
        for tag, (name, codec, default) in sorted(tagged.items())
        if getattr(value, name) != default
    ]
    p.write_uvarint(out, len(present))
    for tag, codec, field_value in present:
        body = bytearray()
        codec.encode(field_value, body)
        p.write_uvarint(out, tag)
        p.write_uvarint(out, len(body))
        out += body


def _decoder(
    cls: type, flexible: bool, plain: list[tuple[str, Codec]], tagged: dict[int, tuple[str, Codec, Any]]
) -> Decode:
    rows = [(name, codec.decode) for name, codec in plain]

    def decode(reader: Reader) -> Any:
        values = {name: read(reader) for name, read in rows}
        if flexible:
            for _ in range(reader.uvarint()):
                tag, size = reader.uvarint(), reader.uvarint()
                body = reader.take(size)
                # Unknown tags are skipped: newer brokers add fields this way without a new version.
                if tag in tagged:
                    name, codec, _default = tagged[tag]
                    values[name] = codec.decode(Reader(body))
        return cls(**values)

    return decode
