"""What a stranger's port speaks, told from its own first bytes."""

from __future__ import annotations

from streamlet.base.port_probe import spoken_at
from streamlet.devcluster import DevCluster


def test_real_servers_are_told_by_their_answers(kafka39: DevCluster, kafka4: DevCluster) -> None:
    """Brokers of both kinds and a ZooKeeper; none of them minds being asked by the wrong name."""
    for address, name in (
        (kafka39.zookeeper, "ZooKeeper"),
        (kafka39.bootstrap_servers, "Kafka"),
        (kafka4.bootstrap_servers, "Kafka"),
    ):
        assert address is not None
        host, _, port = address.partition(":")
        assert spoken_at(host, int(port)) == name
