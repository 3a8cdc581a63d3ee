"""The administrator against real brokers; Kafka's own tools and librdkafka see what it did and was told."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import ConfigResource as ConfluentResource

from streamlet.devcluster import DevCluster
from streamlet.kafka import (
    Admin,
    AdminError,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
)
from streamlet.kafka.admin import AlterConfig, ConfigOp, ConfigSource
from streamlet.kafka.admin.errors import NewerGroupProtocol
from streamlet.kafka.broker_errors import (
    GroupIdNotFound,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    NonEmptyGroup,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from tests.patience import PATIENCE_S

MakeTopic = Callable[..., str]
URL_SAFE = str.maketrans("+/", "-_")


def produce(cluster: DevCluster, topic: str, counts: dict[int, int], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for partition, count in counts.items():
        for _ in range(count):
            producer.produce(topic, b"x", partition=partition, **more)
    assert producer.flush(30) == 0


def settings_of(witness: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfluentResource(ConfluentResource.Type.TOPIC, topic)
    return {name: row.value for name, row in witness.describe_configs([resource])[resource].result(20).items()}


def test_topics_are_made_described_grown_and_deleted(
    cluster: DevCluster, admin: Admin, witness: AdminClient, topic_name: Callable[[], str]
) -> None:
    """Kafka's own tool sees the same partitions, librdkafka the same id and settings; at the end it is gone."""
    name, assigned, defaults = topic_name(), topic_name(), topic_name()
    made = admin.create_topics(
        [
            NewTopic(name, 3, 1, configs={"retention.ms": "60000"}),
            NewTopic(assigned, assignment={0: [0], 1: [0]}),
            NewTopic(defaults),
        ]
    )
    assert {row: found.num_partitions for row, found in made.items()} == {name: 3, assigned: 2, defaults: 1}
    assert made[name].configs["retention.ms"] == "60000" and made[name].replication_factor == 1
    found = admin.describe_topics([name, assigned])
    told = cluster.describe_topic(name)
    assert [(row.partition, row.leader, row.replicas, row.isr) for row in found[name].partitions] == [
        (row.partition, row.leader, row.replicas, row.isr) for row in told
    ]
    theirs = witness.describe_topics(_collection([name]))[name].result(20)
    assert found[name].topic_id == made[name].topic_id == str(theirs.topic_id).translate(URL_SAFE)
    assert settings_of(witness, name)["retention.ms"] == "60000"
    assert {name, assigned, defaults} <= set(admin.list_topics()) <= set(witness.list_topics(timeout=20).topics)
    assert admin.list_topics()[name].num_partitions == 3

    admin.create_partitions({name: 5, assigned: NewPartitions(3, [[0]])})
    assert len(cluster.describe_topic(name)) == 5
    assert len(witness.list_topics(assigned, timeout=20).topics[assigned].partitions) == 3
    admin.delete_topics([name, assigned, defaults])
    assert not {name, assigned, defaults} & set(admin.list_topics())
    again = admin.create_topics(NewTopic(name, 1, 1))  # at once: a topic still being deleted is waited for
    assert again[name].topic_id != made[name].topic_id


def _collection(names: list[str]) -> Any:
    from confluent_kafka import TopicCollection

    return TopicCollection(names)


def test_what_a_broker_refuses_is_told_with_the_reason(admin: Admin, topic_name: Callable[[], str]) -> None:
    """Each its class and its one paragraph; ``validate_only`` makes nothing."""
    name = topic_name()
    admin.create_topics(NewTopic(name, 2, 1), validate_only=True)
    with pytest.raises(UnknownTopicOrPartition, match=f"'{name}'.*list_topics"):
        admin.describe_topics(name)
    admin.create_topics(NewTopic(name, 2, 1))
    refused: list[tuple[NewTopic, type[Exception], str]] = [
        (NewTopic(name, 2, 1), TopicAlreadyExists, f"'{name}'.*describe_topics"),
        (NewTopic(name + "x", 1, 3), InvalidReplicationFactor, "The cluster has 1 broker, so there can be 1 copy"),
        (NewTopic("bad name", 1, 1), InvalidTopic, "'bad name'.*249"),
        (NewTopic(name + "x", 1, 1, configs={"no.such": "1"}), InvalidConfig, "no.such"),
        (NewTopic(name + "x", 1, 1, configs={"retention.ms": "soon"}), InvalidConfig, "soon"),
    ]
    for topic, kind, said in refused:
        with pytest.raises(kind, match=said):
            admin.create_topics(topic)
    with pytest.raises(InvalidPartitions, match="currently has 2 partition"):
        admin.create_partitions({name: 1})
    with pytest.raises(AdminError, match="2 of 3 failed; the others succeeded") as caught:
        admin.create_topics([NewTopic(name, 1, 1), NewTopic(name + "y", 1, 9), NewTopic(name + "z", 1, 1)])
    assert set(caught.value.errors) == {name, name + "y"} and list(caught.value.results) == [name + "z"]
    with pytest.raises(UnknownTopicOrPartition, match=f"Deleting topic '{name}x'"):
        admin.delete_topics([name, name + "x", name + "z"])
    assert not {name, name + "z"} & set(admin.list_topics())


