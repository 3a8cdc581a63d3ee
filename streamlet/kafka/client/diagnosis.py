"""Why the client does not get on, in one paragraph: what was tried, where, and what each broker did."""

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
    """The state of every connection and its last error, as a sentence."""
    rows = [
        f"{address} is {node.state.value}" + (f" ({node.last_error.message.rstrip('.')})" if node.last_error else "")
        for address, node in list(states.all().items())  # other threads may ask too
    ]
    return f"Connections: {'; '.join(rows)}." if rows else "No connection has been begun."


def hopeless(brokers: Iterable[Broker], states: ConnectionStates, *, started: bool) -> KafkaError | None:
    """Why trying on would not help, or None while it may.

    That is so when every one of these brokers failed in a way that waiting does not mend, or when all of them failed
    and one refuses us: a password does not become right because another broker is down. ``started``: there has been
    metadata, so protocol and versions were right once and may be again; only a refusal counts then.
    """
    refusal: KafkaError | None = None
    first: KafkaError | None = None
    all_permanent = True
    for broker in brokers:
        node = states.get(broker.address)
        error = _permanent(node)
        if started and not isinstance(error, AuthenticationFailed):
            error = None
        if error is None:
            # Asked often, and mostly answered by the first broker: it is connected.
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


def bootstrap_failed(bootstrap: Iterable[Broker], states: ConnectionStates, timeout_s: float) -> BootstrapFailed:
    """None of the addresses gave metadata in time: each with its cause."""
    causes: dict[str, str] = {}
    for broker in bootstrap:
        error = states.get(broker.address).last_error
        causes[str(broker)] = error.message.rstrip(".") if error else "it has not answered"
    listed = "; ".join(f"{name}: {cause}" for name, cause in causes.items())
    return BootstrapFailed(
        f"No Kafka broker answered within {timeout_s:.3g} s at bootstrap_servers. {listed}. Check that the broker "
        "runs, that host and port are those of its listener, and that nothing between blocks them.",
        causes,
    )


def metadata_timeout(
    cluster: Cluster, topic: str, partition: int | None, timeout_s: float, report: str, note: str = ""
) -> KafkaError:
    """The topic, or the one partition, did not show up in time; which of the two is said, and what to do.

    ``note``: what that means for the caller, as a sentence.
    """
    count = cluster.partition_count(topic)
    if count is not None:
        return ClientTimeout(
            f"Partition {partition} of topic {topic!r} is not there after {timeout_s:.3g} s: the topic has "
            f"{count} partition{'s' if count > 1 else ''}, numbered from 0. Name one of these, or let "
            f"the topic grow (Admin.create_partitions). {note}".strip()
        )
    info = cluster.topics.get(topic)
    if info is not None and info.error is not None:
        return info.error(
            f"Topic {topic!r} cannot be used after a wait of {timeout_s:.3g} s",
            f"Create the topic (`streamlet dev topic {topic}`, or Admin.create_topics), or correct its name. "
            f"{note}".strip(),
        )
    return ClientTimeout(
        f"Topic {topic!r} is not in the metadata after {timeout_s:.3g} s: {no_metadata(cluster, report)} {note}".strip()
    )


def no_metadata(cluster: Cluster, report: str) -> str:
    """Why nothing is known of a topic that was asked about, as a sentence's end, and what to do."""
    if cluster.brokers:
        return f"no broker has answered for it. {report} Check that the brokers run."
    return (
        f"no broker has answered. {report} Check bootstrap_servers (host and port of the broker's listener), and that "
        "the broker runs."
    )
