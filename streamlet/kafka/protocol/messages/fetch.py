"""Fetch, ListOffsets and OffsetForLeaderEpoch: the requests to a partition's leader that read."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Array,
    message,
    wire,
)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
_NAMED_UNTIL = 12


@message
class AbortedTransaction:
    """An aborted transaction in the records that follow, and where its first record lies."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@message
class EpochEndOffset:
    """The largest epoch both logs share, and where it ends: beyond it the reader's log was truncated."""

    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@message
class LeaderIdAndEpoch:
    """The leader the broker knows of; -1 when it has nothing to say."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@message
class SnapshotId:
    """Only brokers use it."""

    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@message
class FetchPartitionResponse:
    """One partition's records, as a view into the frame; cut anywhere in the last batch."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, default=-1, since=4, ignorable=True)
    log_start_offset: int = wire(INT64, default=-1, since=5, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, default=EpochEndOffset(), since=12, tag=0, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(
        LeaderIdAndEpoch, default=LeaderIdAndEpoch(), since=12, tag=1, ignorable=True
    )
    snapshot_id: SnapshotId = wire(SnapshotId, default=SnapshotId(), since=12, tag=2, ignorable=True)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(
        Array(AbortedTransaction), default=None, since=4, nullable_since=4, ignorable=True
    )
    preferred_read_replica: int = wire(INT32, default=-1, since=11, ignorable=True)
    records: memoryview | None = wire(RECORDS, nullable_since=0)


@message
class FetchTopicResponse:
    """One topic, by name up to version 12 and by id after it."""

    topic: str = wire(STRING, default="", until=_NAMED_UNTIL, ignorable=True)
    topic_id: str | None = wire(UUID, default=None, since=13, ignorable=True)
    partitions: tuple[FetchPartitionResponse, ...] = wire(Array(FetchPartitionResponse))


@message
class FetchResponse:
    """``error_code`` speaks of the fetch session as a whole."""

    throttle_time_ms: int = wire(INT32, default=0, since=1, ignorable=True)
    error_code: int = wire(INT16, default=0, since=7, ignorable=True)
    session_id: int = wire(INT32, default=0, since=7)
    topics: tuple[FetchTopicResponse, ...] = wire(Array(FetchTopicResponse))


@message
class FetchPartition:
    """Where to read on in one partition, and at most how much of it (the first batch always comes whole)."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, default=-1, since=9, ignorable=True)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, default=-1, since=12, ignorable=True)
    log_start_offset: int = wire(INT64, default=-1, since=5, ignorable=True)
    partition_max_bytes: int = wire(INT32)


@message
class FetchTopic:
    """The partitions of one topic; ``topic_id`` None keeps the request at version 12."""

    topic: str = wire(STRING, until=_NAMED_UNTIL, default="", ignorable=True)
    topic_id: str | None = wire(UUID, default=None, since=13, ignorable=True)
    partitions: tuple[FetchPartition, ...] = wire(Array(FetchPartition))


@message
class ForgottenTopic:
    """Partitions to drop from a fetch session."""

    topic: str = wire(STRING, until=_NAMED_UNTIL, default="", ignorable=True)
    topic_id: str | None = wire(UUID, default=None, since=13, ignorable=True)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message
class FetchRequest(Request[FetchResponse]):
    """To a leader.

    Wait up to ``max_wait_ms`` for ``min_bytes``. The default session (0, -1) is none at all.
    """

    api_key: ClassVar[ApiKey] = ApiKey.FETCH
    versions: ClassVar[tuple[int, ...]] = (10, 12, 13)
    flexible_since: ClassVar[int] = 12
    response_type: ClassVar[type[FetchResponse]] = FetchResponse

    cluster_id: str | None = wire(STRING, default=None, since=12, nullable_since=12, tag=0, ignorable=True)
    replica_id: int = wire(INT32, default=-1)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, default=50 * 1024 * 1024, since=3)
    isolation_level: int = wire(INT8, default=READ_UNCOMMITTED, since=4)
    session_id: int = wire(INT32, default=0, since=7)
    session_epoch: int = wire(INT32, default=-1, since=7)
    topics: tuple[FetchTopic, ...] = wire(Array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(Array(ForgottenTopic), default=(), since=7)
    rack_id: str = wire(STRING, default="", since=11, ignorable=True)

    def usable_versions(self) -> tuple[int, ...]:
        """Without the id of every topic, topics can only be named, which version 13 no longer does."""
        ids = [topic.topic_id for topic in self.topics]
        ids += [topic.topic_id for topic in self.forgotten_topics_data]
        if None not in ids:
            return self.versions
        return tuple(version for version in self.versions if version <= _NAMED_UNTIL)


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
