"""The requests of a transaction, filled in, and the meaning of an error in each of their answers. Pure.

Transactions are of version 1 (KIP-98, KIP-360, KIP-447), or of version 2 (KIP-890) where the brokers have finalized
it: then leaders and coordinators add partitions and groups by themselves, and EndTxn gives the next epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamlet.kafka import broker_errors as e
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
from streamlet.kafka.client.leader_requests import by_topic
from streamlet.kafka.errors import BrokerError, KafkaError, with_sentence
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.producer.producer_batch import Sequences
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
from streamlet.kafka.protocol.schema import Request

FEATURE = "transaction.version"
"""The feature of a cluster that says which version its transactions have."""

_NONE = -1


class RequestKind(Enum):
    """The kinds of requests to a coordinator."""

    FIND_COORDINATOR = "FindCoordinator"
    FIND_GROUP_COORDINATOR = "FindCoordinator of the group"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A request to send; ``to`` None: any broker."""

    kind: RequestKind
    request: Request[Any]
    to: Broker | None


def find_transaction_coordinator(transactional_id: str) -> TransactionRequest:
    """Ask any broker for the coordinator of the transactional id."""
    return TransactionRequest(
        RequestKind.FIND_COORDINATOR, FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION), None
    )


def find_group_coordinator(group_id: str) -> TransactionRequest:
    """Ask any broker for the coordinator of a group."""
    return TransactionRequest(RequestKind.FIND_GROUP_COORDINATOR, FindCoordinatorRequest(key=group_id), None)


def init_producer_id(
    transactional_id: str | None, timeout_ms: int, to: Broker | None, sequences: Sequences, *, fresh: bool
) -> TransactionRequest:
    """Ask for an id and epoch; not ``fresh``: for the next epoch of ours."""
    held = (_NONE, _NONE) if fresh else (sequences.producer_id, sequences.producer_epoch)
    # Without a transactional id the broker does not look at the time-out; Java sends its greatest.
    timeout = timeout_ms if transactional_id is not None else 0x7FFFFFFF
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout,
        producer_id=held[0],
        producer_epoch=held[1],
    )
    return TransactionRequest(RequestKind.INIT_PRODUCER_ID, request, to)


def add_partitions(
    transactional_id: str, to: Broker | None, sequences: Sequences, partitions: Iterable[TopicPartition]
) -> TransactionRequest:
    """Announce partitions that are about to be written to."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=sequences.producer_id,
        v3_and_below_producer_epoch=sequences.producer_epoch,
        v3_and_below_topics=by_topic(
            dict.fromkeys(sorted(partitions)),
            lambda number, _: number,
            lambda topic, numbers: AddPartitionsToTxnTopic(name=topic, partitions=numbers),
        ),
    )
    return TransactionRequest(RequestKind.ADD_PARTITIONS, request, to)


def add_offsets(transactional_id: str, to: Broker | None, sequences: Sequences, group_id: str) -> TransactionRequest:
    """Announce a group whose offsets are about to be stored."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=sequences.producer_id,
        producer_epoch=sequences.producer_epoch,
        group_id=group_id,
    )
    return TransactionRequest(RequestKind.ADD_OFFSETS, request, to)


def commit_offsets(
    transactional_id: str,
    to: Broker,
    sequences: Sequences,
    group: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    version_2: bool,
) -> TransactionRequest:
    """Store the offsets themselves, at the group's coordinator."""
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=sequences.producer_id,
        producer_epoch=sequences.producer_epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=by_topic(
            {tp: offsets[tp] for tp in sorted(offsets)},
            lambda number, row: TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=row.offset,
                committed_leader_epoch=row.leader_epoch,
                committed_metadata=row.metadata,
            ),
            lambda topic, rows: TxnOffsetCommitRequestTopic(name=topic, partitions=rows),
        ),
        version_2=version_2,
    )
    return TransactionRequest(RequestKind.COMMIT_OFFSETS, request, to)


