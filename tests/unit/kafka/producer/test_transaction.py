"""Transactions as decisions: the table of states, what is asked in which order, and what each error leads to."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import InvalidProducerEpoch, error_class
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
from streamlet.kafka.errors import Disconnected, KafkaError, MalformedFrame
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.producer.errors import IllegalProducerState, OutcomeUnknown, ProducerFenced, TransactionFailed
from streamlet.kafka.producer.producer_batch import MAX_EPOCH, Sequences
from streamlet.kafka.producer.transaction import ALLOWED, ProducerState, TransactionManager
from streamlet.kafka.producer.transaction_requests import RequestKind
from streamlet.kafka.protocol.messages.groups import FindCoordinatorResponse
from streamlet.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

TP = TopicPartition("t", 0)


both = pytest.mark.parametrize("version", [1, 2])
"""What holds for transactions of version 1 and of version 2 (KIP-890)."""


class Coordinator:
    """Answers what the manager asks; ``errors`` has the codes of the next answers of a kind."""

    def __init__(self, transactional_id: str | None = "x", version: int = 1) -> None:
        self.sequences = Sequences(transactional_id is not None)
        self.manager = TransactionManager(self.sequences, transactional_id, 60_000, Backoff(0.1, 1.0), lambda: 0.5)
        self.manager.offers_version_2 = version == 2
        self.errors: dict[RequestKind, list[int | KafkaError]] = {}
        self.asked: list[RequestKind] = []
        self.requests: list[Any] = []
        self.now = 0.0
        self.epoch = 0

    def run(self, settled: bool = True, limit: int = 50) -> list[RequestKind]:
        """Until nothing more is asked; what was."""
        before = len(self.asked)
        for _ in range(limit):
            self.manager.end_untold(settled)
            asked = self.manager.next_ask(self.now, settled)
            if asked is None:
                if self.manager.wait_s(self.now) == float("inf"):
                    break
                self.now += self.manager.wait_s(self.now)
                continue
            self.asked.append(asked.kind)
            self.requests.append(asked.request)
            found = self.errors.get(asked.kind) or [0]
            answer = found.pop(0)
            if isinstance(answer, KafkaError):
                self.manager.failed(asked, answer, self.now)
            else:
                self.manager.answered(asked, self.answer(asked.kind, asked.request, answer), self.now)
        return self.asked[before:]

    def answer(self, kind: RequestKind, request: Any, code: int) -> Any:
        if kind in (RequestKind.FIND_COORDINATOR, RequestKind.FIND_GROUP_COORDINATOR):
            return FindCoordinatorResponse(error_code=code, node_id=1, host="h", port=1)
        if kind is RequestKind.INIT_PRODUCER_ID:
            assert isinstance(request, InitProducerIdRequest)
            self.epoch += 1
            return InitProducerIdResponse(error_code=code, producer_id=9, producer_epoch=self.epoch)
        if kind is RequestKind.ADD_PARTITIONS:
            assert isinstance(request, AddPartitionsToTxnRequest)
            rows = tuple(
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=tuple(
                        AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                        for number in topic.partitions
                    ),
                )
                for topic in request.v3_and_below_topics
            )
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)
        if kind is RequestKind.ADD_OFFSETS:
            return AddOffsetsToTxnResponse(error_code=code)
        if kind is RequestKind.COMMIT_OFFSETS:
            part = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
            return TxnOffsetCommitResponse(topics=(TxnOffsetCommitResponseTopic(name="t", partitions=(part,)),))
        assert isinstance(request, EndTxnRequest) and request.producer_epoch == self.sequences.producer_epoch
        if not request.version_2 or code:
            return EndTxnResponse(error_code=code)
        self.epoch += 1
        return EndTxnResponse(error_code=code, producer_id=9, producer_epoch=self.epoch)

    def in_transaction(self) -> TransactionManager:
        """Begin one, with a record that is on its way where it may be."""
        self.manager.begin_initialize()
        self.run()
        self.begin_with_a_record()
        return self.manager

    def begin_with_a_record(self) -> None:
        self.manager.begin_transaction()
        self.manager.check_may_send(TP)
        if self.manager.may_send_to(TP):
            self.manager.batch_leaves()


def test_the_table_has_every_state_and_nothing_leaves_a_fatal_error() -> None:
    """A move that is not in it is a mistake of ours."""
    assert set(ALLOWED) == set(ProducerState)
    assert not ALLOWED[ProducerState.FATAL_ERROR]
    manager = Coordinator().manager
    for start in ProducerState:
        for end in ProducerState:
            manager.state = start
            if end in ALLOWED[start]:
                manager._go(end)
                assert manager.state is end
            else:
                with pytest.raises(RuntimeError, match="cannot become"):
                    manager._go(end)


def test_a_transaction_asks_in_this_order() -> None:
    """Coordinator, id; partitions; offsets with the group's coordinator; the end only when all is settled."""
    far = Coordinator()
    manager = far.in_transaction()
    assert far.asked == [RequestKind.FIND_COORDINATOR, RequestKind.INIT_PRODUCER_ID]
    assert not manager.may_send_to(TP)
    assert far.run() == [RequestKind.ADD_PARTITIONS]
    assert manager.may_send_to(TP)
    result = manager.send_offsets({TP: OffsetAndMetadata(5)}, ConsumerGroupMetadata("g", 3, "m"))
    assert far.run() == [RequestKind.ADD_OFFSETS, RequestKind.FIND_GROUP_COORDINATOR, RequestKind.COMMIT_OFFSETS]
    assert result.done and result.error is None
    assert (far.requests[-1].generation_id, far.requests[-1].member_id) == (3, "m")
    commit = manager.begin_commit()
    assert far.run(settled=False) == [] and not commit.done
    assert far.run() == [RequestKind.END] and far.requests[-1].committed
    assert commit.done and commit.error is None and manager.state is ProducerState.READY


