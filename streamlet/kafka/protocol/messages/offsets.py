"""OffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of a group."""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    NEVER,
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


@request(ApiKey.OFFSET_COMMIT, versions=(6, 7, 9), flexible_since=8)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """To the group's coordinator. Generation -1 without a member: an outsider's commit.

    ``by_epoch``, which is not written: the generation is a member epoch (KIP-848), which needs version 9.
    """

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32, default=-1)
    member_id: str = wire(STRING, default="")
    group_instance_id: str | None = wire(STRING, default=None, since=7, nullable_since=7)
    topics: tuple[OffsetCommitTopic, ...] = wire(Array(OffsetCommitTopic))
    by_epoch: bool = wire(BOOL, default=False, since=NEVER, ignorable=True)

    def usable_versions(self) -> tuple[int, ...]:
        """Return 9 for a member epoch, else those before."""
        return (9,) if self.by_epoch else (6, 7)


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
class OffsetFetchGroupResponse:
    group_id: str = wire(STRING)
    topics: tuple[OffsetFetchTopicResponse, ...] = wire(Array(OffsetFetchTopicResponse))
    error_code: int = wire(INT16)


@message
class OffsetFetchResponse:
    """``error_code`` is that of the group as a whole; in version 9 both stand in a row of the group."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[OffsetFetchTopicResponse, ...] = wire(Array(OffsetFetchTopicResponse), default=(), until=7)
    error_code: int = wire(INT16, default=0, until=7)
    groups: tuple[OffsetFetchGroupResponse, ...] = wire(Array(OffsetFetchGroupResponse), default=(), since=8)


@message
class OffsetFetchTopic:
    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(Array(INT32))


@message
class OffsetFetchGroup:
    """One group, and the member that asks: its epoch is checked (KIP-848)."""

    group_id: str = wire(STRING)
    member_id: str | None = wire(STRING, default=None, nullable_since=9)
    member_epoch: int = wire(INT32, default=-1)
    topics: tuple[OffsetFetchTopic, ...] | None = wire(Array(OffsetFetchTopic), nullable_since=0)


@request(ApiKey.OFFSET_FETCH, versions=(5, 7, 9), flexible_since=6)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """To the group's coordinator; ``topics`` None asks for everything the group has stored.

    With ``require_stable``, offsets that an open transaction is about to change give UNSTABLE_OFFSET_COMMIT (KIP-447);
    brokers before 2.5 do not know the field. ``groups``, with one row, for a member of the newer protocol alone.
    """

    group_id: str = wire(STRING, default="", until=7)
    topics: tuple[OffsetFetchTopic, ...] | None = wire(Array(OffsetFetchTopic), default=(), nullable_since=0, until=7)
    groups: tuple[OffsetFetchGroup, ...] = wire(Array(OffsetFetchGroup), default=(), since=8)
    require_stable: bool = wire(BOOL, default=False, since=7, ignorable=True)

    def usable_versions(self) -> tuple[int, ...]:
        """Return 9 for a member of the newer protocol, else those before."""
        return (9,) if self.groups else (5, 7)


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
