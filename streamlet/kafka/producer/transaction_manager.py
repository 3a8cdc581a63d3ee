"""Producer id and transactions, as decisions: what to ask next, and what an answer means (Java: TransactionManager).

Pure; whoever holds the producer's lock calls. One request is on its way at a time: what is next follows from the state
and from what is still to be told, so there is no queue that could disagree with them. The protocol is that of brokers
2.1 to 3.9 (KIP-98, KIP-360, KIP-447), which 4.x speaks too.
"""

from __future__ import annotations

from typing import Any

from streamlet.kafka.broker_errors import ConcurrentTransactions, OperationNotAttempted, error_class
from streamlet.kafka.errors import AuthenticationFailed, BrokerError, Disconnected, KafkaError, MalformedFrame
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.producer import transaction_faults as faults
from streamlet.kafka.producer import transaction_requests as ask
from streamlet.kafka.producer.errors import ProducerFenced, TransactionFailed
from streamlet.kafka.producer.transaction_progress import TransactionProgress
from streamlet.kafka.producer.transaction_state import Ask, Kind, State
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest

_CONCURRENT_BACKOFF_S = 0.02
"""A commit just before is written to its partitions within milliseconds; waiting the whole back-off would cost more."""


class TransactionManager(TransactionProgress):
    """What to ask, and what the answers mean."""

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
            return Kind.INIT_PRODUCER_ID if self._ended() else None
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
        """No answer came. What was asked may have been done: it is asked again, and the epoch changes afterwards.

        For an id alone a refusal is no end: nothing is at stake, and a broker that lets us in later will give one.
        """
        self._asked = None
        if error.retriable or (not self.is_transactional and isinstance(error, (AuthenticationFailed, MalformedFrame))):
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
            assert isinstance(asked.request, FindCoordinatorRequest)
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
        name = self.transactional_id
        whose = "an idempotent producer" if name is None else f"the transactional id {name!r}"
        error = fault(what or f"{asked.kind.value} of {whose}")
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
            self._bump = True
            if asked.kind is Kind.END:  # the broker has nothing left to abort: the next epoch makes sure
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