def test_a_transaction_of_version_2_announces_nothing_and_begins_each_with_the_epoch_of_the_last_end() -> None:
    """Records at once, offsets as soon as the group's coordinator is known; sequences begin at 0 again."""
    far = Coordinator(version=2)
    manager = far.in_transaction()
    epoch = far.sequences.producer_epoch
    assert manager.may_send_to(TP) and far.run() == []
    far.sequences.of(TP).next = 7
    result = manager.send_offsets({TP: OffsetAndMetadata(5)}, ConsumerGroupMetadata("g", 3, "m"))
    assert far.run() == [RequestKind.FIND_GROUP_COORDINATOR, RequestKind.COMMIT_OFFSETS]
    assert result.done and far.requests[-1].version_2
    for end, commits in (("begin_commit", True), ("begin_abort", False), ("begin_commit", True)):
        result = getattr(manager, end)()
        assert far.run(settled=False) == [] and far.run() == [RequestKind.END] and result.done
        assert far.requests[-1].version_2 and far.requests[-1].committed is commits
        assert manager.state is ProducerState.READY and far.sequences.producer_epoch == epoch + 1
        assert far.sequences.of(TP).next == 0
        epoch += 1
        far.begin_with_a_record()


def test_when_the_epochs_are_used_up_the_next_transaction_of_version_2_has_a_new_id() -> None:
    """It stands in the answer to EndTxn like any other."""
    far = Coordinator(version=2)
    manager = far.in_transaction()
    manager.begin_commit()
    asked = manager.next_ask(far.now, True)
    assert asked is not None and asked.kind is RequestKind.END
    manager.answered(asked, EndTxnResponse(error_code=0, producer_id=10, producer_epoch=0), far.now)
    assert (far.sequences.producer_id, far.sequences.producer_epoch) == (10, 0)
    manager.begin_transaction()


