"""The producer while brokers die, stop and come back; what is in the log is read back by librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.errors import ProducerClosed
from streamlet.kafka.producer.partitioners import murmur2_partition
from tests.patience import PATIENCE_S
from tests.read_back import read_back

pytestmark = pytest.mark.real

MakeTopic = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    """Three brokers of this module's own."""
    with DevCluster("4", brokers=3) as cluster:
        yield cluster


def leader_of(producer: Producer, topic: str, number: int = 0) -> int:
    producer.partitions_for(topic)
    leader = producer._sender.client.cluster.leader_for(TopicPartition(topic, number))
    assert leader is not None
    return leader.node_id


def test_p4_p12_a_killed_leader_costs_nothing_and_is_used_again(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """Records go on at the new leader, once and in order; the old one is written to again after its restart."""
    topic = make_topic(cluster, partitions=3, replication=3)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        futures = [producer.send(topic, b"%d" % n, partition=n % 3) for n in range(300)]
        victim = leader_of(producer, topic)
        cluster.kill(victim)
        try:
            futures += [producer.send(topic, b"%d" % n, partition=n % 3) for n in range(300, 3000)]
            producer.flush(90)
        finally:
            cluster.restart(victim)
        assert all(future.succeeded() for future in futures)
        deadline = time.monotonic() + PATIENCE_S
        back = make_topic(cluster, partitions=3, replication=1)
        while True:  # a partition whose only replica is the one that came back
            producer.send_many(back, [b"x"] * 3)
            places = [producer.send(back, b"x", partition=number) for number in range(3)]
            leaders = {leader_of(producer, back, number) for number in range(3)}
            if victim in leaders:
                assert all(place.get(30).offset >= 0 for place in places)
                break
            assert time.monotonic() < deadline, leaders
            back = make_topic(cluster, partitions=3, replication=1)
    rows = read_back(cluster, topic, 3000)
    for number in range(3):
        assert [row.value for row in rows if row.partition == number] == [b"%d" % n for n in range(number, 3000, 3)]


KEY_OF_PARTITION_0 = next(key for key in (b"%d" % n for n in range(99)) if murmur2_partition(key, 3) == 0)


def test_p8_records_go_elsewhere_when_every_replica_is_down(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """With the switch on: what was never sent moves, and is counted; records with a key or a partition expire."""
    topic = make_topic(cluster, partitions=3, replication=1)
    settings: dict[str, Any] = {"delivery_timeout_ms": 12_000, "request_timeout_ms": 2000}
    with Producer(bootstrap_servers=cluster.bootstrap_servers, partition_failover="keyless", **settings) as producer:
        victim = leader_of(producer, topic)
        sticky = producer._appender.topics
        producer._appender.topics._uniform = lambda: 0.0  # the first partition, which is the victim's
        cluster.kill(victim)
        try:
            with producer._lock:
                state = sticky.get(topic)
                assert state is not None
                state.sticky_queue = state.queues[0]
                state.sticky.number, state.sticky.left = 0, 1e9
            futures = [producer.send(topic, b"%d" % n) for n in range(10)]
            named = producer.send(topic, b"stays", partition=0)
            keyed = producer.send(topic, b"stays", key=KEY_OF_PARTITION_0)
            placed = {future.get(60).partition for future in futures}
            assert 0 not in placed
            assert producer.metrics()["records_moved"] == 10
            for stays in (named, keyed):
                with pytest.raises(KafkaError, match="partition 0, expired"):
                    stays.get(60)
        finally:
            cluster.restart(victim)
    values = [row.value for row in read_back(cluster, topic, 10)]
    assert [value for value in values if value != b"stays"] == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("how", ["half are paused", "all are dead"])
def test_close_ends_in_its_time_with_brokers_gone(cluster: DevCluster, make_topic: MakeTopic, how: str) -> None:
    """What could not be sent fails with ProducerClosed; nothing hangs. Last in this module: the dead stay dead."""
    topic = make_topic(cluster, partitions=3, replication=1)
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    producer.send(topic, b"x").get(20)
    victims = sorted({leader_of(producer, topic, number) for number in range(3)})
    if how == "half are paused":
        victims = victims[:2]
    for victim in victims:
        (cluster.kill if how == "all are dead" else cluster.pause)(victim)
    try:
        futures = [producer.send(topic, b"y", partition=number) for number in range(3)]
        start = time.monotonic()
        producer.close(1.0)
        assert time.monotonic() - start < 10
        assert all(future.is_done for future in futures)
        assert any(isinstance(future.exception, ProducerClosed) for future in futures)
    finally:
        if how == "half are paused":
            for victim in victims:
                cluster.resume(victim)
