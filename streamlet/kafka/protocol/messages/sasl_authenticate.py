"""SaslAuthenticate: the mechanism's own bytes. Version 0 (broker 1.0), 1 (2.2, session lifetime) and 2 (2.4)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import BYTES, INT16, INT64, STRING, message, wire


@message
class SaslAuthenticateResponse:
    """The broker's bytes; ``session_lifetime_ms`` 0 means that the session does not end (KIP-368)."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    auth_bytes: bytes = wire(BYTES, default=b"")
    session_lifetime_ms: int = wire(INT64, default=0, since=1, ignorable=True)


@message
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """One step of the mechanism. With PLAIN these bytes are the password, so they are not shown."""

    api_key: ClassVar[ApiKey] = ApiKey.SASL_AUTHENTICATE
    versions: ClassVar[tuple[int, ...]] = (0, 1, 2)
    flexible_since: ClassVar[int] = 2
    response_type: ClassVar[type[SaslAuthenticateResponse]] = SaslAuthenticateResponse

    auth_bytes: bytes = wire(BYTES)

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(auth_bytes=<not shown>)"