def test_version_2_begins_with_the_next_transaction_and_an_epoch_of_its_own() -> None:
    """Whenever the brokers come to offer it; a transaction that is open goes on as it began."""
    far = Coordinator()
    manager = far.in_transaction()
    far.run()
    manager.offers_version_2 = True
    manager.check_may_send(TopicPartition("t", 1))
    assert far.run() == [RequestKind.ADD_PARTITIONS]
    commit = manager.begin_commit()
    assert far.run() == [RequestKind.END, RequestKind.INIT_PRODUCER_ID] and commit.done
    assert not far.requests[-2].version_2
    far.begin_with_a_record()
    assert manager.may_send_to(TP)
    manager.begin_commit()
    assert far.run() == [RequestKind.END] and far.requests[-1].version_2


def test_version_2_that_is_offered_between_two_transactions_waits_for_the_end_of_the_next() -> None:
    """No new epoch was taken: a late request of version 1 would add its partition to the transaction."""
    far = Coordinator()
    manager = far.in_transaction()
    far.run()
    manager.begin_commit()
    far.run()
    manager.offers_version_2 = True
    manager.begin_transaction()
    assert not manager.version_2
    manager.begin_commit()
    assert far.run() == [RequestKind.INIT_PRODUCER_ID], "an empty one ends it, too"
    manager.begin_transaction()
    assert manager.version_2


def test_version_2_that_is_taken_back_ends_with_the_transaction() -> None:
    """What is open ends as it began; the next is announced again, under the epoch that the end gave."""
    far = Coordinator(version=2)
    manager = far.in_transaction()
    manager.offers_version_2 = False
    commit = manager.begin_commit()
    assert far.run() == [RequestKind.END] and far.requests[-1].version_2 and commit.done
    far.begin_with_a_record()
    assert not manager.may_send_to(TP) and far.run() == [RequestKind.ADD_PARTITIONS]
    manager.begin_commit()
    assert far.run() == [RequestKind.END] and not far.requests[-1].version_2


def test_a_record_that_never_left_makes_no_transaction_of_version_2_known() -> None:
    """One that was refused after its partition was chosen: the coordinator would refuse the commit of nothing."""
    far = Coordinator(version=2)
    far.manager.begin_initialize()
    far.run()
    far.manager.begin_transaction()
    far.manager.check_may_send(TP)
    commit = far.manager.begin_commit()
    assert far.run() == [] and commit.done and commit.error is None


def test_an_idempotent_producer_without_transactions_has_none_of_version_2() -> None:
    """Its records add nothing to anything."""
    far = Coordinator(None, version=2)
    far.run()
    assert far.sequences.has_id and not far.manager.version_2


@both
def test_an_empty_transaction_asks_nothing(version: int) -> None:
    """Neither commit nor abort of one."""
    far = Coordinator(version=version)
    far.manager.begin_initialize()
    far.run()
    for end in ("begin_commit", "begin_abort"):
        far.manager.begin_transaction()
        result = getattr(far.manager, end)()
        assert far.run() == [] and result.done


@pytest.mark.parametrize("code", [15, 16])
@both
def test_the_coordinator_is_looked_for_again_when_it_moved(version: int, code: int) -> None:
    """Every kind of request."""
    far = Coordinator(version=version)
    manager = far.in_transaction()
    far.errors = {RequestKind.ADD_PARTITIONS: [code], RequestKind.END: [code]}
    announced = [RequestKind.ADD_PARTITIONS, RequestKind.FIND_COORDINATOR, RequestKind.ADD_PARTITIONS]
    assert far.run() == (announced if version == 1 else [])
    far.errors[RequestKind.COMMIT_OFFSETS] = [code]
    manager.send_offsets({TP: OffsetAndMetadata(5)}, ConsumerGroupMetadata("g"))
    assert far.run()[-3:] == [
        RequestKind.COMMIT_OFFSETS,
        RequestKind.FIND_GROUP_COORDINATOR,
        RequestKind.COMMIT_OFFSETS,
    ]
    manager.begin_commit()
    assert far.run() == [RequestKind.END, RequestKind.FIND_COORDINATOR, RequestKind.END]


