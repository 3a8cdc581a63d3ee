"""ApiVersions, SaslHandshake and SaslAuthenticate: the first requests of a connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlet.kafka.errors import MalformedFrame
from streamlet.kafka.protocol.schema import (
    BYTES,
    INT16,
    INT32,
    INT64,
    STRING,
    ApiKey,
    ApiRanges,
    Array,
    Request,
    VersionRange,
    decode_response,
    message,
    request,
    wire,
)

UNSUPPORTED_VERSION = 35


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The cluster's features, as one broker told them; a higher ``epoch`` is newer news, -1 none at all."""

    epoch: int = -1
    levels: Mapping[str, int] = field(default_factory=dict)

    def level(self, feature: str) -> int:
        """Return the finalized version of a feature, 0 for none."""
        return self.levels.get(feature, 0)


@message
class FinalizedFeatureKey:
    """One feature: the least and the greatest version that every broker may use."""

    name: str = wire(STRING)
    max_version_level: int = wire(INT16)
    min_version_level: int = wire(INT16)


@message
class ApiVersionsRange:
    """One API and its versions at the broker."""

    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@message
class ApiVersionsResponse:
    """All APIs of a broker; ``error_code`` 35: our version is not supported."""

    error_code: int = wire(INT16)
    api_keys: tuple[ApiVersionsRange, ...] = wire(Array(ApiVersionsRange), default=())
    throttle_time_ms: int = wire(INT32, default=0, since=1, ignorable=True)
    finalized_features_epoch: int = wire(INT64, default=-1, since=3, tag=1, ignorable=True)
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire(
        Array(FinalizedFeatureKey), default=(), since=3, tag=2, ignorable=True
    )

    def ranges(self) -> ApiRanges:
        """Return the versions by API key."""
        return {row.api_key: VersionRange(row.min_version, row.max_version) for row in self.api_keys}

    def features(self) -> FinalizedFeatures:
        """Return the finalized features; those of a broker before 2.7 are empty."""
        levels = {row.name: row.max_version_level for row in self.finalized_features}
        return FinalizedFeatures(self.finalized_features_epoch, levels)


@request(ApiKey.API_VERSIONS, versions=(0, 3), flexible_since=3)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Sent first on every connection."""

    client_software_name: str = wire(STRING, default="", since=3, ignorable=True)
    client_software_version: str = wire(STRING, default="", since=3, ignorable=True)


def decode_api_versions(
    request: ApiVersionsRequest, version: int, frame: bytes | bytearray | memoryview
) -> ApiVersionsResponse:
    """Return the response in ``frame``. Raises MalformedFrame."""
    # The error code is read first. A broker that does not know our version answers 35 in the layout of version 0, and
    # some (librdkafka's mock) in no valid layout at all: after a 35 nothing but the code counts.
    if len(frame) < 6:
        raise MalformedFrame(f"an answer to API_VERSIONS of {len(frame)} bytes, too short for its error code")
    error_code = int.from_bytes(frame[4:6], "big", signed=True)
    if error_code == UNSUPPORTED_VERSION:
        return ApiVersionsResponse(error_code=error_code)
    return decode_response(request, version, frame)


@message
class SaslHandshakeResponse:
    """The mechanisms that the listener offers, also beside an error."""

    error_code: int = wire(INT16)
    mechanisms: tuple[str, ...] = wire(Array(STRING), default=())


@request(ApiKey.SASL_HANDSHAKE, versions=(1,), flexible_since=2)
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """After ApiVersions, and again before a session ends (KIP-368)."""

    mechanism: str = wire(STRING)


@message
class SaslAuthenticateResponse:
    """The broker's bytes; ``session_lifetime_ms`` 0: the session does not end."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    auth_bytes: bytes = wire(BYTES, default=b"")
    session_lifetime_ms: int = wire(INT64, default=0, since=1, ignorable=True)


@request(ApiKey.SASL_AUTHENTICATE, versions=(0, 1, 2), flexible_since=2)
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """One step of the mechanism."""

    auth_bytes: bytes = wire(BYTES)

    def __repr__(self) -> str:
        # With PLAIN the bytes hold the password, and a request may be shown in an error or a log.
        return "SaslAuthenticateRequest(auth_bytes=<not shown>)"
