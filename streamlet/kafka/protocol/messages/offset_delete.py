"""OffsetDelete: forget a group's offsets of some partitions; to its coordinator. Version 0 (broker 2.4)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, STRING, Array, message, wire


@message
class OffsetDeleteResponsePartition:
    """One partition: 0, or why its offset is kept."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class OffsetDeleteResponseTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire(Array(OffsetDeleteResponsePartition))


@message
class OffsetDeleteResponse:
    """``error_code`` speaks of the group as a whole."""

    error_code: int = wire(INT16)
    throttle_time_ms: int = wire(INT32)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(Array(OffsetDeleteResponseTopic))


@message
class OffsetDeleteRequestPartition:
    """A partition by its number."""

    partition_index: int = wire(INT32)


@message
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire(Array(OffsetDeleteRequestPartition))


@message
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    """Refused for a topic that the group's members are subscribed to."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_DELETE
    versions: ClassVar[tuple[int, ...]] = (0,)
    flexible_since: ClassVar[int] = 1 << 15
    response_type: ClassVar[type[OffsetDeleteResponse]] = OffsetDeleteResponse

    group_id: str = wire(STRING)
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire(Array(OffsetDeleteRequestTopic))

    def least_broker(self) -> str:
        """The API is as old as that."""
        return "2.4"
