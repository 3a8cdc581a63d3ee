"""Messages as field tables: from the types of their fields to a request with its header.

A message is a dataclass whose fields are declared with :func:`wire`. The declaration *is* the schema: kind,
the versions that have the field, the first that allows null, its tag. :func:`codec_of` turns a class and
a version into two closures (encode, decode) and keeps them. A request is a message with an API key; the version to send
is chosen here too (:func:`choose_version`). The rules are those of the protocol's own description language (Java:
``generator/``): compact lengths and tagged fields in flexible versions; a field that a version lacks is left out when
it has its default, and refused otherwise unless it is ``ignorable``; unknown tagged fields are skipped. Every length is
checked against the remaining bytes before it is used.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct as Layout
from struct import error as struct_error
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform, get_args

from streamlet.kafka.errors import MalformedFrame, UnsupportedVersion

# -- bytes -----------------------------------------------------------------------------------------------------------

INT8_LAYOUT = Layout(">b")
INT16_LAYOUT = Layout(">h")
INT32_LAYOUT = Layout(">i")
INT64_LAYOUT = Layout(">q")


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

    def fixed(self, layout: Layout) -> int:
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


_NULL_UUID = bytes(16)


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


# -- types of fields -------------------------------------------------------------------------------------------------

# A codec carries values of any field kind; the dataclasses give them their static types.
Encode = Callable[[Any, bytearray], None]
Decode = Callable[[Reader], Any]


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

        return Codec(encode, lambda reader: reader.fixed(INT8_LAYOUT) != 0, 1)


class _Uuid(Kind):
    def codec(self, version: int, flexible: bool, nullable: bool) -> Codec:
        def encode(value: Any, out: bytearray) -> None:
            out += uuid_bytes(value)

        return Codec(encode, lambda reader: uuid_text(reader.take(16)), 16)


def _length_codec(flexible: bool, layout: Layout) -> tuple[Callable[[int, bytearray], None], Decode, int]:
    """Return writer, reader and least size of a length (-1 = null)."""
    if flexible:
        return (
            lambda size, out: write_uvarint(out, size + 1),
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
        write_length, read_length, least = _length_codec(flexible, INT32_LAYOUT)
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


_NO_STRUCT = b"\xff"


class Struct(Kind):
    """A nested message."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def codec(self, version: int, flexible: bool, nullable: bool) -> Codec:
        inner = codec_of(self._cls, version, flexible)
        return _nullable(inner) if nullable else inner


def _nullable(inner: Codec) -> Codec:
    """Return a codec of a message behind a byte: -1 for null, 1 for the message."""

    def encode(value: Any, out: bytearray) -> None:
        if value is None:
            out += _NO_STRUCT
            return
        out.append(1)
        inner.encode(value, out)

    return Codec(encode, lambda reader: None if reader.fixed(INT8_LAYOUT) < 0 else inner.decode(reader), 1)


INT8: Kind = _Fixed(INT8_LAYOUT)
INT16: Kind = _Fixed(INT16_LAYOUT)
INT32: Kind = _Fixed(INT32_LAYOUT)
INT64: Kind = _Fixed(INT64_LAYOUT)
BOOL: Kind = _Bool()
UUID: Kind = _Uuid()
STRING: Kind = _Sized(INT16_LAYOUT, lambda text: text.encode("utf-8"), Reader.text)
BYTES: Kind = _Sized(INT32_LAYOUT, lambda raw: raw, lambda reader, size: bytes(reader.take(size)))
RECORDS: Kind = _Sized(INT32_LAYOUT, lambda raw: raw, Reader.take)
"""Like BYTES, but read as a view into the frame: records are not copied."""


# -- messages --------------------------------------------------------------------------------------------------------

NEVER = 1 << 15
"""A version that no API will reach."""
_T = TypeVar("_T")
_REQUIRED: Any = dataclasses.MISSING


@dataclass(frozen=True, slots=True)
class Wire:
    """One row of a field table: kind, versions, first nullable version, tag."""

    kind: Kind
    since: int
    until: int
    nullable_since: int
    tag: int | None
    ignorable: bool


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
    """Make ``cls`` a dataclass, frozen for type checkers; its fields must be declared in wire order."""
    # Rule: only the constructor is generated. A dataclass compiles each of its methods, and a frozen one has six. With
    # all six, the messages took a fifth of the time to load a KafkaSpout, in each process of a run.
    made = dataclass(slots=True, kw_only=True, repr=False, eq=False, match_args=False)(cls)
    for name, method in (("__repr__", _text), ("__eq__", _are_equal), ("__hash__", _hash)):
        if name not in vars(cls):
            setattr(made, name, method)
    return made


def _values(one: Any) -> list[Any]:
    return [getattr(one, name) for name in one.__dataclass_fields__]


def _text(self: Any) -> str:
    values = zip(self.__dataclass_fields__, _values(self), strict=True)
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values)})"


