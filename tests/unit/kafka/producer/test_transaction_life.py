"""Transactions of both versions against a cluster that checks them, in any order of events.

Requests are lost before or after they are done, or come late; batches expire; brokers begin to offer version 2, and are
rolled back. What was committed is visible whole and once, what was aborted never, and nothing stands still.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import TransactionAbortable
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
from streamlet.kafka.errors import Disconnected
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.errors import OutcomeUnknown
from streamlet.kafka.producer.producer_batch import Sequences
from streamlet.kafka.producer.transaction import ProducerState, TransactionManager, TransactionResult
from streamlet.kafka.producer.transaction_requests import RequestKind, TransactionRequest
from streamlet.kafka.protocol.messages.groups import FindCoordinatorResponse
from streamlet.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

PLACES = [TopicPartition("t", number) for number in range(2)]
GROUP = "g"
LAST_EPOCH = 3
"""Of an id; Kafka's is 32766."""
STALE, WRONG_STATE, CONCURRENT, LOADING, NOT_COORDINATOR, FENCED, ABORTABLE = 47, 48, 51, 14, 16, 90, 120

Label = tuple[int, int]
"""(number of its transaction, number of the record or offset)."""
Who = tuple[int, int]
"""(producer id, epoch)."""


@dataclass
class Batch:
    """One record, under the id, epoch and sequence that it left with."""

    tp: TopicPartition
    label: Label
    who: Who = (-1, -1)
    sequence: int = -1
    version_2: bool = False
    over: bool = False


@dataclass
class Kafka:
    """One transactional id, as TransactionCoordinator and the leaders keep it."""

    who: Who = (7, -1)
    before: Who = (-1, -1)
    """What an end or an InitProducerId whose answer was lost was asked with."""
    last_end: bool | None = None
    """Whether the last transaction was committed; None: there was none under this epoch's id."""
    ongoing: set[object] = field(default_factory=set)
    """Partitions and group of the open transaction."""
    open: list[Label] = field(default_factory=list)
    visible: list[Label] = field(default_factory=list)
    written: set[tuple[Who, TopicPartition, int]] = field(default_factory=set)

    def _next(self) -> None:
        self.before = self.who
        number, epoch = self.who
        self.who = (number, epoch + 1) if epoch < LAST_EPOCH else (number + 1, 0)

    def _end(self, commit: bool) -> None:
        self.visible += self.open if commit else []
        self.last_end, self.ongoing, self.open = commit, set(), []

    def begin(self, held: Who) -> int:
        """InitProducerId."""
        if held == (-1, -1) or held == self.who:
            self._end(False)
            self._next()
            self.last_end = None
            return 0
        return 0 if held == self.before else FENCED

    def add(self, who: Who, what: object) -> int:
        if who != self.who:
            return STALE
        self.ongoing.add(what)
        return 0

    def _takes(self, who: Who, what: object, version_2: bool) -> int:
        if version_2:
            return self.add(who, what)
        return STALE if who != self.who else 0 if what in self.ongoing else WRONG_STATE

    def produce(self, batch: Batch) -> int:
        if (batch.who, batch.tp, batch.sequence) in self.written:
            return 0  # the leader knows it before it asks the coordinator
        code = self._takes(batch.who, batch.tp, batch.version_2)
        if not code:
            self.written.add((batch.who, batch.tp, batch.sequence))
            self.open.append(batch.label)
        return code

    def store(self, who: Who, label: Label, version_2: bool) -> int:
        code = self._takes(who, GROUP, version_2)
        if not code and label not in self.open:
            self.open.append(label)
        return code

    def end(self, who: Who, commit: bool, version_2: bool) -> int:
        if version_2 and who == self.before and who != self.who:
            return FENCED if self.ongoing else 0 if self.last_end is commit else WRONG_STATE
        if who != self.who:
            return FENCED
        if not self.ongoing and (commit or not version_2):
            return 0 if self.last_end is commit and not version_2 else WRONG_STATE
        self._end(commit)
        if version_2:
            self._next()
        return 0


def answer_of(kafka: Kafka, kind: RequestKind, request: Any) -> Any:
    """Do what is asked, and answer."""
    if kind in (RequestKind.FIND_COORDINATOR, RequestKind.FIND_GROUP_COORDINATOR):
        return FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1)
    if kind is RequestKind.ADD_PARTITIONS:
        who = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        numbers = [number for topic in request.v3_and_below_topics for number in topic.partitions]
        return added(numbers, max(kafka.add(who, TopicPartition("t", number)) for number in numbers))
    who = (request.producer_id, request.producer_epoch)
    if kind is RequestKind.INIT_PRODUCER_ID:
        code = kafka.begin(who)
        return InitProducerIdResponse(error_code=code, producer_id=kafka.who[0], producer_epoch=kafka.who[1])
    if kind is RequestKind.ADD_OFFSETS:
        return AddOffsetsToTxnResponse(error_code=kafka.add(who, GROUP))
    if kind is RequestKind.COMMIT_OFFSETS:
        (row,) = request.topics[0].partitions
        return stored(kafka.store(who, divmod(row.committed_offset, 1000), request.version_2))
    code = kafka.end(who, request.committed, request.version_2)
    after = kafka.who if request.version_2 and not code else (-1, -1)
    return EndTxnResponse(error_code=code, producer_id=after[0], producer_epoch=after[1])


