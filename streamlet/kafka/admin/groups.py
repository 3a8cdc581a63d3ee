"""Groups and their offsets: requests, and how their answers are read. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from streamlet.kafka.admin.errors import Answers, NewerGroupProtocol, item_error
from streamlet.kafka.admin.model import GroupDescription, GroupListing, MemberDescription
from streamlet.kafka.arguments import offset_of
from streamlet.kafka.broker_errors import GroupIdNotFound
from streamlet.kafka.client.group_requests import OffsetAndMetadata, offset_rows
from streamlet.kafka.client.leader_requests import by_topic, partition_rows
from streamlet.kafka.errors import KafkaError, MalformedFrame
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.protocol.messages import offsets as wire_offsets
from streamlet.kafka.protocol.messages.groups import (
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from streamlet.kafka.protocol.schema import INT16_LAYOUT, INT32_LAYOUT, Reader

CONSUMER = "consumer"
"""The protocol type of groups of consumers (others: "connect", ...)."""

_DEAD = "Dead"


def read_groups(response: ListGroupsResponse, broker: Broker) -> Answers[int, dict[str, GroupListing]]:
    """Return the groups that this broker coordinates."""
    needs = "DESCRIBE on the cluster or on the groups"
    fault = item_error(response.error_code, f"Listing the groups of broker {broker}", None, needs)
    rows = {
        row.group_id: GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type, broker)
        for row in response.groups
    }
    answers: Answers[int, dict[str, GroupListing]] = Answers()
    answers.put(broker.node_id, rows, fault)
    return answers


def read_group_descriptions(response: DescribeGroupsResponse, broker: Broker) -> Answers[str, GroupDescription]:
    """Return state and members of each group."""
    answers: Answers[str, GroupDescription] = Answers()
    for row in response.groups:
        what = f"Describing group {row.group_id!r}"
        fault = item_error(row.error_code, what, row.error_message, "DESCRIBE on the group")
        # A broker before 4.0 has no error for a group that does not exist: it describes it as dead.
        if fault is None and row.group_state == _DEAD:
            fault = GroupIdNotFound(what, "Correct its name: list_groups shows what there is.")
        if isinstance(fault, GroupIdNotFound) and "not a classic group" in (row.error_message or ""):
            fault = NewerGroupProtocol(
                f"{what}: it is of the newer group protocol (KIP-848), which describe_groups does not know. "
                "list_groups has its state; Kafka's own tool kafka-consumer-groups shows its members."
            )
        if fault is not None:
            answers.errors[row.group_id] = fault
            continue
        try:
            members = tuple(_member(row, member) for member in row.members)
        except MalformedFrame as err:
            answers.errors[row.group_id] = KafkaError(f"{what}: a member's assignment cannot be read ({err.message}).")
            continue
        answers.results[row.group_id] = GroupDescription(
            row.group_id, row.group_state, row.protocol_type, row.protocol_data, broker, members
        )
    return answers


def _member(group: DescribedGroup, row: DescribedGroupMember) -> MemberDescription:
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    if group.protocol_type == CONSUMER:
        topics, assignment = subscribed_topics(row.member_metadata), assigned_partitions(row.member_assignment)
    return MemberDescription(row.member_id, row.group_instance_id, row.client_id, row.client_host, topics, assignment)


# Both byte strings are a consumer's own, of any version from 0 on. A later version only appends fields, so the reading
# stops after those of version 0.


def subscribed_topics(data: bytes) -> tuple[str, ...]:
    """Return the topics of a member's subscription. Raises MalformedFrame."""
    reader = Reader(data)
    if not data:
        return ()
    reader.fixed(INT16_LAYOUT)
    return tuple(reader.text(reader.fixed(INT16_LAYOUT)) for _ in range(_count(reader)))


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a member's assignment, in its order. Raises MalformedFrame."""
    reader = Reader(data)
    if not data:
        return ()
    reader.fixed(INT16_LAYOUT)
    found: list[TopicPartition] = []
    for _ in range(_count(reader)):
        topic = reader.text(reader.fixed(INT16_LAYOUT))
        found += [TopicPartition(topic, reader.fixed(INT32_LAYOUT)) for _ in range(_count(reader))]
    return tuple(found)


