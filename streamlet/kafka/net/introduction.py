"""What is said on a new connection before any request: which versions the broker speaks, then who we are.

A conversation without a socket: an answer in, the next thing to say out (Java: ``SaslClientAuthenticator``, and the
ApiVersions part of ``NetworkClient``). The same again, without the versions, when a session ends (KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamlet.kafka.broker_errors import SaslAuthenticationFailed, error_class
from streamlet.kafka.errors import AuthenticationFailed, Disconnected, ForeignProtocol, MalformedFrame
from streamlet.kafka.metadata.cluster import Address
from streamlet.kafka.net.connection_states import ConnectionState, ConnectionStates
from streamlet.kafka.net.in_flight import InFlightRequest
from streamlet.kafka.protocol.api import ApiRanges, Request, choose_version, decode_response
from streamlet.kafka.protocol.messages.connections import (
    UNSUPPORTED_VERSION,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    decode_api_versions,
)
from streamlet.kafka.sasl import SaslClient

NEWEST_API_VERSIONS = max(ApiVersionsRequest.versions)
_ILLEGAL_SASL_STATE = 34


@dataclass(frozen=True, slots=True)
class Say:
    """A request to send, in this version."""

    request: Request[Any]
    version: int


class Introduction:
    """The state of one. ``conversation`` makes a fresh SASL conversation; None: nobody asks who we are."""

    __slots__ = ("_conversation", "_sasl", "_software", "session_lifetime_ms", "versions")

    def __init__(self, software: tuple[str, str], conversation: Callable[[], SaslClient] | None) -> None:
        self._software = software
        self._conversation = conversation
        self._sasl: SaslClient | None = None
        self.versions: ApiRanges | None = None
        """What the broker speaks, once it told."""
        self.session_lifetime_ms = 0
        """How long who we are is believed; 0 for as long as the connection lasts."""

    def begin(self) -> Say:
        """On a new connection."""
        return self._ask_versions(NEWEST_API_VERSIONS)

    def begin_again(self) -> Say:
        """On a connection that has been introduced, before its session ends."""
        assert self._conversation is not None
        self._sasl = self._conversation()
        return Say(SaslHandshakeRequest(mechanism=self._sasl.mechanism), 1)

    def answered(self, say: Say, response: Any, broker: str) -> Say | None:  # Any: of the type the request names
        """What to say next; None when all is said. ``broker`` is for errors.

        Raises AuthenticationFailed, Disconnected, ForeignProtocol or UnsupportedVersion: the connection is of no use.
        """
        if isinstance(response, ApiVersionsResponse):
            return self._versions_answered(say, response)
        if isinstance(response, SaslHandshakeResponse):
            return self._handshake_answered(response, broker)
        assert isinstance(response, SaslAuthenticateResponse)
        return self._authenticate_answered(response, broker)

    def _ask_versions(self, version: int) -> Say:
        name, release = self._software
        return Say(ApiVersionsRequest(client_software_name=name, client_software_version=release), version)

    def _versions_answered(self, say: Say, response: ApiVersionsResponse) -> Say | None:
        if response.error_code == UNSUPPORTED_VERSION and say.version > 0:
            return self._ask_versions(0)
        if response.error_code:
            raise Disconnected(f"it answered the first request (API_VERSIONS) with error {response.error_code}")
        self.versions = response.ranges()
        return None if self._conversation is None else self.begin_again()

    def _handshake_answered(self, response: SaslHandshakeResponse, broker: str) -> Say | None:
        assert self._sasl is not None
        kind = error_class(response.error_code)
        if response.error_code == _ILLEGAL_SASL_STATE:
            raise ForeignProtocol("the listener asks for no user and password, and this client was told to give them")
        if kind is not None:
            offered = ", ".join(name[:40] for name in response.mechanisms[:10]) or "none"
            raise AuthenticationFailed(
                f"it does not take the SASL mechanism {self._sasl.mechanism} (it offers: {offered}): set "
                "sasl_mechanism to one of those"
            )
        return self._authenticate(self._sasl.first(), broker)

    def _authenticate(self, token: bytes, broker: str) -> Say:
        assert self.versions is not None
        request = SaslAuthenticateRequest(auth_bytes=token)
        return Say(request, choose_version(request, self.versions, broker))

    def _authenticate_answered(self, response: SaslAuthenticateResponse, broker: str) -> Say | None:
        assert self._sasl is not None
        kind = error_class(response.error_code)
        if kind is not None:
            told = f" (it says: {response.error_message[:200].rstrip('.')})" if response.error_message else ""
            reason = "" if kind is SaslAuthenticationFailed else f" with Kafka error {kind.code}, {kind.__name__}"
            raise AuthenticationFailed(
                f"it refuses the user {self._sasl.username!r} or the password{reason}{told}: correct "
                "sasl_plain_username and sasl_plain_password, or have an administrator make the user for "
                f"{self._sasl.mechanism}"
            )
        token = self._sasl.next(response.auth_bytes)
        if token is not None:
            return self._authenticate(token, broker)
        self._sasl = None
        self.session_lifetime_ms = max(response.session_lifetime_ms, 0)
        return None


class Introductions:
    """Those of all connections of one client; moves each connection's state along. One thread."""

    def __init__(
        self, states: ConnectionStates, software: tuple[str, str], conversation: Callable[[], SaslClient] | None
    ) -> None:
        self._states = states
        self._software = software
        self._conversation = conversation
        self._open: dict[Address, Introduction] = {}
        self._to_say: dict[Address, Say] = {}

    def begin(self, address: Address) -> None:
        """The connection was just made."""
        introduction = self._open[address] = Introduction(self._software, self._conversation)
        self._to_say[address] = introduction.begin()

    def lost(self, address: Address) -> None:
        """There is no connection any more."""
        self._open.pop(address, None)
        self._to_say.pop(address, None)

    def waiting(self) -> bool:
        """Whether something is to be said at once."""
        return bool(self._to_say)

    def take(self, now_s: float) -> dict[Address, Say]:
        """What to say now, by connection; sessions that come to their end begin again here."""
        for address in self._states.sessions_ending(now_s):
            self._states.authenticate(address, now_s)
            self._to_say[address] = self._open[address].begin_again()
        to_say, self._to_say = self._to_say, {}
        return to_say

    def answered(self, entry: InFlightRequest, frame: bytearray, now_s: float) -> None:
        """An answer to what was said. Raises what :meth:`Introduction.answered` does, and MalformedFrame."""
        address, request = entry.broker.address, entry.request
        answer: object
        if isinstance(request, ApiVersionsRequest):
            try:
                answer = decode_api_versions(request, entry.version, frame)
            except MalformedFrame as err:
                raise ForeignProtocol(f"its first answer is not Kafka's ({err.message})") from err
        else:
            answer = decode_response(request, entry.version, frame)
        introduction = self._open[address]
        say = introduction.answered(Say(request, entry.version), answer, str(entry.broker))
        state = self._states.get(address).state
        if say is not None:
            self._to_say[address] = say
            if state is ConnectionState.CHECKING_API_VERSIONS and introduction.versions is not None:
                self._states.authenticate(address, now_s, introduction.versions)
        elif state is ConnectionState.AUTHENTICATING:
            self._states.authenticated(address, now_s, introduction.session_lifetime_ms / 1000)
        else:
            assert introduction.versions is not None
            self._states.versions_known(address, introduction.versions)
