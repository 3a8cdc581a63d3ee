"""Where a transaction stands, and what the user's calls change about it. Pure; see ``transaction_manager``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamlet.base.backoff import Backoff
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
from streamlet.kafka.errors import KafkaError, copy_of
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.producer import transaction_faults as faults
from streamlet.kafka.producer.errors import IllegalProducerState, TransactionFailed
from streamlet.kafka.producer.sequences import Sequences
from streamlet.kafka.producer.transaction_state import (
    ALLOWED,
    Ask,
    PendingOffsets,
    State,
    TransactionResult,
)

_BEGUN_BY = {
    "init_transactions()": State.INITIALIZING,
    "commit_transaction()": State.COMMITTING,
    "abort_transaction()": State.ABORTING,
}


class TransactionProgress:
    """The state of one producer; ``transactional_id`` None: idempotence alone. Times in seconds."""

    def __init__(
        self,
        sequences: Sequences,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        retry: Backoff,
        uniform: Callable[[], float],
    ) -> None:
        self.sequences = sequences
        self.transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._retry = retry
        self._uniform = uniform
        self.state = State.UNINITIALIZED
        self.error: KafkaError | None = None
        """Why the state is ABORTABLE_ERROR or FATAL_ERROR."""
        self.coordinator: Broker | None = None
        self._group_coordinators: dict[str, Broker] = {}
        self._new_partitions: set[TopicPartition] = set()
        self._partitions: set[TopicPartition] = set()
        self._offsets: list[PendingOffsets] = []
        self._started = False
        """The coordinator may know of this transaction: it must be told of its end."""
        self._bump = False
        """A request's outcome is unknown, or sequences are lost: the next transaction needs a new epoch."""
        self._asked: Ask | None = None
        self._not_before = 0.0
        self._tries = 0
        self.result: TransactionResult | None = None
        """Of the init, commit or abort under way."""
        self._unclaimed: TransactionResult | None = None
        """Of the last init, commit or abort, until its caller has heard of it, perhaps by a second call."""

    @property
    def is_transactional(self) -> bool:
        """Has a transactional id."""
        return self.transactional_id is not None

    # -- what the user's calls decide

    def begin_initialize(self) -> TransactionResult:
        """init_transactions."""
        self._require_transactional("init_transactions()")
        return self._repeated("init_transactions()") or self._begin("init_transactions()", State.UNINITIALIZED)

    @property
    def takes_epoch(self) -> bool:
        """A transaction is over, and the next one waits for its epoch."""
        return self.state is State.INITIALIZING and self.result is None

    def begin_transaction(self) -> None:
        """begin_transaction; not while :attr:`takes_epoch`."""
        self._require_transactional("begin_transaction()")
        self._require("begin_transaction()", State.READY)
        self._go(State.IN_TRANSACTION)
        self._unclaimed = None

    def begin_commit(self) -> TransactionResult:
        """commit_transaction. Calling it again after a time-out waits on."""
        self._require_transactional("commit_transaction()")
        return self._repeated("commit_transaction()") or self._begin("commit_transaction()", State.IN_TRANSACTION)

    def begin_abort(self) -> TransactionResult:
        """abort_transaction; from a failed transaction too. Calling it again after a time-out waits on."""
        self._require_transactional("abort_transaction()")
        repeated = self._repeated("abort_transaction()")
        if repeated is not None:
            return repeated
        result = self._begin("abort_transaction()", State.IN_TRANSACTION, State.ABORTABLE_ERROR)
        self.error = None
        self._new_partitions.clear()
        self._settle_offsets(TransactionFailed("The transaction was aborted before the offsets were stored."))
        return result

    def claimed(self, result: TransactionResult) -> None:
        """Its caller has heard how it ended."""
        if result is self._unclaimed:
            self._unclaimed = None

    def _repeated(self, call: str) -> TransactionResult | None:
        """The result of the same call, where the one before gave up waiting for it."""
        return self._unclaimed if self._unclaimed is not None and self._unclaimed.what == call else None

    def _begin(self, call: str, *states: State) -> TransactionResult:
        self._require(call, *states)
        self._go(_BEGUN_BY[call])
        self.result = self._unclaimed = TransactionResult(call)
        return self.result

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> TransactionResult:
        """send_offsets_to_transaction."""
        self._require_transactional("send_offsets_to_transaction()")
        self._require("send_offsets_to_transaction()", State.IN_TRANSACTION)
        result = TransactionResult("send_offsets_to_transaction()")
        self._offsets.append(PendingOffsets(group, dict(offsets), result))
        return result

    def check_may_send(self, tp: TopicPartition) -> None:
        """Before a record is taken: with a transactional id, only in a transaction."""
        if self.state is State.FATAL_ERROR:
            raise self._fatal()
        if not self.is_transactional:
            return
        self._require("send()", State.IN_TRANSACTION)
        self.add_partition(tp)

    def add_partition(self, tp: TopicPartition) -> None:
        """A record goes there, or was moved there (P8): the coordinator is to be told before."""
        if self.is_transactional and tp not in self._partitions:
            self._new_partitions.add(tp)

    def may_send_to(self, tp: TopicPartition) -> bool:
        """Whether a batch of this partition may go out: the coordinator knows of the partition."""
        return self.state is not State.FATAL_ERROR and (not self.is_transactional or tp in self._partitions)

    @property
    def hurries(self) -> bool:
        """A commit waits for every batch: nothing lingers."""
        return self.state in (State.COMMITTING, State.ABORTING)

    def batch_failed(self, error: KafkaError) -> None:
        """A record of the transaction is lost, or of unknown fate: it can only be aborted.

        The next transaction has a new epoch, under which sequences begin anew.
        """
        if self.is_transactional and self.state in (State.IN_TRANSACTION, State.COMMITTING):
            self._bump = True
            self._abortable(TransactionFailed(f"A batch of the transaction failed: {error} {faults.ABORT}"))

    def sequences_lost(self) -> None:
        """What the broker has of the transaction's records is unknown."""
        self._bump = True

    # -- what happens to it

    def _abortable(self, error: KafkaError) -> None:
        if self.state is State.INITIALIZING:
            self._fail_for_good(error)
            return
        if self.state not in (State.IN_TRANSACTION, State.COMMITTING, State.ABORTABLE_ERROR):
            return
        self._go(State.ABORTABLE_ERROR)
        self.error = self.error or error
        self._settle_offsets(error)
        self._settle(error)

    def _fail_for_good(self, error: KafkaError) -> None:
        self.state = State.FATAL_ERROR
        self.error = error
        self._settle_offsets(error)
        self._settle(error)

    def _ended(self) -> bool:
        """The transaction is over on the broker, and so is its call, whatever comes of a new epoch.

        After doubts the next one gets that (KIP-890's holes): True.
        """
        self._started = False
        self._partitions.clear()
        self._new_partitions.clear()
        self._go(State.INITIALIZING if self._bump else State.READY)
        self._settle()
        return self._bump

    def _settle(self, error: KafkaError | None = None) -> None:
        if self.result is not None:
            self.result.settle(error)
            self.result = None

    def _settle_offsets(self, error: KafkaError) -> None:
        for pending in self._offsets:
            pending.result.settle(error)
        self._offsets.clear()

    # -- states

    def _go(self, state: State) -> None:
        if state not in ALLOWED[self.state]:
            raise RuntimeError(f"a transaction {self.state.value} cannot become {state.value}")
        self.state = state

    def _require_transactional(self, call: str) -> None:
        if not self.is_transactional:
            raise IllegalProducerState(f"{call} needs a producer with transactional_id set, and this one has none.")

    def _require(self, call: str, *states: State) -> None:
        if self.state in states:
            return
        if self.state is State.FATAL_ERROR:
            raise self._fatal()
        if self.state is State.ABORTABLE_ERROR:
            assert self.error is not None
            raise copy_of(self.error)
        state = State.READY if self.takes_epoch else self.state
        raise IllegalProducerState(f"{call} is not possible now: the producer is {state.value}.{_hint(state)}")

    def _fatal(self) -> KafkaError:
        assert self.error is not None
        return copy_of(self.error)


def _hint(state: State) -> str:
    return {
        State.UNINITIALIZED: " Call init_transactions() first, once.",
        State.READY: " Call begin_transaction() first.",
        State.IN_TRANSACTION: " Call commit_transaction() or abort_transaction() first.",
        State.COMMITTING: " Call commit_transaction() again to wait for its end.",
        State.ABORTING: " Call abort_transaction() again to wait for its end.",
        State.INITIALIZING: " Call init_transactions() again to wait for its end.",
    }.get(state, "")
