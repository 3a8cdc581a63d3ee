"""TxnOffsetCommit: a group's offsets as part of a transaction. Version 2 (broker 2.1), 3 (the member, KIP-447, 2.5)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, INT64, STRING, Array, message, wire


@message
class TxnOffsetCommitResponsePartition:
    """0, or why this partition's offset was not stored."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class TxnOffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire(Array(TxnOffsetCommitResponsePartition))


@message
class TxnOffsetCommitResponse:
    """One code for each partition."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire(Array(TxnOffsetCommitResponseTopic))


@message
class TxnOffsetCommitRequestPartition:
    """``committed_offset`` is the *next* offset to read."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, default=-1, since=2, ignorable=True)
    committed_metadata: str | None = wire(STRING, default="", nullable_since=0)


@message
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire(Array(TxnOffsetCommitRequestPartition))


@message
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """To the *group's* coordinator. Generation and member fence a consumer that no longer owns the partitions.

    A broker before 2.5 cannot check them, and is not told them.
    """

    api_key: ClassVar[ApiKey] = ApiKey.TXN_OFFSET_COMMIT
    versions: ClassVar[tuple[int, ...]] = (2, 3)
    flexible_since: ClassVar[int] = 3
    response_type: ClassVar[type[TxnOffsetCommitResponse]] = TxnOffsetCommitResponse

    transactional_id: str = wire(STRING)
    group_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1, since=3, ignorable=True)
    member_id: str = wire(STRING, default="", since=3, ignorable=True)
    group_instance_id: str | None = wire(STRING, default=None, since=3, nullable_since=3, ignorable=True)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire(Array(TxnOffsetCommitRequestTopic))