def test_settings_are_changed_one_by_one(
    admin: Admin, witness: AdminClient, make_topic: MakeTopic, cluster: DevCluster
) -> None:
    """What is not named stays as somebody else has set it; brokers' own settings too."""
    topic = make_topic(cluster, configs={"retention.ms": "1000", "cleanup.policy": "delete"})
    lines, all_brokers = ConfigResource.topic(topic), ConfigResource.broker()
    admin.alter_configs(
        {lines: {"max.message.bytes": "2000", "cleanup.policy": AlterConfig(ConfigOp.APPEND, "compact")}}
    )
    seen = settings_of(witness, topic)
    assert (seen["retention.ms"], seen["max.message.bytes"]) == ("1000", "2000")
    assert seen["cleanup.policy"] == "delete,compact"
    admin.alter_configs({lines: {"retention.ms": None}}, validate_only=True)
    assert settings_of(witness, topic)["retention.ms"] == "1000"
    admin.alter_configs({lines: {"retention.ms": None}})
    assert settings_of(witness, topic)["retention.ms"] == "604800000"
    found = admin.describe_configs([lines, ConfigResource.broker(0)])
    assert {name: row.value for name, row in found[lines].items()} == settings_of(witness, topic)
    assert found[lines]["max.message.bytes"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found[lines]["retention.ms"].is_default and found[ConfigResource.broker(0)]["log.dirs"].is_read_only
    assert list(admin.describe_configs(lines, ["retention.ms"])[lines]) == ["retention.ms"]
    admin.alter_configs({all_brokers: {"log.cleaner.backoff.ms": "14000"}})
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "log.cleaner.backoff.ms" not in (rows := admin.describe_configs(all_brokers)[all_brokers]):
            assert time.monotonic() < deadline, "brokers take a change over a moment later"
        assert rows["log.cleaner.backoff.ms"].source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    finally:
        admin.alter_configs({all_brokers: {"log.cleaner.backoff.ms": None}})
    with pytest.raises(AdminError, match="Broker 77 is not in the cluster: there are 0") as caught:
        admin.alter_configs({lines: {"no.such": "1"}, ConfigResource.broker(77): {"x": "1"}})
    assert set(caught.value.errors) == {lines, ConfigResource.broker(77)}


def test_offsets_are_those_of_kafkas_tools_also_after_records_are_deleted(
    cluster: DevCluster, admin: Admin, make_topic: MakeTopic
) -> None:
    """Beginning, end and time as Kafka's tools say them, before and after records are dropped."""
    topic = make_topic(cluster, partitions=2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(cluster, topic, {0: 10, 1: 4}, timestamp=1_700_000_000_000)
    ends = admin.list_offsets({zero: "latest", one: "latest"})
    assert {tp.partition: row.offset for tp, row in ends.items()} == cluster.log_end_offsets(topic)
    times = {zero: datetime.fromtimestamp(1_600_000_000, UTC), one: 1_800_000_000_000}
    assert [row.offset for row in admin.list_offsets(times).values()] == [0, -1]
    assert admin.delete_records({zero: 3, one: "latest"}) == {zero: 3, one: 4}
    assert cluster.log_start_offsets(topic) == {0: 3, 1: 4}
    assert admin.list_offsets({zero: "earliest"})[zero].offset == 3
    with pytest.raises(OffsetOutOfRange, match="list_offsets shows both"):
        admin.delete_records({zero: 99})
    with pytest.raises(UnknownTopicOrPartition, match="numbered from 0"):
        admin.list_offsets({TopicPartition(topic, 2): "latest"})


def test_an_open_transaction_is_beyond_what_is_committed(
    cluster: DevCluster, admin: Admin, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """The end under read_committed is the last stable offset."""
    topic = make_topic(cluster)
    tp = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic_name()})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush(20)
    assert admin.list_offsets({tp: "latest"})[tp].offset == 1
    assert admin.list_offsets({tp: "latest"}, isolation_level="read_committed")[tp].offset == 0
    producer.abort_transaction(20)


def test_a_group_is_listed_described_and_reset(
    cluster: DevCluster, admin: Admin, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """Members and their partitions while it has some; then offsets, set and deleted, as Kafka's own tool sees them."""
    topic, group = make_topic(cluster, partitions=3), topic_name()
    produce(cluster, topic, {0: 5, 1: 5, 2: 5})
    partitions = [TopicPartition(topic, number) for number in range(3)]
    member = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "client.id": "somebody",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "enable.auto.commit": False,
        }
    )
    member.subscribe([topic])
    assert member.poll(30) is not None
    member.commit(asynchronous=False)
    listed = admin.list_groups()[group]
    assert listed.protocol_type == "consumer" and (listed.state, listed.type) == ("Stable", "classic")
    found = admin.describe_groups(group)[group]
    assert (found.state, found.assignor, found.coordinator.port) == ("Stable", "range", listed.coordinator.port)
    assert [(row.client_id, row.topics, row.assignment) for row in found.members] == [
        ("somebody", (topic,), tuple(partitions))
    ]
    assert sum(row.offset for row in admin.list_group_offsets(group).values()) == 1
    with pytest.raises(UnknownMemberId, match=r"has members at the moment.*stop them first"):
        admin.alter_group_offsets(group, {partitions[0]: 3})
    with pytest.raises(NonEmptyGroup, match="Stop its members first"):
        admin.delete_groups(group)
    with pytest.raises(AdminError, match="GroupSubscribedToTopic"):
        admin.delete_group_offsets(group, partitions)
    member.close()

    admin.alter_group_offsets(group, {partitions[0]: OffsetAndMetadata(2, 0, "by hand"), partitions[1]: "latest"})
    late = {partitions[2]: datetime(2100, 1, 1, tzinfo=UTC)}
    assert admin.alter_group_offsets(group, late) == {partitions[2]: OffsetAndMetadata(5)}
    told = {row.partition: row.committed for row in cluster.describe_groups(group)}
    assert told == {0: 2, 1: 5, 2: 5}
    assert admin.list_group_offsets(group)[partitions[0]] == OffsetAndMetadata(2, 0, "by hand")
    admin.delete_group_offsets(group, partitions[1:])
    assert admin.list_group_offsets(group, partitions) == {partitions[0]: OffsetAndMetadata(2, 0, "by hand")}
    admin.delete_groups(group)
    assert group not in admin.list_groups() and admin.list_group_offsets(group) == {}
    for call in (admin.describe_groups, admin.delete_groups):
        with pytest.raises(GroupIdNotFound, match=f"'{group}'.*list_groups"):
            call(group)