def test_what_time_mends_is_asked_again_after_a_pause() -> None:
    """CONCURRENT_TRANSACTIONS after 20 ms, others after the back-off."""
    far = Coordinator()
    far.in_transaction()
    far.errors = {RequestKind.ADD_PARTITIONS: [51, 51, 14]}
    start = far.now
    assert far.run() == [RequestKind.ADD_PARTITIONS] * 4
    assert 0.1 < far.now - start < 1


def test_pauses_grow_while_a_transaction_before_cannot_end() -> None:
    """A partition of it has no leader: its coordinator was asked 50 times a second, for as long as that lasted."""
    manager = TransactionManager(Sequences(True), "x", 60_000, Backoff(0.1, 1.0), lambda: 0.5)
    manager.begin_initialize()
    manager.coordinator = Broker(1, "h", 1)
    now, pauses = 0.0, []
    while now < 60:
        ask = manager.next_ask(now, True)
        assert ask is not None
        manager.answered(ask, InitProducerIdResponse(error_code=51, producer_epoch=-1), now)
        pauses.append(manager.wait_s(now))
        now += pauses[-1]
    assert pauses[0] == pytest.approx(0.02) and pauses[-1] == pytest.approx(1.0) and len(pauses) < 70


@pytest.mark.parametrize(
    ("version", "kind", "code"),
    [(1, RequestKind.ADD_PARTITIONS, 29), (1, RequestKind.ADD_PARTITIONS, 120), (1, RequestKind.ADD_OFFSETS, 30)]
    + [(version, RequestKind.COMMIT_OFFSETS, code) for version in (1, 2) for code in (22, 25, 30, 82)]
    + [(2, RequestKind.COMMIT_OFFSETS, code) for code in (49, 59, 120)],
)
def test_some_errors_can_only_be_aborted(version: int, kind: RequestKind, code: int) -> None:
    """Every call says what failed until abort_transaction; then it goes on."""
    far = Coordinator(version=version)
    manager = far.in_transaction()
    far.errors = {kind: [code]}
    offsets = manager.send_offsets({TP: OffsetAndMetadata(5)}, ConsumerGroupMetadata("g"))
    far.run()
    assert manager.state is ProducerState.ABORTABLE_ERROR
    assert offsets.done and isinstance(offsets.error, TransactionFailed)
    fault = error_class(code)
    assert fault is not None
    for call in (lambda: manager.check_may_send(TP), manager.begin_commit, manager.begin_transaction):
        with pytest.raises(TransactionFailed, match=rf"{fault.__name__}.*abort_transaction\(\)"):
            call()
    result = manager.begin_abort()
    asked = far.run()
    assert result.done and result.error is None and manager.state is ProducerState.READY
    if version == 2:
        assert asked == [RequestKind.END], "which gives the new epoch"
    manager.begin_transaction()


@pytest.mark.parametrize("code", [47, 90, 52])
@pytest.mark.parametrize(
    ("version", "kind"),
    [(1, kind) for kind in (RequestKind.INIT_PRODUCER_ID, RequestKind.ADD_PARTITIONS, RequestKind.ADD_OFFSETS)]
    + [(2, RequestKind.COMMIT_OFFSETS), (1, RequestKind.END), (2, RequestKind.END)],
)
def test_f21_a_fenced_producer_can_only_be_closed(version: int, kind: RequestKind, code: int) -> None:
    """It asks nothing more, and every call says ProducerFenced."""
    far = Coordinator(version=version)
    far.errors = {kind: [code]}
    manager = far.manager
    first = manager.begin_initialize()
    far.run()
    if kind is RequestKind.INIT_PRODUCER_ID:
        assert isinstance(first.error, ProducerFenced)
    else:
        far.begin_with_a_record()
        if kind in (RequestKind.ADD_OFFSETS, RequestKind.COMMIT_OFFSETS):
            manager.send_offsets({TP: OffsetAndMetadata(5)}, ConsumerGroupMetadata("g"))
        result = manager.begin_commit()
        far.run()
        assert isinstance(result.error, ProducerFenced)
    assert manager.state is ProducerState.FATAL_ERROR and far.run() == []
    with pytest.raises(ProducerFenced, match="'x'"):
        manager.begin_transaction()
    assert not manager.may_send_to(TP)