def _are_equal(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(tuple(_values(self)))


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
    write_uvarint(out, len(present))
    for tag, codec, field_value in present:
        body = bytearray()
        codec.encode(field_value, body)
        write_uvarint(out, tag)
        write_uvarint(out, len(body))
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


def skip_tags(reader: Reader) -> None:
    """Skip a block of tagged fields."""
    # Tags are skipped unread: KIP-482 lets a newer broker send some that this client has never heard of.
    for _ in range(reader.uvarint()):
        reader.uvarint()
        reader.take(reader.uvarint())


# -- requests and their headers --------------------------------------------------------------------------------------

ResponseT = TypeVar("ResponseT")
RequestT = TypeVar("RequestT", bound="Request[Any]")


class ApiKey(IntEnum):
    """The numbers of the APIs, under Kafka's names."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    CONSUMER_GROUP_HEARTBEAT = 68


class Request(Generic[ResponseT]):
    """Base of all requests; a subclass is made by :func:`request`."""

    __slots__ = ()
    api_key: ClassVar[ApiKey]
    versions: ClassVar[tuple[int, ...]]
    """The versions that we write, in rising order."""
    flexible_since: ClassVar[int]
    """The first flexible version (KIP-482): compact lengths, tagged fields."""
    # A class variable cannot name the type parameter; `decode_response` brings the two together.
    response_type: ClassVar[type[Any]]

    def usable_versions(self) -> tuple[int, ...]:
        """Return the versions that can carry this request's values."""
        return type(self).versions

    def least_broker(self) -> str:
        """Return the first release of Kafka that can answer it, for messages."""
        return "2.1"

    def expects_response(self) -> bool:
        """Return whether the broker answers; only Produce with acks=0 has no answer."""
        return True


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def request(
    api_key: ApiKey, *, versions: tuple[int, ...], flexible_since: int = NEVER
) -> Callable[[type[RequestT]], type[RequestT]]:
    """Return a decorator: it makes a subclass the message of an API."""

    def decorate(cls: type[RequestT]) -> type[RequestT]:
        made = message(cls)
        made.api_key, made.versions, made.flexible_since = api_key, versions, flexible_since
        # `class FetchRequest(Request[FetchResponse])`: the base names the response already.
        made.response_type = get_args(cls.__dict__["__orig_bases__"][0])[0]
        return made

    return decorate


@dataclass(frozen=True, slots=True)
class VersionRange:
    """A broker's versions of one API, both ends inclusive."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least} to {self.most}"


ApiRanges = Mapping[int, VersionRange]


def choose_version(request: Request[Any], offered: ApiRanges, broker: str) -> int:
    """Return the highest version that both sides speak.

    Raises UnsupportedVersion naming broker, API and versions.
    """
    api = request.api_key
    wanted = request.usable_versions()
    theirs = offered.get(api)
    common = [v for v in wanted if theirs is not None and theirs.least <= v <= theirs.most]
    if common:
        return max(common)
    ours = ", ".join(map(str, wanted))
    if theirs is None:
        raise UnsupportedVersion(
            f"The broker at {broker} does not offer the API {api.name} at all (wanted: version {ours}). "
            "It is too old for this request, or no full Kafka broker: use a broker of version "
            f"{request.least_broker()} or later."
        )
    verdict, remedy = "too old", f"use a broker of version {request.least_broker()} or later"
    if theirs.least > max(wanted):
        verdict, remedy = "too new", "use a newer release of this client"
    raise UnsupportedVersion(
        f"The broker at {broker} is {verdict} for this client: of the API {api.name} it speaks versions "
        f"{theirs}, and this request needs version {ours}; {remedy}."
    )


def encode_request(request: Request[Any], version: int, correlation_id: int, client_id: str) -> bytes:
    """Return the whole frame, length first."""
    kind = type(request)
    flexible = version >= kind.flexible_since
    # The header of a request: length, key, version, correlation id, client id, and tags in flexible versions. The
    # client id has the old form of a string in all of them.
    out = bytearray(4)
    out += INT16_LAYOUT.pack(kind.api_key)
    out += INT16_LAYOUT.pack(version)
    out += INT32_LAYOUT.pack(correlation_id)
    name = client_id.encode("utf-8")
    out += INT16_LAYOUT.pack(len(name))
    out += name
    if flexible:
        out.append(0)
    codec_of(kind, version, flexible).encode(request, out)
    INT32_LAYOUT.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def response_correlation_id(frame: bytes | bytearray | memoryview) -> int:
    """Return the first field of every response header. Raises MalformedFrame."""
    if len(frame) < 4:
        raise MalformedFrame(f"a response of {len(frame)} bytes, too short for its header")
    value: int = INT32_LAYOUT.unpack_from(frame, 0)[0]
    return value


def decode_response(request: Request[ResponseT], version: int, frame: bytes | bytearray | memoryview) -> ResponseT:
    """Return the typed response in ``frame`` (without its length).

    Raises MalformedFrame naming API, version and byte.
    """
    kind = type(request)
    flexible = version >= kind.flexible_since
    reader = Reader(frame)
    try:
        reader.take(4)
        # The answer to ApiVersions has header version 0 in every version: the client cannot know yet which one to
        # expect.
        if flexible and kind.api_key != ApiKey.API_VERSIONS:
            skip_tags(reader)
        response: ResponseT = codec_of(kind.response_type, version, flexible).decode(reader)
    except MalformedFrame as err:
        raise MalformedFrame(
            f"An answer to {kind.api_key.name} version {version} cannot be read ({err.message}); the "
            f"frame has {len(frame)} bytes."
        ) from err
    # Bytes after the end are ignored, as in Java: some brokers (librdkafka's mock) write a few.
    return response
