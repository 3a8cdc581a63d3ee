"""ListOffsets: where a log begins and ends, or which offset a time has. Version 4 (broker 2.1)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT8, INT16, INT32, INT64, STRING, Array, message, wire

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2


@message
class ListOffsetsPartitionResponse:
    """``offset`` -1: no record is as late as the timestamp."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, default=-1)
    offset: int = wire(INT64, default=-1)
    leader_epoch: int = wire(INT32, default=-1, since=4, ignorable=True)


@message
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(Array(ListOffsetsPartitionResponse))


@message
class ListOffsetsResponse:
    """One offset for each partition asked for."""

    throttle_time_ms: int = wire(INT32, default=0, since=2, ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(Array(ListOffsetsTopicResponse))


@message
class ListOffsetsPartition:
    """``timestamp`` in ms since 1970, or EARLIEST_TIMESTAMP / LATEST_TIMESTAMP."""

    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, default=-1, since=4, ignorable=True)
    timestamp: int = wire(INT64)


@message
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartition, ...] = wire(Array(ListOffsetsPartition))


@message
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """To the leader. With ``isolation_level`` 1 the latest offset is the last stable one."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS
    versions: ClassVar[tuple[int, ...]] = (4,)
    flexible_since: ClassVar[int] = 6
    response_type: ClassVar[type[ListOffsetsResponse]] = ListOffsetsResponse

    replica_id: int = wire(INT32, default=-1)
    isolation_level: int = wire(INT8, default=0, since=2)
    topics: tuple[ListOffsetsTopic, ...] = wire(Array(ListOffsetsTopic))
