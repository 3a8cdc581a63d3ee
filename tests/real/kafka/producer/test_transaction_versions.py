"""Transactions on a real cluster whose feature ``transaction.version`` changes; read back by librdkafka."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Producer, TopicPartition
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest
from tests.patience import PATIENCE_S
from tests.read_back import read_back


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    """One broker of this module's own: a feature is the whole cluster's."""
    with DevCluster("4") as cluster:
        yield cluster


def finalize(cluster: DevCluster, version: int) -> None:
    """Give the cluster this version of transactions, by Kafka's own tool."""
    way = {1: "downgrade", 2: "upgrade"}[version]
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, way, "--feature", f"transaction.version={version}"]
    command = cluster.installation.tool_command("org.apache.kafka.tools.FeatureCommand", *arguments)
    subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True, text=True)


def names_of(client: KafkaClient) -> list[str]:
    """Return a list that has the kind of each request from now on, but for look-ups."""
    names: list[str] = []
    send = client.send

    def noting(request: object, *more: object) -> object:
        if not isinstance(request, FindCoordinatorRequest):
            names.append(type(request).__name__.removesuffix("Request"))
        return send(request, *more)  # type: ignore[arg-type]

    client.send = noting  # type: ignore[method-assign, assignment]
    return names


def reconnect(producer: Producer) -> None:
    """Close the producer's connections, as a broker does that is rolled."""
    sender = producer._sender
    with sender.lock:
        for broker in sender.client.connected_brokers():
            sender.client.disconnect(broker)


def test_a_feature_that_changes_under_an_open_transaction_is_that_of_the_next(cluster: DevCluster) -> None:
    """From version 2 to 1 and back: each transaction is whole, and ends as it began."""
    cluster.create_topic("changing", 1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="changing") as producer:
        producer.init_transactions()
        names = names_of(producer._sender.client)
        for version, ends in ((1, ["EndTxn"]), (2, ["EndTxn", "InitProducerId"])):
            producer.begin_transaction()
            producer.send("changing", b"before %d" % version).get(PATIENCE_S)
            finalize(cluster, version)
            reconnect(producer)
            producer.send("changing", b"after %d" % version).get(PATIENCE_S)
            producer.send_offsets_to_transaction({TopicPartition("changing", 0): 1}, "changing")
            names.clear()
            producer.commit_transaction()
            producer.begin_transaction()
            assert list(dict.fromkeys(names)) == ends, "but for what is asked again"
            producer.send("changing", b"aborted").get(PATIENCE_S)
            producer.abort_transaction()
            assert ("AddPartitionsToTxn" in names) == (version == 1)
    kept = [b"%b %d" % (when, version) for version in (1, 2) for when in (b"before", b"after")]
    assert [row.value for row in read_back(cluster, "changing", 4)] == kept
