"""What an administrator's requests hold, how answers are read, and what errors say. Pure."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest

from streamlet.base.errors import BadInput
from streamlet.kafka import Broker, KafkaError, TopicPartition
from streamlet.kafka import broker_errors as e
from streamlet.kafka.admin import (
    AdminError,
    AlterConfig,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    configs,
    groups,
    topics,
)
from streamlet.kafka.admin.errors import TopicBeingDeleted, admin_error, item_error
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata, offset_commit_request
from streamlet.kafka.errors import Disconnected, MalformedFrame
from streamlet.kafka.protocol.messages import configs as wire_configs
from streamlet.kafka.protocol.messages import topics as wire_create
from streamlet.kafka.protocol.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from streamlet.kafka.protocol.messages.metadata import MetadataPartition, MetadataResponse, MetadataTopic
from streamlet.kafka.protocol.messages.offsets import OffsetDeleteResponse

BROKER = Broker(1, "h", 9092)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": ""}, "not a name of a topic"),
        ({"name": 7}, "not a name of a topic"),
        ({"name": "t", "num_partitions": 0}, "num_partitions = 0"),
        ({"name": "t", "num_partitions": True}, "num_partitions = True"),
        ({"name": "t", "replication_factor": 1.5}, "replication_factor = 1.5"),
        ({"name": "t", "num_partitions": 2, "assignment": {0: [1]}}, "says already"),
        ({"name": "t", "assignment": {1: [1]}}, "without a gap"),
        ({"name": "t", "assignment": {}}, "without a gap"),
        ({"name": "t", "configs": {"retention.ms": 60000}}, "write '60000'"),
    ],
)
def test_a_new_topic_that_contradicts_itself_is_refused(arguments: dict[str, object], said: str) -> None:
    """Before anything is sent, by name."""
    with pytest.raises(BadInput, match=said):
        NewTopic(**arguments)  # type: ignore[arg-type]


def test_what_is_told_is_frozen() -> None:
    """All of the public data."""
    for value in (NewTopic("t"), NewPartitions(3), ConfigResource.topic("t"), AlterConfig(ConfigOp.SET, "1")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, "other")


def test_creation_says_numbers_or_an_assignment() -> None:
    """An assignment leaves both numbers at -1; the broker's defaults need a version that has them."""
    request = topics.create_request([NewTopic("t", 2, 1, configs={"a": "b"})], 500, True)
    assert request.usable_versions() == (3, 7)
    assert (request.topics[0].num_partitions, request.timeout_ms, request.validate_only) == (2, 500, True)
    assert request.topics[0].configs == (wire_create.CreatableTopicConfig(name="a", value="b"),)
    assigned = topics.create_request([NewTopic("t", assignment={1: [2, 1], 0: [1, 2]})], 500, False)
    assert assigned.usable_versions() == (3, 7)
    assert [(row.partition_index, row.broker_ids) for row in assigned.topics[0].assignments] == [
        (0, (1, 2)),
        (1, (2, 1)),
    ]
    assert topics.create_request([NewTopic("t", 2)], 500, False).usable_versions() == (7,)


def test_an_answer_to_a_creation_has_results_and_errors() -> None:
    """Each topic in one of them; what an old broker leaves out is None."""
    row = wire_create.CreatableTopicResult
    response = wire_create.CreateTopicsResponse(
        topics=(
            row(name="new", error_code=0, num_partitions=2, replication_factor=1),
            row(name="old", error_code=0),
            row(name="many", error_code=38, error_message="Replication factor: 3 larger than available brokers: 2."),
            row(name="gone", error_code=36, error_message="Topic 'gone' is marked for deletion."),
            row(name="mine", error_code=29),
            row(name="odd", error_code=44, error_message="names begin with x"),
        )
    )
    answers = topics.read_created(response, 2)
    assert {name: found.num_partitions for name, found in answers.results.items()} == {"new": 2, "old": None}
    assert "'many'" in answers.errors["many"].message and "2 brokers, so there can be 1 to 2" in str(
        answers.errors["many"]
    )
    assert isinstance(answers.errors["gone"], TopicBeingDeleted) and answers.errors["gone"].retriable
    assert "ACL operation CREATE on the topic or on the cluster" in answers.errors["mine"].message
    assert "names begin with x" in answers.errors["odd"].message


