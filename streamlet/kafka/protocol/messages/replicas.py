"""ElectLeaders, the two requests of reassignments, and DescribeLogDirs: the copies of partitions."""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    ApiKey,
    Array,
    Request,
    message,
    request,
    wire,
)


@message
class ElectionPartitionResult:
    """One partition's outcome: 0 when it has a new leader."""

    partition_id: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)


@message
class ReplicaElectionResult:
    topic: str = wire(STRING)
    partition_result: tuple[ElectionPartitionResult, ...] = wire(Array(ElectionPartitionResult))


@message
class ElectLeadersResponse:
    """Asked for all partitions, a broker names only those with new leaders."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    replica_election_results: tuple[ReplicaElectionResult, ...] = wire(Array(ReplicaElectionResult), default=())


@message
class ElectionTopicPartitions:
    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(Array(INT32))


@request(ApiKey.ELECT_LEADERS, versions=(1,), flexible_since=2)
class ElectLeadersRequest(Request[ElectLeadersResponse]):
    """To the controller.

    ``election_type``: 0 the preferred replica, 1 any living one; ``topic_partitions`` None: all.
    """

    election_type: int = wire(INT8)
    topic_partitions: tuple[ElectionTopicPartitions, ...] | None = wire(
        Array(ElectionTopicPartitions), nullable_since=0
    )
    timeout_ms: int = wire(INT32)

    def least_broker(self) -> str:
        return "2.4"


@message
class ReassignablePartitionResponse:
    """One partition's outcome: 0 when its reassignment has begun, or was cancelled."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)


@message
class ReassignableTopicResponse:
    name: str = wire(STRING)
    partitions: tuple[ReassignablePartitionResponse, ...] = wire(Array(ReassignablePartitionResponse))


@message
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    responses: tuple[ReassignableTopicResponse, ...] = wire(Array(ReassignableTopicResponse), default=())


@message
class ReassignablePartition:
    """The brokers that should have it, the preferred leader first; None cancels."""

    partition_index: int = wire(INT32)
    replicas: tuple[int, ...] | None = wire(Array(INT32), nullable_since=0)


@message
class ReassignableTopic:
    name: str = wire(STRING)
    partitions: tuple[ReassignablePartition, ...] = wire(Array(ReassignablePartition))


@request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0,), flexible_since=0)
class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    """To the controller, which answers when the copying has begun."""

    timeout_ms: int = wire(INT32)
    topics: tuple[ReassignableTopic, ...] = wire(Array(ReassignableTopic))

    def least_broker(self) -> str:
        return "2.4"


@message
class OngoingPartitionReassignment:
    """One partition on its way: all replicas, those that come and those that go."""

    partition_index: int = wire(INT32)
    replicas: tuple[int, ...] = wire(Array(INT32))
    adding_replicas: tuple[int, ...] = wire(Array(INT32))
    removing_replicas: tuple[int, ...] = wire(Array(INT32))


@message
class OngoingTopicReassignment:
    name: str = wire(STRING)
    partitions: tuple[OngoingPartitionReassignment, ...] = wire(Array(OngoingPartitionReassignment))


@message
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    topics: tuple[OngoingTopicReassignment, ...] = wire(Array(OngoingTopicReassignment), default=())


@message
class ListPartitionReassignmentsTopics:
    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(Array(INT32))


@request(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0,), flexible_since=0)
class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    """To the controller; ``topics`` None asks for all."""

    timeout_ms: int = wire(INT32)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire(
        Array(ListPartitionReassignmentsTopics), nullable_since=0
    )

    def least_broker(self) -> str:
        return "2.4"


@message
class DescribeLogDirsPartition:
    """One copy; ``is_future_key``: it is being moved here from another directory of the broker."""

    partition_index: int = wire(INT32)
    partition_size: int = wire(INT64)
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOL)


@message
class DescribeLogDirsTopic:
    name: str = wire(STRING)
    partitions: tuple[DescribeLogDirsPartition, ...] = wire(Array(DescribeLogDirsPartition))


@message
class DescribeLogDirsResult:
    """One directory; error 56 when its disk has failed. Bytes are -1 where nobody knows."""

    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    topics: tuple[DescribeLogDirsTopic, ...] = wire(Array(DescribeLogDirsTopic), default=())
    total_bytes: int = wire(INT64, default=-1, since=4, ignorable=True)
    usable_bytes: int = wire(INT64, default=-1, since=4, ignorable=True)


@message
class DescribeLogDirsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0, since=3, ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = wire(Array(DescribeLogDirsResult), default=())


@message
class DescribableLogDirTopic:
    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(Array(INT32))


@request(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 4), flexible_since=2)
class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    """To the broker whose directories they are; ``topics`` None asks for all."""

    topics: tuple[DescribableLogDirTopic, ...] | None = wire(Array(DescribableLogDirTopic), nullable_since=0)
