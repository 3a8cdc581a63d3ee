"""Fetch, ListOffsets and OffsetForLeaderEpoch: the requests to a partition's leader that read."""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    ApiKey,
    Array,
    Request,
    message,
    request,
    wire,
)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
_NAMED_UNTIL = 12


@message
class AbortedTransaction:
    """An aborted transaction among the records, and its first offset."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@message
class EpochEndOffset:
    """The largest epoch that both logs share; after its end ours was truncated."""

    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@message
class LeaderIdAndEpoch:
    """The leader that the broker knows, -1 for none (KIP-951)."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@message
class SnapshotId:
    """A snapshot of KRaft's log: for brokers only."""

    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@message
class FetchPartitionResponse:
    """One partition's records, a view into the frame; the last batch may be cut."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, default=-1)
    log_start_offset: int = wire(INT64, default=-1)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, default=EpochEndOffset(), since=12, tag=0, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(
        LeaderIdAndEpoch, default=LeaderIdAndEpoch(), since=12, tag=1, ignorable=True
    )
    snapshot_id: SnapshotId = wire(SnapshotId, default=SnapshotId(), since=12, tag=2, ignorable=True)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(
        Array(AbortedTransaction), default=None, nullable_since=0
    )
    preferred_read_replica: int = wire(INT32, default=-1, since=11, ignorable=True)
    records: memoryview | None = wire(RECORDS, nullable_since=0)


@message
class FetchTopicResponse:
    """One topic, by name up to version 12, by id after it."""

    topic: str = wire(STRING, default="", until=_NAMED_UNTIL, ignorable=True)
    topic_id: str | None = wire(UUID, default=None, since=13, ignorable=True)
    partitions: tuple[FetchPartitionResponse, ...] = wire(Array(FetchPartitionResponse))


@message
class FetchResponse:
    """``error_code`` is that of the fetch session as a whole."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    session_id: int = wire(INT32, default=0)
    topics: tuple[FetchTopicResponse, ...] = wire(Array(FetchTopicResponse))


@message
class FetchPartition:
    """One partition, its next offset, and its limit.

    The first batch of an answer comes whole, even if it is larger than the limit.
    """

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, default=-1)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, default=-1, since=12, ignorable=True)
    log_start_offset: int = wire(INT64, default=-1)
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


@request(ApiKey.FETCH, versions=(10, 12, 13), flexible_since=12)
class FetchRequest(Request[FetchResponse]):
    """To a leader, which waits up to ``max_wait_ms`` for ``min_bytes``.

    The default session (0, -1) is none at all.
    """

    cluster_id: str | None = wire(STRING, default=None, since=12, nullable_since=12, tag=0, ignorable=True)
    replica_id: int = wire(INT32, default=-1)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, default=50 * 1024 * 1024)
    isolation_level: int = wire(INT8, default=READ_UNCOMMITTED)
    session_id: int = wire(INT32, default=0)
    session_epoch: int = wire(INT32, default=-1)
    topics: tuple[FetchTopic, ...] = wire(Array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(Array(ForgottenTopic), default=())
    rack_id: str = wire(STRING, default="", since=11, ignorable=True)

    def usable_versions(self) -> tuple[int, ...]:
        """Return all versions, without every topic's id those that name topics."""
        ids = [topic.topic_id for topic in self.topics]
        ids += [topic.topic_id for topic in self.forgotten_topics_data]
        if None not in ids:
            return self.versions
        return tuple(version for version in self.versions if version <= _NAMED_UNTIL)


LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
_NEEDS_VERSION = {MAX_TIMESTAMP: (7, "3.0"), EARLIEST_LOCAL_TIMESTAMP: (9, "3.9"), LATEST_TIERED_TIMESTAMP: (9, "3.9")}
"""The places that an older broker would take for a time: first version that has each, and first broker."""


@message
class ListOffsetsPartitionResponse:
    """``offset`` -1: no record is so late."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, default=-1)
    offset: int = wire(INT64, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@message
class ListOffsetsTopicResponse:
    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(Array(ListOffsetsPartitionResponse))


@message
class ListOffsetsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(Array(ListOffsetsTopicResponse))


@message
class ListOffsetsPartition:
    """``timestamp`` in ms since 1970, or one of the negative numbers above."""

    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, default=-1)
    timestamp: int = wire(INT64)


@message
class ListOffsetsTopic:
    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartition, ...] = wire(Array(ListOffsetsPartition))


def least_version(timestamp: int) -> tuple[int, str]:
    """Return the first version with this place, and its broker's release."""
    return _NEEDS_VERSION.get(timestamp, (4, "2.1"))


@request(ApiKey.LIST_OFFSETS, versions=(4, 7, 9), flexible_since=6)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """To the leader. With ``isolation_level`` 1 the latest offset is the last stable one."""

    replica_id: int = wire(INT32, default=-1)
    isolation_level: int = wire(INT8, default=0)
    topics: tuple[ListOffsetsTopic, ...] = wire(Array(ListOffsetsTopic))

    def usable_versions(self) -> tuple[int, ...]:
        """Return the versions that know all the places asked for."""
        return tuple(version for version in self.versions if version >= self._least()[0])

    def least_broker(self) -> str:
        return self._least()[1]

    def _least(self) -> tuple[int, str]:
        return max(
            (least_version(row.timestamp) for topic in self.topics for row in topic.partitions), default=(4, "2.1")
        )


@message
class EpochEndOffsetPartition:
    """``end_offset`` -1: the broker does not know the epoch."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64)


@message
class EpochEndOffsetTopic:
    topic: str = wire(STRING)
    partitions: tuple[EpochEndOffsetPartition, ...] = wire(Array(EpochEndOffsetPartition))


@message
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[EpochEndOffsetTopic, ...] = wire(Array(EpochEndOffsetTopic))


@message
class OffsetForLeaderPartition:
    """``leader_epoch`` of the last record read, ``current_leader_epoch`` of the metadata."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32)


@message
class OffsetForLeaderTopic:
    topic: str = wire(STRING)
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(Array(OffsetForLeaderPartition))


@request(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2,), flexible_since=4)
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """To the leader."""

    topics: tuple[OffsetForLeaderTopic, ...] = wire(Array(OffsetForLeaderTopic))
