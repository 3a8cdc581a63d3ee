"""One epoch's partition, tried twice, as executors would: against a real broker, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin, Producer
from streamlet.kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    UserScramCredentialUpsertion,
)
from streamlet.kafka.producer.errors import ProducerFenced, TransactionFailed
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.spark.epochs import Epoch, EpochOutcome, PlanChanged, check_plan, write_epoch
from tests.patience import PATIENCE_S
from tests.real.spark.topics import rows_of

FIRST = Epoch("p", "query", "run-1", 0, 0)


def tried(
    cluster: DevCluster, topic: str, epoch: Epoch, values: list[bytes], fail: bool = False, **user: str
) -> EpochOutcome:
    """One try of an epoch; ``fail``: the executor's task ends in the middle."""
    epoch = replace(epoch, query=topic)

    def send_all(producer: Producer) -> tuple[str, int]:
        producer.send_many(topic, values)
        producer.flush()
        if fail:
            raise RuntimeError("the task fails")
        return topic, len(values)

    settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, **user}
    with Producer(transactional_id=epoch.own, **settings) as producer:
        return write_epoch(epoch, producer, send_all, lambda: len(values))


def written(cluster: DevCluster, topic: str) -> list[bytes | None]:
    return [row[3] for row in rows_of(cluster, topic)]


def test_a_second_try_finds_the_marker_and_writes_nothing(kafka4: DevCluster, make_topic: Callable[..., str]) -> None:
    topic = make_topic(kafka4)
    assert tried(kafka4, topic, FIRST, [b"a", b"b"]) == EpochOutcome(2)
    assert tried(kafka4, topic, FIRST, [b"a", b"b"]) == EpochOutcome(2)
    assert tried(kafka4, topic, replace(FIRST, run="run-2"), [b"a", b"b"]) == EpochOutcome(2, begun_before=True)
    assert tried(kafka4, topic, replace(FIRST, number=1), [b"c"]) == EpochOutcome(1)
    assert written(kafka4, topic) == [b"a", b"b", b"c"]


def test_a_try_that_failed_leaves_nothing_and_is_made_up_for(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(kafka4)
    with pytest.raises(RuntimeError):
        tried(kafka4, topic, FIRST, [b"a"], fail=True)
    assert written(kafka4, topic) == []
    tried(kafka4, topic, FIRST, [b"a"])
    assert written(kafka4, topic) == [b"a"]


def test_a_former_try_that_comes_back_is_fenced(kafka4: DevCluster, make_topic: Callable[..., str]) -> None:
    """An executor that stood still in the middle of its transaction, while another one took over."""
    topic = make_topic(kafka4)
    epoch = replace(FIRST, query=topic)
    with Producer(bootstrap_servers=kafka4.bootstrap_servers, transactional_id=epoch.own) as late:

        def send_all(producer: Producer) -> tuple[str, int]:
            producer.send(topic, b"a")
            producer.flush()
            tried(kafka4, topic, FIRST, [b"a"])
            return topic, 1

        with pytest.raises(ProducerFenced):
            write_epoch(epoch, late, send_all, lambda: 1)
    assert written(kafka4, topic) == [b"a"]


def test_other_rows_than_before_and_an_older_epoch_are_refused(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(kafka4)
    tried(kafka4, topic, replace(FIRST, number=7), [b"a", b"b"])
    with pytest.raises(PlanChanged, match="partition 0 had 2 rows, which are in the topic; now it has 1"):
        tried(kafka4, topic, replace(FIRST, number=7), [b"a"])
    with pytest.raises(PlanChanged, match="has written epoch 7 already, and epoch 5 is to be written"):
        tried(kafka4, topic, replace(FIRST, number=5), [b"a", b"b"])
    assert written(kafka4, topic) == [b"a", b"b"]


def test_a_partition_that_the_plan_no_longer_has_is_found_by_its_marker(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    """Partition 1 was written, the query stopped, and the next run has partition 0 alone."""
    topic = make_topic(kafka4)
    tried(kafka4, topic, replace(FIRST, partition=1), [b"b"])
    done = tried(kafka4, topic, replace(FIRST, run="run-2"), [b"a", b"b"])
    assert done.begun_before
    settings = {"bootstrap_servers": kafka4.bootstrap_servers}
    check_plan(0, topic, {0, 1}, "p", ProducerConfig.of(settings))
    with pytest.raises(PlanChanged, match=r"than the 1 that have some now.*1 of its rows may be in the topic twice"):
        check_plan(0, topic, {0}, "p", ProducerConfig.of(settings))


def test_a_user_who_may_write_a_topic_and_not_read_it_can_store_no_marker(
    kafka4: DevCluster, make_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    """A marker is an offset of that topic, and brokers ask for READ where an offset is stored."""
    topic, user = make_topic(kafka4), topic_name()
    everybody = AclBinding(AclResourceType.TOPIC, topic, "User:*", AclOperation.ALL)
    no_read = AclBinding(AclResourceType.TOPIC, topic, f"User:{user}", AclOperation.READ, AclPermissionType.DENY)
    secure = {
        "bootstrap_servers": kafka4.secure_servers("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": user,
        "sasl_plain_password": "pw",
    }
    with Admin(bootstrap_servers=kafka4.bootstrap_servers) as admin:
        admin.alter_user_scram_credentials(UserScramCredentialUpsertion(user, "pw", "SCRAM-SHA-256"))
        admin.create_acls([everybody, no_read])
        deadline = time.monotonic() + PATIENCE_S  # brokers take both over a moment after they are acknowledged
        while user not in admin.describe_user_scram_credentials() or no_read not in admin.describe_acls():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with pytest.raises(TransactionFailed, match="TopicAuthorizationFailed"):
            tried(kafka4, topic, FIRST, [b"a"], **secure)
        assert written(kafka4, topic) == []
        admin.delete_acls(AclBindingFilter(resource_name=topic, principal=f"User:{user}"))
        while no_read in admin.describe_acls():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert tried(kafka4, topic, FIRST, [b"a"], **secure) == EpochOutcome(1)
    assert written(kafka4, topic) == [b"a"]
