"""CreatePartitions: to the controller. Version 1 (broker 2.0)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import BOOL, INT16, INT32, STRING, Array, message, wire


@message
class CreatePartitionsTopicResult:
    """One topic: 0, or why it has no more partitions than before."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)


@message
class CreatePartitionsResponse:
    """One row for each topic."""

    throttle_time_ms: int = wire(INT32)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(Array(CreatePartitionsTopicResult))


@message
class CreatePartitionsAssignment:
    """Which brokers keep one new partition, its preferred leader first."""

    broker_ids: tuple[int, ...] = wire(Array(INT32))


@message
class CreatePartitionsTopic:
    """``count`` is the number of partitions in the end; ``assignments`` has a row for each new one, or is None."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(
        Array(CreatePartitionsAssignment), nullable_since=0
    )


@message
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """A topic can only grow."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS
    versions: ClassVar[tuple[int, ...]] = (1,)
    flexible_since: ClassVar[int] = 2
    response_type: ClassVar[type[CreatePartitionsResponse]] = CreatePartitionsResponse

    topics: tuple[CreatePartitionsTopic, ...] = wire(Array(CreatePartitionsTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)
