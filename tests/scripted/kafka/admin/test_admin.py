"""The administrator against scripted brokers: controllers that move, answers that do not come, wrong use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from streamlet.base.errors import BadInput, SettingError
from streamlet.kafka import Admin, KafkaError, NewTopic, TopicPartition
from streamlet.kafka.admin import (
    AclBinding,
    AclOperation,
    AclResourceType,
    AdminError,
    ElectionType,
    UserScramCredentialUpsertion,
)
from streamlet.kafka.admin import admin as admin_module
from streamlet.kafka.broker_errors import (
    InvalidReplicationFactor,
    NotController,
    PreferredLeaderNotAvailable,
    SecurityDisabled,
    TopicAlreadyExists,
)
from streamlet.kafka.errors import BootstrapFailed, ClientClosed, UnsupportedVersion
from streamlet.kafka.protocol.messages import acls, replicas, scram_users
from streamlet.kafka.protocol.messages.fetch import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from streamlet.kafka.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    FindCoordinatorResponse,
    ListedGroup,
    ListGroupsResponse,
)
from streamlet.kafka.protocol.messages.metadata import MetadataBroker, MetadataRequest, MetadataResponse
from streamlet.kafka.protocol.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import CLOSE, SILENCE, FakeBroker


def created(code: int = 0, message: str | None = None):  # type: ignore[no-untyped-def]
    def answer(request: CreateTopicsRequest) -> CreateTopicsResponse:
        rows = [CreatableTopicResult(name=row.name, error_code=code, error_message=message) for row in request.topics]
        return CreateTopicsResponse(topics=tuple(rows))

    return answer


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 2}) as broker:
        yield broker


@pytest.fixture
def admin(broker: FakeBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.address, retry_backoff_ms=10, retry_backoff_max_ms=20) as admin:
        yield admin


def test_another_controller_is_looked_for(broker: FakeBroker) -> None:
    """After NOT_CONTROLLER the metadata is asked again, and the request goes to the broker it names then."""
    with FakeBroker(node_id=2, topics={"new": 1}) as second:
        both = (
            MetadataBroker(node_id=1, host="127.0.0.1", port=broker.port),
            MetadataBroker(node_id=2, host="127.0.0.1", port=second.port),
        )

        def metadata(_request: MetadataRequest) -> MetadataResponse:
            known = broker.seen(ApiKey.CREATE_TOPICS)
            found = second.metadata(MetadataRequest(topics=None))
            return MetadataResponse(brokers=both, controller_id=2 if known else 1, topics=found.topics)

        for each in (broker, second):
            each.on(ApiKey.METADATA, metadata)
        broker.on(ApiKey.CREATE_TOPICS, created(41))
        second.on(ApiKey.CREATE_TOPICS, created())
        with Admin(bootstrap_servers=broker.address, retry_backoff_ms=10, retry_backoff_max_ms=20) as admin:
            assert list(admin.create_topics(NewTopic("new", 1, 1), timeout=20)) == ["new"]
        assert len(second.seen(ApiKey.CREATE_TOPICS)) == 1


def test_a_cluster_without_a_controller_is_waited_for(broker: FakeBroker, admin: Admin) -> None:
    """And told by name when the time is over."""
    fake = broker.metadata
    broker.on(
        ApiKey.METADATA,
        lambda request: MetadataResponse(brokers=fake(request).brokers, controller_id=-1, topics=fake(request).topics),
    )
    with pytest.raises(KafkaError, match=r"No broker is the cluster's controller.*tried \d+ times within 0\.5 s"):
        admin.delete_topics("t", timeout=0.5)
    assert broker.seen(ApiKey.DELETE_TOPICS) == []


Change = Callable[[Admin], object]
TOPIC_CHANGES: dict[str, tuple[dict[str, int], dict[str, int], Change]] = {
    "create": ({}, {"t": 2}, lambda admin: admin.create_topics(NewTopic("t", 2, 1), timeout=20)),
    "grow": ({"t": 1}, {"t": 2}, lambda admin: admin.create_partitions({"t": 2}, timeout=20)),
    "delete": ({"t": 1}, {}, lambda admin: admin.delete_topics("t", timeout=20)),
}
"""Topics before and after, and the call."""


@pytest.mark.parametrize("name", TOPIC_CHANGES)
def test_a_change_of_topics_waits_until_every_broker_knows_it(name: str, broker: FakeBroker) -> None:
    """One that lags is asked again; one that is away is not waited for."""
    before, after, change = TOPIC_CHANGES[name]
    with FakeBroker(node_id=2) as second:
        third = FakeBroker(node_id=3).start()
        third.stop()
        rows = tuple(
            MetadataBroker(node_id=each.node_id, host="127.0.0.1", port=each.port) for each in (broker, second, third)
        )

        def known_after(asked: int):  # type: ignore[no-untyped-def]
            left = [asked]

            def metadata(request: MetadataRequest) -> MetadataResponse:
                broker.topics = after if left[0] <= 0 else before
                left[0] -= bool(request.topics)
                return replace(broker.metadata(request), brokers=rows, controller_id=1)

            return metadata

        broker.on(ApiKey.METADATA, known_after(0))
        broker.on(ApiKey.CREATE_TOPICS, created())
        grown = CreatePartitionsTopicResult(name="t", error_code=0)
        broker.on(ApiKey.CREATE_PARTITIONS, CreatePartitionsResponse(throttle_time_ms=0, results=(grown,)))
        deleted = DeletableTopicResult(name="t", error_code=0)
        broker.on(ApiKey.DELETE_TOPICS, DeleteTopicsResponse(throttle_time_ms=0, responses=(deleted,)))
        second.on(ApiKey.METADATA, known_after(3))
        with Admin(bootstrap_servers=broker.address) as admin:
            change(admin)
            asked = [row for row in second.seen(ApiKey.METADATA) if row.request.topics]  # type: ignore[attr-defined]
            assert len(asked) == 4


def test_a_controller_that_never_is_one_ends_with_the_last_error(broker: FakeBroker, admin: Admin) -> None:
    """How often it was tried is said."""
    broker.on(ApiKey.CREATE_TOPICS, created(41))
    with pytest.raises(NotController, match=r"'x'.*tried \d+ times within 0\.5 s") as caught:
        admin.create_topics(NewTopic("x", 1, 1), timeout=0.5)
    assert isinstance(caught.value, AdminError) and caught.value.retriable


def test_a_lost_answer_is_told_beside_what_the_next_try_says(broker: FakeBroker, admin: Admin) -> None:
    """The first try may have made the topic that now exists."""
    broker.on(ApiKey.CREATE_TOPICS, CLOSE, created(36, "Topic 'x' already exists."))
    with pytest.raises(TopicAlreadyExists, match="earlier try of this call got no answer"):
        admin.create_topics(NewTopic("x", 1, 1), timeout=20)
    assert len(broker.seen(ApiKey.CREATE_TOPICS)) == 2


def test_a_topic_that_is_being_deleted_is_waited_for(broker: FakeBroker, admin: Admin) -> None:
    """Then there is room for the new one."""
    broker.on(ApiKey.CREATE_TOPICS, created(36, "Topic 't' is marked for deletion."), created())
    assert list(admin.create_topics(NewTopic("t", 1, 1), timeout=20)) == ["t"]


def test_a_broker_that_never_answers_ends_the_call_in_time(broker: FakeBroker, admin: Admin) -> None:
    """Whether it was done is not known, and the paragraph says so."""
    broker.on(ApiKey.CREATE_TOPICS, SILENCE)
    with pytest.raises(AdminError, match=r"No answer within 0\.3 s; whether it was done is not known.*127\.0\.0\.1"):
        admin.create_topics(NewTopic("x", 1, 1), timeout=0.3)


def test_a_broker_too_old_is_named_with_what_it_lacks(broker: FakeBroker, admin: Admin) -> None:
    """A default is asked for that it cannot give."""
    broker.ranges[ApiKey.CREATE_TOPICS] = (0, 3)
    broker.on(ApiKey.CREATE_TOPICS, created(38))
    with pytest.raises(UnsupportedVersion, match=r"CREATE_TOPICS.*2\.8 or later"):
        admin.create_topics(NewTopic("x"), timeout=5)
    with pytest.raises(InvalidReplicationFactor, match="1 broker, so there can be 1 copy"):
        admin.create_topics(NewTopic("x", 1, 3), timeout=5)


def test_where_nobody_listens_each_address_is_named(broker: FakeBroker) -> None:
    """The bootstrap's own paragraph, with each address."""
    broker.stop()
    with Admin(bootstrap_servers=broker.address) as admin, pytest.raises(BootstrapFailed, match="refused"):
        admin.list_topics(timeout=0.3)


