"""What ends a connection, told with the broker's name and what the connection was doing."""

from __future__ import annotations

from streamlet.kafka.errors import Disconnected, ForeignProtocol, KafkaError, MalformedFrame
from streamlet.kafka.metadata.cluster import Broker
from streamlet.kafka.net.connection_states import ConnectionState


class ClosedByUs(Disconnected):
    """No failure: neither back-off nor doubt in the metadata follows."""


def explain(broker: Broker, state: ConnectionState, error: KafkaError) -> KafkaError:
    """The same error with the broker's name and what the connection was doing."""
    text = error.message
    if isinstance(error, ForeignProtocol):
        return ForeignProtocol(
            f"The port at {broker} does not speak Kafka's protocol: {text}. Check that it is the broker's own "
            "listener, and a PLAINTEXT one: TLS and SASL are not spoken yet."
        )
    if isinstance(error, MalformedFrame):
        return MalformedFrame(f"The connection to {broker} was closed: {text.rstrip('.')}.")
    doing = {
        ConnectionState.CONNECTING: "could not be made",
        ConnectionState.CHECKING_API_VERSIONS: "was lost before the broker answered the first request",
    }.get(state, "was lost")
    return type(error)(f"The connection to {broker} {doing}: {text}.")
