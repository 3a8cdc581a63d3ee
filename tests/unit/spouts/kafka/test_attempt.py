"""Attempts of a spout task: when an epoch ends, and what a failure costs whom. With the bolt: ``test_epochs``."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.base.backoff import Backoff
from streamlet.components.epoch_tuples import ASK, BEGIN, COMMIT, END
from streamlet.components.spout import FailureCause
from streamlet.spouts.kafka.attempt import LOOK_FURTHER_S, Attempt, AttemptPhase
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.retry import NextTry

PARTITION = Partition("lines", 0)
CAUSE = FailureCause("split", "ValueError", "no")


class Log:
    """A task's partitions as a few flags."""

    def __init__(self) -> None:
        self.owns = self.opened = self.done = True
        self.moved = self.read_all = False
        self.rows: Any = ["rows"]
        self.said: list[str] = []
        self.told: list[str] = []
        self.failures = 0
        self.settled = False
        self.openings = 0
        self.coming: list[tuple[int, str, NextTry]] = []

    def may_emit(self) -> bool:
        return self.owns

    def hold(self) -> None:
        self.said.append("hold")

    def reopen(self) -> None:
        self.said.append("reopen")

    def is_open(self) -> bool:
        return self.opened

    def begins(self) -> None:
        self.openings += 1

    def is_settled(self) -> bool:
        return self.settled or self.done

    def has_moved(self) -> bool:
        return self.moved

    def is_done(self) -> bool:
        return self.done

    def has_read_all(self) -> bool:
        return self.read_all

    def end(self) -> Any:
        return self.rows

    def committed(self) -> None:
        self.said.append("committed")

    def count_failure(self, partition: Partition) -> None:
        self.failures += 1

    def comes_again(self, partition: Partition, offset: int, cause: FailureCause, coming: NextTry) -> None:
        self.coming.append((offset, cause.error, coming))

    def give_up(self, partition: Partition, offset: int, cause: FailureCause, tries: int) -> None:
        self.said.append(f"give up {offset} after {tries}: {cause.text}")

    def tell(self, kind: str, told: Any) -> int:
        self.told.append(kind)
        return len(self.told) - 1


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def attempt(log: Log) -> Attempt:
    """Running, at 10.0 s, with nothing emitted."""
    made = Attempt(log, 0.1, Backoff(1.0, 8.0, jitter=0), 2, lambda: 0.5)
    made.poll(10.0)
    made.acked(0, 10.0)
    assert (log.told, log.said, made.phase) == ([BEGIN], ["reopen"], AttemptPhase.RUNNING)
    log.said.clear()
    return made


def emit(attempt: Attempt, log: Log, records: int, now: float) -> None:
    attempt.records += records
    log.moved, log.done = True, False
    attempt.poll(now)


def end(attempt: Attempt, log: Log, now: float) -> None:
    log.done = True
    attempt.poll(now)
    assert log.told[-2:] == [END, COMMIT]
    log.moved = False
    attempt.acked(len(log.told) - 2, now)
    attempt.acked(len(log.told) - 1, now)


def test_offsets_are_read_after_earlier_transactions_are_over_and_only_with_the_topic() -> None:
    log = Log()
    log.owns = False
    attempt = Attempt(log, 0.1, Backoff(1.0, 8.0), 2, lambda: 0.5)
    attempt.poll(10.0)
    assert log.told == []
    log.owns, log.opened = True, False
    attempt.poll(10.1)
    assert (log.told, log.said) == ([BEGIN], [])
    attempt.acked(0, 10.2)
    assert log.said == ["reopen"]
    assert not attempt.may_emit
    log.opened = True
    attempt.poll(10.3)
    assert attempt.may_emit


def test_an_epoch_ends_when_its_time_is_over_and_its_trees_are_done(attempt: Attempt, log: Log) -> None:
    attempt.poll(11.0)
    assert attempt.is_idle, "nothing emitted, nothing to end"
    emit(attempt, log, 5, 12.01)
    attempt.poll(12.09)
    assert attempt.may_emit
    attempt.poll(12.11)
    assert attempt.phase is AttemptPhase.CLOSING
    end(attempt, log, 12.2)
    assert log.said == ["committed"]
    assert attempt.is_idle


def test_epochs_of_all_tasks_end_at_the_same_moments(log: Log) -> None:
    closes = []
    for began in (10.32, 10.34, 10.37, 10.399):
        attempt = Attempt(log, 0.1, Backoff(1.0, 8.0), 2, lambda: 0.5, phase=AttemptPhase.RUNNING)
        log.moved = True
        attempt.poll(began)
        closes.append(round(attempt.closes_s or 0, 3))
    assert closes == [10.4, 10.4, 10.5, 10.5]


def test_the_next_epoch_begins_before_the_commit_is_made_and_ends_after_it(attempt: Attempt, log: Log) -> None:
    emit(attempt, log, 5, 12.01)
    log.done = True
    attempt.poll(12.11)
    log.moved = False
    attempt.acked(1, 12.12)
    assert attempt.may_emit
    assert not attempt.is_idle
    emit(attempt, log, 5, 12.13)
    log.done = True
    attempt.poll(12.5)
    assert log.told == [BEGIN, END, COMMIT]
    attempt.acked(2, 12.6)
    assert log.told == [BEGIN, END, COMMIT, END, COMMIT]


