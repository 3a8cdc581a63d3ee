"""Faults by name, on clusters of this module's own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from streamlet.devcluster import ClusterFailed, DevCluster, DevStackError, JavaMissing
from streamlet.devcluster.machine import ProcessIdentity, free_ports
from tests.patience import PATIENCE_S, until
from tests.replicas import partitions_of

pytestmark = pytest.mark.real


def partition(cluster: DevCluster, topic: str) -> PartitionMetadata:
    """Of partition 0, as librdkafka learns it."""
    return partitions_of(cluster.bootstrap_servers, topic)[0]


def leader(cluster: DevCluster, topic: str) -> int:
    """As librdkafka learns it."""
    return partition(cluster, topic).leader


def written(cluster: DevCluster, topic: str, value: bytes, patience_s: float = PATIENCE_S) -> bool:
    """Whether a record arrives in that time."""
    # Not compared with ==: confluent_kafka's KafkaError leaves an exception behind when it is compared with None.
    arrived: list[bool] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "message.timeout.ms": int(patience_s * 1000),
        }
    )
    producer.produce(topic, value, on_delivery=lambda error, _: arrived.append(error is None))
    return producer.flush(patience_s + 5) == 0 and arrived == [True]


@pytest.mark.parametrize("kafka", ["3.9", "4"])
def test_of_three_brokers_one_may_die_and_come_back(kafka: str) -> None:
    """The leader moves on demand and when it is killed; the killed broker comes back; a paused one keeps its
    place.
    """
    with DevCluster(kafka, brokers=3) as cluster:
        cluster.create_topic("t", 1, replication=3)
        (state,) = cluster.describe_topic("t")
        assert sorted(state.replicas) == [0, 1, 2]
        target = next(node for node in state.replicas if node != state.leader)
        cluster.move_leader("t", 0, target)
        until(lambda: leader(cluster, "t") == target)
        cluster.kill(target)
        until(lambda: leader(cluster, "t") not in (-1, target))
        assert written(cluster, "t", b"without the killed one")
        cluster.restart(target)
        until(lambda: len(partition(cluster, "t").isrs) == 3)
        cluster.pause(target)
        cluster.resume(target)
        assert cluster.log_end_offsets("t") == {0: 1}


@pytest.fixture(scope="module")
def lone() -> Iterator[DevCluster]:
    with DevCluster("3.9") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1)], operation_timeout=20)["t"].result(30)
        yield cluster


def test_a_paused_broker_answers_nothing_until_it_is_resumed(lone: DevCluster) -> None:
    """A paused broker answers nothing; resumed, it goes on."""
    assert written(lone, "t", b"before")
    lone.pause(0)
    try:
        assert not written(lone, "t", b"meanwhile", 2.0)
    finally:
        lone.resume(0)
    assert written(lone, "t", b"after")


def test_a_broker_serves_without_its_zookeeper_which_comes_back_with_its_data(lone: DevCluster) -> None:
    """A broker without its ZooKeeper still serves; the ZooKeeper comes back on its port with its data."""
    address = lone.zookeeper
    lone.stop_zookeeper()
    assert written(lone, "t", b"without ZooKeeper")
    lone.start_zookeeper()
    assert lone.zookeeper == address
    assert written(lone, "t", b"with it")


def test_restart_keeps_port_and_records(lone: DevCluster) -> None:
    """In order, and after a kill (which waits for the old session to expire)."""
    address = lone.bootstrap_servers
    assert written(lone, "t", b"kept")
    lone.restart(0)
    lone.kill(0)
    lone.kill(0)
    lone.restart(0)
    assert lone.bootstrap_servers == address
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["t"])
        # Right after the start the broker may not name its topics yet; librdkafka reports that and goes on.
        until(lambda: (message := consumer.poll(1)) is not None and message.error() is None)
    finally:
        consumer.close()


def test_kill_9_of_the_owner_leaves_no_jvm() -> None:
    """Within 5 s; and the next cluster sweeps its directory away."""
    program = (
        "import sys\n"
        "from streamlet.devcluster import DevCluster\n"
        "cluster = DevCluster('3.9').start()\n"
        "print(cluster.directory, *(member.jvm.pid for member in cluster.members), flush=True)\n"
        "sys.stdin.read()"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        directory, *pids = owner.stdout.readline().split()
        jvms = [ProcessIdentity.of(int(pid)) for pid in pids]
        assert len(jvms) == 2 and all(jvm.alive for jvm in jvms)
        owner.kill()
        deadline = time.monotonic() + 5
        while any(jvm.alive for jvm in jvms):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        owner.kill()
        owner.communicate()
    with DevCluster("3.9", brokers=0):
        assert not Path(directory).exists()


def test_a_failed_start_is_told_with_the_brokers_log_and_leaves_nothing() -> None:
    """The reason the broker gave is in the paragraph."""
    cluster = DevCluster("4", broker_settings={"log.segment.bytes": "-1"})
    with pytest.raises(ClusterFailed, match=r"log\.segment\.bytes") as caught:
        cluster.start()
    assert "\n" not in caught.value.message
    assert cluster.members == []
    cluster.stop()


def test_a_taken_port_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who takes the port between our look and the bind costs a second try, not the start."""
    import socket

    real, taken = free_ports, free_ports(1)
    answers = iter([taken])
    monkeypatch.setattr("streamlet.devcluster.members.free_ports", lambda *a: next(answers, None) or real(*a))
    with socket.create_server(("127.0.0.1", taken[0])), DevCluster("3.9", brokers=0) as cluster:
        assert cluster.zookeeper != f"127.0.0.1:{taken[0]}"


def test_misuse_is_refused_by_name_and_starts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before start, after start, unknown kinds, no Java: named errors, nothing started."""
    with pytest.raises(ValueError, match=r"choose from 3\.9, 4"):
        DevCluster("0.8")
    with pytest.raises(ValueError, match="choose 1 or 3"):
        DevCluster("4", brokers=0)
    cluster = DevCluster()
    with pytest.raises(DevStackError, match="start"):
        cluster.create_topic("t")
    cluster.stop()
    with DevCluster("3.9", brokers=0) as started, pytest.raises(DevStackError, match="started already"):
        started.start()
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterFailed, match=r"Not a directory.*TMPDIR"):
        DevCluster("3.9", brokers=0, directory=tmp_path / "file" / "below").start()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissing):
        cluster.start()
