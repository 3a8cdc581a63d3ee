"""Producer id and transactions, as decisions: what to ask next, and what an answer means (Java: TransactionManager).

Pure; whoever holds the producer's lock calls. One request is on its way at a time: what is next follows from the state
and from what is still to be told, so there is no queue that could disagree with them. The protocol is that of brokers
2.1 to 3.9 (KIP-98, KIP-360, KIP-447), which 4.x speaks too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import ConcurrentTransactions, OperationNotAttempted, error_class
from streamlet.kafka.errors import BrokerError, Disconnected, KafkaError
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.producer import transaction_faults as faults
from streamlet.kafka.producer import transaction_requests as ask
from streamlet.kafka.producer.errors import IllegalProducerState, ProducerFenced, TransactionFailed
from streamlet.kafka.producer.sequences import Sequences
from streamlet.kafka.producer.transaction_state import (
    ALLOWED,
    Ask,
    ConsumerGroupMetadata,
    Kind,
    PendingOffsets,
    State,
    TransactionResult,
)

_CONCURRENT_BACKOFF_S = 0.02
"""A commit just before is written to its partitions within milliseconds; waiting the whole back-off would cost more."""


class TransactionManager:
    """One producer's; ``transactional_id`` None: idempotence alone. Times in seconds."""

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

    @property
    def is_transactional(self) -> bool:
        """Has a transactional id."""
        return self.transactional_id is not None

    # -- what the user's calls decide

    def begin_initialize(self) -> TransactionResult:
        """init_transactions."""
        self._require_transactional("init_transactions()")
        if self.state is State.INITIALIZING and self.result is not None:
            return self.result  # the last call gave up waiting
        self._require("init_transactions()", State.UNINITIALIZED)
        self._go(State.INITIALIZING)
        self.result = TransactionResult("init_transactions()")
        return self.result

    def begin_transaction(self) -> None:
        """begin_transaction."""
        self._require_transactional("begin_transaction()")
        self._require("begin_transaction()", State.READY)
        self._go(State.IN_TRANSACTION)

    def begin_commit(self) -> TransactionResult:
        """commit_transaction. Calling it again after a time-out waits on."""
        self._require_transactional("commit_transaction()")
        if self.state is State.COMMITTING and self.result is not None:
            return self.result
        self._require("commit_transaction()", State.IN_TRANSACTION)
        self._go(State.COMMITTING)
        self.result = TransactionResult("commit_transaction()")
        return self.result

    def begin_abort(self) -> TransactionResult:
        """abort_transaction; from a failed transaction too. Calling it again after a time-out waits on."""
        self._require_transactional("abort_transaction()")
        if self.state is State.ABORTING and self.result is not None:
            return self.result
        self._require("abort_transaction()", State.IN_TRANSACTION, State.ABORTABLE_ERROR)
        self._go(State.ABORTING)
        self.error = None
        self._new_partitions.clear()
        self._settle_offsets(TransactionFailed("The transaction was aborted before the offsets were stored."))
        self.result = TransactionResult("abort_transaction()")
        return self.result

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, Any],  # Any: OffsetAndMetadata, which stands above in the import order
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
        if tp not in self._partitions:
            self._new_partitions.add(tp)

    def may_send_to(self, tp: TopicPartition) -> bool:
        """Whether a batch of this partition may go out: the coordinator knows of the partition."""
        return self.state is not State.FATAL_ERROR and (not self.is_transactional or tp in self._partitions)

    @property
    def hurries(self) -> bool:
        """A commit waits for every batch: nothing lingers."""
        return self.state in (State.COMMITTING, State.ABORTING)

    def batch_failed(self, error: KafkaError) -> None:
        """A record of the transaction is lost, or of unknown fate: it can only be aborted."""
        if self.is_transactional and self.state in (State.IN_TRANSACTION, State.COMMITTING):
            self._abortable(TransactionFailed(f"A batch of the transaction failed: {error} {faults.ABORT}"))

    def sequences_lost(self) -> None:
        """What the broker has of the transaction's records is unknown."""
        self._bump = True

    # -- what the sender asks

    def next_ask(self, now_s: float, settled: bool) -> Ask | None:
        """The next request, or None. ``settled``: no batch of the transaction is queued, in flight or on the wire."""
        if self._asked is not None or now_s < self._not_before or self.state is State.FATAL_ERROR:
            return None
        found = self._decide(settled)
        if found is not None:
            self._asked = found
        return found

    def wait_s(self, now_s: float) -> float:
        """Seconds until :meth:`next_ask` has more to say than now; infinity when an event must come."""
        if self._asked is None and now_s < self._not_before:
            return self._not_before - now_s
        return float("inf")

    def _decide(self, settled: bool) -> Ask | None:
        if not self.is_transactional:
            if self.sequences.has_id:
                return None
            return ask.init_producer_id(None, self._timeout_ms, None, self.sequences, fresh=True)
        wanted = self._wanted(settled)
        if wanted is None:
            return None
        if self.coordinator is None and wanted is not Kind.COMMIT_OFFSETS:
            return ask.find_transaction_coordinator(self._id)
        return self._request(wanted)

    def _wanted(self, settled: bool) -> Kind | None:
        """What is to be told next, if anything."""
        if self.state is State.INITIALIZING:
            return Kind.INIT_PRODUCER_ID
        if self.state in (State.IN_TRANSACTION, State.COMMITTING):
            if self._new_partitions:
                return Kind.ADD_PARTITIONS
            if self._offsets:
                return Kind.COMMIT_OFFSETS if self._offsets[0].added else Kind.ADD_OFFSETS
        if self.state in (State.COMMITTING, State.ABORTING) and settled:
            if self._started:
                return Kind.END
            self._ended()
            return Kind.INIT_PRODUCER_ID if self.state is State.INITIALIZING else None
        return None

    def _request(self, kind: Kind) -> Ask:
        if kind is Kind.INIT_PRODUCER_ID:
            fresh = not self.sequences.has_id
            return ask.init_producer_id(self._id, self._timeout_ms, self.coordinator, self.sequences, fresh=fresh)
        if kind is Kind.ADD_PARTITIONS:
            self._started = True
            return ask.add_partitions(self._id, self.coordinator, self.sequences, self._new_partitions)
        if kind is Kind.END:
            commit = self.state is State.COMMITTING
            return ask.end(self._id, self.coordinator, self.sequences, commit)
        pending = self._offsets[0]
        if kind is Kind.ADD_OFFSETS:
            self._started = True
            return ask.add_offsets(self._id, self.coordinator, self.sequences, pending.group.group_id)
        broker = self._group_coordinators.get(pending.group.group_id)
        if broker is None:
            return ask.find_group_coordinator(pending.group.group_id)
        return ask.commit_offsets(self._id, broker, self.sequences, pending)

    @property
    def _id(self) -> str:
        assert self.transactional_id is not None
        return self.transactional_id

    # -- what came back

    def failed(self, asked: Ask, error: KafkaError, now_s: float) -> None:
        """No answer came. What was asked may have been done: it is asked again, and the epoch changes afterwards."""
        self._asked = None
        if isinstance(error, Disconnected) or error.retriable:
            if isinstance(error, Disconnected) and asked.kind not in (Kind.FIND_COORDINATOR, Kind.INIT_PRODUCER_ID):
                self._bump = True
            self._forget_coordinator(asked)
            self._back_off(now_s)
            return
        self._fail_for_good(error)

    def answered(self, asked: Ask, response: Any, now_s: float) -> None:  # Any: of the type the request names
        """The answer, with whatever errors stand in it."""
        self._asked = None
        if self.state is State.FATAL_ERROR:
            return
        handler = {
            Kind.FIND_COORDINATOR: self._found,
            Kind.FIND_GROUP_COORDINATOR: self._found,
            Kind.INIT_PRODUCER_ID: self._initialized,
            Kind.ADD_PARTITIONS: self._partitions_added,
            Kind.ADD_OFFSETS: self._offsets_added,
            Kind.COMMIT_OFFSETS: self._offsets_committed,
            Kind.END: self._end_answered,
        }[asked.kind]
        handler(asked, response, now_s)

    def _found(self, asked: Ask, response: Any, now_s: float) -> None:
        fault = error_class(response.error_code)
        if fault is not None:
            self._handle(asked, fault, now_s)
            return
        self._tries = 0
        broker = Broker(response.node_id, response.host, response.port)
        if asked.kind is Kind.FIND_COORDINATOR:
            self.coordinator = broker.dedicated("transaction")
        else:
            self._group_coordinators[asked.request.key] = broker.dedicated("transaction")

    def _initialized(self, asked: Ask, response: Any, now_s: float) -> None:
        fault = error_class(response.error_code)
        if fault is not None:
            self._handle(asked, fault, now_s)
            return
        self._tries = 0
        self.sequences.set_id(response.producer_id, response.producer_epoch)
        self._bump = False
        if self.is_transactional:
            self._go(State.READY)
            self._settle()

    def _partitions_added(self, asked: Ask, response: Any, now_s: float) -> None:
        refused: dict[TopicPartition, type[BrokerError]] = {}
        for topic in response.results_by_topic_v3_and_below:
            for row in topic.results_by_partition:
                tp = TopicPartition(topic.name, row.partition_index)
                fault = error_class(row.partition_error_code)
                if fault is None:
                    self._new_partitions.discard(tp)
                    self._partitions.add(tp)
                elif fault is not OperationNotAttempted:
                    refused[tp] = fault
        if refused:
            tp, fault = faults.worst(refused)
            self._handle(asked, fault, now_s, f"Adding {tp} to the transaction")
        else:
            self._tries = 0

    def _offsets_added(self, asked: Ask, response: Any, now_s: float) -> None:
        fault = error_class(response.error_code)
        if fault is not None:
            self._handle(asked, fault, now_s)
        else:
            self._tries = 0
            if self._offsets:
                self._offsets[0].added = True

    def _offsets_committed(self, asked: Ask, response: Any, now_s: float) -> None:
        refused: dict[TopicPartition, type[BrokerError]] = {}
        pending = self._offsets[0] if self._offsets else None
        if pending is None:
            return  # aborted meanwhile
        for topic in response.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                fault = error_class(row.error_code)
                if fault is None:
                    pending.offsets.pop(tp, None)
                else:
                    refused[tp] = fault
        if refused:
            tp, fault = faults.worst(refused)
            self._handle(asked, fault, now_s, f"Storing the offset of {tp} for group {pending.group.group_id!r}")
            return
        self._tries = 0
        self._offsets.remove(pending)
        pending.result.settle()

    def _end_answered(self, asked: Ask, response: Any, now_s: float) -> None:
        fault = error_class(response.error_code)
        if fault is not None:
            self._handle(asked, fault, now_s)
            return
        self._tries = 0
        self._ended()

    # -- errors

    def _handle(self, asked: Ask, fault: type[BrokerError], now_s: float, what: str = "") -> None:
        """Try again, look for the coordinator, fail the transaction, or the producer: by the table of faults."""
        error = fault(what or f"{asked.kind.value} of the transactional id {self.transactional_id!r}")
        verdict = faults.verdict(asked.kind, fault)
        if verdict is faults.Verdict.FIND_COORDINATOR:
            self._forget_coordinator(asked)
            self._back_off(now_s)
        elif verdict is faults.Verdict.RETRY:
            self._back_off(now_s, _CONCURRENT_BACKOFF_S if fault is ConcurrentTransactions else None)
        elif verdict is faults.Verdict.FENCED:
            self._fail_for_good(
                ProducerFenced(
                    f"Another producer with transactional_id = {self.transactional_id!r} has taken over, or the "
                    f"transaction outlived its time-out and the broker ended it: {error} Close this producer; only "
                    "one producer may use a transactional id."
                )
            )
        elif verdict is faults.Verdict.ABORTABLE and self.state is State.ABORTING:
            self._bump = True  # the broker has nothing left to abort: the next epoch makes sure
            self._ended()
        elif verdict is faults.Verdict.ABORTABLE:
            self._bump = self._bump or faults.needs_new_epoch(fault)
            self._abortable(TransactionFailed(f"{error} {faults.ABORT}"))
        else:
            self._fail_for_good(error)

    def _forget_coordinator(self, asked: Ask) -> None:
        if asked.kind is Kind.COMMIT_OFFSETS:
            self._group_coordinators.clear()
        else:
            self.coordinator = None

    def _back_off(self, now_s: float, wait_s: float | None = None) -> None:
        self._tries += 1
        self._not_before = now_s + (self._retry.delay(self._tries, self._uniform) if wait_s is None else wait_s)

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

    def _ended(self) -> None:
        """The transaction is over on the broker. After doubts the next one gets an epoch of its own (KIP-890's holes)."""
        self._started = False
        self._partitions.clear()
        self._new_partitions.clear()
        if self._bump:
            self._go(State.INITIALIZING)
        else:
            self._go(State.READY)
            self._settle()

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
            raise self.error
        raise IllegalProducerState(f"{call} is not possible now: the producer is {self.state.value}.{_hint(self.state)}")

    def _fatal(self) -> KafkaError:
        assert self.error is not None
        return self.error


def _hint(state: State) -> str:
    return {
        State.UNINITIALIZED: " Call init_transactions() first, once.",
        State.READY: " Call begin_transaction() first.",
        State.IN_TRANSACTION: " Call commit_transaction() or abort_transaction() first.",
        State.COMMITTING: " Call commit_transaction() again to wait for its end.",
        State.ABORTING: " Call abort_transaction() again to wait for its end.",
        State.INITIALIZING: " Call init_transactions() again to wait for its end.",
    }.get(state, "")
