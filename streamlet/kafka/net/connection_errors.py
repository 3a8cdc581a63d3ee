"""Errors that end a connection, with the broker's name and the remedy."""

from __future__ import annotations

from streamlet.kafka.errors import (
    AuthenticationFailed,
    Disconnected,
    ForeignProtocol,
    HungUp,
    KafkaError,
    MalformedFrame,
    TokenFailed,
    TokenUnavailable,
)
from streamlet.kafka.metadata.cluster import Broker
from streamlet.kafka.net.connection_states import ConnectionState, NodeConnection

HANG_UPS = 3
"""Fresh connections in a row, closed unanswered, that show a wrong ``security_protocol``."""
HANG_UPS_S = 3.0
"""Seconds that the hang-ups must go on before they show it."""


class ClosedByUs(Disconnected):
    """Not a failure: neither back-off nor a metadata request follows."""


def hung_up(error: KafkaError, node: NodeConnection, in_flight: int) -> bool:
    """Return whether the broker closed a fresh connection with our request unanswered."""
    if isinstance(error, HungUp):
        return True
    return type(error) is Disconnected and not node.answered and in_flight > 0


def count_hang_up(
    broker: Broker, node: NodeConnection, error: KafkaError, security_protocol: str, now_s: float
) -> KafkaError:
    """Count a hang-up; return HungUp once there are enough, Disconnected before."""
    # Kafka says nothing to a client that speaks another protocol than the listener: it only closes the connection. But
    # one hang-up is a broker that stops, and a proxy hangs up three times in a fraction of a second while its broker
    # starts. So HungUp, which ends a wait, takes several in a row for three seconds; the text names the meaning
    # earlier.
    node.hang_ups += 1
    if node.hang_ups == 1:
        node.hung_up_s = now_s
    if node.hang_ups < HANG_UPS:
        return explain(broker, node, Disconnected(error.message), security_protocol)
    told = explain(broker, node, HungUp(error.message), security_protocol)
    return told if now_s - node.hung_up_s >= HANG_UPS_S else Disconnected(told.message)


_MEANT = {
    "PLAINTEXT": "a listener that wants TLS (SSL) or a user and password (SASL_PLAINTEXT) does that; so does a port "
    "that is not Kafka's, such as ZooKeeper's 2181",
    "SSL": "a listener without TLS (PLAINTEXT), or one that wants a user and password too (SASL_SSL), does that; so "
    "does one that wants a client certificate (ssl_certfile) and got none it trusts",
    "SASL_PLAINTEXT": "a listener that wants TLS (SASL_SSL) does that",
    "SASL_SSL": "a listener without TLS (SASL_PLAINTEXT) does that; so does one that wants a client certificate "
    "(ssl_certfile) and got none it trusts",
}


def explain(broker: Broker, node: NodeConnection, error: KafkaError, security_protocol: str) -> KafkaError:
    """Return the error with the broker's name and the connection's state.

    ``node`` must still have the state that it had before the error.
    """
    state = node.state
    text = error.message.rstrip(".")
    ours = f"security_protocol = {security_protocol!r}"
    if isinstance(error, ForeignProtocol):
        return ForeignProtocol(
            f"The port at {broker} does not speak what this client was told to ({ours}): {text}. Check that it is the "
            "broker's own listener, and set security_protocol to what that listener speaks (PLAINTEXT, SSL, "
            "SASL_PLAINTEXT or SASL_SSL)."
        )
    if isinstance(error, HungUp):
        return HungUp(
            f"The broker at {broker} closes each connection without a word ({text}): {_MEANT[security_protocol]}. "
            f"Compare {ours} with what that listener speaks; the broker's own log may say more."
        )
    if isinstance(error, (TokenFailed, TokenUnavailable)):
        return type(error)(f"There is no token to show to the broker at {broker} ({ours}): {text}.")
    if isinstance(error, AuthenticationFailed):
        what = "The TLS connection to" if state is ConnectionState.CONNECTING else "The broker at"
        refused = f"{what} {broker} " + ("failed" if state is ConnectionState.CONNECTING else "does not let us in")
        return type(error)(f"{refused} ({ours}): {text}.")
    if isinstance(error, MalformedFrame):
        return MalformedFrame(f"The connection to {broker} was closed: {text}.")
    doing = {
        ConnectionState.CONNECTING: "could not be made",
        ConnectionState.CHECKING_API_VERSIONS: "was lost before the broker answered the first request",
        ConnectionState.AUTHENTICATING: "was lost while user and password were being checked",
    }.get(state, "was lost")
    return type(error)(f"The connection to {broker} {doing}: {text}.")
