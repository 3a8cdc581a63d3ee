"""OffsetCommit: store a group's offsets with its coordinator. Version 6 (broker 2.1), 7 (static members)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, INT64, STRING, Array, message, wire


@message
class OffsetCommitPartitionResponse:
    """0, or why this partition's offset was not stored."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class OffsetCommitTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetCommitPartitionResponse, ...] = wire(Array(OffsetCommitPartitionResponse))


@message
class OffsetCommitResponse:
    """One code for each partition committed."""

    throttle_time_ms: int = wire(INT32, default=0, since=3, ignorable=True)
    topics: tuple[OffsetCommitTopicResponse, ...] = wire(Array(OffsetCommitTopicResponse))


@message
class OffsetCommitPartition:
    """``committed_offset`` is the *next* offset to read; its leader epoch lets a truncation be noticed."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, default=-1, since=6, ignorable=True)
    committed_metadata: str | None = wire(STRING, default="", nullable_since=0)


@message
class OffsetCommitTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetCommitPartition, ...] = wire(Array(OffsetCommitPartition))


@message
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """To the group's coordinator. Generation -1 and no member: a commit from outside of the membership."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_COMMIT
    versions: ClassVar[tuple[int, ...]] = (6, 7)
    flexible_since: ClassVar[int] = 8
    response_type: ClassVar[type[OffsetCommitResponse]] = OffsetCommitResponse

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32, default=-1, since=1)
    member_id: str = wire(STRING, default="", since=1)
    group_instance_id: str | None = wire(STRING, default=None, since=7, nullable_since=7)
    topics: tuple[OffsetCommitTopic, ...] = wire(Array(OffsetCommitTopic))
