"""The requests of a transaction, filled in. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.producer.sequences import Sequences
from streamlet.kafka.producer.transaction_state import Ask, Kind, PendingOffsets
from streamlet.kafka.protocol.messages.groups import TRANSACTION, FindCoordinatorRequest
from streamlet.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

_NONE = -1


def find_transaction_coordinator(transactional_id: str) -> Ask:
    """Who keeps the transaction."""
    return Ask(Kind.FIND_COORDINATOR, FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION), None)


def find_group_coordinator(group_id: str) -> Ask:
    """Who keeps the group."""
    return Ask(Kind.FIND_GROUP_COORDINATOR, FindCoordinatorRequest(key=group_id), None)


def init_producer_id(
    transactional_id: str | None, timeout_ms: int, to: Broker | None, sequences: Sequences, *, fresh: bool
) -> Ask:
    """An id and epoch; not ``fresh``: the next epoch of ours."""
    held = (_NONE, _NONE) if fresh else (sequences.producer_id, sequences.producer_epoch)
    # Without a transactional id the broker does not look at the time-out; Java sends its greatest.
    timeout = timeout_ms if transactional_id is not None else 0x7FFFFFFF
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout,
        producer_id=held[0],
        producer_epoch=held[1],
    )
    return Ask(Kind.INIT_PRODUCER_ID, request, to)


def add_partitions(
    transactional_id: str, to: Broker | None, sequences: Sequences, partitions: Iterable[TopicPartition]
) -> Ask:
    """Partitions about to be written to."""
    rows = _by_topic(partitions)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=sequences.producer_id,
        v3_and_below_producer_epoch=sequences.producer_epoch,
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name=name, partitions=tuple(numbers)) for name, numbers in rows.items()
        ),
    )
    return Ask(Kind.ADD_PARTITIONS, request, to)


def add_offsets(transactional_id: str, to: Broker | None, sequences: Sequences, group_id: str) -> Ask:
    """A group whose offsets are about to be stored."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=sequences.producer_id,
        producer_epoch=sequences.producer_epoch,
        group_id=group_id,
    )
    return Ask(Kind.ADD_OFFSETS, request, to)


def commit_offsets(transactional_id: str, to: Broker, sequences: Sequences, pending: PendingOffsets) -> Ask:
    """The offsets themselves."""
    rows = _by_topic(pending.offsets)
    group = pending.group
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=sequences.producer_id,
        producer_epoch=sequences.producer_epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=tuple(
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=tuple(_offset_row(number, pending, TopicPartition(name, number)) for number in numbers),
            )
            for name, numbers in rows.items()
        ),
    )
    return Ask(Kind.COMMIT_OFFSETS, request, to)


def end(transactional_id: str, to: Broker | None, sequences: Sequences, commit: bool) -> Ask:
    """Commit or abort."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=sequences.producer_id,
        producer_epoch=sequences.producer_epoch,
        committed=commit,
    )
    return Ask(Kind.END, request, to)


def _offset_row(number: int, pending: PendingOffsets, tp: TopicPartition) -> TxnOffsetCommitRequestPartition:
    row = pending.offsets[tp]
    return TxnOffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=row.offset,
        committed_leader_epoch=row.leader_epoch,
        committed_metadata=row.metadata,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        rows.setdefault(topic, []).append(number)
    return rows
