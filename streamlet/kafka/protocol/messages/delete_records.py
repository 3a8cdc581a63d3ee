"""DeleteRecords: drop what lies below an offset; to the partitions' leader. Version 1 (broker 2.0)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, INT64, STRING, Array, message, wire

HIGH_WATERMARK = -1


@message
class DeleteRecordsPartitionResult:
    """``low_watermark`` is the first offset that is left; -1 with an error."""

    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


@message
class DeleteRecordsTopicResult:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(Array(DeleteRecordsPartitionResult))


@message
class DeleteRecordsResponse:
    """One row for each partition."""

    throttle_time_ms: int = wire(INT32)
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(Array(DeleteRecordsTopicResult))


@message
class DeleteRecordsPartition:
    """``offset`` is the first to keep; HIGH_WATERMARK for none."""

    partition_index: int = wire(INT32)
    offset: int = wire(INT64)


@message
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartition, ...] = wire(Array(DeleteRecordsPartition))


@message
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    """The leader answers when all replicas have done it, or ``timeout_ms`` is over."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_RECORDS
    versions: ClassVar[tuple[int, ...]] = (1,)
    flexible_since: ClassVar[int] = 2
    response_type: ClassVar[type[DeleteRecordsResponse]] = DeleteRecordsResponse

    topics: tuple[DeleteRecordsTopic, ...] = wire(Array(DeleteRecordsTopic))
    timeout_ms: int = wire(INT32)
