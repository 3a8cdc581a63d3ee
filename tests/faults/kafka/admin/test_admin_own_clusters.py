"""The administrator where a cluster of its own is needed: brokers that die, and what is not allowed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import NewTopic as ConfluentTopic

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin, AdminError, ConfigResource, NewTopic, TopicPartition
from streamlet.kafka.broker_errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    InvalidReplicationFactor,
    TopicAuthorizationFailed,
)
from streamlet.kafka.errors import KafkaError
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.real

AUTHORIZER = {
    "3.9": "kafka.security.authorizer.AclAuthorizer",
    "4": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}


def test_calls_go_on_when_controller_and_leaders_move() -> None:
    """The controller is killed between two calls; each call finds the next one, and new leaders, by itself."""
    with DevCluster("3.9", brokers=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.describe_cluster()
        assert len(found.brokers) == 3 and found.controller is not None
        admin.create_topics(NewTopic("before", 3, 3))
        admin.alter_group_offsets("g", {TopicPartition("before", 0): 0})
        with pytest.raises(InvalidReplicationFactor, match="3 brokers, so there can be 1 to 3 copies"):
            admin.create_topics(NewTopic("many", 1, 4))
        cluster.kill(found.controller.node_id)
        admin.create_topics(NewTopic("after", 2, 2))
        assert [len(state.replicas) for state in cluster.describe_topic("after")] == [2, 2]
        ends = admin.list_offsets({TopicPartition("before", number): "latest" for number in range(3)})
        assert [row.offset for row in ends.values()] == [0, 0, 0]
        assert "g" in admin.list_groups()
        admin.delete_topics(["before", "after"])
        left = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=20).topics
        assert not {"before", "after"} & set(left)


@pytest.fixture(scope="module", params=["3.9", "4"])
def guarded(request: pytest.FixtureRequest) -> Iterator[DevCluster]:
    """A broker with an authorizer: everybody may do everything but what is said of "secret" and of the cluster."""
    settings = {
        "authorizer.class.name": AUTHORIZER[request.param],
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:nobody",
    }
    with DevCluster(request.param, broker_settings=settings) as cluster:
        witness = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for name in ("secret", "open"):
            witness.create_topics([ConfluentTopic(name, 1, 1)])[name].result(30)

        def acl(kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
            return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)

        allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
        rows = [
            acl(ResourceType.BROKER, "kafka-cluster", AclOperation.CLUSTER_ACTION, allow),
            acl(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE, allow),
            acl(ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE, deny),
            acl(ResourceType.TOPIC, "secret", AclOperation.DESCRIBE, allow),
            acl(ResourceType.TOPIC, "unseen", AclOperation.ALL, deny),
            acl(ResourceType.GROUP, "secret", AclOperation.ALL, deny),
            acl(ResourceType.TOPIC, "new", AclOperation.CREATE, deny),
        ]
        for future in witness.create_acls(rows).values():
            future.result(30)
        deadline = time.monotonic() + PATIENCE_S
        while not in_force(witness, len(rows)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield cluster


def in_force(witness: AdminClient, count: int) -> bool:
    """Whether broker and controller have heard of the rules: each asks an authorizer of its own."""
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    if len(witness.describe_acls(everything).result(20)) < count:
        return False
    try:
        witness.create_topics([ConfluentTopic("new", 1, 1)], validate_only=True)["new"].result(20)
    except KafkaException as error:
        return error.args[0].code() == ConfluentError.TOPIC_AUTHORIZATION_FAILED
    return False


def test_what_is_not_allowed_is_told_with_the_operation_it_takes(guarded: DevCluster) -> None:
    """Topic, group and cluster, each by name; what is allowed beside it is done."""
    secret, tp = ConfigResource.topic("secret"), TopicPartition("secret", 0)
    with Admin(bootstrap_servers=guarded.bootstrap_servers) as admin:
        calls = [
            (
                lambda: admin.create_topics(NewTopic("new", 1, 1)),
                TopicAuthorizationFailed,
                "'new'.*CREATE on the topic",
            ),
            (lambda: admin.delete_topics("secret"), TopicAuthorizationFailed, "'secret'.*DELETE on the topic"),
            (lambda: admin.create_partitions({"secret": 3}), TopicAuthorizationFailed, "'secret'.*ALTER on the topic"),
            (lambda: admin.describe_topics("unseen"), TopicAuthorizationFailed, "'unseen'.*DESCRIBE on the topic"),
            (
                lambda: admin.describe_configs(secret),
                TopicAuthorizationFailed,
                "'secret'.*DESCRIBE_CONFIGS on the topic",
            ),
            (
                lambda: admin.alter_configs({secret: {"retention.ms": "1"}}),
                TopicAuthorizationFailed,
                "'secret'.*ALTER_CONFIGS on the topic",
            ),
            (
                lambda: admin.alter_configs({ConfigResource.broker(): {"log.cleaner.backoff.ms": "14000"}}),
                ClusterAuthorizationFailed,
                "all brokers.*ALTER_CONFIGS on the cluster",
            ),
            (lambda: admin.delete_records({tp: "latest"}), TopicAuthorizationFailed, "secret-0.*DELETE on the topic"),
            (lambda: admin.describe_groups("secret"), GroupAuthorizationFailed, "'secret'"),
            (lambda: admin.delete_groups("secret"), GroupAuthorizationFailed, "'secret'"),
            (lambda: admin.list_group_offsets("secret"), GroupAuthorizationFailed, "'secret'"),
            (lambda: admin.alter_group_offsets("secret", {tp: 0}), GroupAuthorizationFailed, "'secret'"),
            (lambda: admin.delete_group_offsets("secret", [tp]), GroupAuthorizationFailed, "'secret'"),
        ]
        for call, kind, said in calls:
            with pytest.raises(kind, match=said) as caught:
                call()
            assert isinstance(caught.value, KafkaError) and not caught.value.retriable
        with pytest.raises(AdminError, match="1 of 2 failed; the others succeeded") as both:
            admin.create_partitions({"secret": 3, "open": 2})
        assert list(both.value.results) == ["open"]
        assert "unseen" not in admin.list_topics() and len(guarded.describe_topic("open")) == 2
