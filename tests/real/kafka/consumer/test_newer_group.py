"""Groups of the newer protocol (KIP-848) on a real Kafka 4: rebalances, static members, transactions."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka import Producer as TheirProducer
from confluent_kafka.admin import AdminClient

from streamlet.devcluster import DevCluster
from streamlet.devcluster.jvm import keeper_command
from streamlet.kafka import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from streamlet.kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    UserScramCredentialUpsertion,
)
from streamlet.kafka.broker_errors import TopicAuthorizationFailed
from streamlet.kafka.errors import KafkaError, UnsupportedVersion
from tests.consumers import Told, until
from tests.patience import PATIENCE_S

Make = Callable[..., Consumer]
NEWER = {"group_protocol": "consumer"}
_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def members_of(cluster: DevCluster, group: str) -> tuple[str, str, int]:
    """Type, state and number of members, as librdkafka sees them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.describe_consumer_groups([group])[group].result(20)
    return found.type.name, found.state.name, len(found.members)


def test_c5_members_come_and_go_and_each_record_is_read_once(
    kafka4: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """While records are written. A classic member joins too: the coordinator takes both into one group."""
    topic = make_topic(kafka4, partitions=6)
    ended = threading.Event()
    written: Counter[int] = Counter()

    def write() -> None:
        producer = TheirProducer(
            {"bootstrap.servers": kafka4.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
        )
        while not ended.wait(0.01):
            for partition in range(6):
                producer.produce(topic, b"x", partition=partition)
                written[partition] += 1
        assert producer.flush(20) == 0

    writer = threading.Thread(target=write)
    writer.start()
    read: Counter[tuple[int, int]] = Counter()

    def heard(_consumer: Consumer, rows: list[object]) -> None:
        read.update((row.partition, row.offset) for row in rows)  # type: ignore[attr-defined]

    names = {"group_id": topic, "auto_commit_interval_ms": 100, **NEWER}
    first, second = make_consumer(kafka4, topic, **names), make_consumer(kafka4, topic, **names)
    classic = None
    try:
        until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 3, heard)
        classic = make_consumer(
            kafka4,
            topic,
            group_id=topic,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=["cooperative-sticky"],
        )
        three = [first, second, classic]
        until(three, lambda: all(len(one.assignment()) == 2 for one in three), heard)
        assert members_of(kafka4, topic) == ("CONSUMER", "STABLE", 3)
        second.close()
        until([first, classic], lambda: len(first.assignment()) == len(classic.assignment()) == 3, heard)
        classic.close()
        until([first], lambda: len(first.assignment()) == 6, heard)
    finally:
        ended.set()
        writer.join()
    until([first], lambda: len(read) == sum(written.values()), heard)
    assert set(read) == {(number, offset) for number, count in written.items() for offset in range(count)}
    assert max(read.values()) == 1


def test_c5_kafkas_own_tool_shows_the_type_of_the_group(
    kafka4: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    topic = make_topic(kafka4)
    member = make_consumer(kafka4, topic, group_id=topic, **NEWER)
    until([member], lambda: bool(member.assignment()))
    options = ["--bootstrap-server", kafka4.bootstrap_servers, "--list", "--type"]
    command = keeper_command("tool", kafka4.installation.tool_command(_TOOL, *options))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert [topic, "Consumer"] in [line.split() for line in said.splitlines()]


def test_c5_a_static_member_of_the_newer_protocol_comes_back_to_its_partitions(
    kafka4: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """The other one keeps its own meanwhile; a second member with the id is refused while the first lives."""
    topic = make_topic(kafka4, partitions=2)
    names = {"group_id": topic, **NEWER}
    static, other = make_consumer(kafka4, topic, group_instance_id="a", **names), make_consumer(kafka4, topic, **names)
    until([static, other], lambda: len(static.assignment()) == len(other.assignment()) == 1)
    mine, epoch = static.assignment(), other.group_metadata().generation_id
    usurper = make_consumer(kafka4, topic, group_instance_id="a", **names)
    with pytest.raises(KafkaError, match=r"group_instance_id 'a'.*UnreleasedInstanceId"):
        until([usurper], lambda: False)
    static.close()
    again = make_consumer(kafka4, topic, group_instance_id="a", **names)
    until([again, other], lambda: bool(again.assignment()))
    assert again.assignment() == mine
    assert other.group_metadata().generation_id == epoch


def test_c5_topics_that_may_not_be_described_do_not_end_the_session(
    kafka4: DevCluster, make_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    """The broker refuses heartbeats that name them; without others the coordinator would hear none for 6 s."""
    topic, secret, user = make_topic(kafka4), make_topic(kafka4), topic_name()
    rule = AclBinding(AclResourceType.TOPIC, secret, f"User:{user}", AclOperation.DESCRIBE, AclPermissionType.DENY)
    told = Told()
    with Admin(bootstrap_servers=kafka4.bootstrap_servers) as admin:
        admin.alter_user_scram_credentials(UserScramCredentialUpsertion(user, "pw", "SCRAM-SHA-256"))
        admin.create_acls(rule)
        one = Consumer(
            bootstrap_servers=kafka4.secure_servers("SASL_PLAINTEXT"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username=user,
            sasl_plain_password="pw",
            group_id=topic,
            **NEWER,
        )
        with one:
            one.subscribe(topic, listener=told)
            until([one], lambda: len(one.assignment()) == 1)
            one.subscribe([topic, secret], listener=told)
            refused, deadline = 0, time.monotonic() + 8
            while time.monotonic() < deadline:
                try:
                    one.poll(50)
                except TopicAuthorizationFailed:
                    refused += 1
            admin.delete_acls(rule)
            while len(one.assignment()) == 1:
                with suppress(TopicAuthorizationFailed):
                    one.poll(50)
    assert refused > 1 and [what for what, _ in told.events] == ["assigned", "assigned", "revoked"]


def test_c9_offsets_of_a_member_with_an_epoch_are_committed_in_a_transaction_and_a_lost_ones_are_not(
    kafka4: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """The coordinator checks the epoch there, too."""
    topic = make_topic(kafka4)
    member = make_consumer(kafka4, topic, group_id=topic, enable_auto_commit=False, max_poll_interval_ms=1000, **NEWER)
    until([member], lambda: bool(member.assignment()))
    tp = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=kafka4.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({tp: OffsetAndMetadata(3)}, member.group_metadata())
        producer.commit_transaction()
        assert member.committed(tp)[tp].offset == 3
        lost = member.group_metadata()
        time.sleep(1.5)  # it has left by now, and has not been told
        assert member.group_metadata() == lost
        producer.begin_transaction()
        with pytest.raises(KafkaError):
            producer.send_offsets_to_transaction({tp: OffsetAndMetadata(9)}, lost)
            producer.commit_transaction()
        producer.abort_transaction()
    until([member], lambda: bool(member.assignment()))
    assert member.committed(tp)[tp].offset == 3


def test_c5_a_broker_too_old_for_the_newer_protocol_says_what_to_set(
    kafka39: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    topic = make_topic(kafka39)
    member = make_consumer(kafka39, topic, group_id=topic, **NEWER)
    with pytest.raises(UnsupportedVersion, match=r"Kafka 4.0 or later.*group_protocol='classic'"):
        until([member], lambda: False)
