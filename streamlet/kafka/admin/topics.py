"""Topics and their partitions: requests, and how their answers are read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

from streamlet.base.errors import BadInput
from streamlet.kafka.admin.call_rounds import AT_ONCE, BrokersFound, Call
from streamlet.kafka.admin.errors import Answers, item_error
from streamlet.kafka.admin.model import (
    BROKER_DEFAULT,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
    TopicListing,
)
from streamlet.kafka.arguments import check_name, is_whole, mapping, one_or_several
from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.kafka.client.leader_requests import ListedOffset, by_topic, list_offsets_request, partition_rows
from streamlet.kafka.errors import NoLeader
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.metadata.metadata import partition_info
from streamlet.kafka.protocol.messages import fetch as wire_offsets
from streamlet.kafka.protocol.messages import topics as wire
from streamlet.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

# -- arguments


def new_by_name(given: NewTopic | Iterable[NewTopic]) -> dict[str, NewTopic]:
    """Return the topics to create, by name. Raises BadInput for a name given twice."""
    example = "[NewTopic('lines', num_partitions, replication_factor), ...]"
    found: dict[str, NewTopic] = {}
    for row in one_or_several(given, NewTopic, example):
        if row.name in found:
            raise BadInput(f"Topic {row.name!r} is to be made twice: leave one of the two NewTopic out.")
        found[row.name] = row
    return found


def totals_by_name(given: Mapping[str, int | NewPartitions]) -> dict[str, NewPartitions]:
    """Return how many partitions each topic should have. Raises BadInput."""
    for name in mapping(given, "'lines'", "6"):
        check_name(name)
    return {name: row if isinstance(row, NewPartitions) else NewPartitions(row) for name, row in given.items()}


_WORDS = {
    "earliest": wire_offsets.EARLIEST_TIMESTAMP,
    "latest": wire_offsets.LATEST_TIMESTAMP,
    "max_timestamp": wire_offsets.MAX_TIMESTAMP,
    "earliest_local": wire_offsets.EARLIEST_LOCAL_TIMESTAMP,
    "latest_tiered": wire_offsets.LATEST_TIERED_TIMESTAMP,
}
_ISOLATION = ("read_uncommitted", "read_committed")


def is_place(spec: object) -> TypeGuard[OffsetSpec]:
    """Return whether only the leader knows the offset: a word or a time."""
    return isinstance(spec, datetime) or (isinstance(spec, str) and spec in _WORDS)


def timestamp_of(spec: OffsetSpec) -> int:
    """Return the protocol's timestamp for a place in a log. Raises BadInput."""
    if isinstance(spec, str) and spec in _WORDS:
        return _WORDS[spec]
    if isinstance(spec, datetime):
        if spec.tzinfo is None:
            raise BadInput(f"The time {spec} has no time zone: give an aware datetime, as datetime.now(timezone.utc).")
        # Rule: no record is older than 1970, and the milliseconds before it mean other things on the wire: -1 the end.
        return max(0, int(spec.timestamp() * 1000))
    if is_whole(spec, 0):
        return spec
    raise BadInput(
        f'{spec!r} is not a place in a partition: write "earliest", "latest", an aware datetime, or milliseconds '
        "since 1970."
    )


# -- create, delete, grow


def create_request(topics: Iterable[NewTopic], timeout_ms: int, validate_only: bool) -> wire.CreateTopicsRequest:
    """Return one request for all of these topics."""
    return wire.CreateTopicsRequest(
        topics=tuple(
            wire.CreatableTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignments=tuple(
                    wire.CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(brokers))
                    for number, brokers in sorted((topic.assignment or {}).items())
                ),
                configs=tuple(
                    wire.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
                ),
            )
            for topic in topics
        ),
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def read_created(response: wire.CreateTopicsResponse, brokers: int) -> Answers[str, CreatedTopic]:
    """Return what each topic became; ``brokers``: how many the cluster has."""
    answers: Answers[str, CreatedTopic] = Answers()
    needs = "CREATE on the topic or on the cluster"
    for row in response.topics:
        created = CreatedTopic(
            row.name,
            row.topic_id,
            None if row.num_partitions == BROKER_DEFAULT else row.num_partitions,
            None if row.replication_factor == BROKER_DEFAULT else row.replication_factor,
            {config.name: config.value for config in row.configs or ()},
        )
        fault = item_error(row.error_code, f"Creating topic {row.name!r}", row.error_message, needs, brokers)
        answers.put(row.name, created, fault)
    return answers


def read_deleted(response: wire.DeleteTopicsResponse) -> Answers[str, None]:
    """Return the deleted topics, and the errors of the others."""
    return _read_done(response.responses, "Deleting topic", "DELETE on the topic")


def partitions_request(
    wanted: Mapping[str, NewPartitions], timeout_ms: int, validate_only: bool
) -> wire.CreatePartitionsRequest:
    """Return one request for all of these topics."""
    return wire.CreatePartitionsRequest(
        topics=tuple(
            wire.CreatePartitionsTopic(
                name=name,
                count=row.total,
                assignments=None
                if row.assignment is None
                else tuple(wire.CreatePartitionsAssignment(broker_ids=tuple(brokers)) for brokers in row.assignment),
            )
            for name, row in wanted.items()
        ),
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def read_partitions(response: wire.CreatePartitionsResponse) -> Answers[str, None]:
    """Return the topics that have grown, and the errors of the others."""
    return _read_done(response.results, "Adding partitions to topic", "ALTER on the topic")


def _read_done(rows: Iterable[Any], act: str, needs: str) -> Answers[str, None]:  # Any: rows of several answers
    answers: Answers[str, None] = Answers()
    for row in rows:
        answers.put(row.name, None, item_error(row.error_code, f"{act} {row.name!r}", row.error_message, needs))
    return answers


# -- describe


def metadata_request(names: Iterable[str] | None) -> MetadataRequest:
    """Return a request for topics: these, all (None), or brokers alone (empty)."""
    topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)
    return MetadataRequest(topics=topics)


