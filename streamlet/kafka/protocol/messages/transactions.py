"""InitProducerId and the requests of a transaction.

``version_2`` of a request, which is not written: the transaction is of version 2 (KIP-890), and the newest version of
the request says so to the broker. In a transaction of version 1 that version must not be sent.
"""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    NEVER,
    STRING,
    ApiKey,
    Array,
    Request,
    message,
    request,
    wire,
)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


@message
class InitProducerIdResponse:
    """The id and epoch to write with; -1 with an error."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=NO_PRODUCER_ID)
    producer_epoch: int = wire(INT16)


@request(ApiKey.INIT_PRODUCER_ID, versions=(1, 3, 4), flexible_since=2)
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """To the transaction's coordinator, or to any broker without a transactional id.

    ``producer_id`` and ``producer_epoch`` ask for the next epoch of the present id; a broker before 2.5 gives a
    transactional id its next epoch in any case.
    """

    transactional_id: str | None = wire(STRING, nullable_since=0)
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(INT64, default=NO_PRODUCER_ID, since=3, ignorable=True)
    producer_epoch: int = wire(INT16, default=NO_PRODUCER_EPOCH, since=3, ignorable=True)


@message
class AddPartitionsToTxnPartitionResult:
    """One partition's outcome: 0 when it is added."""

    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16)


@message
class AddPartitionsToTxnTopicResult:
    name: str = wire(STRING)
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire(Array(AddPartitionsToTxnPartitionResult))


@message
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire(
        Array(AddPartitionsToTxnTopicResult)
    )


@message
class AddPartitionsToTxnTopic:
    name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(Array(INT32))


@request(ApiKey.ADD_PARTITIONS_TO_TXN, versions=(1, 3), flexible_since=3)
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """To the transaction's coordinator; from version 4 on only brokers use it."""

    v3_and_below_transactional_id: str = wire(STRING)
    v3_and_below_producer_id: int = wire(INT64)
    v3_and_below_producer_epoch: int = wire(INT16)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire(Array(AddPartitionsToTxnTopic))


@message
class AddOffsetsToTxnResponse:
    """An error code: 0 when the group is added."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)


@request(ApiKey.ADD_OFFSETS_TO_TXN, versions=(1, 3), flexible_since=3)
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """To the transaction's coordinator."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)


@message
class TxnOffsetCommitResponsePartition:
    """One partition's outcome: 0 when its offset is stored."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class TxnOffsetCommitResponseTopic:
    name: str = wire(STRING)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire(Array(TxnOffsetCommitResponsePartition))


@message
class TxnOffsetCommitResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire(Array(TxnOffsetCommitResponseTopic))


@message
class TxnOffsetCommitRequestPartition:
    """``committed_offset`` is the *next* offset to read."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, default=-1)
    committed_metadata: str | None = wire(STRING, default="", nullable_since=0)


@message
class TxnOffsetCommitRequestTopic:
    name: str = wire(STRING)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire(Array(TxnOffsetCommitRequestPartition))


@request(ApiKey.TXN_OFFSET_COMMIT, versions=(2, 3, 5), flexible_since=3)
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """To the *group's* coordinator.

    Generation and member fence a consumer that does not own the partitions any more. A broker before 2.5 cannot check
    them, and they are not sent to it. With ``version_2`` the coordinator adds the group to the transaction.
    """

    transactional_id: str = wire(STRING)
    group_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1, since=3, ignorable=True)
    member_id: str = wire(STRING, default="", since=3, ignorable=True)
    group_instance_id: str | None = wire(STRING, default=None, since=3, nullable_since=3, ignorable=True)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire(Array(TxnOffsetCommitRequestTopic))
    version_2: bool = wire(BOOL, default=False, since=NEVER, ignorable=True)

    def usable_versions(self) -> tuple[int, ...]:
        """Return 5 in a transaction of version 2, else those before."""
        return (5,) if self.version_2 else (2, 3)

    def least_broker(self) -> str:
        return "4.0" if self.version_2 else "2.1"


@message
class EndTxnResponse:
    """An error code: 0 when the transaction has ended. From version 5 on also the next id and epoch."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=NO_PRODUCER_ID, since=5, ignorable=True)
    producer_epoch: int = wire(INT16, default=NO_PRODUCER_EPOCH, since=5, ignorable=True)


@request(ApiKey.END_TXN, versions=(1, 3, 5), flexible_since=3)
class EndTxnRequest(Request[EndTxnResponse]):
    """To the transaction's coordinator. ``committed`` False aborts. With ``version_2`` the epoch ends, too."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)
    version_2: bool = wire(BOOL, default=False, since=NEVER, ignorable=True)

    def usable_versions(self) -> tuple[int, ...]:
        """Return 5 in a transaction of version 2, else those before."""
        return (5,) if self.version_2 else (1, 3)

    def least_broker(self) -> str:
        return "4.0" if self.version_2 else "2.1"
