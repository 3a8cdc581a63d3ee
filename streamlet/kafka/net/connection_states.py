"""The life of each connection, and when the next may be tried (Java: ``ClusterConnectionStates``).

Pure: time comes in as seconds, randomness as a function, addresses from the caller's resolver. The moves
are a table; a move that is not in it is a bug and raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from streamlet.base.backoff import Backoff
from streamlet.kafka.errors import AuthenticationFailed, KafkaError
from streamlet.kafka.metadata.cluster import Address
from streamlet.kafka.protocol.messages.api_versions_and_sasl import FinalizedFeatures
from streamlet.kafka.protocol.schema import ApiRanges


class ConnectionState(Enum):
    """States of a connection; only READY takes requests."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking API versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"


class ConnectionEvent(Enum):
    """Events that change a connection's state."""

    DIAL = "dial"
    CONNECTED = "connected"
    VERSIONS_KNOWN = "versions known"
    AUTHENTICATE = "authenticate"
    AUTHENTICATED = "authenticated"
    LOST = "lost"


# A connection is READY only after ApiVersions and, with SASL, authentication. READY -> AUTHENTICATING is the repeated
# authentication (KIP-368): no request is sent meanwhile, and the requests in flight are still answered. Every failure
# leads to DISCONNECTED; there is no state "closing", as a close never waits.
_S = ConnectionState
TRANSITIONS: dict[tuple[ConnectionState, ConnectionEvent], ConnectionState] = {
    (_S.DISCONNECTED, ConnectionEvent.DIAL): _S.CONNECTING,
    (_S.CONNECTING, ConnectionEvent.CONNECTED): _S.CHECKING_API_VERSIONS,
    (_S.CONNECTING, ConnectionEvent.LOST): _S.DISCONNECTED,
    (_S.CHECKING_API_VERSIONS, ConnectionEvent.VERSIONS_KNOWN): _S.READY,
    (_S.CHECKING_API_VERSIONS, ConnectionEvent.AUTHENTICATE): _S.AUTHENTICATING,
    (_S.CHECKING_API_VERSIONS, ConnectionEvent.LOST): _S.DISCONNECTED,
    (_S.AUTHENTICATING, ConnectionEvent.AUTHENTICATED): _S.READY,
    (_S.AUTHENTICATING, ConnectionEvent.LOST): _S.DISCONNECTED,
    (_S.READY, ConnectionEvent.AUTHENTICATE): _S.AUTHENTICATING,
    (_S.READY, ConnectionEvent.LOST): _S.DISCONNECTED,
}

BEING_MADE = (_S.CONNECTING, _S.CHECKING_API_VERSIONS, _S.AUTHENTICATING)
"""States of a connection that is not usable yet; no second one is begun meanwhile."""

FORGET_AFTER_S = 600.0
"""Seconds before an address that nobody tries is forgotten."""

_MANY = 30
"""Failures that lead to the longest back-off."""

SocketAddress = tuple[int, tuple[str | int | bytes, ...]]
"""Address family and what ``socket.connect`` takes."""


@dataclass(slots=True)
class NodeConnection:
    """One address's connection: state, failures, and the broker's versions.

    ``answered``: a request of ours was answered on this connection. ``hang_ups``: fresh connections in a row that
    were closed unanswered; ``hung_up_s``: when the first of them was.
    """

    state: ConnectionState = ConnectionState.DISCONNECTED
    last_attempt_s: float = float("-inf")
    retry_at_s: float = float("-inf")
    failures: int = 0
    setup_failures: int = 0
    setup_deadline_s: float = float("inf")
    throttled_until_s: float = float("-inf")
    session_ends_s: float = float("inf")
    answered: bool = False
    hang_ups: int = 0
    hung_up_s: float = float("-inf")
    versions: ApiRanges = field(default_factory=dict)
    last_error: KafkaError | None = None
    candidates: list[SocketAddress] = field(default_factory=list)
    last_used: SocketAddress | None = None


