"""Looks at a topic: through ZooKeeper's nodes as Kafka 2.1 to 3.9 write them, and through Kafka's metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.kafka.errors import Disconnected
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from streamlet.spouts.kafka.activity import Activity, Background
from streamlet.spouts.kafka.chosen_topics import ChosenTopics
from streamlet.spouts.kafka.errors import NoBrokers, NoSuchTopic, NoUsableListener, UnreadableNode
from streamlet.spouts.kafka.hosts import (
    KafkaBrokerReader,
    StaticBrokerReader,
    StaticHosts,
    ZkBrokerReader,
)
from streamlet.spouts.kafka.partition import Broker, FoundTopics, GlobalPartitionInformation
from tests.memory_nodes import MemoryNodeStore

PLAIN = {"listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}, "version": 5, "host": None, "port": -1}


@pytest.fixture
def background() -> Iterator[Background]:
    thread = Background("test", lambda: None)
    yield thread
    thread.close()


def nodes(brokers: dict[int, Any], leaders: dict[int, int], **topic: Any) -> MemoryNodeStore:
    store = MemoryNodeStore()
    for number, broker in brokers.items():
        store.create(f"/brokers/ids/{number}", json.dumps(broker).encode())
    body = {"version": 3, "partitions": {str(number): [1] for number in leaders}, **topic}
    store.create("/brokers/topics/t", json.dumps(body).encode())
    for number, leader in leaders.items():
        if leader is not None:
            state = json.dumps({"leader": leader, "leader_epoch": 1, "isr": [leader]}).encode()
            store.create(f"/brokers/topics/t/partitions/{number}/state", state)
    return store


def look(store: MemoryNodeStore, background: Background, topic: str = "t") -> GlobalPartitionInformation:
    return look_at(ChosenTopics((topic,)), store, background).whole()[topic]


def test_k1_endpoints_are_read_and_never_host_and_port(background: Background) -> None:
    """A broker with several listeners has null in ``host``, or one of them that is not ours."""
    broker = {
        "listener_security_protocol_map": {"SSL": "SSL", "INSIDE": "PLAINTEXT"},
        "endpoints": ["SSL://out:9093", "INSIDE://in:9092"],
        "host": "wrong",
        "port": 1,
    }
    info = look(nodes({1: broker}, {0: 1}, topic_id="abc"), background)
    assert info.leaders == {0: Broker("in", 9092)}
    assert (info.topic_id, info.by_position) == ("abc", False)


def test_t09_a_partition_whose_broker_is_gone_is_listed_without_a_leader(background: Background) -> None:
    one = {**PLAIN, "endpoints": ["PLAINTEXT://a:9092"]}
    info = look(nodes({1: one}, {0: 1, 1: 2, 2: -1, 3: None}), background)  # type: ignore[dict-item]
    assert info.leaders == {0: Broker("a", 9092), 1: None, 2: None, 3: None}


def test_k1_a_partition_without_a_leader_is_listed_without_one_from_kafkas_metadata_too() -> None:
    """Left out, it would be taken for one that is gone, and its reading would end."""
    rows = tuple(
        MetadataPartition(
            error_code=0 if leader >= 0 else 5,
            partition_index=number,
            leader_id=leader,
            leader_epoch=3,
            replica_nodes=(7,),
            isr_nodes=(7,),
            offline_replicas=(),
        )
        for number, leader in enumerate((7, -1))
    )
    answer: RequestFuture[MetadataResponse] = RequestFuture()
    answer.complete(
        MetadataResponse(
            brokers=(MetadataBroker(node_id=7, host="a", port=9092),),
            topics=(MetadataTopic(error_code=0, name="t", partitions=rows),),
        )
    )
    client: Any = SimpleNamespace(send=lambda _request: answer)
    activity = Activity(KafkaBrokerReader(ChosenTopics(("t",)), client).get_current_brokers())
    assert activity.poll()
    found = activity.take().found["t"]
    assert found.leaders == {0: Broker("a", 9092), 1: None} and found.leader_epochs == {0: 3, 1: 3}


def test_a_topic_that_is_missing_is_answered_with_those_there_are() -> None:
    """Not with those of Kafka's own, and without them where the brokers do not tell."""
    rows = tuple(MetadataTopic(error_code=0, name=name) for name in ("orders", "__consumer_offsets", "late"))
    missing, others = RequestFuture[MetadataResponse](), RequestFuture[MetadataResponse]()
    missing.complete(MetadataResponse(brokers=(), topics=(MetadataTopic(error_code=3, name="ordres"),)))
    others.complete(MetadataResponse(brokers=(), topics=rows))
    for second, name, said in ((others, "ordres", "Did you mean 'orders'?"), (None, "ordres", "cluster). Create it")):
        failed = RequestFuture[MetadataResponse]()
        failed.fail(Disconnected("gone"))
        answers = [missing, second or failed]
        client: Any = SimpleNamespace(send=lambda _request, answers=answers: answers.pop(0))
        looking = Activity(KafkaBrokerReader(ChosenTopics((name,)), client).get_current_brokers())
        assert looking.poll()
        with pytest.raises(NoSuchTopic, match=re.escape(said)):
            looking.take().whole()
    assert "There are late, orders. Create" in NoSuchTopic("zzz", "x", others=["orders", "late", "__x"]).message