def test_the_ack_of_a_commit_says_that_the_end_was_acked(attempt: Attempt, log: Log) -> None:
    emit(attempt, log, 5, 12.01)
    log.done = True
    attempt.poll(12.11)
    log.moved = False
    attempt.acked(2, 12.12)
    attempt.acked(1, 12.12)
    assert attempt.is_idle


def test_a_late_ack_of_an_end_is_not_taken_for_that_of_the_next_one(attempt: Attempt, log: Log) -> None:
    """Records emitted then would be in a transaction whose offsets stop before them."""
    emit(attempt, log, 5, 12.01)
    log.done = True
    attempt.poll(12.11)
    attempt.acked(2, 12.12)
    emit(attempt, log, 5, 12.13)
    log.done = True
    attempt.poll(12.5)
    assert log.told == [BEGIN, END, COMMIT, END, COMMIT]
    attempt.acked(1, 12.51)
    assert not attempt.may_emit
    attempt.acked(3, 12.52)
    assert attempt.may_emit


def test_a_drain_and_the_end_of_all_logs_end_an_epoch_at_once(attempt: Attempt, log: Log) -> None:
    emit(attempt, log, 5, 12.01)
    log.done, log.read_all = True, True
    attempt.poll(12.02)
    assert log.told[-1] == COMMIT
    log.moved = False
    attempt.acked(2, 12.03)
    log.read_all = False
    attempt.draining = True
    emit(attempt, log, 5, 12.04)
    assert attempt.phase is AttemptPhase.CLOSING


def test_a_failure_that_is_the_records_own_is_counted_and_the_next_epoch_has_fewer_records(
    attempt: Attempt, log: Log
) -> None:
    emit(attempt, log, 100, 12.01)
    attempt.record_failed(PARTITION, 7, CAUSE, 12.02)
    attempt.record_failed(PARTITION, 8, CAUSE, 12.02)
    assert log.told == [BEGIN, ASK]
    attempt.acked(1, 12.03)
    assert attempt.tries == {(PARTITION, 7): 1}
    assert attempt.most == 50
    assert (log.said, attempt.phase) == (["hold"], AttemptPhase.OFF)
    attempt.poll(13.0)
    assert log.told[-1] == ASK, "a pause, as before any retry"
    attempt.poll(13.1)
    assert log.told[-1] == BEGIN


def test_a_failure_because_the_attempt_is_over_is_counted_against_no_record(attempt: Attempt, log: Log) -> None:
    emit(attempt, log, 100, 12.01)
    attempt.record_failed(PARTITION, 7, CAUSE, 12.02)
    attempt.failed(1, 12.03)
    assert attempt.tries == {}
    attempt.poll(12.1)
    assert log.told == [BEGIN, ASK, BEGIN]


def test_a_record_that_fails_more_often_than_it_may_is_given_up(attempt: Attempt, log: Log) -> None:
    now = 12.0
    for _ in range(3):
        emit(attempt, log, 1, now)
        attempt.record_failed(PARTITION, 7, CAUSE, now)
        attempt.acked(len(log.told) - 1, now)
        now += 10
        attempt.poll(now)
        attempt.acked(len(log.told) - 1, now)
    assert [text for text in log.said if "give" in text] == ["give up 7 after 3: no"]


def test_a_failure_says_which_try_it_was_and_when_the_next_one_comes(attempt: Attempt, log: Log) -> None:
    emit(attempt, log, 1, 12.0)
    attempt.record_failed(PARTITION, 7, CAUSE, 12.0)
    attempt.acked(len(log.told) - 1, 12.5)
    assert log.coming == [(7, "ValueError", NextTry(1, 3, 13.5))]


def test_a_record_that_is_given_up_is_waited_for_no_longer(attempt: Attempt, log: Log) -> None:
    attempt.retry_limit = 1
    attempt.tries = {(PARTITION, 7): 1}
    emit(attempt, log, 1, 12.0)
    attempt.record_failed(PARTITION, 7, CAUSE, 12.0)
    attempt.acked(len(log.told) - 1, 12.0)
    attempt.poll(12.1)
    assert log.told[-1] == BEGIN and log.coming == []


def test_an_attempt_with_a_spoilt_record_goes_on_for_a_moment_and_ends_when_its_trees_are_over(
    attempt: Attempt, log: Log
) -> None:
    attempt.interval_s = 600.0
    emit(attempt, log, 100, 12.01)
    attempt.spoil(12.02)
    assert attempt.may_emit
    attempt.poll(12.02 + LOOK_FURTHER_S)
    assert attempt.phase is AttemptPhase.CLOSING, "not after ten minutes"
    log.settled = True
    attempt.poll(12.2)
    assert (attempt.phase, log.told, log.said) == (AttemptPhase.OFF, [BEGIN], ["hold"])
    assert attempt.tries == {} and attempt.most > 100, "nothing is to be found out"
    attempt.spoil(12.21)
    assert attempt.closes_s is None, "over already"