def test_errors_of_several_items_are_one_paragraph() -> None:
    """It counts, names each item, and has errors and results as data."""
    exists = item_error(36, "Creating topic 'a'")
    invalid = item_error(40, "Creating topic 'b'", "Unknown topic config name: x.")
    assert exists is not None and invalid is not None
    error = admin_error({"a": exists, "b": invalid}, {"c": 1})
    assert error.message.startswith("2 of 3 failed; the others succeeded. Creating topic 'a'")
    assert "Creating topic 'b'" in error.message and "\n" not in error.message
    assert (error.errors, error.results) == ({"a": exists, "b": invalid}, {"c": 1})
    assert type(error) is AdminError


def test_errors_of_one_kind_can_be_caught_by_it() -> None:
    """As kafka-python's users do; flags are the kind's, too."""
    exists = item_error(36, "Creating topic 'a'")
    assert exists is not None
    error = admin_error({"a": exists}, {})
    assert isinstance(error, e.TopicAlreadyExists) and isinstance(error, AdminError) and error.code == 36
    assert error.message == exists.message and type(error).__name__ == "TopicAlreadyExists"
    assert not error.retriable and admin_error({"a": Disconnected("gone")}, {}).retriable


def test_one_error_of_many_items_is_said_once() -> None:
    """A lost connection names the items that it concerns, the first ten of them."""
    lost = Disconnected("The connection broke.")
    message = admin_error({f"t{number}": lost for number in range(12)}, {}).message
    assert message.count("The connection broke.") == 1 and "t9, ...:" in message and "12 of 12" in message
    assert admin_error({"t": lost}, {}).message == "t: The connection broke."
    many = {f"t{number}": KafkaError(f"t{number} is odd.") for number in range(12)}
    assert "(2 more: see the error's attribute `errors`.)" in admin_error(many, {}).message


def test_descriptions_and_listings_are_read_from_metadata() -> None:
    """Partitions by number, errors by topic; a topic that is being deleted is not listed."""
    part = MetadataPartition(error_code=0, partition_index=1, leader_id=1, replica_nodes=(1, 2), isr_nodes=(1,))
    zero = dataclasses.replace(part, partition_index=0, leader_id=-1, error_code=5)
    response = MetadataResponse(
        brokers=(),
        topics=(
            MetadataTopic(error_code=0, name="t", topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions=(part, zero)),
            MetadataTopic(error_code=3, name="gone"),
        ),
    )
    answers = topics.read_descriptions(response)
    found = answers.results["t"].partitions
    assert [(row.partition, row.leader, row.isr) for row in found] == [(0, -1, (1,)), (1, 1, (1,))]
    assert found[0].error is e.LeaderNotAvailable
    assert isinstance(answers.errors["gone"], e.UnknownTopicOrPartition)
    assert list(topics.read_listing(response)) == ["t"]


def test_changes_of_settings_set_delete_and_append() -> None:
    """Text sets, None deletes, an AlterConfig says more; what is no text is refused with its name."""
    lines = ConfigResource.topic("lines")
    changes = {"a": "1", "b": None, "c": AlterConfig(ConfigOp.APPEND, "x")}
    request = configs.alter_request({lines: changes}, False)
    rows = [(row.name, row.config_operation, row.value) for row in request.resources[0].configs]
    assert rows == [("a", 0, "1"), ("b", 1, None), ("c", 2, "x")]
    with pytest.raises(BadInput, match=r"topic 'lines'.*'a' = 1"):
        configs.alter_request({lines: {"a": 1}}, False)  # type: ignore[dict-item]
    with pytest.raises(BadInput, match="SUBTRACT of 'a' needs a value"):
        configs.alter_request({lines: {"a": AlterConfig(ConfigOp.SUBTRACT)}}, False)


def test_settings_are_read_with_their_source() -> None:
    """A source, or a kind of resource, that is newer than this client hurts nothing."""
    entry = wire_configs.DescribeConfigsResourceResult(
        name="x", value=None, read_only=True, is_sensitive=True, config_source=99
    )
    result = wire_configs.DescribeConfigsResult
    response = wire_configs.DescribeConfigsResponse(
        throttle_time_ms=0,
        results=(
            result(error_code=0, error_message=None, resource_type=4, resource_name="1", configs=(entry,)),
            result(error_code=0, error_message=None, resource_type=99, resource_name="1", configs=()),
            result(error_code=3, error_message=None, resource_type=2, resource_name="t", configs=()),
        ),
    )
    answers = configs.read_described(response)
    found = answers.results[ConfigResource.broker(1)]["x"]
    assert (found.source, found.is_read_only, found.is_default) == (ConfigSource.UNKNOWN, True, False)
    assert list(answers.errors) == [ConfigResource.topic("t")]
    assert [str(ConfigResource.broker()), str(ConfigResource.topic("t"))] == ["all brokers", "topic 't'"]