def test_the_log_says_early_that_no_broker_is_there(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call waits for a minute, which looks like a program that hangs."""
    monkeypatch.setattr(admin_module, "TOLD_AFTER_S", 0.1)
    broker.stop()
    with Admin(bootstrap_servers=broker.address) as admin, pytest.raises(BootstrapFailed):
        admin.list_topics(timeout=0.4)
    (line,) = caplog.messages
    assert line.startswith("waits for a Kafka broker, at most 0 s more. ") and "refused" in line


def test_unknown_topics_and_partitions_are_told_at_once(broker: FakeBroker, admin: Admin) -> None:
    """Though their error is one that time may mend; a broker is not even asked for them."""
    with pytest.raises(KafkaError, match="Describing topic 'nope'"):
        admin.describe_topics(["nope"], timeout=60)
    asked = {TopicPartition("t", 7): "latest", TopicPartition("nope", 0): "latest"}
    with pytest.raises(AdminError, match="The topic has 2 partitions, numbered from 0") as caught:
        admin.list_offsets(asked, timeout=60)  # type: ignore[arg-type]
    assert set(caught.value.errors) == set(asked)
    assert broker.seen(ApiKey.LIST_OFFSETS) == []


def test_a_leader_that_has_moved_is_looked_for_again(broker: FakeBroker, admin: Admin) -> None:
    """NOT_LEADER once, then an offset."""
    tp = TopicPartition("t", 1)

    def answer(code: int, offset: int) -> ListOffsetsResponse:
        row = ListOffsetsPartitionResponse(partition_index=1, error_code=code, offset=offset)
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(row,)),))

    broker.on(ApiKey.LIST_OFFSETS, answer(6, -1), answer(0, 9))
    assert admin.list_offsets({tp: "latest"}, timeout=20)[tp].offset == 9


def test_a_coordinator_is_looked_for_again_in_each_round(broker: FakeBroker, admin: Admin) -> None:
    """None at first, then one that is not it, then the right one; each group by itself."""
    here = FindCoordinatorResponse(error_code=0, node_id=1, host="127.0.0.1", port=broker.port)
    none = FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
    broker.on(ApiKey.FIND_COORDINATOR, none, here)

    def deleted(code: int):  # type: ignore[no-untyped-def]
        def answer(request: DeleteGroupsRequest) -> DeleteGroupsResponse:
            rows = [DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
            return DeleteGroupsResponse(throttle_time_ms=0, results=tuple(rows))

        return answer

    broker.on(ApiKey.DELETE_GROUPS, deleted(16), deleted(0))
    admin.delete_groups(["g", "h"], timeout=20)
    sent = [row.request.groups_names for row in broker.seen(ApiKey.DELETE_GROUPS)]  # type: ignore[attr-defined]
    assert sorted({name for names in sent for name in names}) == ["g", "h"]


def test_groups_are_listed_from_every_broker(broker: FakeBroker) -> None:
    """A broker that does not answer is named, and what the others said is in the error."""
    with FakeBroker(node_id=2) as second:
        both = (
            MetadataBroker(node_id=1, host="127.0.0.1", port=broker.port),
            MetadataBroker(node_id=2, host="127.0.0.1", port=second.port),
        )
        for each, name in ((broker, "b"), (second, "a")):
            each.on(ApiKey.METADATA, MetadataResponse(brokers=both, controller_id=1, topics=()))
            each.on(
                ApiKey.LIST_GROUPS,
                ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id=name, protocol_type="consumer"),)),
            )
        with Admin(bootstrap_servers=broker.address, retry_backoff_ms=10, retry_backoff_max_ms=20) as admin:
            assert list(admin.list_groups(timeout=20)) == ["a", "b"]
            second.on(ApiKey.LIST_GROUPS, ListGroupsResponse(error_code=31, groups=()))
            with pytest.raises(AdminError, match=r"broker 127\.0\.0\.1:\d+ \(id 2\).*DESCRIBE") as caught:
                admin.list_groups(timeout=20)
            assert list(caught.value.results) == ["b"]


@pytest.mark.parametrize("timeout", [-1, True, "5"])
def test_a_timeout_that_is_not_a_number_of_seconds_is_refused(admin: Admin, timeout: object) -> None:
    with pytest.raises(BadInput, match="timeout"):
        admin.list_topics(timeout=timeout)  # type: ignore[arg-type]


def test_names_and_settings_are_checked(admin: Admin) -> None:
    """The nearest right setting is named; nothing that is no name goes out."""
    with pytest.raises(SettingError, match="default_api_timeout_ms"):
        Admin(bootstrap_servers="127.0.0.1:1", api_timeout_ms=5)
    with pytest.raises(BadInput, match="is not a name"):
        admin.delete_topics(["t", ""])
    with pytest.raises(BadInput, match="not an offset"):
        admin.delete_records({TopicPartition("t", 0): "earliest"})
    with pytest.raises(BadInput, match="not an offset"):
        admin.alter_group_offsets("g", {TopicPartition("t", 0): -5})


def test_a_second_thread_is_refused_and_harms_nothing(broker: FakeBroker, admin: Admin) -> None:
    """A second one is told so, and harms nothing."""
    broker.on(ApiKey.LIST_GROUPS, SILENCE)
    told: list[str] = []

    def work() -> None:
        try:
            admin.list_groups(timeout=5)
        except KafkaError as err:
            told.append(err.message)

    other = threading.Thread(target=work)
    other.start()
    while not broker.seen(ApiKey.LIST_GROUPS) and other.is_alive():
        os.sched_yield()
    try:
        with pytest.raises(KafkaError, match="not thread-safe"):
            admin.list_topics(timeout=1)
    finally:
        broker.drop_connections()
        broker.on(ApiKey.LIST_GROUPS, ListGroupsResponse(error_code=0, groups=()))
        other.join(PATIENCE_S)
    assert told == []


def test_a_closed_one_says_so(admin: Admin) -> None:
    """Closing twice is no mistake."""
    admin.close()
    admin.close()
    assert "closed" in repr(admin)
    with pytest.raises(ClientClosed, match="make another"):
        admin.list_topics()


def test_each_call_to_the_controller_goes_on_with_the_next_one(broker: FakeBroker, admin: Admin) -> None:
    """NOT_CONTROLLER in each of the places where an answer may have it, then what was asked for."""
    tp, other = TopicPartition("t", 0), TopicPartition("t", 1)
    elected = tuple(replicas.ElectionPartitionResult(partition_id=n, error_code=0) for n in (0, 1))
    result = replicas.ReplicaElectionResult(topic="t", partition_result=elected)
    broker.on(
        ApiKey.ELECT_LEADERS,
        replicas.ElectLeadersResponse(error_code=41),
        replicas.ElectLeadersResponse(replica_election_results=(result,)),
    )
    assert admin.elect_leaders(ElectionType.PREFERRED, [tp, other], timeout=20) == {tp: True, other: True}
    assert admin.elect_leaders(ElectionType.PREFERRED, timeout=20) == {tp: True, other: True}
    moved = tuple(replicas.ReassignablePartitionResponse(partition_index=n, error_code=0) for n in (0, 1))
    broker.on(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        replicas.AlterPartitionReassignmentsResponse(error_code=41),
        replicas.AlterPartitionReassignmentsResponse(
            responses=(replicas.ReassignableTopicResponse(name="t", partitions=moved),)
        ),
    )
    admin.alter_partition_reassignments({tp: [1], other: None}, timeout=20)
    broker.on(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        replicas.ListPartitionReassignmentsResponse(error_code=41),
        replicas.ListPartitionReassignmentsResponse(),
    )
    assert admin.list_partition_reassignments(timeout=20) == {}
    done = [scram_users.AlterUserScramCredentialsResult(user="u", error_code=code) for code in (41, 0)]
    broker.on(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        *(scram_users.AlterUserScramCredentialsResponse(results=(row,)) for row in done),
    )
    admin.alter_user_scram_credentials(UserScramCredentialUpsertion("u", "pw"), timeout=20)
    for api in (ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS):
        assert len(broker.seen(api)) == 2
    assert len(broker.seen(ApiKey.METADATA)) > 4


def test_an_election_without_a_replica_that_may_lead_is_told_at_once(broker: FakeBroker, admin: Admin) -> None:
    """Though its error is one that time may mend; the other partition keeps its outcome."""
    rows = (
        replicas.ElectionPartitionResult(partition_id=0, error_code=80, error_message="not in sync"),
        replicas.ElectionPartitionResult(partition_id=1, error_code=84),
    )
    result = replicas.ReplicaElectionResult(topic="t", partition_result=rows)
    broker.on(ApiKey.ELECT_LEADERS, replicas.ElectLeadersResponse(replica_election_results=(result,)))
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    with pytest.raises(PreferredLeaderNotAvailable, match=r"1 of 2 failed.*t-0.*not in sync") as caught:
        admin.elect_leaders(ElectionType.PREFERRED, partitions, timeout=60)
    assert caught.value.results == {partitions[1]: False}  # type: ignore[attr-defined]
    assert len(broker.seen(ApiKey.ELECT_LEADERS)) == 1


def test_a_rule_whose_outcome_is_not_told_is_named(broker: FakeBroker, admin: Admin) -> None:
    """An answer that is too short says nothing of the last ones; a lost one is asked for again."""
    rules = [AclBinding(AclResourceType.TOPIC, name, "User:a", AclOperation.READ) for name in ("x", "y")]
    short = acls.CreateAclsResponse(results=(acls.AclCreationResult(error_code=0),))
    broker.on(ApiKey.CREATE_ACLS, CLOSE, short)
    with pytest.raises(AdminError, match="says nothing of ALLOW User:a READ on TOPIC y") as caught:
        admin.create_acls(rules, timeout=20)
    assert list(caught.value.results) == rules[:1]
    broker.on(ApiKey.DESCRIBE_ACLS, acls.DescribeAclsResponse(error_code=54))
    with pytest.raises(SecurityDisabled, match=r"Describing ACLs.*authorizer\.class\.name"):
        admin.describe_acls(timeout=20)


def test_a_broker_too_old_for_a_place_still_answers_for_the_others(broker: FakeBroker, admin: Admin) -> None:
    """Each partition by itself; the paragraph names the first release that can."""
    broker.ranges[ApiKey.LIST_OFFSETS] = (1, 5)
    broker.ranges.pop(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
    row = ListOffsetsPartitionResponse(partition_index=1, error_code=0, offset=9)
    answer = ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(row,)),))
    broker.on(ApiKey.LIST_OFFSETS, answer)
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    with pytest.raises(UnsupportedVersion, match=r"LIST_OFFSETS.*broker of version 3\.0 or later") as caught:
        admin.list_offsets({first: "max_timestamp", second: "latest"}, timeout=20)
    assert caught.value.results[second].offset == 9  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedVersion, match=r"broker of version 2\.7 or later"):
        admin.describe_user_scram_credentials(timeout=20)