def test_no_topic_and_no_brokers_are_said(background: Background) -> None:
    one = {**PLAIN, "endpoints": ["PLAINTEXT://a:9092"]}
    with pytest.raises(NoSuchTopic, match=r"ZooKeeper zk:2181 has no node /brokers/topics/other\)\. There are t\."):
        look(nodes({1: one}, {0: 1}), background, "other")
    with pytest.raises(NoBrokers, match=r"A Kafka without ZooKeeper .* is found with KafkaHosts"):
        look(nodes({}, {0: 1}), background)


def test_a_broker_without_a_listener_we_speak_is_said(background: Background) -> None:
    secure = {"listener_security_protocol_map": {"SSL": "SSL"}, "endpoints": ["SSL://a:9093"]}
    with pytest.raises(NoUsableListener, match=r"it offers: SSL://a:9093"):
        look(nodes({1: secure}, {0: 1}), background)


def test_k1_static_hosts_say_what_was_written() -> None:
    activity = Activity(StaticBrokerReader("t", StaticHosts({3: "a:1", 7: "b:2"})).get_current_brokers())
    assert activity.poll()
    info = activity.take().found["t"]
    assert info.leaders == {3: Broker("a", 1), 7: Broker("b", 2)}
    assert info.by_position


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"partitions":7}', b'{"a":' * 50_000])
def test_a_malformed_topic_node_is_told_and_not_taken_for_a_topic_without_partitions(
    data: bytes, background: Background
) -> None:
    """All partitions would be given up for it."""
    store = nodes({1: {**PLAIN, "endpoints": ["PLAINTEXT://h:1"]}}, {0: 1})
    store.set("/brokers/topics/t", data, -1)
    with pytest.raises(UnreadableNode, match="/brokers/topics/t holds no list of partitions"):
        look(store, background)


@pytest.mark.parametrize("leader", [None, [], {}, "1", 1.5, 1 << 80, True])
def test_a_state_that_makes_no_sense_is_a_partition_without_a_leader(leader: Any, background: Background) -> None:
    """As one whose state is not there yet."""
    store = nodes({1: {**PLAIN, "endpoints": ["PLAINTEXT://h:1"]}}, {0: 1})
    state = json.dumps({"leader": leader, "leader_epoch": leader}).encode()
    store.set("/brokers/topics/t/partitions/0/state", state, -1)
    info = look(store, background)
    assert info.leaders == {0: None} and info.get_leader_epoch(0) == -1


@pytest.mark.parametrize("address", ["", "h:99999", "h:" + "9" * 5000, "h:²"])
def test_a_malformed_address_of_a_broker_is_told_with_the_brokers_name(address: str, background: Background) -> None:
    """It is the broker's setting that must be corrected, and none of ours."""
    store = nodes({1: {**PLAIN, "endpoints": [f"PLAINTEXT://{address}"]}}, {0: 1})
    with pytest.raises(UnreadableNode, match=r"Broker 1 .*advertised\.listeners"):
        look(store, background)


def look_at(choice: ChosenTopics, store: MemoryNodeStore, background: Background) -> FoundTopics:
    activity = Activity(ZkBrokerReader(choice, store, background, "/brokers", "zk:2181").get_current_brokers())
    while not activity.poll():
        pass
    return activity.take()


def test_several_topics_are_looked_at_by_name_or_by_pattern(background: Background) -> None:
    store = nodes({1: {**PLAIN, "endpoints": ["PLAINTEXT://a:9092"]}}, {0: 1})
    for name in ("orders-eu", "orders-us", "__consumer_offsets"):
        store.create(f"/brokers/topics/{name}", json.dumps({"version": 3, "partitions": {"0": [1]}}).encode())
    named = look_at(ChosenTopics(("t", "gone"), several=True), store, background)
    assert (list(named.found), list(named.missing)) == (["t"], ["gone"])
    assert named.found["t"].leaders == {0: Broker("a", 9092)}
    with pytest.raises(NoSuchTopic, match=r"'gone' does not exist .* correct `topics`"):
        named.whole()
    matched = look_at(ChosenTopics((), "orders-.*|__.*", True), store, background)
    assert (sorted(matched.found), matched.missing) == (["orders-eu", "orders-us"], {})
