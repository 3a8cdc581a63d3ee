"""The setup of a connection before its first request: ApiVersions, then SASL.

A conversation without a socket: an answer in, the next request out (Java: ``SaslClientAuthenticator``, and the
ApiVersions part of ``NetworkClient``). The SASL part is repeated on a ready connection before its session ends
(KIP-368); requests of callers wait meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamlet.base.clock import Clock
from streamlet.kafka.broker_errors import SaslAuthenticationFailed, error_class
from streamlet.kafka.errors import AuthenticationFailed, Disconnected, ForeignProtocol, KafkaError, MalformedFrame
from streamlet.kafka.metadata.cluster import Address, Broker
from streamlet.kafka.net.connection_states import ConnectionState, ConnectionStates
from streamlet.kafka.net.sasl import OAuthBearer, SaslClient, sasl_client
from streamlet.kafka.net.tokens import Token, TokenSource
from streamlet.kafka.protocol.messages.api_versions_and_sasl import (
    UNSUPPORTED_VERSION,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatures,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    decode_api_versions,
)
from streamlet.kafka.protocol.schema import ApiRanges, Request, choose_version, decode_response
from streamlet.kafka.settings.client_config import ClientConfig

NEWEST_API_VERSIONS = max(ApiVersionsRequest.versions)
_ILLEGAL_SASL_STATE = 34


_SOFTWARE = ("streamlet", "0")
"""Name and version of this client, as brokers count them (KIP-511)."""


@dataclass(frozen=True, slots=True)
class SetupRequest:
    """A request to send, in this version."""

    request: Request[Any]
    version: int


class ConnectionSetup:
    """The setup of one connection; ``conversation`` makes a fresh SASL conversation."""

    __slots__ = ("_conversation", "_sasl", "features", "session_lifetime_ms", "versions")

    def __init__(self, conversation: Callable[[], SaslClient] | None) -> None:
        self._conversation = conversation
        self._sasl: SaslClient | None = None
        self.versions: ApiRanges | None = None
        """The broker's versions; None before its answer."""
        self.features = FinalizedFeatures()
        """The cluster's features, as this broker told them."""
        self.session_lifetime_ms = 0
        """Milliseconds that the authentication is valid; 0: as long as the connection lasts."""

    def begin(self) -> SetupRequest:
        """Return the first request on a new connection."""
        return self._ask_versions(NEWEST_API_VERSIONS)

    def begin_again(self) -> SetupRequest:
        """Return the first request of another authentication."""
        assert self._conversation is not None
        self._sasl = self._conversation()
        return SetupRequest(SaslHandshakeRequest(mechanism=self._sasl.mechanism), 1)

    def answered(
        self, say: SetupRequest, response: Any, broker: str
    ) -> SetupRequest | None:  # Any: of the type the request names
        """Return the next request, None when the setup is done; ``broker`` is for errors.

        Raises AuthenticationFailed, Disconnected, ForeignProtocol or UnsupportedVersion: the connection is of no use.
        """
        if isinstance(response, ApiVersionsResponse):
            return self._versions_answered(say, response)
        if isinstance(response, SaslHandshakeResponse):
            return self._handshake_answered(response, broker)
        assert isinstance(response, SaslAuthenticateResponse)
        return self._authenticate_answered(response, broker)

    def _ask_versions(self, version: int) -> SetupRequest:
        name, release = _SOFTWARE
        return SetupRequest(ApiVersionsRequest(client_software_name=name, client_software_version=release), version)

    def _versions_answered(self, say: SetupRequest, response: ApiVersionsResponse) -> SetupRequest | None:
        # A broker that does not know the version of this first request answers in version 0 (KIP-511).
        if response.error_code == UNSUPPORTED_VERSION and say.version > 0:
            return self._ask_versions(0)
        if response.error_code:
            raise Disconnected(f"it answered the first request (API_VERSIONS) with error {response.error_code}")
        self.versions, self.features = response.ranges(), response.features()
        return None

    def _handshake_answered(self, response: SaslHandshakeResponse, broker: str) -> SetupRequest | None:
        assert self._sasl is not None
        kind = error_class(response.error_code)
        if response.error_code == _ILLEGAL_SASL_STATE:
            raise ForeignProtocol("the listener asks for no user and password, and this client was told to give them")
        if kind is not None:
            # Cut, as everything that a broker may make as long as it likes before it is shown.
            offered = ", ".join(name[:40] for name in response.mechanisms[:10]) or "none"
            raise AuthenticationFailed(
                f"it does not take the SASL mechanism {self._sasl.mechanism} (it offers: {offered}): set "
                "sasl_mechanism to one of those"
            )
        return self._authenticate(self._sasl.first(), broker)

    def _authenticate(self, token: bytes, broker: str) -> SetupRequest:
        assert self.versions is not None
        request = SaslAuthenticateRequest(auth_bytes=token)
        return SetupRequest(request, choose_version(request, self.versions, broker))

    def _authenticate_answered(self, response: SaslAuthenticateResponse, broker: str) -> SetupRequest | None:
        assert self._sasl is not None
        kind = error_class(response.error_code)
        if kind is not None:
            told = f" (it says: {response.error_message[:200].rstrip('.')})" if response.error_message else ""
            reason = "" if kind is SaslAuthenticationFailed else f" with Kafka error {kind.code}, {kind.__name__}"
            raise AuthenticationFailed(self._sasl.refused(f"{reason}{told}"))
        token = self._sasl.next(response.auth_bytes)
        if token is not None:
            return self._authenticate(token, broker)
        self._sasl = None
        self.session_lifetime_ms = max(response.session_lifetime_ms, 0)
        return None