@dataclass(slots=True, eq=False)
class ConnectionStates:
    """All connections, by address. One thread."""

    _reconnect: Backoff
    _setup_timeout: Backoff
    _uniform: Callable[[], float]
    _nodes: dict[Address, NodeConnection] = field(default_factory=dict)
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    """The newest news of the cluster's features, from any broker."""

    def get(self, address: Address) -> NodeConnection:
        """Return the entry of an address, making it where there is none."""
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = NodeConnection()
        return node

    def all(self) -> dict[Address, NodeConnection]:
        """Return every address that was tried and not forgotten."""
        return self._nodes

    def forget_unused(self, now_s: float) -> list[Address]:
        """Drop and return addresses that were unused for FORGET_AFTER_S."""
        # Without this, brokers that come back under ever new addresses would be kept for ever.
        old = [
            address
            for address, node in self._nodes.items()
            if node.state is ConnectionState.DISCONNECTED
            and float("-inf") < node.last_attempt_s <= now_s - FORGET_AFTER_S
        ]
        for address in old:
            del self._nodes[address]
        return old

    def can_connect(self, address: Address, now_s: float) -> bool:
        """Return whether a new connection may be begun now."""
        node = self.get(address)
        return node.state is ConnectionState.DISCONNECTED and now_s >= node.retry_at_s

    def is_ready(self, address: Address, now_s: float) -> bool:
        """Return whether the connection is usable and not throttled by a quota."""
        node = self.get(address)
        return node.state is ConnectionState.READY and now_s >= node.throttled_until_s

    def wait_s(self, address: Address, now_s: float) -> float:
        """Return the seconds of back-off or throttling left; infinity: wait for an event."""
        node = self.get(address)
        if node.state is ConnectionState.DISCONNECTED:
            return max(node.retry_at_s - now_s, 0.0)
        if node.state is ConnectionState.READY:
            return max(node.throttled_until_s - now_s, 0.0)
        return float("inf")

    def dial(self, address: Address, now_s: float, resolve: Callable[[Address], list[SocketAddress]]) -> SocketAddress:
        """Begin a connection; return the socket address to use. ``resolve`` may raise OSError.

        Every address of a name is tried in turn; the name is resolved again when they are used up. After an
        established connection broke, the address used last is not the first to be tried.
        """
        node = self.get(address)
        self._move(node, ConnectionEvent.DIAL)
        node.last_attempt_s = now_s
        timeout = self._setup_timeout.delay(node.setup_failures + 1, self._uniform)
        node.setup_deadline_s = now_s + timeout
        if not node.candidates:
            found = resolve(address)
            # The address that just broke goes last: behind a name with several addresses the others may work.
            if len(found) > 1 and found[0] == node.last_used:
                found = [*found[1:], found[0]]
            node.candidates = found
        node.last_used = node.candidates.pop(0)
        return node.last_used

    def connected(self, address: Address) -> None:
        """Note that the socket is connected, TLS included."""
        node = self.get(address)
        self._move(node, ConnectionEvent.CONNECTED)
        node.answered = False

    def versions_known(self, address: Address, versions: ApiRanges) -> None:
        """Note the broker's versions: the connection is ready, its failures forgotten."""
        node = self.get(address)
        self._move(node, ConnectionEvent.VERSIONS_KNOWN)
        node.versions = versions
        self._made(node)

    def learn_features(self, told: FinalizedFeatures) -> None:
        """Keep the features that a broker told, unless older than those known."""
        # Brokers hear of a change one after the other: one that lags behind must not take it back.
        if told.epoch > self.features.epoch:
            self.features = told

    def authenticate(self, address: Address, now_s: float, versions: ApiRanges | None = None) -> None:
        """Note that authentication begins, on a new connection or again."""
        node = self.get(address)
        self._move(node, ConnectionEvent.AUTHENTICATE)
        if versions is not None:
            node.versions = versions
        else:
            self.wait_longer(address, now_s)
        node.session_ends_s = float("inf")

    def wait_longer(self, address: Address, now_s: float) -> None:
        """Give a repeated authentication its full time from now on."""
        self.get(address).setup_deadline_s = now_s + self._setup_timeout.delay(1, self._uniform)

    def authenticated(self, address: Address, now_s: float, lifetime_s: float) -> None:
        """Note that the connection is authenticated, for ``lifetime_s`` (0: for good)."""
        node = self.get(address)
        self._move(node, ConnectionEvent.AUTHENTICATED)
        if lifetime_s > 0:
            # KIP-368: the next authentication begins at 85 to 95 % of the lifetime, as Java's clients do. The broker
            # closes a connection whose session ended.
            node.session_ends_s = now_s + lifetime_s * (0.85 + 0.1 * self._uniform())
        self._made(node)

    def sessions_ending(self, now_s: float) -> list[Address]:
        """Return the connections that must authenticate again."""
        return [
            address
            for address, node in self._nodes.items()
            if node.state is ConnectionState.READY and now_s >= node.session_ends_s
        ]

    def next_session_end(self) -> float:
        """Return the time of the earliest session's end, infinity for none."""
        ends = (node.session_ends_s for node in self._nodes.values() if node.state is ConnectionState.READY)
        return min(ends, default=float("inf"))

    def _made(self, node: NodeConnection) -> None:
        # Back-off and error end only here, when the broker has let us in: a port that accepts and then hangs up would
        # else be dialled without any pause.
        node.setup_deadline_s = float("inf")
        node.setup_failures = 0
        node.failures = 0
        node.last_error = None
        node.candidates = []

    def lost(self, address: Address, now_s: float, error: KafkaError) -> None:
        """Note that the connection failed or broke: back off."""
        node = self.get(address)
        if node.state is not ConnectionState.READY:
            node.setup_failures += 1
        self._move(node, ConnectionEvent.LOST)
        node.failures += 1
        # A refused user gets the longest back-off at once: a moment later the answer would be the same, and each try
        # may count towards locking the user out.
        tries = _MANY if isinstance(error, AuthenticationFailed) else node.failures
        node.retry_at_s = now_s + self._reconnect.delay(tries, self._uniform)
        self._gone(node)
        node.last_error = error

    def closed(self, address: Address) -> None:
        """Note that we closed it: a new one may be begun at once."""
        node = self.get(address)
        self._move(node, ConnectionEvent.LOST)
        self._gone(node)

    @staticmethod
    def _gone(node: NodeConnection) -> None:
        node.setup_deadline_s = float("inf")
        node.throttled_until_s = float("-inf")
        node.session_ends_s = float("inf")

    def throttle(self, address: Address, until_s: float) -> None:
        """Send nothing before this time: the broker throttles us (KIP-219)."""
        node = self.get(address)
        # The later end counts: two answers of one window may name different times.
        node.throttled_until_s = max(node.throttled_until_s, until_s)

    def setup_expired(self, now_s: float) -> list[Address]:
        """Return the connections that were not set up in time."""
        return [
            address
            for address, node in self._nodes.items()
            if node.state is not ConnectionState.DISCONNECTED and now_s >= node.setup_deadline_s
        ]

    def next_setup_deadline(self) -> float:
        """Return the time of the earliest setup's deadline, infinity for none."""
        return min((node.setup_deadline_s for node in self._nodes.values()), default=float("inf"))

    @staticmethod
    def _move(node: NodeConnection, move: ConnectionEvent) -> None:
        after = TRANSITIONS.get((node.state, move))
        if after is None:
            raise RuntimeError(f"a connection that is {node.state.value} cannot have {move.value!r} happen")
        node.state = after
