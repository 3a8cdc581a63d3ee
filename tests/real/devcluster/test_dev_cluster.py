"""Real clusters: what they promise is read back with other people's clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from streamlet.devcluster import DevCluster, DevStackError, ToolFailed
from streamlet.devcluster.machine import free_ports
from tests.patience import PATIENCE_S


@pytest.fixture(params=["3.9", "4"])
def shared(request: pytest.FixtureRequest) -> DevCluster:
    return request.getfixturevalue("kafka39" if request.param == "3.9" else "kafka4")


def read_all(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """``count`` values by librdkafka, or what came within 30 s."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "witness", "auto.offset.reset": "earliest"})
    values: list[bytes] = []
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < count and time.monotonic() < deadline:
            values += [m.value() for m in consumer.consume(500, timeout=0.5) if m.error() is None]
    finally:
        consumer.close()
    return values


def test_lines_produced_are_read_back(shared: DevCluster, topic_name: Callable[[], str]) -> None:
    """1000 lines arrive once each, spread over all partitions; librdkafka, console consumer and end offsets
    agree.
    """
    topic = topic_name()
    shared.create_topic(topic, partitions=4)
    lines = [f"line {number}" for number in range(1000)]
    shared.produce(topic, lines)
    assert sorted(read_all(shared.bootstrap_servers, topic, 1000)) == sorted(line.encode() for line in lines)
    assert sorted(shared.console_consume(topic, max_messages=1000)) == sorted(lines)
    assert shared.log_end_offsets(topic) == dict.fromkeys(range(4), 250)


def test_produce_takes_keys_and_codecs_and_deleted_records_move_the_start(
    shared: DevCluster, make_topic: Callable[..., str]
) -> None:
    """A key separator makes keys, compression reaches the log, deleted records move the log's start."""
    topic = make_topic(shared)
    shared.produce(topic, ["a|1", "b|2", "c|3"], key_separator="|", compression="lz4")
    assert shared.console_consume(topic, max_messages=3, show=["key"]) == ["a\t1", "b\t2", "c\t3"]
    assert "compresscodec: lz4" in shared.dump_log(topic, 0)
    shared.delete_records(topic, {0: 2})
    assert shared.log_start_offsets(topic) == {0: 2}
    assert shared.console_consume(topic, partition=0, offset=2, max_messages=1) == ["3"]


def test_a_file_can_be_produced(kafka39: DevCluster, make_topic: Callable[..., str], tmp_path: Path) -> None:
    """An open binary file goes to the producer as it is."""
    topic = make_topic(kafka39)
    (tmp_path / "lines").write_text("one\ntwo\n")
    with (tmp_path / "lines").open("rb") as file:
        kafka39.produce(topic, file)
    assert kafka39.console_consume(topic, max_messages=2) == ["one", "two"]


def test_a_topic_with_fewer_records_is_read_to_its_end(shared: DevCluster, make_topic: Callable[..., str]) -> None:
    """The console consumer calls it an error when nothing more comes; here it is the end."""
    topic = make_topic(shared)
    shared.produce(topic, ["one"])
    # Its time begins with the search for a coordinator: two seconds are over before that on a starved machine.
    assert shared.console_consume(topic, idle_s=15.0) == ["one"]
    assert shared.console_consume(topic, max_messages=3, idle_s=15.0) == ["one"]


def test_a_tool_that_fails_says_so(shared: DevCluster, topic_name: Callable[[], str]) -> None:
    """Producing to a topic that is not there is an error although the console producer ends with 0."""
    with pytest.raises(ToolFailed, match="ConsoleProducer"):
        shared.produce(topic_name(), ["x"], configs={"max.block.ms": "2000"})


def test_groups_are_described(shared: DevCluster, make_topic: Callable[..., str]) -> None:
    """A group's committed offsets, as Kafka's own tool tells them."""
    topic = make_topic(shared)
    shared.produce(topic, ["x", "y"])
    consumer = Consumer(
        {"bootstrap.servers": shared.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()
    (offset,) = shared.describe_groups(topic)
    assert (offset.topic, offset.partition, offset.committed, offset.lag) == (topic, 0, 1, 1)


def test_brokers_live_in_zookeeper(kafka39: DevCluster) -> None:
    """kazoo finds the broker's node at ``.zookeeper``."""
    zookeeper = KazooClient(hosts=kafka39.zookeeper)
    zookeeper.start(timeout=10)
    try:
        assert zookeeper.get_children("/brokers/ids") == ["0"]
    finally:
        zookeeper.stop()
        zookeeper.close()


def test_kraft_has_no_zookeeper(kafka4: DevCluster) -> None:
    """``.zookeeper`` is None there, and asking for its faults is an error that says why."""
    assert kafka4.zookeeper is None
    with pytest.raises(DevStackError, match="no ZooKeeper"):
        kafka4.stop_zookeeper()


def test_a_port_that_somebody_else_took_meanwhile_is_not_taken_for_ours(
    kafka39: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Kafka answers there before ours has failed to bind: it is no sign that ours is ready."""
    taken = int(kafka39.bootstrap_servers.rpartition(":")[2])
    chosen: list[list[int]] = []

    def stale(count: int, preferred: Sequence[int] = ()) -> list[int]:
        ports = free_ports(count, preferred)
        chosen.append(ports)
        return [ports[0], taken] if len(chosen) == 1 else ports

    monkeypatch.setattr("streamlet.devcluster.members.free_ports", stale)
    with DevCluster("3.9") as cluster:
        assert len(chosen) == 2
        assert cluster.bootstrap_servers == f"127.0.0.1:{chosen[1][1]}"
        cluster.create_topic("mine")
        assert "mine" not in AdminClient({"bootstrap.servers": kafka39.bootstrap_servers}).list_topics().topics
