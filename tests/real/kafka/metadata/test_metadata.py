"""Metadata and connections on real brokers; what the client knows is compared with what librdkafka sees."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from streamlet.devcluster import DevCluster
from streamlet.kafka import ClientConfig, Cluster, KafkaClient, TopicPartition
from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S

MakeTopic = Callable[..., str]


@pytest.fixture(params=["kafka39", "kafka4"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    found: DevCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def client(cluster: DevCluster) -> Iterator[KafkaClient]:
    with KafkaClient(ClientConfig(cluster.bootstrap_servers)) as client:
        yield client


def until(client: KafkaClient, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, client
        client.poll(0.05)


def admin(cluster: DevCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def add_partitions(cluster: DevCluster, topic: str, total: int) -> None:
    client = admin(cluster)  # which must outlive its future
    client.create_partitions([NewPartitions(topic, total)])[topic].result(PATIENCE_S)


def test_m1_the_cluster_is_what_librdkafka_sees(
    cluster: DevCluster, client: KafkaClient, make_topic: MakeTopic
) -> None:
    """Brokers, partitions, leaders, replicas, controller, id; listeners hear of each update, versions count them."""
    topic = make_topic(cluster, partitions=3)
    heard: list[Cluster] = []
    client.metadata.add_listener(heard.append)
    client.bootstrap(PATIENCE_S)
    client.wait_on_metadata(topic, PATIENCE_S)
    theirs = admin(cluster).list_topics(timeout=PATIENCE_S)
    ours = client.cluster
    assert {b.node_id: (b.host, b.port) for b in ours.brokers.values()} == {
        b.id: (b.host, b.port) for b in theirs.brokers.values()
    }
    assert (ours.cluster_id, ours.controller_id) == (theirs.cluster_id, theirs.controller_id)
    assert {p.partition: (p.leader, list(p.replicas), list(p.isr)) for p in ours.partitions_for(topic)} == {
        p.id: (p.leader, p.replicas, p.isrs) for p in theirs.topics[topic].partitions.values()
    }
    assert heard[-1] is ours and len(heard) == client.metadata.update_version
    assert client.metadata.time_to_next_update(client._network.now_s()) > 290


def test_m2_a_partition_made_while_it_is_waited_for_is_found(
    cluster: DevCluster, client: KafkaClient, make_topic: MakeTopic
) -> None:
    """The wait is told in seconds and is 0 when all is known; a partition that is not there is named."""
    topic = make_topic(cluster, partitions=2)
    client.bootstrap(PATIENCE_S)
    waited = client.wait_on_metadata(topic, PATIENCE_S, partition=1)
    assert 0 < waited < PATIENCE_S and client.wait_on_metadata(topic, PATIENCE_S, partition=0) == 0.0
    with pytest.raises(ClientTimeout, match=f"Partition 2 of topic '{topic}' .* has 2 partitions"):
        client.wait_on_metadata(topic, 0.3, partition=2)
    later = threading.Timer(0.2, add_partitions, (cluster, topic, 3))
    later.start()
    assert client.wait_on_metadata(topic, PATIENCE_S, partition=2) > 0.1
    later.join()


def test_m3_the_first_metadata_takes_a_connection_and_three_answers(cluster: DevCluster, client: KafkaClient) -> None:
    """The article's three polls are connect, ApiVersions, Metadata: one connection, and one request that counts."""
    polls = client._network.polls
    while client.metadata.update_version == 0:
        client.poll(PATIENCE_S)
    assert client._network.polls - polls >= 3
    assert (client.counts.connections_made, client.counts.requests) == (1, 1)


def test_m4_a_connection_the_broker_closes_forces_an_update(cluster: DevCluster, client: KafkaClient) -> None:
    """As one that breaks does: here the transport is cut under the client."""
    client.bootstrap(PATIENCE_S)
    version = client.metadata.update_version
    (broker,) = client.connected_brokers()
    channel = client._network._selector._channels[broker.address]
    channel.transport._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
    until(client, lambda: client.metadata.update_version > version)
    assert client.counts.connections_lost == 1


def test_m5_idle_topics_leave_and_all_topics_are_those_librdkafka_lists(
    cluster: DevCluster, make_topic: MakeTopic
) -> None:
    """A producer's idle topic leaves; all topics are those that librdkafka lists."""
    used, idle = make_topic(cluster), make_topic(cluster)
    config = ClientConfig(cluster.bootstrap_servers, metadata_max_age_ms=100)
    with KafkaClient(config, topic_idle_s=1.0) as client:
        client.bootstrap(PATIENCE_S)
        client.wait_on_metadata(idle, PATIENCE_S)
        client.wait_on_metadata(used, PATIENCE_S)

        def renewed() -> bool:
            client.add_topic(used)
            return client.metadata.topics == {used}

        until(client, renewed)
        assert set(client.cluster.topics) == {used}
        client.metadata.set_all_topics(True)
        theirs = set(admin(cluster).list_topics(timeout=PATIENCE_S).topics)
        until(client, lambda: theirs <= set(client.cluster.topics))
        client.metadata.set_all_topics(False)
        client.add_topic(used)
        until(client, lambda: set(client.cluster.topics) <= {used})


def test_m6_however_often_it_is_asked_for_one_request_goes(cluster: DevCluster, client: KafkaClient) -> None:
    """One update asked for a hundred times is one request."""
    client.bootstrap(PATIENCE_S)
    before = client.counts.requests
    version = [client.request_update() for _ in range(100)][-1]
    until(client, lambda: client.metadata.update_version > version)
    assert client.counts.requests == before + 1 and client.counts.connections_made == 1


def test_m7_callbacks_come_in_the_order_of_their_requests(
    cluster: DevCluster, client: KafkaClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Of requests in flight together on one connection; one that raises is logged and stops no other."""
    caplog.set_level(logging.ERROR)
    client.bootstrap(PATIENCE_S)
    (broker,) = client.cluster.brokers.values()
    order: list[int] = []
    futures = []
    for number in range(5):
        future = client.send(FindCoordinatorRequest(key=f"g{number}"), broker)
        future.add_listener(lambda _future, number=number: order.append(number) or [][number == 2])
        futures.append(future)
    until(client, lambda: all(future.done for future in futures))
    assert order == [0, 1, 2, 3, 4] and caplog.text.count("IndexError") == 5
    assert ApiKey.FIND_COORDINATOR in client._network.states.get(broker.address).versions


def test_fault_f11_partitions_that_are_added_are_known_within_the_age_of_metadata(
    cluster: DevCluster, make_topic: MakeTopic
) -> None:
    """Nothing fails, nobody asks: the periodic refresh finds them."""
    topic = make_topic(cluster)
    with KafkaClient(ClientConfig(cluster.bootstrap_servers, metadata_max_age_ms=200)) as client:
        client.bootstrap(PATIENCE_S)
        client.wait_on_metadata(topic, PATIENCE_S)
        add_partitions(cluster, topic, 4)
        until(client, lambda: client.cluster.leader_for(TopicPartition(topic, 3)) is not None)
        assert client.counts.connections_lost == 0
