"""Topics: requests as they go out, answers as they are read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from streamlet.base.errors import BadInput
from streamlet.kafka.admin.errors import Answers, item_error
from streamlet.kafka.admin.model import (
    BROKER_DEFAULT,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicDescription,
    TopicListing,
)
from streamlet.kafka.arguments import check_name, mapping, one_or_several
from streamlet.kafka.broker_errors import error_class
from streamlet.kafka.metadata.cluster import PartitionInfo
from streamlet.kafka.protocol.messages import topics as wire
from streamlet.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)


def new_by_name(given: NewTopic | Iterable[NewTopic]) -> dict[str, NewTopic]:
    """Return topics to create by name. Raises BadInput for a name given twice."""
    example = "[NewTopic('lines', num_partitions, replication_factor), ...]"
    found: dict[str, NewTopic] = {}
    for row in one_or_several(given, NewTopic, example):
        if row.name in found:
            raise BadInput(f"Topic {row.name!r} is to be made twice: leave one of the two NewTopic out.")
        found[row.name] = row
    return found


def totals_by_name(given: Mapping[str, int | NewPartitions]) -> dict[str, NewPartitions]:
    """Return each topic's number of partitions to be. Raises BadInput."""
    for name in mapping(given, "'lines'", "6"):
        check_name(name)
    return {name: row if isinstance(row, NewPartitions) else NewPartitions(row) for name, row in given.items()}


def create_request(topics: Iterable[NewTopic], timeout_ms: int, validate_only: bool) -> wire.CreateTopicsRequest:
    """All of these in one request."""
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
    """What each topic became; ``brokers``: how many there are."""
    answers: Answers[str, CreatedTopic] = Answers()
    for row in response.topics:
        fault = item_error(
            row.error_code,
            f"Creating topic {row.name!r}",
            row.error_message,
            "CREATE on the topic or on the cluster",
            brokers,
        )
        if fault is not None:
            answers.errors[row.name] = fault
            continue
        answers.results[row.name] = CreatedTopic(
            row.name,
            row.topic_id,
            None if row.num_partitions == BROKER_DEFAULT else row.num_partitions,
            None if row.replication_factor == BROKER_DEFAULT else row.replication_factor,
            {config.name: config.value for config in row.configs or ()},
        )
    return answers


def delete_request(names: Iterable[str], timeout_ms: int) -> wire.DeleteTopicsRequest:
    """All of these in one request."""
    return wire.DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=timeout_ms)


def read_deleted(response: wire.DeleteTopicsResponse) -> Answers[str, None]:
    """Which are gone."""
    return _read_names(
        ((row.name, row.error_code, row.error_message) for row in response.responses),
        lambda name: f"Deleting topic {name!r}",
        "DELETE on the topic",
    )


def partitions_request(
    wanted: Mapping[str, NewPartitions], timeout_ms: int, validate_only: bool
) -> wire.CreatePartitionsRequest:
    """All of these in one request."""
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
    """Which have grown."""
    return _read_names(
        ((row.name, row.error_code, row.error_message) for row in response.results),
        lambda name: f"Adding partitions to topic {name!r}",
        "ALTER on the topic",
    )


def metadata_request(names: Iterable[str] | None) -> MetadataRequest:
    """What is known of these topics, of all (None), or of the brokers alone (nothing); none is made by asking."""
    topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)
    return MetadataRequest(topics=topics)


def read_descriptions(response: MetadataResponse) -> Answers[str, TopicDescription]:
    """Each topic with its partitions."""
    answers: Answers[str, TopicDescription] = Answers()
    for row in response.topics:
        name = row.name or ""
        fault = item_error(row.error_code, f"Describing topic {name!r}", None, "DESCRIBE on the topic")
        if fault is not None:
            answers.errors[name] = fault
        else:
            answers.results[name] = TopicDescription(name, row.topic_id, row.is_internal, _partitions(name, row))
    return answers


def read_listing(response: MetadataResponse) -> dict[str, TopicListing]:
    """Every topic that the caller may see, by name; one that is being deleted is left out."""
    return {
        row.name: TopicListing(row.name, row.topic_id, len(row.partitions), row.is_internal)
        for row in sorted(response.topics, key=lambda row: row.name or "")
        if row.name is not None and row.error_code != 3
    }


def _partitions(name: str, row: MetadataTopic) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(
            name,
            part.partition_index,
            part.leader_id,
            part.leader_epoch,
            part.replica_nodes,
            part.isr_nodes,
            part.offline_replicas,
            error_class(part.error_code),
        )
        for part in sorted(row.partitions, key=lambda part: part.partition_index)
    )


def _read_names(
    rows: Iterable[tuple[str, int, str | None]], doing: Callable[[str], str], needs: str
) -> Answers[str, None]:
    answers: Answers[str, None] = Answers()
    for name, code, said in rows:
        fault = item_error(code, doing(name), said, needs)
        if fault is None:
            answers.results[name] = None
        else:
            answers.errors[name] = fault
    return answers