def added(numbers: list[int], code: int) -> AddPartitionsToTxnResponse:
    rows = tuple(
        AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code) for number in numbers
    )
    row = AddPartitionsToTxnTopicResult(name="t", results_by_partition=rows)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(row,))


def stored(code: int) -> TxnOffsetCommitResponse:
    part = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
    return TxnOffsetCommitResponse(topics=(TxnOffsetCommitResponseTopic(name="t", partitions=(part,)),))


def refusal(kind: RequestKind, request: Any, code: int) -> Any:
    """An answer of a coordinator that did nothing."""
    if kind in (RequestKind.FIND_COORDINATOR, RequestKind.FIND_GROUP_COORDINATOR):
        return FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
    if kind is RequestKind.ADD_PARTITIONS:
        return added([number for topic in request.v3_and_below_topics for number in topic.partitions], code)
    if kind is RequestKind.COMMIT_OFFSETS:
        return stored(code)
    if kind is RequestKind.INIT_PRODUCER_ID:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return (AddOffsetsToTxnResponse if kind is RequestKind.ADD_OFFSETS else EndTxnResponse)(error_code=code)


class TransactionLife(RuleBasedStateMachine):
    """One producer and its user."""

    def __init__(self) -> None:
        super().__init__()
        self.kafka = Kafka()
        self.sequences = Sequences(True)
        self.manager = TransactionManager(self.sequences, "x", 60_000, Backoff(0.1, 1.0), lambda: 0.5)
        self.asked: TransactionRequest | None = None
        self.queued: list[Batch] = []
        self.wire: list[Batch] = []
        self.late: list[Batch | TransactionRequest] = []
        """Requests whose connection was lost before anybody read them."""
        self.next_sequence: dict[tuple[Who, TopicPartition], int] = {}
        self.number = 0
        self.labels: dict[int, list[Label]] = {0: []}
        self.ending: TransactionResult | None = None
        self.commits = False
        self.committed: set[int] = set()
        self.now = 0.0

    @initialize(version_2=st.booleans())
    def start(self, version_2: bool) -> None:
        self.manager.offers_version_2 = version_2
        self.manager.begin_initialize()
        self._finish()

    # -- the user

    @precondition(lambda self: self.manager.state is ProducerState.READY)
    @rule(sends=st.lists(st.sampled_from(PLACES), max_size=3))
    def begin(self, sends: list[TopicPartition]) -> None:
        self.manager.begin_transaction()
        self.number += 1
        self.labels[self.number] = []
        for tp in sends:
            self.send(tp)

    def _label(self) -> Label:
        label = (self.number, len(self.labels[self.number]))
        self.labels[self.number].append(label)
        return label

    @precondition(lambda self: self.manager.state is ProducerState.IN_TRANSACTION)
    @rule(tp=st.sampled_from(PLACES))
    def send(self, tp: TopicPartition) -> None:
        self.manager.check_may_send(tp)
        self.queued.append(Batch(tp, self._label()))

    @precondition(lambda self: self.manager.state is ProducerState.IN_TRANSACTION)
    @rule()
    def store(self) -> None:
        number, at = self._label()
        self.manager.send_offsets({PLACES[0]: OffsetAndMetadata(1000 * number + at)}, ConsumerGroupMetadata(GROUP))

    @precondition(lambda self: self.manager.state is ProducerState.IN_TRANSACTION)
    @rule()
    def commit(self) -> None:
        self.ending, self.commits = self.manager.begin_commit(), True

    @precondition(lambda self: self.manager.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR))
    @rule()
    def abort(self) -> None:
        self.ending, self.commits = self.manager.begin_abort(), False

    # -- the sender's thread

    def _settled(self) -> bool:
        aborts = (ProducerState.ABORTING, ProducerState.ABORTABLE_ERROR, ProducerState.FATAL_ERROR)
        if self.manager.state in aborts:
            self.queued.clear()
        return not self.queued and not self.wire

    @rule()
    def ask(self) -> None:
        settled = self._settled()
        self.now += 10
        if self.asked is None:
            self.manager.end_untold(settled)
            self.asked = self.manager.next_ask(self.now, settled)
        self._look()

    @rule()
    def drain(self) -> None:
        self._settled()
        for batch in [batch for batch in self.queued if self.manager.may_send_to(batch.tp)]:
            if batch.sequence < 0:
                batch.who = (self.sequences.producer_id, self.sequences.producer_epoch)
                batch.sequence = self.next_sequence.get((batch.who, batch.tp), 0)
                self.next_sequence[batch.who, batch.tp] = batch.sequence + 1
            batch.version_2 = self.manager.version_2
            self.manager.batch_leaves()
            self.queued.remove(batch)
            self.wire.append(batch)

    @rule(version_2=st.booleans())
    def offer(self, version_2: bool) -> None:
        self.manager.offers_version_2 = version_2

    # -- answers, and none

    @precondition(lambda self: self.asked)
    @rule()
    def answer(self) -> None:
        asked, self.asked = self.asked, None
        assert asked is not None
        self.manager.answered(asked, answer_of(self.kafka, asked.kind, asked.request), self.now)
        self._look()

    @precondition(lambda self: self.asked)
    @rule(code=st.sampled_from([CONCURRENT, LOADING, NOT_COORDINATOR, ABORTABLE]))
    def refuse(self, code: int) -> None:
        asked, self.asked = self.asked, None
        assert asked is not None
        # Only of a transaction that is open: it ends a producer that is in none, and no end is taken back by it.
        if code == ABORTABLE and (asked.kind is RequestKind.INIT_PRODUCER_ID or not self.kafka.ongoing):
            code = LOADING
        self.manager.answered(asked, refusal(asked.kind, asked.request, code), self.now)
        self._look()

    @precondition(lambda self: self.asked)
    @rule(done=st.sampled_from(["yes", "late", "never"]))
    def lose(self, done: str) -> None:
        asked, self.asked = self.asked, None
        assert asked is not None
        if done == "yes":
            answer_of(self.kafka, asked.kind, asked.request)
        elif done == "late":
            self.late.append(asked)
        self.manager.failed(asked, Disconnected("gone"), self.now)
        self._look()

    @precondition(lambda self: self.wire)
    @rule()
    def arrive(self) -> None:
        batch = self.wire.pop(0)
        code = self.kafka.produce(batch)
        assert batch.over or not code, f"{batch} was refused with {code}"

    @precondition(lambda self: self.wire)
    @rule(done=st.sampled_from(["yes", "late", "never"]))
    def lose_batch(self, done: str) -> None:
        batch = self.wire.pop(0)
        if done == "yes":
            self.kafka.produce(batch)
        elif done == "late":
            self.late.append(Batch(batch.tp, batch.label, batch.who, batch.sequence, batch.version_2, over=True))
        if not batch.over:
            self.queued.insert(0, batch)

    @precondition(lambda self: any(not batch.over for batch in self.wire))
    @rule(refused=st.booleans())
    def give_up(self, refused: bool) -> None:
        """A batch expires while its request is open, or is refused for good."""
        batch = next(batch for batch in self.wire if not batch.over)
        batch.over = True
        if refused:
            self.wire.remove(batch)
        self.manager.batch_failed(TransactionAbortable("Writing") if refused else OutcomeUnknown("expired"))
        self._look()

    @precondition(lambda self: self.late)
    @rule(at=st.integers(0, 20))
    def come_late(self, at: int) -> None:
        found = self.late.pop(at % len(self.late))
        if isinstance(found, Batch):
            self.kafka.produce(found)
        else:
            answer_of(self.kafka, found.kind, found.request)

    # -- what must hold

    def _look(self) -> None:
        assert self.manager.state is not ProducerState.FATAL_ERROR, self.manager.error
        if self.ending is not None and self.ending.done:
            if self.commits and self.ending.error is None:
                self.committed.add(self.number)
            self.manager.claimed(self.ending)
            self.ending = None

    @invariant()
    def what_is_committed_is_visible_whole_and_once_and_nothing_else_is(self) -> None:
        visible = self.kafka.visible
        assert len(visible) == len(set(visible)), "a record is there twice"
        # A commit whose end is asked for may be made before its answer is here.
        under_way = {self.number} if self.ending is not None and self.commits else set()
        assert {number for number, _ in visible} <= self.committed | under_way
        for number in self.committed:
            assert set(self.labels[number]) <= set(visible), "a record of a commit is missing"

    def _finish(self) -> None:
        for _ in range(100):
            if self.manager.state is ProducerState.READY:
                return
            if self.manager.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR):
                self.abort()
            self.drain()
            while self.wire:
                self.arrive()
            self.ask()
            if self.asked:
                self.answer()
        raise AssertionError(f"still {self.manager.state}")

    def teardown(self) -> None:
        if self.sequences.has_id:
            self._finish()
            while self.late:
                self.come_late(0)
            self.what_is_committed_is_visible_whole_and_once_and_nothing_else_is()


TestTransactionLife = TransactionLife.TestCase
TestTransactionLife.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
