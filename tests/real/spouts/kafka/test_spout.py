"""KafkaSpout on real brokers. What it read and stored is looked at with librdkafka, kazoo and Kafka's own tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streamlet.devcluster import DevCluster
from streamlet.spouts.kafka import GroupOffsets, KafkaHosts, SpoutConfig, StaticHosts, ZkHosts, ZkOffsets

UNTIL = {"streamlet.until.caught.up": True}
Make = Callable[..., Any]


def hosts_of(cluster: DevCluster, kind: str) -> dict[str, Any]:
    servers = cluster.bootstrap_servers
    if kind == "zk":
        return {"hosts": ZkHosts(cluster.zookeeper or ""), "zk_root": "/streamlet"}
    if kind == "static":
        return {"hosts": StaticHosts({0: servers, 1: servers}), "offset_store": GroupOffsets()}
    if kind == "static-zk":
        store = ZkOffsets(cluster.zookeeper)
        return {"hosts": StaticHosts({0: servers, 1: servers}), "offset_store": store, "zk_root": "/streamlet"}
    return {"hosts": KafkaHosts(servers)}


@pytest.mark.parametrize(
    ("cluster", "kind"),
    [
        ("kafka39", "zk"),
        ("kafka39", "kafka"),
        ("kafka39", "static"),
        ("kafka39", "static-zk"),
        ("kafka4", "kafka"),
        ("kafka4", "static"),
    ],
)
def test_k1_every_kind_of_hosts_reads_everything_and_stores_the_log_end(
    cluster: str, kind: str, request: pytest.FixtureRequest, make_topic: Make, harness: Make
) -> None:
    kafka: DevCluster = request.getfixturevalue(cluster)
    witness = request.getfixturevalue("witness" + cluster.removeprefix("kafka"))
    topic = make_topic(kafka, partitions=2)
    for partition in (0, 1):
        witness.produce(topic, [f"{partition}-{i}" for i in range(3000)], partition)
    config = SpoutConfig(topic=topic, id=topic, **hosts_of(kafka, kind))
    spout = harness(config, conf=UNTIL)
    seen = []

    def ack_and_look() -> bool:
        seen.extend(values[0] for values in spout.values())
        spout.ack_all()
        return spout.spout.caught_up()

    spout.until(ack_and_look)
    assert sorted(seen) == sorted(f"{partition}-{i}" for partition in (0, 1) for i in range(3000))
    if config.zk_root:
        with witness.zookeeper() as zk:
            nodes = [json.loads(zk.get(f"/streamlet/{topic}/partition_{n}")[0]) for n in (0, 1)]
        assert [node["offset"] for node in nodes] == [3000, 3000]
        assert [node["partition"] for node in nodes] == [0, 1]
        assert all(node["topic"] == topic and node["owner_epoch"] == 1 for node in nodes)
        assert all(node["topology"] == {"id": "run-1", "name": "test"} for node in nodes)
        assert all(node["broker"]["port"] == int(kafka.bootstrap_servers.rpartition(":")[2]) for node in nodes)
    else:
        rows = {row.partition: row for row in kafka.describe_groups(topic)}
        assert {n: (row.committed, row.lag) for n, row in rows.items()} == {0: (3000, 0), 1: (3000, 0)}
