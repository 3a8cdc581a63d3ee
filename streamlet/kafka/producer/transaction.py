"""The producer's id and transactions, as one machine.

It says which request is next, and what its answer means. Pure; the caller holds the producer's lock. Without a
``transactional_id`` it asks for an id, and no more. Java: TransactionManager.

::

    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING -> READY
                          ^                      |     |            |
                          |                      |     v            v
                          +----- ABORTING <------+-- ABORTABLE_ERROR         FATAL_ERROR: from anywhere, for good

One request is on its way at a time. The next one follows from the state and from the news that the coordinator
has not heard (partitions, offsets), so there is no queue that could disagree with them.

The rules of the end:

- a transaction ends only when no batch of it is queued, in flight or on the wire (``settled``);
- a commit is made when EndTxn is answered, whatever comes of the next epoch;
- after doubts (a lost answer to anything but a look-up, a batch that failed, sequences that were lost) the next
  transaction takes a new epoch, so that late requests cannot reach it.

In a transaction of version 2 (KIP-890) nothing is announced: leaders and the group's coordinator add what they are
sent. The answer to its EndTxn has the id and epoch of the next one, so that no two follow under the same. A transaction
goes on in the version that it began with, whatever brokers offer meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    OperationNotAttempted,
    error_class,
)
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
from streamlet.kafka.client.leader_requests import partition_rows
from streamlet.kafka.errors import AuthenticationFailed, BrokerError, Disconnected, KafkaError, MalformedFrame, copy_of
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.producer import transaction_requests as ask
from streamlet.kafka.producer.errors import IllegalProducerState, ProducerFenced, TransactionFailed
from streamlet.kafka.producer.producer_batch import Sequences
from streamlet.kafka.producer.transaction_requests import Reaction, RequestKind, TransactionRequest
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest
from streamlet.kafka.protocol.messages.transactions import NO_PRODUCER_ID, EndTxnResponse


class ProducerState(Enum):
    """The states of a producer's id and transaction."""

    UNINITIALIZED = "not initialised"
    INITIALIZING = "asking for its id"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that failed"
    FATAL_ERROR = "failed for good"


ALLOWED: dict[ProducerState, frozenset[ProducerState]] = {
    ProducerState.UNINITIALIZED: frozenset({ProducerState.INITIALIZING}),
    ProducerState.INITIALIZING: frozenset({ProducerState.READY, ProducerState.ABORTABLE_ERROR}),
    ProducerState.READY: frozenset({ProducerState.IN_TRANSACTION, ProducerState.INITIALIZING}),
    ProducerState.IN_TRANSACTION: frozenset(
        {ProducerState.COMMITTING, ProducerState.ABORTING, ProducerState.ABORTABLE_ERROR}
    ),
    ProducerState.COMMITTING: frozenset(
        {ProducerState.READY, ProducerState.ABORTABLE_ERROR, ProducerState.INITIALIZING}
    ),
    ProducerState.ABORTING: frozenset({ProducerState.READY, ProducerState.INITIALIZING}),
    ProducerState.ABORTABLE_ERROR: frozenset({ProducerState.ABORTING, ProducerState.ABORTABLE_ERROR}),
    ProducerState.FATAL_ERROR: frozenset(),
}
"""The states that may follow each state, beside FATAL_ERROR, which may follow any.

Any other move is a mistake of ours, and raises RuntimeError.
"""


@dataclass(slots=True, eq=False)
class TransactionResult:
    """The result that a caller waits for; ``error`` says why it failed."""

    what: str
    done: bool = False
    error: KafkaError | None = None

    def settle(self, error: KafkaError | None = None) -> None:
        """Set the outcome; a second time changes nothing."""
        if not self.done:
            self.done, self.error = True, error


@dataclass(slots=True, eq=False)
class PendingOffsets:
    """Offsets to store in the transaction; ``added`` when the coordinator knows of the group."""

    group: ConsumerGroupMetadata
    offsets: dict[TopicPartition, OffsetAndMetadata]
    result: TransactionResult
    added: bool = False


_CONCURRENT_BACKOFF_S = 0.02
"""Seconds before asking again, at first, while the broker still writes the commit just before.

That takes it milliseconds; the whole back-off would cost more. Where a partition of it has no leader it takes as long
as that lasts: the pauses grow as any do.
"""
_BEGUN_BY = {
    "init_transactions()": ProducerState.INITIALIZING,
    "commit_transaction()": ProducerState.COMMITTING,
    "abort_transaction()": ProducerState.ABORTING,
}

