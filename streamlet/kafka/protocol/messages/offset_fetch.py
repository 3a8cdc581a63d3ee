"""OffsetFetch: read a group's stored offsets from its coordinator. Version 5 (broker 2.1), 7 (open transactions)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Array, message, wire


@message
class OffsetFetchPartitionResponse:
    """``committed_offset`` -1: the group has none stored for this partition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, default=-1, since=5, ignorable=True)
    metadata: str | None = wire(STRING, default=None, nullable_since=0)
    error_code: int = wire(INT16)


@message
class OffsetFetchTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetFetchPartitionResponse, ...] = wire(Array(OffsetFetchPartitionResponse))


@message
class OffsetFetchResponse:
    """``error_code`` speaks of the group as a whole."""

    throttle_time_ms: int = wire(INT32, default=0, since=3, ignorable=True)
    topics: tuple[OffsetFetchTopicResponse, ...] = wire(Array(OffsetFetchTopicResponse))
    error_code: int = wire(INT16, default=0, since=2, ignorable=True)


@message
class OffsetFetchTopic:
    """The partitions wanted of one topic."""

    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(Array(INT32))


@message
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """To the group's coordinator; ``topics`` None asks for everything the group has stored.

    With ``require_stable``, offsets that an open transaction is about to change give UNSTABLE_OFFSET_COMMIT (KIP-447);
    brokers before 2.5 do not know the question.
    """

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_FETCH
    versions: ClassVar[tuple[int, ...]] = (5, 7)
    flexible_since: ClassVar[int] = 6
    response_type: ClassVar[type[OffsetFetchResponse]] = OffsetFetchResponse

    group_id: str = wire(STRING)
    topics: tuple[OffsetFetchTopic, ...] | None = wire(Array(OffsetFetchTopic), nullable_since=2)
    require_stable: bool = wire(BOOL, default=False, since=7, ignorable=True)
