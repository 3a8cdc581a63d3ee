"""Brokers that die, stop and come back under the client: it goes on by itself, and says what happened meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from streamlet.devcluster import DevCluster
from streamlet.kafka import Broker, ClientConfig, KafkaClient, TopicPartition
from streamlet.kafka.client.leader_requests import FetchPosition, FetchSettings, fetch
from streamlet.kafka.errors import Disconnected, KafkaError, RequestTimedOut
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    """Three brokers of this module's own."""
    with DevCluster("3.9", brokers=3) as cluster:
        yield cluster


def read(client: KafkaClient, tp: TopicPartition, position: int, count: int) -> list[bytes | None]:
    """``count`` values from the position on, over whatever leaders there are; only retriable errors are borne."""
    found: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, client.cluster
        leader = client.cluster.leader_for(tp)
        if leader is None:
            client.request_update()
            client.poll(0.1)
            continue
        try:
            asked = {tp: FetchPosition(position, client.cluster.leader_epoch(tp))}
            part = client.wait(fetch(client, leader, asked, FetchSettings(fetch_max_wait_ms=200)), PATIENCE_S)[tp]
            for batch in part.batches():
                found += batch.values
                position = batch.next_offset
        except KafkaError as err:
            assert err.retriable, err
            client.poll(0.1)
    return found


def produce(cluster: DevCluster, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def leader_of(client: KafkaClient, tp: TopicPartition) -> Broker:
    leader = client.cluster.leader_for(tp)
    assert leader is not None
    return leader


def test_fault_f2_a_killed_leader_is_replaced_and_used_again(
    cluster: DevCluster, make_topic: Callable[..., str]
) -> None:
    """Reading goes on at the new leader without a gap; after its restart the old one is connected to again."""
    topic = make_topic(cluster, replication=3)
    tp = TopicPartition(topic, 0)
    values = [b"%d" % number for number in range(300)]
    with KafkaClient(ClientConfig(cluster.bootstrap_servers)) as client:
        client.bootstrap(20)
        client.wait_on_metadata(topic, 20)
        produce(cluster, topic, values[:100])
        assert read(client, tp, 0, 100) == values[:100]
        first = leader_of(client, tp)
        cluster.kill(first.node_id)
        produce(cluster, topic, values[100:200])
        assert read(client, tp, 100, 100) == values[100:200]
        assert leader_of(client, tp) != first and client.cluster.leader_epoch(tp) > 0
        cluster.restart(first.node_id)
        produce(cluster, topic, values[200:])
        assert read(client, tp, 0, 300) == values
        deadline = time.monotonic() + PATIENCE_S
        while first.node_id not in client.cluster.brokers:
            assert time.monotonic() < deadline
            client.request_update()
            client.poll(0.2)


def test_fault_f3_a_paused_broker_costs_one_time_out_and_close_does_not_hang(
    cluster: DevCluster, make_topic: Callable[..., str]
) -> None:
    """A broker that accepts and does not answer fails the request in time; the others go on being used."""
    topic = make_topic(cluster, replication=3)
    tp = TopicPartition(topic, 0)
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "request_timeout_ms": 1000}
    client = KafkaClient(ClientConfig.of(settings))
    try:
        client.bootstrap(20)
        client.wait_on_metadata(topic, 20)
        produce(cluster, topic, [b"a"])
        assert read(client, tp, 0, 1) == [b"a"]
        leader = leader_of(client, tp)
        cluster.pause(leader.node_id)
        try:
            asked = fetch(client, leader, {tp: FetchPosition(0)}, FetchSettings(fetch_max_wait_ms=0))
            with pytest.raises(RequestTimedOut, match=f"{leader.port}.*no answer to FETCH within 1 s") as caught:
                client.wait(asked, PATIENCE_S)
            assert isinstance(caught.value, Disconnected)
            version, deadline = client.metadata.update_version, time.monotonic() + PATIENCE_S
            while client.metadata.update_version < version + 2:
                assert time.monotonic() < deadline
                client.request_update()
                client.poll(0.2)
            asked = fetch(client, leader, {tp: FetchPosition(0)}, FetchSettings(fetch_max_wait_ms=0))
            client.poll(0)
            start = time.monotonic()
            client.close(0.5)
            assert time.monotonic() - start < 20
            assert asked.done and not asked.succeeded
        finally:
            cluster.resume(leader.node_id)
    finally:
        client.close()


