"""OffsetForLeaderEpoch: where an epoch of a partition's log ends (KIP-320). Version 2 (broker 2.1)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, INT64, STRING, Array, message, wire


@message
class EpochEndOffsetPartition:
    """``end_offset`` -1: the broker knows nothing of such an epoch."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1, since=1, ignorable=True)
    end_offset: int = wire(INT64)


@message
class EpochEndOffsetTopic:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: tuple[EpochEndOffsetPartition, ...] = wire(Array(EpochEndOffsetPartition))


@message
class OffsetForLeaderEpochResponse:
    """One end offset for each partition asked for."""

    throttle_time_ms: int = wire(INT32, default=0, since=2, ignorable=True)
    topics: tuple[EpochEndOffsetTopic, ...] = wire(Array(EpochEndOffsetTopic))


@message
class OffsetForLeaderPartition:
    """``leader_epoch`` is of the last record read, ``current_leader_epoch`` of our metadata."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, default=-1, since=2, ignorable=True)
    leader_epoch: int = wire(INT32)


@message
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(Array(OffsetForLeaderPartition))


@message
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """To the leader."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_FOR_LEADER_EPOCH
    versions: ClassVar[tuple[int, ...]] = (2,)
    flexible_since: ClassVar[int] = 4
    response_type: ClassVar[type[OffsetForLeaderEpochResponse]] = OffsetForLeaderEpochResponse

    topics: tuple[OffsetForLeaderTopic, ...] = wire(Array(OffsetForLeaderTopic))