def test_f21_a_fenced_batch_ends_the_producer_and_no_later_news_changes_the_reason() -> None:
    """The request that is on its way meanwhile may fail for good, too."""
    far = Coordinator()
    manager = far.in_transaction()
    asked = manager.next_ask(far.now, settled=False)
    assert asked is not None and asked.kind is RequestKind.ADD_PARTITIONS
    error = manager.error_of_batch(TP, InvalidProducerEpoch("Writing"))
    assert isinstance(error, ProducerFenced) and "code 47, InvalidProducerEpoch" in str(error)
    manager.batch_failed(error)
    assert manager.state is ProducerState.FATAL_ERROR
    manager.failed(asked, MalformedFrame("no answer"), far.now)
    assert manager.error is error and far.run() == []


def test_an_old_epoch_fences_no_producer_without_a_transactional_id() -> None:
    """It takes new epochs by itself, so nobody took over."""
    manager = Coordinator(None).manager
    error = InvalidProducerEpoch("Writing")
    assert manager.error_of_batch(TP, error) is error


def test_f20_after_an_end_of_unknown_outcome_the_next_transaction_has_a_new_epoch() -> None:
    """A late EndTxn of the old epoch cannot end the next transaction."""
    far = Coordinator()
    manager = far.in_transaction()
    far.run()
    epoch = far.sequences.producer_epoch
    far.errors = {RequestKind.END: [Disconnected("gone")]}
    result = manager.begin_commit()
    assert far.run(limit=4) == [RequestKind.END, RequestKind.FIND_COORDINATOR, RequestKind.END]  # and a back-off
    assert result.done and result.error is None, "what comes of the epoch is no matter of the commit's"
    assert manager.takes_epoch and far.run() == [RequestKind.INIT_PRODUCER_ID] and manager.state is ProducerState.READY
    assert [row.committed for row in far.requests if isinstance(row, EndTxnRequest)] == [True, True]
    assert (far.requests[-1].producer_id, far.requests[-1].producer_epoch) == (9, epoch)
    assert far.sequences.producer_epoch == epoch + 1


@pytest.mark.parametrize("commits", [True, False])
def test_f20_an_end_of_version_2_is_asked_for_again_under_its_epoch_until_the_next_is_known(commits: bool) -> None:
    """The coordinator answers the second like the first; nothing late reaches what begins under the next epoch."""
    far = Coordinator(version=2)
    manager = far.in_transaction()
    epoch = far.sequences.producer_epoch
    far.errors = {RequestKind.END: [Disconnected("gone"), 14]}
    result = manager.begin_commit() if commits else manager.begin_abort()
    assert far.run() == [RequestKind.END, RequestKind.FIND_COORDINATOR, RequestKind.END, RequestKind.END]
    assert result.done and result.error is None and manager.state is ProducerState.READY
    assert [row.producer_epoch for row in far.requests if isinstance(row, EndTxnRequest)] == [epoch] * 3
    assert far.sequences.producer_epoch == epoch + 1


def test_an_abort_of_version_2_that_the_coordinator_refuses_takes_a_new_epoch_in_the_old_way() -> None:
    """It has forgotten the transactional id, or has ended the transaction: nothing is left to abort."""
    for code in (48, 49, 59, 120):
        far = Coordinator(version=2)
        manager = far.in_transaction()
        far.errors = {RequestKind.END: [code]}
        result = manager.begin_abort()
        assert far.run() == [RequestKind.END, RequestKind.INIT_PRODUCER_ID]
        assert result.done and result.error is None and manager.state is ProducerState.READY


