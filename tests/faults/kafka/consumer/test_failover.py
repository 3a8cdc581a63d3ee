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
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        coordinator = admin.describe_consumer_groups([topic])[topic].result(20).coordinator
        victim = next(
            one for one in range(3) if cluster.bootstrap_servers.split(",")[one].endswith(f":{coordinator.port}")
        )
        killed = time.monotonic()
        cluster.kill(victim)
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
