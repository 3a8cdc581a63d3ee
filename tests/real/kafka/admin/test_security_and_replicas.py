"""ACLs, users of SCRAM, elections, reassignments and log directories against real brokers; librdkafka and Kafka's own
tools see what was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AclBindingFilter as TheirFilter
from confluent_kafka.admin import AclOperation as TheirOperation
from confluent_kafka.admin import AclPermissionType as TheirPermission
from confluent_kafka.admin import AdminClient, ScramMechanism
from confluent_kafka.admin import ResourcePatternType as TheirPattern
from confluent_kafka.admin import ResourceType as TheirType

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin, AdminError, TopicPartition
from streamlet.kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    ElectionType,
    PatternType,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from streamlet.kafka.broker_errors import (
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    ResourceNotFound,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from streamlet.kafka.errors import AuthenticationFailed
from tests.patience import PATIENCE_S

MakeTopic = Callable[..., str]


def until(done: Callable[[], bool]) -> None:
    """Brokers take a change over a moment after it was acknowledged."""
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def user_of(cluster: DevCluster, user: str, password: str) -> Admin:
    """An administrator who is somebody, over the listener with passwords, once the broker lets them in."""
    until(lambda: not is_shut_out(cluster, user, password))
    return _user_of(cluster, user, password)


def is_shut_out(cluster: DevCluster, user: str, password: str) -> bool:
    """Whether the broker refuses a password. It checks against a store that follows what it tells of its users."""
    try:
        with _user_of(cluster, user, password) as admin:
            admin.list_topics()
    except AuthenticationFailed as refused:
        assert f"'{user}'" in str(refused)
        return True
    return False


def _user_of(cluster: DevCluster, user: str, password: str) -> Admin:
    return Admin(
        bootstrap_servers=cluster.secure_servers("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=user,
        sasl_plain_password=password,
    )


def test_a_user_is_made_let_in_and_kept_out_of_a_topic(
    cluster: DevCluster, admin: Admin, witness: AdminClient, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """A password that opens, an ACL that shuts, each seen by librdkafka; and both are gone in the end."""
    topic, user = make_topic(cluster), topic_name()
    with pytest.raises(ResourceNotFound, match=f"'{user}'.*describe_user_scram_credentials shows"):
        admin.describe_user_scram_credentials(user)
    admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(user, "first", "SCRAM-SHA-256", 8192),
            UserScramCredentialUpsertion(user, "second"),
        ]
    )
    both = (ScramCredentialInfo("SCRAM-SHA-256", 8192), ScramCredentialInfo("SCRAM-SHA-512", 4096))
    until(lambda: admin.describe_user_scram_credentials().get(user) == both)
    assert admin.describe_user_scram_credentials([user]) == {user: both}
    theirs = witness.describe_user_scram_credentials([user])[user].result(PATIENCE_S).scram_credential_infos
    assert {(row.mechanism, row.iterations) for row in theirs} == {
        (ScramMechanism.SCRAM_SHA_256, 8192),
        (ScramMechanism.SCRAM_SHA_512, 4096),
    }

    rule = AclBinding(
        AclResourceType.TOPIC, topic, f"User:{user}", AclOperation.DESCRIBE, AclPermissionType.DENY, "127.0.0.1"
    )
    prefixed = AclBinding(
        AclResourceType.GROUP, f"{user}-", f"User:{user}", AclOperation.READ, pattern_type=PatternType.PREFIXED
    )
    admin.create_acls([rule, prefixed])
    with user_of(cluster, user, "first") as shut_out:
        until(lambda: topic not in shut_out.list_topics())
        with pytest.raises(TopicAuthorizationFailed, match=f"'{topic}'.*DESCRIBE on the topic"):
            shut_out.describe_topics(topic)
    hers = AclBindingFilter(principal=f"User:{user}")
    until(lambda: len(admin.describe_acls(hers)) == 2)
    assert admin.describe_acls(hers) == sorted([rule, prefixed], key=str)
    assert set(admin.describe_acls()) >= {rule, prefixed}
    wanted = TheirFilter(
        TheirType.TOPIC, topic, TheirPattern.ANY, f"User:{user}", None, TheirOperation.ANY, TheirPermission.ANY
    )
    (found,) = witness.describe_acls(wanted).result(PATIENCE_S)
    assert (found.name, found.host, found.operation) == (topic, "127.0.0.1", TheirOperation.DESCRIBE)
    assert found.permission_type is TheirPermission.DENY
    found = AclBindingFilter(AclResourceType.GROUP, f"{user}-here", pattern_type=PatternType.MATCH)
    assert admin.describe_acls(found) == [prefixed]

    gone = admin.delete_acls([rule, AclBindingFilter(principal=f"User:{user}-nobody")])
    assert list(gone.values()) == [[rule], []]
    admin.delete_acls(hers)
    until(lambda: admin.describe_acls(hers) == [])
    admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, name) for name in _BOTH])
    until(lambda: user not in admin.describe_user_scram_credentials())
    until(lambda: is_shut_out(cluster, user, "first"))
    with pytest.raises(ResourceNotFound, match=rf"Changing user '{user}' \(SCRAM-SHA-512\)"):
        admin.alter_user_scram_credentials(UserScramCredentialDeletion(user))


_BOTH = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def test_who_may_not_change_acls_is_told_what_it_takes(
    cluster: DevCluster, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """ALTER on the cluster is denied to one user; everybody else's rights stay."""
    user = topic_name()
    admin.alter_user_scram_credentials(UserScramCredentialUpsertion(user, "pw", "SCRAM-SHA-256"))
    rule = AclBinding(
        AclResourceType.CLUSTER, "kafka-cluster", f"User:{user}", AclOperation.ALL, AclPermissionType.DENY
    )
    others = AclBinding(AclResourceType.CLUSTER, "kafka-cluster", "User:*", AclOperation.ALL)
    admin.create_acls([others, rule])
    try:
        until(lambda: user in admin.describe_user_scram_credentials() and rule in admin.describe_acls())
        with user_of(cluster, user, "pw") as nobody:
            with pytest.raises(AdminError, match=r"ClusterAuthorizationFailed\).*ALTER on the cluster"):
                nobody.create_acls(rule)
            with pytest.raises(AdminError, match=r"Describing ACLs: .*DESCRIBE on the cluster"):
                nobody.describe_acls()
            with pytest.raises(AdminError, match=r"Describing users: .*DESCRIBE on the cluster"):
                nobody.describe_user_scram_credentials()
            with pytest.raises(AdminError, match="DESCRIBE on the cluster"):
                nobody.describe_log_dirs()
            with pytest.raises(AdminError, match=r"Listing reassignments: .*DESCRIBE on the cluster"):
                nobody.list_partition_reassignments()
            with pytest.raises(AdminError, match="ALTER on the cluster"):
                nobody.elect_leaders(ElectionType.PREFERRED, [TopicPartition("any", 0)])
    finally:
        admin.delete_acls([rule, others])


