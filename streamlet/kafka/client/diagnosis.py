"""Texts and verdicts on a client that makes no progress: each broker with its cause."""

from __future__ import annotations

from collections.abc import Iterable

from streamlet.kafka.errors import (
    AuthenticationFailed,
    BootstrapFailed,
    ClientTimeout,
    ForeignProtocol,
    HungUp,
    KafkaError,
    UnsupportedVersion,
)
from streamlet.kafka.metadata.cluster import Broker, Cluster
from streamlet.kafka.net.connection_states import ConnectionState, ConnectionStates, NodeConnection


def connections(states: ConnectionStates) -> str:
    """Return a sentence with each connection's state and last error."""
    # Any thread may ask. Each error is read once: the client's own thread may clear it in between.
    seen = [(address, node.state, node.last_error) for address, node in list(states.all().items())]
    rows = [
        f"{address} is {state.value}" + (f" ({error.message.rstrip('.')})" if error else "")
        for address, state, error in seen
    ]
    return f"Connections: {'; '.join(rows)}." if rows else "No connection has been begun."


def hopeless(brokers: Iterable[Broker], states: ConnectionStates, *, started: bool) -> KafkaError | None:
    """Return the error that waiting does not fix, None without one.

    Waiting does not help when each of these brokers failed for good, or when all of them failed and one refuses us: a
    password does not become right because another broker is down. ``started``: there has been metadata.
    """
    refusal: KafkaError | None = None
    first: KafkaError | None = None
    all_permanent = True
    for broker in brokers:
        node = states.get(broker.address)
        error = _permanent(node)
        # After the first metadata only a refusal of who we are ends a wait at once. A port that speaks another protocol
        # by then is usually a dead broker whose port another program took: the cluster recovers, and the client with
        # it.
        if started and not isinstance(error, AuthenticationFailed):
            error = None
        if error is None:
            # The usual case, and the cheap one: the first broker is connected.
            if node.state is not ConnectionState.DISCONNECTED or node.last_error is None:
                return None
            all_permanent = False
        first = first or error
        if isinstance(error, AuthenticationFailed) and node.state is ConnectionState.DISCONNECTED:
            refusal = refusal or error
    return first if all_permanent else refusal


def _permanent(node: NodeConnection) -> KafkaError | None:
    error = node.last_error
    return error if isinstance(error, (ForeignProtocol, HungUp, UnsupportedVersion, AuthenticationFailed)) else None


def bootstrap_failed(
    bootstrap: Iterable[Broker], states: ConnectionStates, timeout_s: float, named_in: str = "bootstrap_servers"
) -> BootstrapFailed:
    """Return the error for a bootstrap that failed: each address with its cause.

    ``named_in``: the setting that has the addresses.
    """
    causes: dict[str, str] = {}
    for broker in bootstrap:
        error = states.get(broker.address).last_error
        causes[str(broker)] = error.message.rstrip(".") if error else "it has not answered"
    listed = "; ".join(f"{name}: {cause}" for name, cause in causes.items())
    return BootstrapFailed(
        f"No Kafka broker answered within {timeout_s:.3g} s at {named_in}. {listed}. Check that the broker runs "
        "(`streamlet dev up` starts one on this machine), that host and port are those of its listener, and that "
        "nothing between blocks them.",
        causes,
    )


def no_such_partition(cluster: Cluster, topic: str) -> str:
    """Return the end of a message about a missing partition."""
    count = cluster.partition_count(topic) or 0
    return (
        f"the topic has {count} partition{'s' if count > 1 else ''}, numbered from 0. Name one of these, or let the "
        "topic grow (Admin.create_partitions)."
    )


def metadata_timeout(
    cluster: Cluster, topic: str, partition: int | None, timeout_s: float, report: str, note: str = ""
) -> KafkaError:
    """Return the error for a topic or partition not found in time.

    ``note``: the consequence for the caller, as a sentence.
    """
    count = cluster.partition_count(topic)
    after, waited = (f" after {timeout_s:.3g} s", f" after a wait of {timeout_s:.3g} s") if timeout_s else ("", "")
    if count is not None:
        return ClientTimeout(
            f"Partition {partition} of topic {topic!r} is not there{after}: "
            f"{no_such_partition(cluster, topic)} {note}".strip()
        )
    info = cluster.topics.get(topic)
    if info is not None and info.error is not None:
        return info.error(
            f"Topic {topic!r} cannot be used{waited}",
            f"Create the topic (`streamlet dev topic {topic}`, or Admin.create_topics), or correct its name. "
            f"{note}".strip(),
        )
    return ClientTimeout(
        f"Topic {topic!r} is not in the metadata{after}: {no_metadata(cluster, report)} {note}".strip()
    )


def no_metadata(cluster: Cluster, report: str) -> str:
    """Return the end of a sentence: the reason for missing metadata, and a remedy."""
    if cluster.brokers:
        return f"no broker has answered for it. {report} Check that the brokers run."
    return (
        f"no broker has answered. {report} Check bootstrap_servers (host and port of the broker's listener), and that "
        "the broker runs."
    )
