"""ApiVersions: what a broker speaks. Version 3, and version 0 for brokers before 2.4."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.errors import MalformedFrame
from streamlet.kafka.protocol.api import ApiKey, ApiRanges, Request, VersionRange, decode_response
from streamlet.kafka.protocol.primitives import INT16
from streamlet.kafka.protocol.schema import INT16 as INT16_KIND
from streamlet.kafka.protocol.schema import INT32, STRING, Array, message, wire

UNSUPPORTED_VERSION = 35


@message
class ApiVersionsRange:
    """One API and the versions the broker offers of it."""

    api_key: int = wire(INT16_KIND)
    min_version: int = wire(INT16_KIND)
    max_version: int = wire(INT16_KIND)


@message
class ApiVersionsResponse:
    """All APIs of a broker. ``error_code`` 35 says that the request's own version is not supported."""

    error_code: int = wire(INT16_KIND)
    api_keys: tuple[ApiVersionsRange, ...] = wire(Array(ApiVersionsRange), default=())
    throttle_time_ms: int = wire(INT32, default=0, since=1, ignorable=True)

    def ranges(self) -> ApiRanges:
        """By API key."""
        return {row.api_key: VersionRange(row.min_version, row.max_version) for row in self.api_keys}


@message
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Sent first on every connection."""

    api_key: ClassVar[ApiKey] = ApiKey.API_VERSIONS
    versions: ClassVar[tuple[int, ...]] = (0, 3)
    flexible_since: ClassVar[int] = 3
    response_type: ClassVar[type[ApiVersionsResponse]] = ApiVersionsResponse

    client_software_name: str = wire(STRING, default="", since=3, ignorable=True)
    client_software_version: str = wire(STRING, default="", since=3, ignorable=True)


def decode_api_versions(
    request: ApiVersionsRequest, version: int, frame: bytes | bytearray | memoryview
) -> ApiVersionsResponse:
    """The response in ``frame``. The error code is read before anything else is believed.

    A broker that does not know our version answers 35 in the layout of version 0, and some (librdkafka's
    mock) in no valid layout at all; after a 35 nothing but the code counts.
    """
    if len(frame) < 6:
        raise MalformedFrame(f"an answer to API_VERSIONS of {len(frame)} bytes, too short for its error code")
    error_code: int = INT16.unpack_from(frame, 4)[0]
    if error_code == UNSUPPORTED_VERSION:
        return ApiVersionsResponse(error_code=error_code)
    return decode_response(request, version, frame)