def read_brokers(response: MetadataResponse) -> dict[int, Broker]:
    """Return the brokers of the cluster by id."""
    return {row.node_id: Broker(row.node_id, row.host, row.port, row.rack) for row in response.brokers}


def read_descriptions(response: MetadataResponse) -> Answers[str, TopicDescription]:
    """Return each topic with its partitions."""
    answers: Answers[str, TopicDescription] = Answers()
    for row in response.topics:
        name = row.name or ""
        fault = item_error(row.error_code, f"Describing topic {name!r}", None, "DESCRIBE on the topic")
        parts = sorted(row.partitions, key=lambda part: part.partition_index)
        partitions = tuple(partition_info(name, part) for part in parts)
        answers.put(name, TopicDescription(name, row.topic_id, row.is_internal, partitions), fault)
    return answers


def have_leaders(response: MetadataResponse) -> bool:
    """Return whether each topic exists with a leader for every partition."""
    told = read_descriptions(response)
    return not told.errors and all(part.leader >= 0 for row in told.results.values() for part in row.partitions)


def have_partitions(response: MetadataResponse, counts: Mapping[str, int]) -> bool:
    """Return whether each topic has its partitions, all with leaders."""
    return have_leaders(response) and all(len(row.partitions) >= counts[row.name or ""] for row in response.topics)


def are_gone(response: MetadataResponse) -> bool:
    """Return whether none of the topics exists."""
    return all(row.error_code == UnknownTopicOrPartition.code for row in response.topics)


def read_listing(response: MetadataResponse) -> dict[str, TopicListing]:
    """Return every visible topic by name, without those being deleted."""
    return {
        row.name: TopicListing(row.name, row.topic_id, len(row.partitions), row.is_internal)
        for row in sorted(response.topics, key=lambda row: row.name or "")
        if row.name is not None and row.error_code != UnknownTopicOrPartition.code
    }


# -- partitions: offsets and records


@dataclass(frozen=True, slots=True)
class ToLeaders:
    """The leader of each partition, by fresh metadata of one broker."""

    doing: str

    def find(self, items: Sequence[TopicPartition], call: Call) -> BrokersFound[TopicPartition]:
        # Asked in each round, not read from the client's metadata: that has only topics which the client itself uses,
        # and may be minutes old.
        response = call.wait(call.client.send(metadata_request(dict.fromkeys(tp.topic for tp in items))))
        brokers = read_brokers(response)
        known = read_descriptions(response).results
        faults = {row.name: row.error_code for row in response.topics if row.error_code}
        found: BrokersFound[TopicPartition] = BrokersFound()
        for tp in items:
            fault = item_error(faults.get(tp.topic, 0), f"{self.doing} {tp}", None, "DESCRIBE on the topic")
            partitions = known[tp.topic].partitions if tp.topic in known else ()
            if fault is not None:
                where = found.later if fault.retriable and not isinstance(fault, AT_ONCE) else found.refused
                where[tp] = fault
            elif not 0 <= tp.partition < len(partitions):
                remedy = f"The topic has {len(partitions)} partitions, numbered from 0."
                found.refused[tp] = UnknownTopicOrPartition(f"{self.doing} {tp}", remedy)
            elif (leader := partitions[tp.partition].leader) in brokers:
                found.targets[tp] = brokers[leader]
            else:
                found.later[tp] = NoLeader(f"{self.doing} {tp}: the partition has no leader at the moment.")
        return found


def offsets_request(timestamps: Mapping[TopicPartition, int], isolation_level: str) -> wire_offsets.ListOffsetsRequest:
    """Return a request for one leader's partitions. Raises BadInput for an unknown level."""
    if isolation_level not in _ISOLATION:
        raise BadInput(f'isolation_level = {isolation_level!r}: write "read_uncommitted" or "read_committed".')
    return list_offsets_request(timestamps, read_committed=isolation_level == "read_committed")


def read_listed(response: wire_offsets.ListOffsetsResponse) -> Answers[TopicPartition, ListedOffset]:
    """Return each partition's offset, -1 where no record is so late."""
    answers: Answers[TopicPartition, ListedOffset] = Answers()
    for tp, row in partition_rows(response.topics):
        fault = item_error(row.error_code, f"Looking for offsets of {tp}", None, "DESCRIBE on the topic")
        answers.put(tp, ListedOffset(row.offset, row.timestamp, row.leader_epoch, None), fault)
    return answers


def records_request(before: Mapping[TopicPartition, int], timeout_ms: int) -> wire.DeleteRecordsRequest:
    """Return a request to delete the records below each offset; -1: all."""
    return wire.DeleteRecordsRequest(
        topics=by_topic(
            before,
            lambda number, offset: wire.DeleteRecordsPartition(partition_index=number, offset=offset),
            lambda topic, rows: wire.DeleteRecordsTopic(name=topic, partitions=rows),
        ),
        timeout_ms=timeout_ms,
    )


def read_records_deleted(response: wire.DeleteRecordsResponse) -> Answers[TopicPartition, int]:
    """Return the first offset that each partition still has."""
    answers: Answers[TopicPartition, int] = Answers()
    for tp, row in partition_rows(response.topics):
        fault = item_error(row.error_code, f"Deleting records of {tp}", None, "DELETE on the topic")
        answers.put(tp, row.low_watermark, fault)
    return answers
