"""What an error in a coordinator's answer means, as a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from streamlet.kafka import broker_errors as e
from streamlet.kafka.errors import BrokerError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.transaction_state import Kind

ABORT = "Call abort_transaction(), then begin the transaction anew."


class Verdict(Enum):
    """What to do about it."""

    RETRY = "ask again after a pause"
    FIND_COORDINATOR = "look for the coordinator again"
    ABORTABLE = "the transaction must be aborted"
    FENCED = "another producer took over"
    FATAL = "the producer can only be closed"


_EVERYWHERE: dict[type[BrokerError], Verdict] = {
    e.NotCoordinator: Verdict.FIND_COORDINATOR,
    e.CoordinatorNotAvailable: Verdict.FIND_COORDINATOR,
    e.InvalidProducerEpoch: Verdict.FENCED,
    e.ProducerFenced: Verdict.FENCED,
    e.TransactionCoordinatorFenced: Verdict.FENCED,
    e.TransactionAbortable: Verdict.ABORTABLE,
    e.TransactionalIdAuthorizationFailed: Verdict.FATAL,
    e.ClusterAuthorizationFailed: Verdict.FATAL,
}
_BY_KIND: dict[Kind, dict[type[BrokerError], Verdict]] = {
    Kind.FIND_GROUP_COORDINATOR: {e.GroupAuthorizationFailed: Verdict.ABORTABLE},
    Kind.ADD_PARTITIONS: {
        e.TopicAuthorizationFailed: Verdict.ABORTABLE,
        e.UnknownProducerId: Verdict.ABORTABLE,
        e.InvalidProducerIdMapping: Verdict.ABORTABLE,
    },
    Kind.ADD_OFFSETS: {
        e.GroupAuthorizationFailed: Verdict.ABORTABLE,
        e.UnknownProducerId: Verdict.ABORTABLE,
        e.InvalidProducerIdMapping: Verdict.ABORTABLE,
    },
    Kind.COMMIT_OFFSETS: {
        e.GroupAuthorizationFailed: Verdict.ABORTABLE,
        e.UnknownMemberId: Verdict.ABORTABLE,
        e.IllegalGeneration: Verdict.ABORTABLE,
        e.FencedInstanceId: Verdict.ABORTABLE,
        e.StaleMemberEpoch: Verdict.ABORTABLE,
        e.RebalanceInProgress: Verdict.ABORTABLE,
        e.TopicAuthorizationFailed: Verdict.ABORTABLE,
        e.OffsetMetadataTooLarge: Verdict.ABORTABLE,
    },
    Kind.END: {
        e.UnknownProducerId: Verdict.ABORTABLE,
        e.InvalidProducerIdMapping: Verdict.ABORTABLE,
        # There is no such transaction: what was to begin it never arrived. (A repeated end is answered like the first.)
        e.InvalidTransactionState: Verdict.ABORTABLE,
    },
}


def verdict(kind: Kind, fault: type[BrokerError]) -> Verdict:
    """For an error in the answer to ``kind``: the row of the kind, of all kinds, else by ``retriable``."""
    found = _BY_KIND.get(kind, {}).get(fault) or _EVERYWHERE.get(fault)
    if found is None:
        found = Verdict.RETRY if fault.retriable else Verdict.FATAL
    return found


def needs_new_epoch(fault: type[BrokerError]) -> bool:
    """The broker has lost what it knew of this producer."""
    return fault in (e.UnknownProducerId, e.InvalidProducerIdMapping, e.TransactionAbortable)


def worst(refused: Mapping[TopicPartition, type[BrokerError]]) -> tuple[TopicPartition, type[BrokerError]]:
    """Of several, one that time does not mend, if there is one."""
    return min(refused.items(), key=lambda row: (row[1].retriable, row[0]))
