"""OffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of a group."""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    BOOL,
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
class OffsetCommitPartitionResponse:
    """One partition's outcome: 0 when its offset is stored."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class OffsetCommitTopicResponse:
    name: str = wire(STRING)
    partitions: tuple[OffsetCommitPartitionResponse, ...] = wire(Array(OffsetCommitPartitionResponse))


@message
class OffsetCommitResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[OffsetCommitTopicResponse, ...] = wire(Array(OffsetCommitTopicResponse))


@message
class OffsetCommitPartition:
    """``committed_offset`` is the *next* one to read; its epoch shows a truncation."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, default=-1)
    committed_metadata: str | None = wire(STRING, default="", nullable_since=0)


@message
class OffsetCommitTopic:
    name: str = wire(STRING)
    partitions: tuple[OffsetCommitPartition, ...] = wire(Array(OffsetCommitPartition))


@request(ApiKey.OFFSET_COMMIT, versions=(6, 7), flexible_since=8)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """To the group's coordinator. Generation -1 without a member: an outsider's commit."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32, default=-1)
    member_id: str = wire(STRING, default="")
    group_instance_id: str | None = wire(STRING, default=None, since=7, nullable_since=7)
    topics: tuple[OffsetCommitTopic, ...] = wire(Array(OffsetCommitTopic))


@message
class OffsetFetchPartitionResponse:
    """``committed_offset`` -1: the group has stored none."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, default=-1)
    metadata: str | None = wire(STRING, default=None, nullable_since=0)
    error_code: int = wire(INT16)


@message
class OffsetFetchTopicResponse:
    name: str = wire(STRING)
    partitions: tuple[OffsetFetchPartitionResponse, ...] = wire(Array(OffsetFetchPartitionResponse))


@message
class OffsetFetchResponse:
    """``error_code`` is that of the group as a whole."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[OffsetFetchTopicResponse, ...] = wire(Array(OffsetFetchTopicResponse))
    error_code: int = wire(INT16, default=0)


@message
class OffsetFetchTopic:
    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(Array(INT32))


@request(ApiKey.OFFSET_FETCH, versions=(5, 7), flexible_since=6)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """To the group's coordinator; ``topics`` None asks for everything the group has stored.

    With ``require_stable``, offsets that an open transaction is about to change give UNSTABLE_OFFSET_COMMIT (KIP-447);
    brokers before 2.5 do not know the field.
    """

    group_id: str = wire(STRING)
    topics: tuple[OffsetFetchTopic, ...] | None = wire(Array(OffsetFetchTopic), nullable_since=0)
    require_stable: bool = wire(BOOL, default=False, since=7, ignorable=True)


@message
class OffsetDeleteResponsePartition:
    """One partition's outcome: 0 when its offset is deleted."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class OffsetDeleteResponseTopic:
    name: str = wire(STRING)
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire(Array(OffsetDeleteResponsePartition))


@message
class OffsetDeleteResponse:
    """``error_code`` is that of the group as a whole."""

    error_code: int = wire(INT16)
    throttle_time_ms: int = wire(INT32)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(Array(OffsetDeleteResponseTopic))


@message
class OffsetDeleteRequestPartition:
    partition_index: int = wire(INT32)


@message
class OffsetDeleteRequestTopic:
    name: str = wire(STRING)
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire(Array(OffsetDeleteRequestPartition))


@request(ApiKey.OFFSET_DELETE, versions=(0,))
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    """Refused for a topic that the group's members are subscribed to."""

    group_id: str = wire(STRING)
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire(Array(OffsetDeleteRequestTopic))

    def least_broker(self) -> str:
        return "2.4"