def test_a_transaction_that_never_reached_the_coordinator_is_aborted_all_the_same() -> None:
    """AddPartitions was lost with its coordinator: an EndTxn finds nothing, and the next epoch makes sure."""
    far = Coordinator()
    manager = far.in_transaction()
    far.errors = {RequestKind.ADD_PARTITIONS: [Disconnected("gone")], RequestKind.END: [48]}
    assert far.run(limit=2) == [RequestKind.ADD_PARTITIONS]
    result = manager.begin_abort()
    assert far.run() == [RequestKind.FIND_COORDINATOR, RequestKind.END, RequestKind.INIT_PRODUCER_ID]
    assert result.done and result.error is None and manager.state is ProducerState.READY


@both
def test_a_lost_batch_fails_the_transaction_and_its_abort_takes_a_new_epoch(version: int) -> None:
    """What may or may not be in the log is hidden by the abort; in version 2 its answer has the epoch."""
    far = Coordinator(version=version)
    manager = far.in_transaction()
    far.run()
    manager.sequences_lost()
    manager.batch_failed(OutcomeUnknown("3 records expired"))
    with pytest.raises(TransactionFailed, match="3 records expired"):
        manager.begin_commit()
    epoch = far.sequences.producer_epoch
    result = manager.begin_abort()
    assert far.run() == [RequestKind.END, RequestKind.INIT_PRODUCER_ID][: 3 - version]
    assert result.done and far.sequences.producer_epoch == epoch + 1
    assert [row.committed for row in far.requests if isinstance(row, EndTxnRequest)] == [False]


def test_calls_in_the_wrong_state_say_what_is_missing() -> None:
    """And change nothing."""
    far = Coordinator()
    manager = far.manager
    with pytest.raises(IllegalProducerState, match=r"not initialised.*init_transactions\(\) first"):
        manager.begin_transaction()
    manager.begin_initialize()
    assert manager.begin_initialize() is manager.result
    far.run()
    with pytest.raises(IllegalProducerState, match="ready"):
        manager.begin_commit()
    with pytest.raises(IllegalProducerState, match="begin_transaction"):
        manager.check_may_send(TP)
    manager.begin_transaction()
    with pytest.raises(IllegalProducerState, match="in a transaction"):
        manager.begin_transaction()
    with pytest.raises(IllegalProducerState, match="transactional_id"):
        Coordinator(None).manager.begin_transaction()


def test_idempotence_alone_asks_any_broker_for_an_id() -> None:
    """Once; a refusal is fatal and says why."""
    far = Coordinator(None)
    assert far.run() == [RequestKind.INIT_PRODUCER_ID] and far.sequences.has_id
    assert far.run() == []
    far.sequences.producer_epoch = MAX_EPOCH
    assert not far.sequences.bump_epoch() and far.run() == [RequestKind.INIT_PRODUCER_ID]
    refused = Coordinator(None)
    refused.errors = {RequestKind.INIT_PRODUCER_ID: [14, 31]}
    assert refused.run() == [RequestKind.INIT_PRODUCER_ID] * 2
    with pytest.raises(KafkaError, match="ClusterAuthorizationFailed"):
        refused.manager.check_may_send(TP)


@both
@pytest.mark.parametrize("call", ["begin_initialize", "begin_commit", "begin_abort"])
def test_a_call_that_gave_up_waiting_is_told_the_outcome_when_it_is_repeated(version: int, call: str) -> None:
    """Though it came in between: a commit that is done is no mistake. The next transaction has a result of its own."""
    far = Coordinator(version=version)
    manager = far.manager
    if call != "begin_initialize":
        far.in_transaction()
    first = getattr(manager, call)()
    far.run()
    assert first.done and manager.state is ProducerState.READY
    assert getattr(manager, call)() is first
    manager.claimed(first)
    with pytest.raises(IllegalProducerState):
        getattr(manager, call)()
    manager.begin_transaction()
    assert not manager.begin_commit().done


