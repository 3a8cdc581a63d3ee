"""AddPartitionsToTxn: partitions a transaction is about to write to. Version 1 (broker 2.1), 3 (2.7)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, INT64, STRING, Array, message, wire


@message
class AddPartitionsToTxnPartitionResult:
    """0, or why the partition was not added."""

    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16)


@message
class AddPartitionsToTxnTopicResult:
    """The partitions of one topic."""

    name: str = wire(STRING)
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire(Array(AddPartitionsToTxnPartitionResult))


@message
class AddPartitionsToTxnResponse:
    """One code for each partition."""

    throttle_time_ms: int = wire(INT32, default=0)
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire(
        Array(AddPartitionsToTxnTopicResult)
    )


@message
class AddPartitionsToTxnTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """To the transaction's coordinator. (From version 4 on the request belongs to brokers among themselves.)"""

    api_key: ClassVar[ApiKey] = ApiKey.ADD_PARTITIONS_TO_TXN
    versions: ClassVar[tuple[int, ...]] = (1, 3)
    flexible_since: ClassVar[int] = 3
    response_type: ClassVar[type[AddPartitionsToTxnResponse]] = AddPartitionsToTxnResponse

    v3_and_below_transactional_id: str = wire(STRING)
    v3_and_below_producer_id: int = wire(INT64)
    v3_and_below_producer_epoch: int = wire(INT16)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire(Array(AddPartitionsToTxnTopic))
