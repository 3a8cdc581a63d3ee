"""The states of a producer that has an id, and which may follow which (Java: ``TransactionManager.State``). Pure.

::

    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING -> READY
                          ^                      |     |            |
                          |                      |     v            v
                          +----- ABORTING <------+-- ABORTABLE_ERROR         FATAL_ERROR: from anywhere, for good
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.protocol.api import Request


class State(Enum):
    """Where a producer stands."""

    UNINITIALIZED = "not initialised"
    INITIALIZING = "asking for its id"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that failed"
    FATAL_ERROR = "failed for good"


ALLOWED: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING}),
    State.INITIALIZING: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.INITIALIZING}),
    State.IN_TRANSACTION: frozenset({State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR}),
    State.COMMITTING: frozenset({State.READY, State.ABORTABLE_ERROR, State.INITIALIZING}),
    State.ABORTING: frozenset({State.READY, State.INITIALIZING}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING, State.ABORTABLE_ERROR}),
    State.FATAL_ERROR: frozenset(),
}
"""From each state; FATAL_ERROR may follow any, and none follows it. What is not here is a mistake of ours."""


class Kind(Enum):
    """What is asked of a coordinator."""

    FIND_COORDINATOR = "FindCoordinator"
    FIND_GROUP_COORDINATOR = "FindCoordinator of the group"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to send; ``to`` None: any broker."""

    kind: Kind
    request: Request[Any]
    to: Broker | None


@dataclass(slots=True, eq=False)
class TransactionResult:
    """What a caller waits for. ``done`` once; ``error`` says why it did not go well."""

    what: str
    done: bool = False
    error: KafkaError | None = None

    def settle(self, error: KafkaError | None = None) -> None:
        """Done; a second time changes nothing."""
        if not self.done:
            self.done, self.error = True, error


@dataclass(slots=True, eq=False)
class PendingOffsets:
    """Offsets to store in the transaction; ``added`` when the coordinator knows of the group."""

    group: ConsumerGroupMetadata
    offsets: dict[TopicPartition, OffsetAndMetadata]
    result: TransactionResult
    added: bool = False