def _count(reader: Reader) -> int:
    count = reader.fixed(INT32_LAYOUT)
    # An item takes at least one byte: a larger count is refused before a list of its size is made.
    if not 0 <= count <= reader.remaining:
        raise MalformedFrame(f"an array of {count} items where {reader.remaining} bytes remain")
    return count


def read_deleted_groups(response: DeleteGroupsResponse) -> Answers[str, None]:
    """Return the deleted groups, and the errors of the others."""
    answers: Answers[str, None] = Answers()
    for row in response.results:
        fault = item_error(row.error_code, f"Deleting group {row.group_id!r}", None, "DELETE on the group")
        answers.put(row.group_id, None, fault)
    return answers


# -- offsets


def offset_to_store(tp: TopicPartition, spec: object) -> OffsetAndMetadata:
    """Return an offset, given as a number or with metadata. Raises BadInput."""
    if isinstance(spec, OffsetAndMetadata):
        return offset_rows({tp: spec})[tp]
    return OffsetAndMetadata(offset_of(tp, spec, '"earliest", "latest" or an aware datetime'))


def read_offsets(
    group_id: str, response: wire_offsets.OffsetFetchResponse
) -> Answers[str, Answers[TopicPartition, OffsetAndMetadata]]:
    """Return one group's stored offsets, without partitions that have none."""
    what = f"Reading the offsets of group {group_id!r}"
    fault = item_error(response.error_code, what, None, "DESCRIBE on the group")
    if fault is not None:
        return Answers({}, {group_id: fault})
    found: Answers[TopicPartition, OffsetAndMetadata] = Answers()
    for tp, row in partition_rows(response.topics):
        fault = item_error(row.error_code, f"{what} in {tp}", None, "DESCRIBE on the topic")
        if fault is not None or row.committed_offset >= 0:
            stored = OffsetAndMetadata(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
            found.put(tp, stored, fault)
    return Answers({group_id: found}, {})


def read_committed_offsets(group_id: str, response: wire_offsets.OffsetCommitResponse) -> Answers[TopicPartition, None]:
    """Return the partitions with a stored offset, and the others' errors."""
    answers: Answers[TopicPartition, None] = Answers()
    for tp, row in partition_rows(response.topics):
        answers.put(tp, None, _group_error(f"Setting the offset of group {group_id!r} in {tp}", row.error_code))
    return answers


def forget_request(group_id: str, partitions: Iterable[TopicPartition]) -> wire_offsets.OffsetDeleteRequest:
    """Return a request that deletes the group's offsets of these partitions."""
    return wire_offsets.OffsetDeleteRequest(
        group_id=group_id,
        topics=by_topic(
            dict.fromkeys(partitions),
            lambda number, _: wire_offsets.OffsetDeleteRequestPartition(partition_index=number),
            lambda topic, rows: wire_offsets.OffsetDeleteRequestTopic(name=topic, partitions=rows),
        ),
    )


def read_forgotten(
    group_id: str, partitions: Iterable[TopicPartition], response: wire_offsets.OffsetDeleteResponse
) -> Answers[TopicPartition, None]:
    """Return the partitions without an offset now, and the others' errors."""
    answers: Answers[TopicPartition, None] = Answers()
    codes = {tp: row.error_code for tp, row in partition_rows(response.topics)}
    if response.error_code:  # the group's own error: the broker then sends no partitions
        codes = dict.fromkeys(partitions, response.error_code)
    for tp, code in codes.items():
        answers.put(tp, None, _group_error(f"Deleting the offset of group {group_id!r} in {tp}", code))
    return answers


def _group_error(what: str, code: int) -> KafkaError | None:
    return item_error(code, what, None, "READ on the group and on the topic")
