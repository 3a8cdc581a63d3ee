"""Three brokers, one of which dies: the leader of what is read, and the coordinator of who reads it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer
from tests.consumers import until

pytestmark = pytest.mark.real
RECORDS = 400


def coordinator_of(cluster: DevCluster, group: str) -> tuple[int, set[str]]:
    """Number of the broker in the cluster, and the members that it knows."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    told = admin.describe_consumer_groups([group])[group].result(30)
    servers = enumerate(cluster.bootstrap_servers.split(","))
    broker = next(at for at, server in servers if server.endswith(f":{told.coordinator.port}"))
    return broker, {member.member_id for member in told.members}


@pytest.mark.parametrize("version", ["3.9", "4"])
def test_c4_c5_a_killed_leader_and_coordinator_cost_no_record_and_no_order(
    version: str,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    make_consumer: Callable[..., Consumer],
) -> None:
    """Every record once and in order, and commits go on with the new coordinator."""
    with DevCluster(version, brokers=3) as cluster:
        topic = make_topic(cluster, partitions=3, replication=3, configs={"min.insync.replicas": "2"})
        consumer = make_consumer(cluster, topic, group_id=topic, heartbeat_interval_ms=300, enable_auto_commit=False)
        seen: dict[int, list[int]] = {number: [] for number in range(3)}

        def read(count: int) -> None:
            until(
                [consumer],
                lambda: all(len(rows) == count for rows in seen.values()),
                lambda _who, rows: seen[rows[0].partition].extend(row.offset for row in rows),
                patience_s=60,
            )

        for number in range(3):
            produce(cluster, topic, [b"x"] * RECORDS, number, acks="all")
        read(RECORDS)
        consumer.commit()
        killed = time.monotonic()
        cluster.kill(coordinator_of(cluster, topic)[0])
        for number in range(3):
            produce(cluster, topic, [b"y"] * RECORDS, number, acks="all")
        read(2 * RECORDS)
        consumer.commit(timeout=60)
        print(f"read and committed {time.monotonic() - killed:.1f} s after the kill")
        assert seen == {number: list(range(2 * RECORDS)) for number in range(3)}
        assert {tp.partition: row.offset for tp, row in consumer.committed().items()} == dict.fromkeys(
            range(3), 2 * RECORDS
        )
        consumer.close(10)


def test_c6_a_member_whose_coordinator_hangs_stays_a_member(
    make_topic: Callable[..., str], make_consumer: Callable[..., Consumer]
) -> None:
    """Its connections stay, and nothing is answered: the next coordinator hears of the member within its session."""
    with DevCluster("4", brokers=3) as cluster:
        topic = make_topic(cluster, partitions=1, replication=3)
        consumer = make_consumer(cluster, topic, group_id=topic, session_timeout_ms=6000, heartbeat_interval_ms=500)
        until([consumer], lambda: bool(consumer.assignment()), patience_s=60)
        before = consumer.group_metadata()
        coordinator, _ = coordinator_of(cluster, topic)
        cluster.pause(coordinator)
        paused = time.monotonic()
        # Another broker leads after about 9 s, and gives each member a session's time.
        until([consumer], lambda: time.monotonic() - paused > 22, patience_s=60)
        now, members = coordinator_of(cluster, topic)
        assert now != coordinator and members == {before.member_id}
        assert consumer.group_metadata() == before
        cluster.resume(coordinator)
        consumer.close(10)
