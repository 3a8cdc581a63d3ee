"""Produce: records to a leader.

Versions 7 (broker 2.1, the first with zstd), 8 (reasons), 10 (leader hints, 3.7), 12 (transactions of version 2, 4.0).
"""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    NEVER,
    RECORDS,
    STRING,
    ApiKey,
    Array,
    Request,
    message,
    request,
    wire,
)


@message
class BatchIndexAndErrorMessage:
    """A refused record: its place in the batch, and the reason."""

    batch_index: int = wire(INT32)
    batch_index_error_message: str | None = wire(STRING, default=None, nullable_since=0)


@message
class ProduceLeaderIdAndEpoch:
    """The leader that the broker knows, -1 for none (KIP-951)."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@message
class ProducePartitionResponse:
    """One batch's outcome: 0, and the offset of its first record."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    log_append_time_ms: int = wire(INT64, default=-1)
    log_start_offset: int = wire(INT64, default=-1)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire(
        Array(BatchIndexAndErrorMessage), default=(), since=8, ignorable=True
    )
    error_message: str | None = wire(STRING, default=None, since=8, nullable_since=8, ignorable=True)
    current_leader: ProduceLeaderIdAndEpoch = wire(
        ProduceLeaderIdAndEpoch, default=ProduceLeaderIdAndEpoch(), since=10, tag=0, ignorable=True
    )


@message
class ProduceTopicResponse:
    name: str = wire(STRING)
    partition_responses: tuple[ProducePartitionResponse, ...] = wire(Array(ProducePartitionResponse))


@message
class ProduceNodeEndpoint:
    """The address of a leader named in ``current_leader``."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, default=None, nullable_since=0)


@message
class ProduceResponse:
    responses: tuple[ProduceTopicResponse, ...] = wire(Array(ProduceTopicResponse))
    throttle_time_ms: int = wire(INT32, default=0)
    node_endpoints: tuple[ProduceNodeEndpoint, ...] = wire(
        Array(ProduceNodeEndpoint), default=(), since=10, tag=0, ignorable=True
    )


@message
class ProducePartition:
    """Exactly one record batch for one partition."""

    index: int = wire(INT32)
    records: bytes | None = wire(RECORDS, nullable_since=0)


@message
class ProduceTopic:
    name: str = wire(STRING)
    partition_data: tuple[ProducePartition, ...] = wire(Array(ProducePartition))


@request(ApiKey.PRODUCE, versions=(7, 8, 10, 12), flexible_since=9)
class ProduceRequest(Request[ProduceResponse]):
    """To the leader of all its partitions.

    ``acks``: -1 all in-sync replicas, 1 the leader, 0 no answer at all. ``version_2``, which is not written: the leader
    adds the partitions to the transaction (KIP-890), which version 12 means.
    """

    transactional_id: str | None = wire(STRING, default=None, nullable_since=0)
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topic_data: tuple[ProduceTopic, ...] = wire(Array(ProduceTopic))
    version_2: bool = wire(BOOL, default=False, since=NEVER, ignorable=True)

    def usable_versions(self) -> tuple[int, ...]:
        """Return 12 in a transaction of version 2, else those before."""
        return (12,) if self.version_2 else (7, 8, 10)

    def least_broker(self) -> str:
        return "4.0" if self.version_2 else "2.1"

    def expects_response(self) -> bool:
        """Return whether the broker answers; it does not with acks=0."""
        return self.acks != 0
