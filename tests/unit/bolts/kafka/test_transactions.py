"""Transactions on a scripted producer: what an answer of Kafka's leads to, and which errors end the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.bolts.kafka.epochs import CommitPhase
from streamlet.bolts.kafka.errors import TransactionalIdShared, TransactionsRefused, TwoClusters, UntrackedTuple
from streamlet.bolts.kafka.transactions import DOOMED_S, Transactions, is_records_own
from streamlet.components.epoch_tuples import BEGIN, COMMIT, END, EndOfEpoch
from streamlet.kafka.broker_errors import (
    CoordinatorNotAvailable,
    IllegalGeneration,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from streamlet.kafka.errors import BrokerError, KafkaError
from streamlet.kafka.producer.errors import OutcomeUnknown, ProducerClosed, TransactionAborted, TransactionFailed
from streamlet.tracking.roots import STEP, first_root

ROOT = first_root(1, 1)


class Steps:
    """The calls of a producer's transactions; an answer comes when the test gives it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.result: Any = None
        self.is_lost = False
        self.error: Exception | None = None
        self.trouble: Exception | None = None
        self.cluster_id: str | None = "ours"

    def initialize(self) -> None:
        self.calls.append("initialize")

    def begin(self) -> None:
        self._call("begin")

    def commit(self, ends: Sequence[Any]) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def give_up_offsets(self, cause: Exception) -> None:
        self.calls.append("give up offsets")
        self.result = SimpleNamespace(error=TransactionFailed(str(cause)))

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.is_lost:
            assert self.error is not None
            raise self.error

    def ended(self) -> Any:
        result, self.result = self.result, None
        return result

    def fence(self) -> None:
        self.is_lost, self.error = True, ProducerFenced("Ending a transaction")