def end(
    transactional_id: str, to: Broker | None, sequences: Sequences, commit: bool, *, version_2: bool
) -> TransactionRequest:
    """End the transaction, by a commit or an abort."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=sequences.producer_id,
        producer_epoch=sequences.producer_epoch,
        committed=commit,
        version_2=version_2,
    )
    return TransactionRequest(RequestKind.END, request, to)


# -- errors in answers

ABORT = "Call abort_transaction(), then begin the transaction again."


class Reaction(Enum):
    """The consequence of an error in an answer."""

    RETRY = "ask again after a pause"
    FIND_COORDINATOR = "look for the coordinator again"
    ABORTABLE = "the transaction must be aborted"
    FENCED = "another producer took over"
    FATAL = "the producer can only be closed"


_EVERYWHERE: dict[type[BrokerError], Reaction] = {
    e.NotCoordinator: Reaction.FIND_COORDINATOR,
    e.CoordinatorNotAvailable: Reaction.FIND_COORDINATOR,
    e.InvalidProducerEpoch: Reaction.FENCED,
    e.ProducerFenced: Reaction.FENCED,
    e.TransactionCoordinatorFenced: Reaction.FENCED,
    e.TransactionAbortable: Reaction.ABORTABLE,
    e.TransactionalIdAuthorizationFailed: Reaction.FATAL,
    e.ClusterAuthorizationFailed: Reaction.FATAL,
}
_ABORTABLE: dict[RequestKind, tuple[type[BrokerError], ...]] = {
    RequestKind.FIND_GROUP_COORDINATOR: (e.GroupAuthorizationFailed,),
    RequestKind.ADD_PARTITIONS: (e.TopicAuthorizationFailed, e.UnknownProducerId, e.InvalidProducerIdMapping),
    RequestKind.ADD_OFFSETS: (e.GroupAuthorizationFailed, e.UnknownProducerId, e.InvalidProducerIdMapping),
    RequestKind.COMMIT_OFFSETS: (
        e.GroupAuthorizationFailed,
        e.UnknownProducerId,
        e.InvalidProducerIdMapping,
        e.UnknownMemberId,
        e.IllegalGeneration,
        e.FencedInstanceId,
        e.StaleMemberEpoch,
        e.RebalanceInProgress,
        e.TopicAuthorizationFailed,
        e.OffsetMetadataTooLarge,
    ),
    # InvalidTransactionState: the coordinator knows of no transaction. The request that was to begin it was lost with
    # its answer. Nothing is wrong with that for an abort. (A repeated end is answered like the first one.)
    RequestKind.END: (e.UnknownProducerId, e.InvalidProducerIdMapping, e.InvalidTransactionState),
}
"""Errors that one kind of request can only answer by an abort of the transaction."""


def reaction_to(kind: RequestKind, fault: type[BrokerError]) -> Reaction:
    """Look up an error in the answer to ``kind``: under the kind, under all kinds, else by ``retriable``."""
    if fault in _ABORTABLE.get(kind, ()):
        return Reaction.ABORTABLE
    return _EVERYWHERE.get(fault) or (Reaction.RETRY if fault.retriable else Reaction.FATAL)


def is_fencing(fault: type[KafkaError]) -> bool:
    """Return whether this answer means that another producer took over."""
    return issubclass(fault, BrokerError) and _EVERYWHERE.get(fault) is Reaction.FENCED


def fenced(fault: type[KafkaError], what: str, transactional_id: str | None) -> e.ProducerFenced:
    """Return the error of a fenced producer.

    ``what``: the act that was answered with ``fault``.
    """
    error = e.ProducerFenced(f"{what}, transactional id {transactional_id!r}")
    if issubclass(fault, BrokerError) and fault is not e.ProducerFenced:
        with_sentence(error, f"The broker's answer was code {fault.code}, {fault.__name__}.")
    return error


def needs_new_epoch(fault: type[BrokerError]) -> bool:
    """Return whether the broker has lost all it knew of this producer."""
    return fault in (e.UnknownProducerId, e.InvalidProducerIdMapping, e.TransactionAbortable)


def worst(refused: Mapping[TopicPartition, type[BrokerError]]) -> tuple[TopicPartition, type[BrokerError]]:
    """Return one of several refusals: one that no other try can fix, if there is one."""
    return min(refused.items(), key=lambda row: (row[1].retriable, row[0]))