def test_fault_f1_a_leader_that_moves_orderly_is_followed_without_a_gap(
    cluster: DevCluster, make_topic: Callable[..., str]
) -> None:
    """NOT_LEADER from the old one asks for metadata; no connection is lost and no record is missed."""
    topic = make_topic(cluster, replication=3)
    tp = TopicPartition(topic, 0)
    values = [b"%d" % number for number in range(200)]
    with KafkaClient(ClientConfig(cluster.bootstrap_servers)) as client:
        client.bootstrap(20)
        client.wait_on_metadata(topic, 20)
        produce(cluster, topic, values[:100])
        assert read(client, tp, 0, 100) == values[:100]
        before = leader_of(client, tp)
        cluster.move_leader(topic, 0, (before.node_id + 1) % 3)
        produce(cluster, topic, values[100:])
        assert read(client, tp, 100, 100) == values[100:]
        assert leader_of(client, tp) != before and client.counts.connections_lost == 0


def test_fault_f5_without_a_controller_metadata_and_reading_go_on(
    cluster: DevCluster, make_topic: Callable[..., str]
) -> None:
    """The controller is killed: another is named in time, what another broker leads is read all the while."""
    with KafkaClient(ClientConfig(cluster.bootstrap_servers)) as client:
        client.bootstrap(20)
        controller = client.cluster.controller_id
        topic = make_topic(cluster, partitions=3, replication=3)
        client.wait_on_metadata(topic, 20)
        others = [row for row in client.cluster.partitions_for(topic) if row.leader != controller]
        tp = others[0].topic_partition
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "acks": "all"})
        for number in range(50):
            producer.produce(topic, b"%d" % number, partition=tp.partition)
        assert producer.flush(60) == 0
        cluster.kill(controller)
        assert read(client, tp, 0, 50) == [b"%d" % number for number in range(50)]
        deadline = time.monotonic() + PATIENCE_S
        while client.cluster.controller_id in (controller, -1):
            assert time.monotonic() < deadline, client.cluster
            client.request_update()
            client.poll(0.1)
        cluster.restart(controller)


def test_fault_f4_after_all_brokers_were_down_reading_goes_on(
    cluster: DevCluster, make_topic: Callable[..., str]
) -> None:
    """Nothing grows and nothing spins meanwhile; requests fail by name in their time; afterwards it goes on."""
    topic = make_topic(cluster, replication=3)
    tp = TopicPartition(topic, 0)
    with KafkaClient(ClientConfig(cluster.bootstrap_servers)) as client:
        client.bootstrap(20)
        client.wait_on_metadata(topic, 20)
        produce(cluster, topic, [b"a"])
        assert read(client, tp, 0, 1) == [b"a"]
        for broker in range(3):
            cluster.kill(broker)
        start = time.monotonic()
        while client.connected_brokers():
            assert time.monotonic() < start + PATIENCE_S
            client.poll(0.1)
        known, polls, start = client.cluster, client._network.polls, time.monotonic()
        failed = client.send(FindCoordinatorRequest(key="g"), timeout_s=1.5)
        with pytest.raises(RequestTimedOut, match="any broker"):
            client.wait(failed, PATIENCE_S)
        polled = client._network.polls - polls
        assert client.cluster is known and polled < 100 * (time.monotonic() - start), "it must sleep, not spin"
        for broker in range(3):
            cluster.restart(broker)
        assert read(client, tp, 0, 1) == [b"a"]
        produce(cluster, topic, [b"b"])
        assert read(client, tp, 1, 1) == [b"b"]
