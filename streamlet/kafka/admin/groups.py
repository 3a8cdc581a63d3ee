"""Groups and their offsets: requests as they go out, answers as they are read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamlet.kafka.admin.errors import Answers, NewerGroupProtocol, item_error
from streamlet.kafka.admin.model import GroupDescription, GroupListing, MemberDescription
from streamlet.kafka.arguments import offset_of
from streamlet.kafka.broker_errors import GroupIdNotFound
from streamlet.kafka.client.group_requests import OffsetAndMetadata, offset_rows
from streamlet.kafka.client.leader_requests import by_topic
from streamlet.kafka.errors import KafkaError, MalformedFrame
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.protocol import primitives as p
from streamlet.kafka.protocol.messages import offsets as wire_offsets
from streamlet.kafka.protocol.messages.groups import (
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from streamlet.kafka.protocol.primitives import Reader

CONSUMER = "consumer"
"""The protocol type of groups of consumers (others: "connect", ...)."""

_DEAD = "Dead"


def read_groups(response: ListGroupsResponse, broker: Broker) -> Answers[int, dict[str, GroupListing]]:
    """The groups that this broker coordinates."""
    answers: Answers[int, dict[str, GroupListing]] = Answers()
    fault = item_error(
        response.error_code, f"Listing the groups of broker {broker}", None, "DESCRIBE on the cluster or on the groups"
    )
    if fault is not None:
        answers.errors[broker.node_id] = fault
        return answers
    answers.results[broker.node_id] = {
        row.group_id: GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type, broker)
        for row in response.groups
    }
    return answers


def read_group_descriptions(response: DescribeGroupsResponse, broker: Broker) -> Answers[str, GroupDescription]:
    """State and members of each group. One that is not there is GroupIdNotFound, whatever the version."""
    answers: Answers[str, GroupDescription] = Answers()
    for row in response.groups:
        what = f"Describing group {row.group_id!r}"
        fault = item_error(row.error_code, what, row.error_message, "DESCRIBE on the group")
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


def subscribed_topics(data: bytes) -> tuple[str, ...]:
    """The topics of a consumer's subscription; later versions append to it, and what follows is let be."""
    reader = Reader(data)
    if not data:
        return ()
    reader.fixed(p.INT16)
    return tuple(reader.text(reader.fixed(p.INT16)) for _ in range(_count(reader)))


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a consumer's assignment, in the order they stand there."""
    reader = Reader(data)
    if not data:
        return ()
    reader.fixed(p.INT16)
    found: list[TopicPartition] = []
    for _ in range(_count(reader)):
        topic = reader.text(reader.fixed(p.INT16))
        found += [TopicPartition(topic, reader.fixed(p.INT32)) for _ in range(_count(reader))]
    return tuple(found)


def _count(reader: Reader) -> int:
    count = reader.fixed(p.INT32)
    if not 0 <= count <= reader.remaining:
        raise MalformedFrame(f"an array of {count} items where {reader.remaining} bytes remain")
    return count


def read_deleted_groups(response: DeleteGroupsResponse) -> Answers[str, None]:
    """Which are gone."""
    answers: Answers[str, None] = Answers()
    for row in response.results:
        fault = item_error(row.error_code, f"Deleting group {row.group_id!r}", None, "DELETE on the group")
        if fault is None:
            answers.results[row.group_id] = None
        else:
            answers.errors[row.group_id] = fault
    return answers


# -- offsets


def offset_to_store(tp: TopicPartition, spec: object) -> OffsetAndMetadata:
    """Return an offset to store, given as a number or with metadata. Raises BadInput."""
    if isinstance(spec, OffsetAndMetadata):
        return offset_rows({tp: spec})[tp]
    return OffsetAndMetadata(offset_of(tp, spec, '"earliest", "latest" or an aware datetime'))