def test_another_record_of_a_spoilt_attempt_that_fails_is_counted_as_ever(attempt: Attempt, log: Log) -> None:
    emit(attempt, log, 100, 12.01)
    attempt.spoil(12.02)
    attempt.record_failed(PARTITION, 9, CAUSE, 12.03)
    attempt.acked(1, 12.04)
    assert (attempt.tries, attempt.phase) == ({(PARTITION, 9): 1}, AttemptPhase.OFF)
    assert not attempt._spoilt


def test_a_letter_that_fails_ends_the_attempt_and_the_next_epoch_has_fewer_records(attempt: Attempt, log: Log) -> None:
    emit(attempt, log, 100, 12.01)
    attempt.letter_failed(12.02)
    assert (attempt.phase, attempt.most, log.told) == (AttemptPhase.OFF, 50, [BEGIN])


@pytest.mark.parametrize("what", ["a letter", "a commit"])
@pytest.mark.parametrize("own", [True, False])
def test_what_fails_while_a_question_is_under_way_does_not_take_the_place_of_its_answer(
    attempt: Attempt, log: Log, what: str, own: bool
) -> None:
    """The abort that a question brings fails the letters of its transaction, and they come home before its ack."""
    emit(attempt, log, 5, 12.01)
    log.done = True
    attempt.poll(12.11)
    attempt.acked(1, 12.12)  # END; COMMIT is under way
    emit(attempt, log, 100, 12.13)
    attempt.record_failed(PARTITION, 7, CAUSE, 12.14)
    (attempt.letter_failed(12.15) if what == "a letter" else attempt.failed(2, 12.15))
    assert attempt.phase is AttemptPhase.ASKING
    (attempt.acked if own else attempt.failed)(3, 12.16)
    assert (attempt.phase, attempt.tries) == (AttemptPhase.OFF, {(PARTITION, 7): 1} if own else {})
    assert log.said.count("hold") == 1


def test_epochs_grow_again_with_each_that_is_committed_and_tries_are_forgotten(attempt: Attempt, log: Log) -> None:
    attempt.most = 4
    attempt.tries = {(PARTITION, 7): 1, (PARTITION, 9): 1}
    emit(attempt, log, 4, 12.01)
    assert attempt.phase is AttemptPhase.CLOSING, "full"
    end(attempt, log, 12.02)
    assert attempt.most == 8
    attempt.forget_below(PARTITION, 9)
    assert attempt.tries == {(PARTITION, 9): 1}


@pytest.mark.parametrize("what", ["a tuple was lost", "the commit failed"])
def test_an_attempt_is_over_when_anything_of_it_is_lost_and_late_answers_are_nothing(
    attempt: Attempt, log: Log, what: str
) -> None:
    emit(attempt, log, 5, 12.01)
    log.done = True
    attempt.poll(12.11)
    (attempt.lost(12.2) if what == "a tuple was lost" else attempt.failed(2, 12.2))
    assert attempt.phase is AttemptPhase.OFF
    attempt.acked(1, 12.2)
    attempt.acked(2, 12.2)
    assert log.said == ["hold"]


def test_in_a_drain_a_task_whose_attempt_is_over_says_so_once_and_reads_nothing_more(
    attempt: Attempt, log: Log
) -> None:
    emit(attempt, log, 5, 12.01)
    attempt.draining = True
    attempt.lost(12.02)
    attempt.poll(12.021)
    assert log.told == [BEGIN, BEGIN], "no pause: the others wait for it"
    attempt.acked(1, 12.03)
    attempt.poll(20.0)
    assert (attempt.phase, log.told, log.said) == (AttemptPhase.OFF, [BEGIN, BEGIN], ["hold"])


def test_in_a_drain_a_task_that_had_not_begun_begins_nothing(log: Log) -> None:
    made = Attempt(log, 0.1, Backoff(1.0, 8.0), 2, lambda: 0.5, draining=True)
    made.poll(10.0)
    assert log.told == []


def test_a_tree_that_times_out_while_its_epoch_waits_for_it_counts_no_try(attempt: Attempt, log: Log) -> None:
    emit(attempt, log, 100, 12.01)
    attempt.poll(12.2)
    assert attempt.phase is AttemptPhase.CLOSING
    attempt.record_failed(PARTITION, 7, CAUSE, 42.0, timed_out=True)
    assert (attempt.phase, attempt.tries, attempt.most) == (AttemptPhase.OFF, {}, 50)
    assert ASK not in log.told


def test_a_tree_that_times_out_while_others_are_emitted_counts_a_try(attempt: Attempt, log: Log) -> None:
    emit(attempt, log, 100, 12.01)
    attempt.record_failed(PARTITION, 7, CAUSE, 12.02, timed_out=True)
    attempt.acked(1, 12.03)
    assert attempt.tries == {(PARTITION, 7): 1}
