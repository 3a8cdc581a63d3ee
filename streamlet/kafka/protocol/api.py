"""Requests and their headers: API keys, versions, and the choice of a version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform, get_args

from streamlet.kafka.errors import MalformedFrame, UnsupportedVersion
from streamlet.kafka.protocol import primitives as p
from streamlet.kafka.protocol.primitives import Reader
from streamlet.kafka.protocol.schema import NEVER, codec_of, message, wire

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
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47


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
    out += p.INT16.pack(kind.api_key)
    out += p.INT16.pack(version)
    out += p.INT32.pack(correlation_id)
    name = client_id.encode("utf-8")
    out += p.INT16.pack(len(name))
    out += name
    if flexible:
        out.append(0)
    codec_of(kind, version, flexible).encode(request, out)
    p.INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def response_correlation_id(frame: bytes | bytearray | memoryview) -> int:
    """Return the first field of every response header. Raises MalformedFrame."""
    if len(frame) < 4:
        raise MalformedFrame(f"a response of {len(frame)} bytes, too short for its header")
    value: int = p.INT32.unpack_from(frame, 0)[0]
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


def skip_tags(reader: Reader) -> None:
    """Skip a block of tagged fields."""
    # Tags are skipped unread: KIP-482 lets a newer broker send some that this client has never heard of.
    for _ in range(reader.uvarint()):
        reader.uvarint()
        reader.take(reader.uvarint())
