"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    ApiKey,
    Array,
    Request,
    message,
    request,
    wire,
)

BROKER_DEFAULT = -1
"""Number of partitions or replicas that the broker chooses, from version 4 on, or that an assignment gives."""


@message
class CreatableTopicConfigs:
    """One setting of the new topic."""

    name: str = wire(STRING, default="")
    value: str | None = wire(STRING, nullable_since=0, default=None)
    read_only: bool = wire(BOOL, default=False)
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOL, default=False)


@message
class CreatableTopicResult:
    """One topic as it was created, or an error.

    ``configs`` is None where the caller may not read them.
    """

    name: str = wire(STRING)
    topic_id: str | None = wire(UUID, since=7, default=None, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    num_partitions: int = wire(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = wire(INT16, since=5, default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        Array(CreatableTopicConfigs), since=5, default=None, nullable_since=5, ignorable=True
    )
    topic_config_error_code: int = wire(INT16, since=5, default=0, tag=0, ignorable=True)


@message
class CreateTopicsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[CreatableTopicResult, ...] = wire(Array(CreatableTopicResult))


@message
class CreatableReplicaAssignment:
    """The brokers of one partition, its preferred leader first."""

    partition_index: int = wire(INT32)
    broker_ids: tuple[int, ...] = wire(Array(INT32))


@message
class CreatableTopicConfig:
    """One setting to give to the topic."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)


@message
class CreatableTopic:
    """One topic to create; with ``assignments`` both numbers are BROKER_DEFAULT."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(Array(CreatableReplicaAssignment))
    configs: tuple[CreatableTopicConfig, ...] = wire(Array(CreatableTopicConfig))


@request(ApiKey.CREATE_TOPICS, versions=(3, 7), flexible_since=5)
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """To the controller, which answers when every topic is created.

    Or when ``timeout_ms`` is over.
    """

    topics: tuple[CreatableTopic, ...] = wire(Array(CreatableTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL, default=False)

    def usable_versions(self) -> tuple[int, ...]:
        """Return all versions, or from 4 on (broker 2.4) for defaults."""
        return (7,) if self._wants_defaults() else (3, 7)

    def least_broker(self) -> str:
        """Return 2.8 where defaults are wanted: the first broker with version 7."""
        return "2.8" if self._wants_defaults() else "2.1"

    def _wants_defaults(self) -> bool:
        return any(
            not row.assignments and BROKER_DEFAULT in (row.num_partitions, row.replication_factor)
            for row in self.topics
        )


@message
class DeletableTopicResult:
    """One topic's outcome: 0 when it is deleted."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=5, default=None, nullable_since=5, ignorable=True)


@message
class DeleteTopicsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    responses: tuple[DeletableTopicResult, ...] = wire(Array(DeletableTopicResult))


@request(ApiKey.DELETE_TOPICS, versions=(3, 5), flexible_since=4)
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """To the controller, which answers when every topic is gone.

    Or when ``timeout_ms`` is over.
    """

    topic_names: tuple[str, ...] = wire(Array(STRING), default=())
    timeout_ms: int = wire(INT32)


@message
class CreatePartitionsTopicResult:
    """One topic's outcome: 0 when it has grown."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)


@message
class CreatePartitionsResponse:
    throttle_time_ms: int = wire(INT32)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(Array(CreatePartitionsTopicResult))


@message
class CreatePartitionsAssignment:
    """The brokers of one new partition, its preferred leader first."""

    broker_ids: tuple[int, ...] = wire(Array(INT32))


@message
class CreatePartitionsTopic:
    """``count``: the partitions in the end; ``assignments``: a row for each new one."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(
        Array(CreatePartitionsAssignment), nullable_since=0
    )


@request(ApiKey.CREATE_PARTITIONS, versions=(1,), flexible_since=2)
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """To the controller; a topic can only grow."""

    topics: tuple[CreatePartitionsTopic, ...] = wire(Array(CreatePartitionsTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)


HIGH_WATERMARK = -1


@message
class DeleteRecordsPartitionResult:
    """``low_watermark`` is the first offset left; -1 with an error."""

    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


@message
class DeleteRecordsTopicResult:
    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(Array(DeleteRecordsPartitionResult))


@message
class DeleteRecordsResponse:
    throttle_time_ms: int = wire(INT32)
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(Array(DeleteRecordsTopicResult))


@message
class DeleteRecordsPartition:
    """``offset`` is the first to keep; HIGH_WATERMARK for none."""

    partition_index: int = wire(INT32)
    offset: int = wire(INT64)


@message
class DeleteRecordsTopic:
    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartition, ...] = wire(Array(DeleteRecordsPartition))


@request(ApiKey.DELETE_RECORDS, versions=(1,), flexible_since=2)
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    """To the leader, which answers when all replicas have done it.

    Or when ``timeout_ms`` is over.
    """

    topics: tuple[DeleteRecordsTopic, ...] = wire(Array(DeleteRecordsTopic))
    timeout_ms: int = wire(INT32)