class Rig:
    """One task's transactions; ``said`` has what happened to batches and tuples."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.steps = Steps()
        self.said: list[Any] = []
        self.it = Transactions(
            "write",
            "topic 'out'",
            self.clock,
            self._place(),
            lambda: None,
            self._write,
            lambda: self.said.append("drop"),
            lambda what: self.said.append(("ack", getattr(what, "name", None))),
            lambda what: self.said.append(("fail", getattr(what, "name", None))),
        )
        self.tell(BEGIN)
        self.answer()
        self.said.clear()

    def _write(self, batch: Any, refused: Sequence[int]) -> None:
        self.said.append(("write", batch.name, [*refused]))

    def _place(self) -> Any:
        def steps(heard: Callable[[], None]) -> Steps:
            return self.steps

        config = SimpleNamespace(transaction_timeout_ms=60_000)
        producer = SimpleNamespace(transaction_steps=steps, connections=lambda: "connections: 1 idle.", config=config)
        shared = SimpleNamespace(producer=producer)
        return SimpleNamespace(producer=producer, take=lambda: shared, leave=lambda wait_s: None)

    def tell(self, *kinds: str, number: int = 0, cluster: str | None = "ours") -> None:
        rows = [("lines", 0, 7, -1, "")]
        end = EndOfEpoch("group", 1, "member", None, rows, cluster).told()
        tuples = [
            SimpleNamespace(values=(kind, end if kind == END else None), root=ROOT + number * STEP, name=kind)
            for kind in kinds
        ]
        self.it.told(Batch(tuples, name="told"))  # type: ignore[arg-type]  # a stand-in

    def send(self, *numbers: int | None, name: str = "batch") -> None:
        roots = [0 if number is None else ROOT + number * STEP for number in numbers]
        self.it.take(Batch([], roots, name))  # type: ignore[arg-type]  # a stand-in

    def answer(self, error: KafkaError | None = None) -> None:
        self.steps.result = SimpleNamespace(error=error)
        self.it.poll()

    @property
    def phase(self) -> CommitPhase:
        return self.it.epochs.phase


class Batch(SimpleNamespace):
    """Tuples of one task, as far as transactions look at them."""

    def __init__(self, tuples: list[Any], roots: Sequence[int] = (), name: str = "") -> None:
        super().__init__(tuples=tuples, roots=roots, name=name, task=1, component="upper", stream="default")

    def __len__(self) -> int:
        return len(self.tuples)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_an_untracked_tuple_that_was_held_ends_the_run_and_what_is_behind_it_is_taken(rig: Rig) -> None:
    rig.send(1)
    rig.tell(END, COMMIT, number=2)
    rig.send(None, name="untracked")
    rig.send(3, name="behind")
    rig.answer()
    assert rig.said[-1] == ("write", "behind", [])
    with pytest.raises(UntrackedTuple):
        rig.it.raise_refusal()
    with pytest.raises(UntrackedTuple):
        rig.send(4)


def test_an_untracked_tuple_ends_the_run_at_once(rig: Rig) -> None:
    with pytest.raises(UntrackedTuple):
        rig.send(None)


def test_a_producer_that_is_fenced_after_its_commit_is_replaced_and_nothing_that_waited_is_dropped(rig: Rig) -> None:
    rig.send(1)
    rig.tell(END, COMMIT, number=2)
    rig.send(3, name="next")
    rig.steps.fence()
    rig.answer()
    assert rig.phase is CommitPhase.CLOSED
    assert rig.said[-1] == ("write", "next", [0]), "refused: its attempt is over"
    rig.steps.is_lost = False
    rig.tell(BEGIN, number=5)
    assert rig.steps.calls[-1] == "initialize"


def test_a_producer_that_is_fenced_when_a_transaction_begins_is_replaced(rig: Rig) -> None:
    rig.steps.fence()
    rig.send(1)
    assert rig.said == [("write", "batch", [])]
    rig.it.poll()
    assert rig.phase is CommitPhase.CLOSED


@pytest.mark.parametrize(
    ("error", "own"),
    [
        (OutcomeUnknown("No answer."), False),
        (ProducerClosed("Closed."), False),
        (TransactionAborted("Aborted."), False),
        (TransactionAbortable("Writing"), False),
        (InvalidTransactionState("Writing"), False),
        (OutOfOrderSequenceNumber("Writing"), False),
        (UnknownServerError("Writing"), False),
        (MessageTooLarge("Writing"), True),
    ],
)
def test_an_outage_is_no_fault_of_a_record(error: Exception, own: bool) -> None:
    assert is_records_own(error) is own


def refuse_commits(rig: Rig, times: int, cause: BrokerError) -> None:
    for number in range(10, 10 + 10 * times, 10):
        rig.tell(BEGIN, number=number)
        rig.send(number + 1)
        rig.tell(END, COMMIT, number=number + 2)
        error = TransactionFailed(str(cause))
        error.__cause__ = cause
        rig.answer(error)
        rig.answer()


def test_a_refusal_that_time_does_not_change_ends_the_run_after_some_in_a_row(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    cause = TopicAuthorizationFailed("Storing the offset of lines-0")
    refuse_commits(rig, 4, cause)
    rig.it.raise_refusal()
    with pytest.raises(TransactionsRefused, match="Storing the offset of lines-0"):
        refuse_commits(rig, 2, cause)
    warned = [record for record in caplog.records if "is aborted" in record.getMessage()]
    assert len(warned) == 1 and warned[0].levelname == "WARNING"


def test_a_refusal_about_the_group_is_a_warning_and_ends_no_run(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    refuse_commits(rig, 8, IllegalGeneration("Storing the offset of lines-0"))
    rig.it.raise_refusal()
    assert "the same cluster?" in caplog.text


def test_a_commit_in_between_begins_the_count_of_refusals_again(rig: Rig) -> None:
    cause = TopicAuthorizationFailed("Storing")
    refuse_commits(rig, 4, cause)
    rig.tell(BEGIN, number=100)
    rig.send(101)
    rig.tell(END, COMMIT, number=102)
    rig.answer()
    rig.send(103)
    rig.tell(BEGIN, number=104)
    rig.answer()
    refuse_commits(rig, 1, cause)
    rig.it.raise_refusal()


def without_an_end(rig: Rig, trouble: Exception) -> None:
    """Let Kafka refuse a request again and again."""
    rig.steps.fence()
    rig.it.poll()
    rig.steps.is_lost = False
    rig.tell(BEGIN, number=5)
    rig.steps.trouble = trouble


def test_an_answer_that_does_not_come_is_said_with_its_cause_and_again_each_minute(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    without_an_end(rig, CoordinatorNotAvailable("Finding the coordinator"))
    caplog.clear()
    for _ in range(30):
        rig.it.poll()
        rig.clock.advance(1.0)
    (told,) = caplog.messages
    for part in (
        *("taking over from earlier producers, for 2 s", "Finding the coordinator", "connections: 1 idle."),
        "transaction.state.log.replication.factor",
    ):
        assert part in told
    rig.clock.advance(60.0)
    rig.it.poll()
    assert len(caplog.messages) == 2


def test_a_topic_that_the_bolts_brokers_do_not_know_points_at_another_cluster(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    without_an_end(rig, UnknownTopicOrPartition("Committing the offset of lines-0"))
    rig.clock.advance(3.0)
    rig.it.poll()
    assert "the KafkaBolt and the spouts have not the same cluster" in caplog.text


def test_offsets_of_a_topic_that_was_deleted_are_given_up_and_what_waited_goes_on(rig: Rig) -> None:
    """They can never be stored: everything waited behind that commit, the other topics too."""
    rig.send(1)
    rig.tell(END, COMMIT, number=2)
    assert rig.phase is CommitPhase.COMMITTING
    rig.steps.trouble = UnknownTopicOrPartition("Storing the offset of gone-0")
    rig.tell(BEGIN, number=5)
    for _ in range(20):
        rig.clock.advance(1.0)
        rig.it.poll()
    assert rig.steps.calls[-3:] == ["commit", "give up offsets", "abort"]
    rig.answer()
    assert rig.phase is CommitPhase.READY and ("ack", BEGIN) in rig.said
    rig.it.raise_refusal()


def test_a_failed_record_whose_spout_never_asks_holds_nothing_up(rig: Rig) -> None:
    """Another bolt has sent its message to the dead letters: the spout waits for tuples that were held here."""
    rig.send(1)
    rig.it.record_failed(MessageTooLarge("Writing"))
    assert rig.phase is CommitPhase.DOOMED
    rig.it.poll()
    rig.clock.advance(DOOMED_S - 0.1)
    rig.it.poll()
    assert rig.phase is CommitPhase.DOOMED
    rig.clock.advance(0.2)
    rig.it.poll()
    assert rig.phase is CommitPhase.ABORTING and rig.steps.calls[-1] == "abort"


def fence_in_transactions(rig: Rig, times: int, age_s: float) -> None:
    for number in range(10, 10 + 10 * times, 10):
        rig.tell(BEGIN, number=number)
        rig.answer()
        rig.send(number + 1)
        rig.clock.advance(age_s)
        rig.steps.fence()
        rig.it.poll()
        rig.steps.is_lost = False


@pytest.mark.parametrize(("theirs", "ours"), [("theirs", "ours"), (None, "ours"), ("theirs", None)])
def test_offsets_of_another_cluster_end_the_run_before_they_are_sent(
    rig: Rig, theirs: str | None, ours: str | None
) -> None:
    rig.steps.cluster_id = ours
    rig.send(0)
    rig.tell(END, COMMIT, cluster=theirs)
    if theirs is None or ours is None:  # brokers that name no cluster
        assert rig.steps.calls[-1] == "commit"
        return
    assert rig.steps.calls[-1] != "commit"
    rig.it.poll()
    assert rig.steps.calls[-1] == "abort"
    with pytest.raises(
        TwoClusters, match=r"out.* is in another Kafka cluster \(id ours\) than .*'group' \(id theirs\)"
    ):
        rig.it.raise_refusal()


def test_producers_that_fence_each_other_end_the_run_and_both_causes_are_named(rig: Rig) -> None:
    with pytest.raises(TransactionalIdShared, match=r"another program.*transaction_timeout_ms \(60 s\)"):
        fence_in_transactions(rig, 6, 1.0)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            InvalidTransactionTimeout("InitProducerId"),
            r"KafkaBolt write \(topic 'out'\) has transaction_timeout_ms = 60000, .*transaction\.max\.timeout\.ms.*"
            r"`-c write\.transaction_timeout_ms=",
        ),
        (TransactionalIdAuthorizationFailed("InitProducerId"), r"KafkaBolt write \(topic 'out'\): .*transactional id"),
    ],
)
def test_a_producer_that_gets_no_session_ends_the_run_and_names_its_bolt(
    rig: Rig, error: KafkaError, said: str
) -> None:
    without_an_end(rig, error)
    rig.steps.is_lost, rig.steps.error = True, error
    rig.answer(error)
    with pytest.raises(TransactionsRefused, match=said):
        rig.it.raise_refusal()


def test_a_transaction_that_kafka_aborted_for_its_age_blames_no_other_program(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlet.bolts.kafka.transactions.FENCED_OFTEN_S", 1e6)
    fence_in_transactions(rig, 6, 61.0)
    rig.it.raise_refusal()