_ENDING = (ProducerState.COMMITTING, ProducerState.ABORTING)


@dataclass(slots=True, eq=False)
class TransactionManager:
    """One producer's id, and its transactions if it has a transactional id. Times in seconds."""

    # Long: one machine, an edge of `ALLOWED` a method. What an error means is a table beside it
    # (`transaction_requests`), sequence numbers are a part of it (`sequences`).

    sequences: Sequences
    transactional_id: str | None
    _timeout_ms: int
    _retry: Backoff
    _uniform: Callable[[], float]
    state: ProducerState = ProducerState.UNINITIALIZED
    error: KafkaError | None = None
    """The reason for ABORTABLE_ERROR or FATAL_ERROR."""
    trouble: KafkaError | None = None
    """Why the last request is asked again, until one is answered well."""
    coordinator: Broker | None = None
    _group_coordinators: dict[str, Broker] = field(default_factory=dict)
    _new_partitions: set[TopicPartition] = field(default_factory=set)
    _partitions: set[TopicPartition] = field(default_factory=set)
    _offsets: list[PendingOffsets] = field(default_factory=list)
    _started: bool = False
    """The coordinator may know of this transaction: it must be told of its end."""
    _bump: bool = False
    """A request's outcome is unknown, or sequences are lost: the next transaction needs a new epoch."""
    offers_version_2: bool = False
    """The brokers' transactions are of version 2, as far as is known now; the sender writes it."""
    version_2: bool = False
    """The transaction is of version 2; between two, the next one may be."""
    _asked: TransactionRequest | None = None
    _not_before: float = 0.0
    _tries: int = 0
    result: TransactionResult | None = None
    """The result of the init, commit or abort under way."""
    _unclaimed: TransactionResult | None = None
    """The last init, commit or abort, until its caller has its result, perhaps by a second call."""

    @property
    def is_transactional(self) -> bool:
        """Whether it has a transactional id."""
        return self.transactional_id is not None

    # -- what the user's calls decide

    def begin_initialize(self) -> TransactionResult:
        """Begin ``init_transactions()``. Calling it again after a time-out waits on."""
        return self._begin("init_transactions()", ProducerState.UNINITIALIZED)

    @property
    def takes_epoch(self) -> bool:
        """Whether the next transaction waits for its epoch."""
        return self.state is ProducerState.INITIALIZING and self.result is None

    def begin_transaction(self) -> None:
        """Begin a transaction; not while :attr:`takes_epoch`."""
        self._require_transactional("begin_transaction()")
        self._require("begin_transaction()", ProducerState.READY)
        self._go(ProducerState.IN_TRANSACTION)
        self._unclaimed = None
        # Back to version 1 at once where brokers were rolled back; on to version 2 only with a new epoch (`_ended`).
        self.version_2 = self.version_2 and self.offers_version_2

    def begin_commit(self) -> TransactionResult:
        """Begin ``commit_transaction()``. Calling it again after a time-out waits on."""
        return self._begin("commit_transaction()", ProducerState.IN_TRANSACTION)

    def begin_abort(self) -> TransactionResult:
        """Begin ``abort_transaction()``, from a failed transaction too. A second call waits on."""
        before = self._unclaimed
        result = self._begin("abort_transaction()", ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR)
        if result is not before:
            self.error = None
            self._new_partitions.clear()
            self._settle_offsets(TransactionFailed("The transaction was aborted before the offsets were stored."))
        return result

    def claimed(self, result: TransactionResult) -> None:
        """Note that the caller has its result: another call begins something new."""
        if result is self._unclaimed:
            self._unclaimed = None

    def _begin(self, call: str, *states: ProducerState) -> TransactionResult:
        self._require_transactional(call)
        # The same call again: an earlier one gave up waiting for its result, and this one waits on.
        if self._unclaimed is not None and self._unclaimed.what == call:
            return self._unclaimed
        self._require(call, *states)
        self._go(_BEGUN_BY[call])
        self.result = self._unclaimed = TransactionResult(call)
        return self.result

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> TransactionResult:
        """Add offsets that are to be stored with the transaction."""
        self._require_transactional("send_offsets_to_transaction()")
        self._require("send_offsets_to_transaction()", ProducerState.IN_TRANSACTION)
        result = TransactionResult("send_offsets_to_transaction()")
        self._offsets.append(PendingOffsets(group, dict(offsets), result, added=self.version_2))
        return result

    def check_may_send(self, tp: TopicPartition) -> None:
        """Raise where no record may be taken: with a transactional id, outside of a transaction."""
        if self.is_transactional or self.state is ProducerState.FATAL_ERROR:
            self._require("send()", ProducerState.IN_TRANSACTION)
            self.add_partition(tp)

    def add_partition(self, tp: TopicPartition) -> None:
        """Note a partition that gets records: in version 1 the coordinator must know it first."""
        if self.is_transactional and tp not in self._partitions:
            (self._partitions if self.version_2 else self._new_partitions).add(tp)

    def batch_leaves(self) -> None:
        """Note that a batch goes out: the coordinator must hear of the end."""
        # Not when a record is taken: one that is refused afterwards, or never leaves, would make the coordinator end a
        # transaction that it has never seen, and refuse the commit.
        self._started = self._started or self.is_transactional

    def may_send_to(self, tp: TopicPartition) -> bool:
        """Return whether the coordinator knows of the partition, or will by them: its batches may go out."""
        return self.state is not ProducerState.FATAL_ERROR and (not self.is_transactional or tp in self._partitions)

    @property
    def hurries(self) -> bool:
        """Whether a commit or abort waits for every batch: nothing lingers then."""
        return self.state in (ProducerState.COMMITTING, ProducerState.ABORTING)

    def batch_failed(self, error: KafkaError) -> None:
        """Fail the transaction of a batch that failed: it can only be aborted.

        The next transaction has a new epoch, under which sequences begin at 0 again. A fenced producer has no next one.
        """
        if self.is_transactional and isinstance(error, ProducerFenced):
            self._fail_for_good(error)
        elif self.is_transactional and self.state in (ProducerState.IN_TRANSACTION, ProducerState.COMMITTING):
            self._bump = True
            failed = TransactionFailed(f"A batch of the transaction failed: {error} {ask.ABORT}")
            failed.__cause__ = error
            self._abortable(failed)

    def error_of_batch(self, tp: TopicPartition, error: KafkaError) -> KafkaError:
        """Return the error that the records of a failed batch get: one name for every fencing."""
        # A leader answers a fenced producer with InvalidProducerEpoch. Another producer raised the epoch, or the
        # coordinator when the transaction took too long: the records are in no transaction that can be committed.
        if not self.is_transactional or not ask.is_fencing(type(error)):
            return error
        return ask.fenced(type(error), f"Writing to topic {tp.topic!r}, partition {tp.partition}", self._id)

    def sequences_lost(self) -> None:
        """Note that the broker may have only some of the transaction's records."""
        self._bump = True

    # -- what happens to it

    def _abortable(self, error: KafkaError) -> None:
        if self.state is ProducerState.INITIALIZING:
            self._fail_for_good(error)
            return
        if self.state not in (ProducerState.IN_TRANSACTION, ProducerState.COMMITTING, ProducerState.ABORTABLE_ERROR):
            return
        self._go(ProducerState.ABORTABLE_ERROR)
        self.error = self.error or error
        self._settle_offsets(error)
        self._settle(error)

    def give_up_offsets(self, error: KafkaError) -> None:
        """Fail a commit whose offsets are not stored; nothing once its end was asked for."""
        if self.state is ProducerState.COMMITTING and self._offsets:
            self._abortable(error)

    def _fail_for_good(self, error: KafkaError) -> None:
        self.state = ProducerState.FATAL_ERROR  # not by _go: it may follow any state
        self.error = error
        self._settle_offsets(error)
        self._settle(error)

    def _ended(self) -> None:
        """End the transaction and its call."""
        # The call ends here, before the new epoch: the epoch is the next transaction's. If its refusal were raised
        # by this call, a commit that was made would look like one that failed. After doubts the epoch is needed,
        # since an EndTxn without an answer may still arrive, and would end the next transaction (KIP-890).
        # Version 2 begins with an epoch of its own, too: late requests of version 1 would add to its transaction.
        self._bump = self._bump or (self.offers_version_2 and not self.version_2)
        self._started = False
        self._partitions.clear()
        self._new_partitions.clear()
        self._go(ProducerState.INITIALIZING if self._bump else ProducerState.READY)
        self._settle()

    def end(self, gone: KafkaError) -> None:
        """Take in that the thread has ended: nothing will be asked any more."""
        if self.state is not ProducerState.FATAL_ERROR:
            self._fail_for_good(gone)
        self._settle(gone)

    def _settle(self, error: KafkaError | None = None) -> None:
        if self.result is not None:
            self.result.settle(error)
            self.result = None

    def _settle_offsets(self, error: KafkaError) -> None:
        for pending in self._offsets:
            pending.result.settle(error)
        self._offsets.clear()

    # -- what the sender asks

    def end_untold(self, settled: bool) -> bool:
        """End a transaction that the coordinator was told nothing of; return whether there was one.

        ``settled``: no batch of it is queued, in flight or on the wire.
        """
        if self.state not in _ENDING or self._started or not settled or self._asked is not None:
            return False
        if self.state is ProducerState.COMMITTING and (self._new_partitions or self._offsets):
            return False
        self._ended()
        return True

    def next_ask(self, now_s: float, settled: bool) -> TransactionRequest | None:
        """Return the next request, or None; at most one is on its way.

        Call ``end_untold`` first. ``settled``: as there.
        """
        # One at a time: the answer may change what is to be asked next.
        if self._asked is not None or now_s < self._not_before or self.state is ProducerState.FATAL_ERROR:
            return None
        found = self._decide(settled)
        if found is not None:
            self._asked = found
        return found

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until :meth:`next_ask` may say more; infinity: until an event."""
        if self._asked is None and now_s < self._not_before:
            return self._not_before - now_s
        return float("inf")

    def _decide(self, settled: bool) -> TransactionRequest | None:
        if not self.is_transactional:
            if self.sequences.has_id:
                return None
            return ask.init_producer_id(None, self._timeout_ms, None, self.sequences, fresh=True)
        wanted = self._wanted(settled)
        if wanted is None:
            return None
        if self.coordinator is None and wanted is not RequestKind.COMMIT_OFFSETS:
            return ask.find_transaction_coordinator(self._id)
        return self._request(wanted)

    def _wanted(self, settled: bool) -> RequestKind | None:
        """Return the kind of the next request, if one is due."""
        if self.state is ProducerState.INITIALIZING:
            return RequestKind.INIT_PRODUCER_ID
        if self.state in (ProducerState.IN_TRANSACTION, ProducerState.COMMITTING):
            if self._new_partitions:
                return RequestKind.ADD_PARTITIONS
            if self._offsets:
                return RequestKind.COMMIT_OFFSETS if self._offsets[0].added else RequestKind.ADD_OFFSETS
        # Not before all is settled: records that arrive after the end would belong to the next transaction.
        return RequestKind.END if settled and self.state in _ENDING else None

    def _request(self, kind: RequestKind) -> TransactionRequest:
        if kind is RequestKind.INIT_PRODUCER_ID:
            fresh = not self.sequences.has_id
            return ask.init_producer_id(self._id, self._timeout_ms, self.coordinator, self.sequences, fresh=fresh)
        if kind is RequestKind.ADD_PARTITIONS:
            self._started = True  # when it is asked, not when it is answered: the answer may get lost
            return ask.add_partitions(self._id, self.coordinator, self.sequences, self._new_partitions)
        if kind is RequestKind.END:
            commit = self.state is ProducerState.COMMITTING
            return ask.end(self._id, self.coordinator, self.sequences, commit, version_2=self.version_2)
        pending = self._offsets[0]
        if kind is RequestKind.ADD_OFFSETS:
            self._started = True
            return ask.add_offsets(self._id, self.coordinator, self.sequences, pending.group.group_id)
        broker = self._group_coordinators.get(pending.group.group_id)
        if broker is None:
            return ask.find_group_coordinator(pending.group.group_id)
        self._started = True
        held, group, offsets = self.sequences, pending.group, pending.offsets
        return ask.commit_offsets(self._id, broker, held, group, offsets, version_2=self.version_2)

    @property
    def _id(self) -> str:
        assert self.transactional_id is not None
        return self.transactional_id

    # -- what came back

    def failed(self, asked: TransactionRequest, error: KafkaError, now_s: float) -> None:
        """Take note that no answer came: ask again, or fail for good."""
        self._asked = None
        if self.state is ProducerState.FATAL_ERROR:
            return  # a batch was fenced meanwhile: that is the reason to keep
        # The coordinator may have done what it was asked, or may do it later. So the same is asked again, and the next
        # transaction takes a new epoch, which late requests cannot reach. Without transactions a refusal is no end
        # either: nothing is at stake, and a broker that lets us in later will give an id.
        if error.retriable or (not self.is_transactional and isinstance(error, (AuthenticationFailed, MalformedFrame))):
            if isinstance(error, Disconnected) and asked.kind not in (
                RequestKind.FIND_COORDINATOR,
                RequestKind.INIT_PRODUCER_ID,
            ):
                self._bump = True
            self.trouble = error
            self._forget_coordinator(asked)
            self._back_off(now_s, self._retry)
            return
        self._fail_for_good(error)

    def answered(
        self, asked: TransactionRequest, response: Any, now_s: float
    ) -> None:  # Any: of the type the request names
        """Take in an answer, with the errors that stand in it."""
        self._asked = None
        if self.state is ProducerState.FATAL_ERROR:
            return
        if asked.kind is RequestKind.COMMIT_OFFSETS and not self._offsets:
            return  # aborted meanwhile
        fault, what = self._refusal(asked, response)
        if fault is not None:
            self._handle(asked, fault, now_s, what)
            return
        if asked.kind is RequestKind.COMMIT_OFFSETS and self._offsets[0].offsets:
            # An offset that the answer leaves out is not stored: without it the commit would be less than was asked.
            self.trouble = MalformedFrame(f"The answer says nothing of the offset of {min(self._offsets[0].offsets)}.")
            self._back_off(now_s, self._retry)
            return
        self._tries = 0
        self.trouble = None
        if asked.kind is RequestKind.FIND_COORDINATOR:
            self.coordinator = Broker(response.node_id, response.host, response.port).dedicated("transaction")
        elif asked.kind is RequestKind.FIND_GROUP_COORDINATOR:
            assert isinstance(asked.request, FindCoordinatorRequest)
            broker = Broker(response.node_id, response.host, response.port).dedicated("transaction")
            self._group_coordinators[asked.request.key] = broker
        elif asked.kind is RequestKind.INIT_PRODUCER_ID:
            self._initialized(response.producer_id, response.producer_epoch)
        elif asked.kind is RequestKind.ADD_OFFSETS and self._offsets:
            self._offsets[0].added = True
        elif asked.kind is RequestKind.COMMIT_OFFSETS:
            self._offsets.pop(0).result.settle()
        elif asked.kind is RequestKind.END:
            self._take_next_epoch(response)
            self._ended()

    def _take_next_epoch(self, response: EndTxnResponse) -> None:
        """Take the next id and epoch, where EndTxn gave them."""
        # It is the answer to doubts, too: nothing of the transaction that ended can arrive under it. A second EndTxn is
        # answered like the first; when the epochs are used up, the id is new.
        if response.producer_id != NO_PRODUCER_ID:
            self.sequences.set_id(response.producer_id, response.producer_epoch)
            self._bump = False

    def _refusal(self, asked: TransactionRequest, response: Any) -> tuple[type[BrokerError] | None, str]:
        """Return the error in an answer, if any, and what it refuses.

        Two kinds answer partition by partition; those that went well are noted, and need not be asked again.
        """
        if asked.kind is RequestKind.ADD_PARTITIONS:
            rows = {
                TopicPartition(topic.name, row.partition_index): error_class(row.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            }
            added = {tp for tp, fault in rows.items() if fault is None}
            self._new_partitions -= added
            self._partitions |= added
            what = "Adding %s to the transaction"
        elif asked.kind is RequestKind.COMMIT_OFFSETS:
            rows = {tp: error_class(row.error_code) for tp, row in partition_rows(response.topics)}
            pending = self._offsets[0]
            pending.offsets = {tp: row for tp, row in pending.offsets.items() if rows.get(tp, BrokerError) is not None}
            what = f"Storing the offset of %s for group {pending.group.group_id!r}"
        else:
            fault = error_class(response.error_code)
            finds = asked.kind in (RequestKind.FIND_COORDINATOR, RequestKind.FIND_GROUP_COORDINATOR)
            # An answer without a usable address names no coordinator either.
            if fault is None and finds and (response.node_id < 0 or not 0 < response.port < 1 << 16):
                fault = CoordinatorNotAvailable
            return fault, ""
        # A partition to be added was passed over because another one was refused, and is asked for again. Offsets that
        # were not attempted are not stored: for them it is an error.
        passed_over = OperationNotAttempted if asked.kind is RequestKind.ADD_PARTITIONS else None
        refused = {tp: fault for tp, fault in rows.items() if fault is not None and fault is not passed_over}
        if not refused:
            return None, ""
        tp, fault = ask.worst(refused)
        return fault, what.replace("%s", str(tp), 1)

    def _initialized(self, producer_id: int, producer_epoch: int) -> None:
        self.sequences.set_id(producer_id, producer_epoch)
        self._bump = False
        self.version_2 = self.is_transactional and self.offers_version_2
        if self.is_transactional:
            self._go(ProducerState.READY)
            self._settle()

    # -- errors

    def _handle(self, asked: TransactionRequest, fault: type[BrokerError], now_s: float, what: str = "") -> None:
        """React to an error by its table: ask again, or fail the transaction or the producer."""
        name = self.transactional_id
        whose = "an idempotent producer" if name is None else f"the transactional id {name!r}"
        error = fault(what or f"{asked.kind.value} of {whose}")
        reaction = ask.reaction_to(asked.kind, fault)
        if reaction in (Reaction.FIND_COORDINATOR, Reaction.RETRY):
            self.trouble = error
        if reaction is Reaction.FIND_COORDINATOR:
            self._forget_coordinator(asked)
            self._back_off(now_s, self._retry)
        elif reaction is Reaction.RETRY:
            soon = replace(self._retry, initial=min(_CONCURRENT_BACKOFF_S, self._retry.initial))
            self._back_off(now_s, soon if fault is ConcurrentTransactions else self._retry)
        elif reaction is Reaction.FENCED:
            self._fail_for_good(ask.fenced(fault, what or asked.kind.value, name))
        elif reaction is Reaction.ABORTABLE and self.state is ProducerState.ABORTING:
            self._bump = True
            # An AddPartitions whose answer was lost may never have arrived. Then the coordinator knows of no
            # transaction and has nothing to abort; the next epoch makes sure of that.
            if asked.kind is RequestKind.END:
                self._ended()
        elif reaction is Reaction.ABORTABLE:
            self._bump = self._bump or ask.needs_new_epoch(fault)
            failed = TransactionFailed(f"{error} {ask.ABORT}")
            failed.__cause__ = error
            self._abortable(failed)
        else:
            self._fail_for_good(error)

    def _forget_coordinator(self, asked: TransactionRequest) -> None:
        if asked.kind is RequestKind.COMMIT_OFFSETS:
            self._group_coordinators.clear()
        else:
            self.coordinator = None

    def _back_off(self, now_s: float, backoff: Backoff) -> None:
        self._tries += 1
        self._not_before = now_s + backoff.delay(self._tries, self._uniform)

    # -- states

    def _go(self, state: ProducerState) -> None:
        if state not in ALLOWED[self.state]:
            raise RuntimeError(f"a transaction {self.state.value} cannot become {state.value}")
        self.state = state

    def _require_transactional(self, call: str) -> None:
        if not self.is_transactional:
            raise IllegalProducerState(f"{call} needs a producer with transactional_id set, and this one has none.")

    def _require(self, call: str, *states: ProducerState) -> None:
        if self.state in states:
            return
        # A copy each time: one object would gather the frames of all its raises, and keep their records in memory.
        if self.state in (ProducerState.FATAL_ERROR, ProducerState.ABORTABLE_ERROR):
            assert self.error is not None
            raise copy_of(self.error)
        state = ProducerState.READY if self.takes_epoch else self.state
        raise IllegalProducerState(f"{call} is not possible now: the producer is {state.value}.{_hint(state)}")


def _hint(state: ProducerState) -> str:
    return {
        ProducerState.UNINITIALIZED: " Call init_transactions() first, once.",
        ProducerState.READY: " Call begin_transaction() first.",
        ProducerState.IN_TRANSACTION: " Call commit_transaction() or abort_transaction() first.",
        ProducerState.COMMITTING: " Call commit_transaction() again to wait for its end.",
        ProducerState.ABORTING: " Call abort_transaction() again to wait for its end.",
        ProducerState.INITIALIZING: " Call init_transactions() again to wait for its end.",
    }.get(state, "")