SUBSCRIPTION = bytes.fromhex("0001 00000002 000161 000162 ffffffff 00000000".replace(" ", ""))
ASSIGNMENT = bytes.fromhex("0000 00000001 000161 00000002 00000000 00000001 ffffffff".replace(" ", ""))


def described(state: str = "Stable", code: int = 0, assignment: bytes = ASSIGNMENT, protocol: str = "consumer"):  # type: ignore[no-untyped-def]
    member = DescribedGroupMember(
        member_id="m", client_id="c", client_host="/1", member_metadata=SUBSCRIPTION, member_assignment=assignment
    )
    row = DescribedGroup(
        error_code=code,
        group_id="g",
        group_state=state,
        protocol_type=protocol,
        protocol_data="range",
        members=(member,),
    )
    return groups.read_group_descriptions(DescribeGroupsResponse(groups=(row,)), BROKER)


def test_a_group_is_described_with_its_members_partitions() -> None:
    """Subscription and assignment are decoded for consumers, and left alone for others."""
    found = described().results["g"]
    assert (found.state, found.assignor, found.coordinator) == ("Stable", "range", BROKER)
    assert (found.members[0].topics, found.members[0].assignment) == (("a", "b"), (A0, A1))
    assert described(protocol="connect", assignment=b"xx").results["g"].members[0].assignment == ()
    assert described(assignment=b"").results["g"].members[0].assignment == ()


def test_a_group_that_is_not_there_is_an_error() -> None:
    """Whether the broker says so or calls it dead."""
    for answers in (described(state="Dead"), described(code=69)):
        assert isinstance(answers.errors["g"], e.GroupIdNotFound) and "'g'" in answers.errors["g"].message


@pytest.mark.parametrize("cut", range(1, len(ASSIGNMENT) - 4))
def test_an_assignment_that_is_cut_off_is_named(cut: int) -> None:
    """A named error of that group, never a crash."""
    assert "cannot be read" in described(assignment=ASSIGNMENT[:cut]).errors["g"].message


def test_an_array_that_claims_more_than_there_is_is_refused() -> None:
    """Before anything of its size is made."""
    with pytest.raises(MalformedFrame, match="array of"):
        groups.assigned_partitions(bytes.fromhex("00007fffffff"))


def test_an_error_of_the_group_is_each_partitions() -> None:
    """What was asked for is in the answer, one by one."""
    response = OffsetDeleteResponse(error_code=69, throttle_time_ms=0, topics=())
    assert set(groups.read_forgotten("g", (A0, B0), response).errors) == {A0, B0}
    request = groups.forget_request("g", (A0, A1, B0))
    assert [(row.name, len(row.partitions)) for row in request.topics] == [("a", 2), ("b", 1)]


def test_offsets_are_committed_from_outside_of_the_membership() -> None:
    """Generation -1 and no member."""
    request = offset_commit_request(ConsumerGroupMetadata("g"), {A0: OffsetAndMetadata(7, 3, "m")})
    assert (request.generation_id, request.member_id) == (-1, "")
    row = request.topics[0].partitions[0]
    assert (row.committed_offset, row.committed_leader_epoch, row.committed_metadata) == (7, 3, "m")


def test_a_place_in_a_partition_is_a_word_a_time_or_milliseconds() -> None:
    """Words, aware times, milliseconds; nothing else."""
    assert [topics.timestamp_of(spec) for spec in ("earliest", "latest", 5)] == [-2, -1, 5]  # type: ignore[arg-type]
    assert topics.timestamp_of(datetime.fromtimestamp(1.5, UTC)) == 1500
    for spec in ("first", -3, True, None, datetime(2020, 1, 1)):
        with pytest.raises(BadInput):
            topics.timestamp_of(spec)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="read_uncommitted"):
        topics.offsets_request({A0: -1}, "dirty")


def test_an_item_that_begins_the_sentence_is_not_named_before_it() -> None:
    """ "broker 7: Broker 7 is ..." says it twice; another one is named."""
    gone = {ConfigResource.broker(7): KafkaError("Broker 7 is not in the cluster: there are 1, 2.")}
    assert admin_error(gone, {}).message == "Broker 7 is not in the cluster: there are 1, 2."
    lost = {ConfigResource.broker(7): KafkaError("Broker 77 is not in the cluster: there are 1, 2.")}
    assert admin_error(lost, {}).message.startswith("broker 7: Broker 77")
