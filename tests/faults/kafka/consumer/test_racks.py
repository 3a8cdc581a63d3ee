"""Three brokers in racks of their own: who reads a partition, and from which of its replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, ConsumerRecord, TopicPartition
from streamlet.kafka.admin import Admin, NewTopic
from tests.consumers import until
from tests.replicas import await_follower, partitions_of

pytestmark = pytest.mark.real

RACKS = ("red", "green", "blue")
RECORDS = 200
VALUE = b"x" * 20_000
"""Far more bytes altogether than one fetch brings."""


@pytest.fixture(scope="module")
def racks() -> Iterator[DevCluster]:
    settings = {
        "broker.rack": RACKS,
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    with DevCluster("4", brokers=3, broker_settings=settings) as cluster:
        yield cluster


def make(cluster: DevCluster, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics(NewTopic(name, assignment=assignment))


def leader(cluster: DevCluster, topic: str) -> int:
    """Ask the brokers, but the first, for the leader of partition 0."""
    servers = ",".join(cluster.bootstrap_servers.split(",")[1:])
    return int(partitions_of(servers, topic)[0].leader)


def test_c4_records_are_read_from_the_replica_in_the_consumers_rack_while_the_leader_stands_still(
    racks: DevCluster,
    topic_name: Callable[[], str],
    produce: Callable[..., None],
    make_consumer: Callable[..., Consumer],
) -> None:
    """Broker 0 leads; a reader of the rack "blue" is sent to broker 2, and misses broker 0 no more."""
    topic = topic_name()
    make(racks, topic, {0: (0, 1, 2)})
    produce(racks, topic, [VALUE] * RECORDS, acks="all")
    await_follower(racks.bootstrap_servers, topic, "blue", RECORDS)
    piece = 10 * len(VALUE)
    consumer = make_consumer(racks, client_rack="blue", fetch_max_bytes=piece, max_partition_fetch_bytes=piece)
    consumer.assign([TopicPartition(topic, 0)])
    offsets: list[int] = []

    def take(_who: Consumer, rows: list[ConsumerRecord]) -> None:
        offsets.extend(row.offset for row in rows)

    until([consumer], lambda: len(offsets) >= 30, take)
    racks.pause(0)
    try:
        until([consumer], lambda: len(offsets) >= RECORDS - 30, take)
        assert leader(racks, topic) == 0  # nobody was elected meanwhile
    finally:
        racks.resume(0)
    until([consumer], lambda: len(offsets) == RECORDS, take)
    assert offsets == list(range(RECORDS))


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_c5_each_member_of_a_group_gets_the_partitions_of_its_rack(
    racks: DevCluster, strategy: str, topic_name: Callable[[], str], make_consumer: Callable[..., Consumer]
) -> None:
    """Six partitions, each with one replica: nobody reads from another rack."""
    topic = topic_name()
    make(racks, topic, {number: (number % 3,) for number in range(6)})
    consumers = [
        make_consumer(racks, topic, group_id=topic, client_rack=rack, partition_assignment_strategy=[strategy])
        for rack in RACKS
    ]
    wanted = [{TopicPartition(topic, broker), TopicPartition(topic, broker + 3)} for broker in range(3)]
    until(consumers, lambda: [consumer.assignment() for consumer in consumers] == wanted, lambda *_: None)