def test_an_error_while_a_transaction_is_aborted_does_not_end_it_before_its_time() -> None:
    """The end is told when nothing of it is on the wire any more."""
    far = Coordinator()
    manager = far.in_transaction()
    far.run()
    manager.check_may_send(TopicPartition("t", 1))
    asked = manager.next_ask(far.now, False)
    assert asked is not None and asked.kind is RequestKind.ADD_PARTITIONS
    result = manager.begin_abort()
    manager.answered(asked, far.answer(asked.kind, asked.request, 29), far.now)
    assert manager.state is ProducerState.ABORTING and far.run(settled=False) == []
    assert far.run() == [RequestKind.END, RequestKind.INIT_PRODUCER_ID] and result.done


@both
def test_a_group_that_rebalances_fails_the_transaction_not_the_producer(version: int) -> None:
    """REBALANCE_IN_PROGRESS: the member may own other partitions afterwards."""
    far = Coordinator(version=version)
    manager = far.in_transaction()
    far.errors = {RequestKind.COMMIT_OFFSETS: [27]}
    manager.send_offsets({TP: OffsetAndMetadata(5)}, ConsumerGroupMetadata("g"))
    far.run()
    assert manager.state is ProducerState.ABORTABLE_ERROR


@both
def test_offsets_that_were_not_attempted_are_not_stored(version: int) -> None:
    """A partition that is to be added and was not attempted is asked for again; offsets are not."""
    far = Coordinator(version=version)
    manager = far.in_transaction()
    far.errors = {RequestKind.COMMIT_OFFSETS: [55]}
    offsets = manager.send_offsets({TP: OffsetAndMetadata(5)}, ConsumerGroupMetadata("g"))
    far.run()
    assert offsets.done and "OperationNotAttempted" in str(offsets.error)


def test_an_offset_that_the_answer_leaves_out_is_asked_for_again() -> None:
    """Without it the commit would be less than was asked."""

    class Forgetful(Coordinator):
        def answer(self, kind: RequestKind, request: Any, code: int) -> Any:
            if kind is not RequestKind.COMMIT_OFFSETS:
                return super().answer(kind, request, code)
            topic = request.topics[0]
            part = TxnOffsetCommitResponsePartition(partition_index=topic.partitions[0].partition_index, error_code=0)
            return TxnOffsetCommitResponse(topics=(TxnOffsetCommitResponseTopic(name="t", partitions=(part,)),))

    far = Forgetful()
    rows = {TopicPartition("t", number): OffsetAndMetadata(5 + number) for number in range(3)}
    result = far.in_transaction().send_offsets(rows, ConsumerGroupMetadata("g", 3, "m"))
    far.run()
    asked = [one for one in far.requests if isinstance(one, TxnOffsetCommitRequest)]
    assert [[row.partition_index for row in one.topics[0].partitions] for one in asked] == [[0, 1, 2], [1, 2], [2]]
    assert result.done and result.error is None


@pytest.mark.parametrize(("node", "port"), [(-1, 9092), (1, 0), (1, 70_000)])
def test_a_coordinator_without_a_usable_address_is_looked_for_again(node: int, port: int) -> None:
    class Lost(Coordinator):
        def answer(self, kind: RequestKind, request: Any, code: int) -> Any:
            if kind is not RequestKind.FIND_COORDINATOR or len(self.asked) > 2:
                return super().answer(kind, request, code)
            return FindCoordinatorResponse(error_code=0, node_id=node, host="h", port=port)

    far = Lost()
    far.manager.begin_initialize()
    assert far.run() == [*[RequestKind.FIND_COORDINATOR] * 3, RequestKind.INIT_PRODUCER_ID]
