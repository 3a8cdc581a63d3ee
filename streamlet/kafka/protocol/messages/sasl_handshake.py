"""SaslHandshake: which mechanism the client will authenticate with. Version 1 (then SaslAuthenticate follows)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, STRING, Array, message, wire


@message
class SaslHandshakeResponse:
    """``mechanisms`` are those the listener offers, with an error too."""

    error_code: int = wire(INT16)
    mechanisms: tuple[str, ...] = wire(Array(STRING), default=())


@message
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Before any other request but ApiVersions, and again on a connection whose session ends (KIP-368)."""

    api_key: ClassVar[ApiKey] = ApiKey.SASL_HANDSHAKE
    versions: ClassVar[tuple[int, ...]] = (1,)
    flexible_since: ClassVar[int] = 2
    response_type: ClassVar[type[SaslHandshakeResponse]] = SaslHandshakeResponse

    mechanism: str = wire(STRING)
