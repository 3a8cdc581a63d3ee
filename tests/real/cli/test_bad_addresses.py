"""Bad input that only shows against real parts: one paragraph, its exit status, no traceback, nothing lost."""

from __future__ import annotations

import json
from collections.abc import Callable

from confluent_kafka import Producer
from kazoo.client import KazooClient

from streamlet.devcluster import DevCluster
from tests.command_line import Streamlet
from tests.scripted.cli.test_bad_addresses import WORD_COUNT, refused, told


def test_a_broker_given_as_a_zookeeper_is_told_at_once(streamlet: Streamlet, kafka39: DevCluster) -> None:
    """Told at once, with how to read through a broker."""
    address = kafka39.bootstrap_servers
    said, before = refused(streamlet, 2, f"lines.hosts=zk://{address}", "lines.start_timeout_ms=600000")
    assert f"{address}: it speaks Kafka, not ZooKeeper's protocol" in said and f"kafka://{address}" in said
    assert not before


def test_a_zookeeper_given_as_a_broker_is_told_at_once(streamlet: Streamlet, kafka39: DevCluster) -> None:
    """Told at once, although a ZooKeeper only hangs up on a Kafka client; with how to find brokers in it."""
    address = kafka39.zookeeper
    said, before = refused(streamlet, 2, f"lines.hosts=kafka://{address}", "lines.start_timeout_ms=600000")
    assert f"{address} does not speak Kafka's protocol: it speaks ZooKeeper" in said and f"zk://{address}" in said
    assert not before


def test_a_topic_that_is_not_there_is_refused_by_name(
    streamlet: Streamlet, kafka39: DevCluster, topic_name: Callable[[], str]
) -> None:
    """Named, with where it was looked for and what to do; no raw complaint of the client comes before."""
    name = topic_name()
    for hosts, where in (
        (f"zk://{kafka39.zookeeper}", f"ZooKeeper {kafka39.zookeeper} has no node /brokers/topics/{name}"),
        (f"kafka://{kafka39.bootstrap_servers}", f"says {kafka39.bootstrap_servers}"),
    ):
        said, before = refused(streamlet, 2, f"lines.hosts={hosts}", f"lines.topic={name}")
        assert f"The topic {name!r} does not exist" in said and where in said
        assert f"`streamlet dev topic {name}`" in said and "or correct `topic`" in said
        assert all("lines: waiting, for up to" in line and name not in line for line in before), before


def test_an_undecodable_record_is_named_and_what_came_before_is_committed(
    streamlet: Streamlet, kafka39: DevCluster, make_topic: Callable[..., str]
) -> None:
    """Named by topic, partition and offset; what came before it is committed."""
    topic = make_topic(kafka39)
    producer = Producer({"bootstrap.servers": kafka39.bootstrap_servers, "enable.idempotence": True})
    for value in (b"one two", b"three", b"\xff\xfe\xfd", b"four"):
        producer.produce(topic, value)
    producer.flush()
    said = told(streamlet, 1, f"lines.hosts=zk://{kafka39.zookeeper}", f"lines.topic={topic}", f"lines.id={topic}")
    assert all(word in said for word in (topic, "partition 0", "offset 2"))
    client = KazooClient(kafka39.zookeeper)
    client.start(timeout=10)
    try:
        assert json.loads(client.get(f"/streamlet/{topic}/partition_0")[0])["offset"] == 2
    finally:
        client.stop()
        client.close()


def test_a_stored_offset_that_the_log_no_longer_has(
    streamlet: Streamlet, kafka39: DevCluster, make_topic: Callable[..., str]
) -> None:
    """With the exact range that is lost, and both remedies; the node stays as it was."""
    topic = make_topic(kafka39)
    kafka39.produce(topic, ["a", "b", "c", "d", "e", "f"])
    where = (f"lines.hosts=zk://{kafka39.zookeeper}", f"lines.topic={topic}", f"lines.id={topic}")
    done = streamlet("run", WORD_COUNT, "--until-caught-up", *(part for one in where for part in ("-c", one)))
    assert done.returncode == 0, done
    client = KazooClient(kafka39.zookeeper)
    client.start(timeout=10)
    try:
        node = f"/streamlet/{topic}/partition_0"
        stored, _ = client.get(node)
        client.set(node, stored.replace(b'"offset": 6', b'"offset": 2').replace(b'"offset":6', b'"offset":2'))
        kafka39.delete_records(topic, {0: 4})
        said = told(streamlet, 1, *where)
        assert b"2" in client.get(node)[0]
    finally:
        client.stop()
        client.close()
    assert all(word in said for word in (topic, "fail_on_data_loss", "2", "4"))
