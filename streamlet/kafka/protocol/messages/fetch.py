"""Fetch: records. Version 10 (broker 2.1, the first with zstd), 12 (divergence), 13 (topic ids, from 3.1)."""

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