def test_the_cluster_is_described(cluster: DevCluster, admin: Admin, witness: AdminClient) -> None:
    """Its id and brokers as librdkafka sees them."""
    found, theirs = admin.describe_cluster(), witness.describe_cluster().result(20)
    assert found.cluster_id == theirs.cluster_id
    assert {node.id: node.port for node in theirs.nodes} == {node: row.port for node, row in found.brokers.items()}
    assert found.controller is not None and found.controller.node_id in found.brokers


def test_a_group_of_the_newer_protocol_is_told_as_such(
    kafka4: DevCluster, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """It is listed with its type, and described by an error that says what it is, not that it is not there."""
    topic, group = make_topic(kafka4), topic_name()
    produce(kafka4, topic, {0: 1})
    settings = {"bootstrap.servers": kafka4.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    member = Consumer({**settings, "group.protocol": "consumer"})
    member.subscribe([topic])
    assert member.poll(30) is not None
    with Admin(bootstrap_servers=kafka4.bootstrap_servers) as admin:
        listed = admin.list_groups()[group]
        assert (listed.state, listed.type) == ("Stable", "consumer")
        with pytest.raises(NewerGroupProtocol, match=f"{group!r}.*KIP-848"):
            admin.describe_groups(group)
        member.close()
        admin.delete_groups(group)