class ConnectionSetups:
    """The setups of all connections of one client; moves their states. One thread."""

    def __init__(self, states: ConnectionStates, conversations: Conversations | None) -> None:
        self._states = states
        self._conversations = conversations
        self._open: dict[Address, ConnectionSetup] = {}
        self._to_say: dict[Address, SetupRequest] = {}
        self._for_a_token: dict[Address, ConnectionSetup] = {}
        """Connections that wait for something to prove who we are with."""
        self.refused: dict[Address, KafkaError] = {}
        """Connections that got nothing to prove it with, until the client has closed them."""

    def begin(self, address: Address) -> None:
        """Begin the setup of a connection that was just made."""
        make = None if self._conversations is None else self._conversations.begin
        setup = self._open[address] = ConnectionSetup(make)
        self._to_say[address] = setup.begin()

    def lost(self, address: Address) -> None:
        """Forget a connection that is gone."""
        for rows in (self._open, self._to_say, self._for_a_token, self.refused):
            rows.pop(address, None)

    def wait_s(self) -> float:
        """Return the seconds until a setup goes on without an event: 0 at once, infinity never."""
        if self._to_say:
            return 0.0
        # A token comes from another thread, which knows nothing of this loop: it is looked for while somebody waits.
        return _LOOK_FOR_TOKEN_S if self._for_a_token else float("inf")

    def take(self, now_s: float) -> dict[Address, SetupRequest]:
        """Return the requests to send now, by connection.

        Connections whose session ends soon authenticate again from here.
        """
        if self._conversations is not None:
            for address in self._states.sessions_ending(now_s):
                self._states.authenticate(address, now_s)
                self._for_a_token[address] = self._open[address]
            self._authenticate(self._conversations, now_s)
        to_say, self._to_say = self._to_say, {}
        return to_say

    def _authenticate(self, conversations: Conversations, now_s: float) -> None:
        # Asked without a connection that waits, too: a token is renewed before it ends.
        try:
            ready = conversations.ready(bool(self._for_a_token))
        except KafkaError as err:
            self.refused.update(dict.fromkeys(self._for_a_token, err))
            self._for_a_token.clear()
            return
        for address in list(self._for_a_token):
            if ready:
                self._to_say[address] = self._for_a_token.pop(address).begin_again()
            else:
                # The broker waits for us, not we for it: the setup's time begins when there is something to say.
                self._states.wait_longer(address, now_s)

    def answered(self, broker: Broker, said: SetupRequest, frame: bytearray, now_s: float) -> None:
        """Take a broker's answer to ``said``, and move the connection's state.

        Raises MalformedFrame, and the errors of :meth:`ConnectionSetup.answered`.
        """
        address, request = broker.address, said.request
        answer: object
        if isinstance(request, ApiVersionsRequest):
            # Whatever a foreign server sends first is read here, so that is the place to say that it is not Kafka.
            try:
                answer = decode_api_versions(request, said.version, frame)
            except MalformedFrame as err:
                raise ForeignProtocol(f"its first answer is not Kafka's ({err.message})") from err
        else:
            answer = decode_response(request, said.version, frame)
        setup = self._open[address]
        say = setup.answered(said, answer, str(broker))
        self._states.learn_features(setup.features)
        state = self._states.get(address).state
        if say is not None:
            self._to_say[address] = say
        elif state is ConnectionState.AUTHENTICATING:
            self._states.authenticated(address, now_s, setup.session_lifetime_ms / 1000)
        elif self._conversations is not None:
            assert setup.versions is not None
            self._states.authenticate(address, now_s, setup.versions)
            self._for_a_token[address] = setup
        else:
            assert setup.versions is not None
            self._states.versions_known(address, setup.versions)


_LOOK_FOR_TOKEN_S = 0.02
"""Seconds between two looks for a token while a connection waits for it."""


class Conversations(Protocol):
    """Makes SASL conversations, one for each authentication."""

    def ready(self, wanted: bool) -> bool:
        """Return whether one can begin; ``wanted``: a connection waits for it. Raises KafkaError."""

    def begin(self) -> SaslClient:
        """Return a fresh conversation; :meth:`ready` must have said that it can begin."""


@dataclass(frozen=True, slots=True)
class PasswordConversations:
    """Those of a user with a password: it is always there."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    def ready(self, wanted: bool) -> bool:
        return True

    def begin(self) -> SaslClient:
        return sasl_client(self.mechanism, self.username, self.password, secrets.token_urlsafe(24))


@dataclass(frozen=True, slots=True)
class TokenConversations:
    """Those of OAUTHBEARER: a token has to be fetched first."""

    source: TokenSource

    def ready(self, wanted: bool) -> bool:
        return self.source.ready(wanted)

    def begin(self) -> SaslClient:
        token = self.source.token()
        return OAuthBearer(token.value, token.extensions)


def sasl_conversations(config: ClientConfig, clock: Clock) -> Conversations | None:
    """Return a maker of SASL conversations; None without SASL. Raises SettingError."""
    if not config.uses_sasl:
        return None
    if config.sasl_mechanism == "OAUTHBEARER":
        return TokenConversations(TokenSource(_token_fetcher(config), config.sasl_login_read_timeout_ms / 1000, clock))
    mechanism, username, password = config.sasl_mechanism, config.sasl_plain_username, config.sasl_plain_password
    assert mechanism is not None and username is not None and password is not None
    return PasswordConversations(mechanism, username, password)


def _token_fetcher(config: ClientConfig) -> Callable[[], Token]:
    # Imported here: few clients have tokens, and the others need no HTTP (3 ms of their start).
    if config.sasl_oauth_token_provider is not None:
        from streamlet.kafka.net import token_provider

        return token_provider.fetcher(config.sasl_oauth_token_provider)
    from streamlet.kafka.net import token_endpoint

    return token_endpoint.fetcher(config)