def test_leaders_are_elected_and_copies_found_in_their_directories(
    cluster: DevCluster, admin: Admin, make_topic: MakeTopic
) -> None:
    """One broker has every right leader already; a partition that is not there is named at once."""
    topic = make_topic(cluster, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.elect_leaders(ElectionType.PREFERRED, [first, second]) == {first: False, second: False}
    assert admin.elect_leaders(ElectionType.UNCLEAN, [first]) == {first: False}
    assert first not in admin.elect_leaders(ElectionType.PREFERRED)
    with pytest.raises(UnknownTopicOrPartition, match=f"Electing a leader for {topic}-7"):
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 7)])

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    producer.produce(topic, b"x" * 5000, partition=1)
    assert producer.flush(PATIENCE_S) == 0
    (directory,) = admin.describe_log_dirs([0], [first, second])[0].values()
    assert directory.error is None and directory.total_bytes is not None and directory.usable_bytes is not None
    sizes = {tp: (row.size, row.offset_lag, row.is_future) for tp, row in directory.replicas.items()}
    assert sizes[first] == (0, 0, False) and 5000 < sizes[second][0] < 6000
    (everything,) = admin.describe_log_dirs()[0].values()
    assert set(everything.replicas) > {first, second}
    with pytest.raises(AdminError, match="Broker 77 is not in the cluster: there are 0"):
        admin.describe_log_dirs(77)

    admin.alter_partition_reassignments({first: [0]})
    assert admin.list_partition_reassignments() == admin.list_partition_reassignments([first]) == {}
    with pytest.raises(NoReassignmentInProgress, match=f"Reassigning {topic}-0"):
        admin.alter_partition_reassignments({first: None})
    with pytest.raises(InvalidReplicaAssignment, match=f"Reassigning {topic}-1.*describe_cluster shows"):
        admin.alter_partition_reassignments({second: [0, 9]})


def test_the_record_with_the_latest_time_is_found(cluster: DevCluster, admin: Admin, make_topic: MakeTopic) -> None:
    """As librdkafka finds it, though later records are older; an empty partition has none."""
    topic = make_topic(cluster, partitions=2)
    first, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for when in (1_700_000_000_000, 1_700_000_009_000, 1_700_000_005_000):
        producer.produce(topic, b"x", partition=0, timestamp=when)
    assert producer.flush(PATIENCE_S) == 0
    found = admin.list_offsets({first: "max_timestamp", empty: "max_timestamp"})
    assert (found[first].offset, found[first].timestamp) == (1, 1_700_000_009_000)
    assert (found[empty].offset, found[empty].timestamp) == (-1, -1)
    from confluent_kafka.admin import OffsetSpec

    asked = ConfluentPartition(topic, 0)
    theirs = witness_offset(cluster, asked, OffsetSpec.max_timestamp())
    assert theirs == found[first].offset
    mixed = admin.list_offsets({empty: "latest", first: "earliest_local"})
    assert [row.offset for row in mixed.values()] == [0, 0]
    assert admin.list_offsets({first: "latest_tiered"})[first].offset == -1
    assert admin.alter_group_offsets(topic, {first: "max_timestamp"})[first].offset == 1
    admin.delete_groups(topic)


def witness_offset(cluster: DevCluster, partition: ConfluentPartition, spec: object) -> int:
    witness = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    offset: int = witness.list_offsets({partition: spec})[partition].result(PATIENCE_S).offset
    return offset