def fetch_request(group_id: str, partitions: Iterable[TopicPartition] | None) -> wire_offsets.OffsetFetchRequest:
    """``partitions`` None: all that the group has stored."""
    topics = None
    if partitions is not None:
        wanted = by_topic(dict.fromkeys(partitions))
        topics = tuple(
            wire_offsets.OffsetFetchTopic(name=name, partition_indexes=tuple(rows)) for name, rows in wanted.items()
        )
    return wire_offsets.OffsetFetchRequest(group_id=group_id, topics=topics)


def read_offsets(
    group_id: str, response: wire_offsets.OffsetFetchResponse
) -> Answers[str, Answers[TopicPartition, OffsetAndMetadata]]:
    """The stored offsets of the one group; a partition without one is in neither mapping."""
    what = f"Reading the offsets of group {group_id!r}"
    fault = item_error(response.error_code, what, None, "DESCRIBE on the group")
    if fault is not None:
        return Answers({}, {group_id: fault})
    found: Answers[TopicPartition, OffsetAndMetadata] = Answers()
    for topic in response.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            fault = item_error(row.error_code, f"{what} in {tp}", None, "DESCRIBE on the topic")
            if fault is not None:
                found.errors[tp] = fault
            elif row.committed_offset >= 0:
                found.results[tp] = OffsetAndMetadata(
                    row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                )
    return Answers({group_id: found}, {})


def commit_request(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> wire_offsets.OffsetCommitRequest:
    """A commit from outside of the membership; the coordinator refuses it while the group has members."""
    return wire_offsets.OffsetCommitRequest(
        group_id=group_id,
        topics=tuple(
            wire_offsets.OffsetCommitTopic(
                name=topic,
                partitions=tuple(
                    wire_offsets.OffsetCommitPartition(
                        partition_index=number,
                        committed_offset=row.offset,
                        committed_leader_epoch=row.leader_epoch,
                        committed_metadata=row.metadata,
                    )
                    for number, row in rows.items()
                ),
            )
            for topic, rows in by_topic(offsets).items()
        ),
    )


def read_committed_offsets(group_id: str, response: wire_offsets.OffsetCommitResponse) -> Answers[TopicPartition, None]:
    """Which were stored."""
    answers: Answers[TopicPartition, None] = Answers()
    for topic in response.topics:
        for row in topic.partitions:
            _note(answers, f"Setting the offset of group {group_id!r}", topic.name, row.partition_index, row.error_code)
    return answers


def forget_request(group_id: str, partitions: Iterable[TopicPartition]) -> wire_offsets.OffsetDeleteRequest:
    """Forget the group's offsets of these."""
    return wire_offsets.OffsetDeleteRequest(
        group_id=group_id,
        topics=tuple(
            wire_offsets.OffsetDeleteRequestTopic(
                name=topic,
                partitions=tuple(wire_offsets.OffsetDeleteRequestPartition(partition_index=number) for number in rows),
            )
            for topic, rows in by_topic(dict.fromkeys(partitions)).items()
        ),
    )


def read_forgotten(
    group_id: str, partitions: Iterable[TopicPartition], response: wire_offsets.OffsetDeleteResponse
) -> Answers[TopicPartition, None]:
    """Which were forgotten. An error of the group is every partition's."""
    answers: Answers[TopicPartition, None] = Answers()
    what = f"Deleting the offset of group {group_id!r}"
    if response.error_code:
        for tp in partitions:
            _note(answers, what, tp.topic, tp.partition, response.error_code)
        return answers
    for topic in response.topics:
        for row in topic.partitions:
            _note(answers, what, topic.name, row.partition_index, row.error_code)
    return answers


def _note(answers: Answers[TopicPartition, None], what: str, topic: str, partition: int, code: int) -> None:
    tp = TopicPartition(topic, partition)
    fault = item_error(code, f"{what} in {tp}", None, "READ on the group and on the topic")
    if fault is None:
        answers.results[tp] = None
    else:
        answers.errors[tp] = fault
