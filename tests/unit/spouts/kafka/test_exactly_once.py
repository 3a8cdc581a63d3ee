"""A task's part in exactly once: what its attempts do with its partitions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.base.backoff import Backoff
from streamlet.components.epoch_tuples import ASK, BEGIN, EPOCHS, LETTERS, EndOfEpoch, LetterRow
from streamlet.components.spout import FailReason, FailureCause
from streamlet.kafka.records.record_batch import BatchHeader, RecordBatch
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from streamlet.spouts.kafka.attempt import LOOK_FURTHER_S, AttemptPhase
from streamlet.spouts.kafka.dead_letters import epoch_letters
from streamlet.spouts.kafka.dead_letters.dead_letter import RunStamp, read
from streamlet.spouts.kafka.errors import DeadLetterRefused
from streamlet.spouts.kafka.exactly_once import ExactlyOnce
from streamlet.spouts.kafka.manager import EmitLimits, PartitionManager
from streamlet.spouts.kafka.offset_ledger import OffsetLedger
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.partition_counters import PartitionCounters
from streamlet.spouts.kafka.retry import ExponentialBackoffMsgRetryManager
from streamlet.spouts.kafka.schemes.scheme import Record, StringScheme
from streamlet.spouts.kafka.stores.offset_store import StopOffset

P = Partition("t", 0)
NOT_WANTED = FailureCause("judge", "", "not wanted", True)


def batch(base: int, values: Sequence[bytes]) -> RecordBatch:
    header = BatchHeader(base, 0, 4, 2, 0, 0, len(values) - 1, 0, 0, -1, -1, -1, len(values))
    return RecordBatch(header, range(len(values)), [5] * len(values), [b"k"] * len(values), list(values), {})


class Rig:
    """Attempts over one partition of ten records, the first of them under way."""

    def __init__(self, scheme: Any = None, **settings: Any) -> None:
        self.counts = PartitionCounters()
        self.said: list[tuple[str, int]] = []
        self.letters: dict[int, LetterRow] = {}
        self.emitted: list[int] = []
        self.now, self.committed = 0.0, 0
        more = {"on_poison": "dead-letter", "dead_letter_topic": "dead", "retry_limit": 1, **settings}
        self.config = SpoutConfig(KafkaHosts("a:9092"), "t", id="g", **more)
        self.scheme = scheme or StringScheme()
        self.complete, self.values = True, [b"%d" % number for number in range(10)]
        self.it = ExactlyOnce(
            *(self.config, 1.0, self, None, self, self.take, lambda: self.now, lambda: 0.5),  # type: ignore[arg-type]
            *(RunStamp("Counts", "run", "read", "1", None), logging.getLogger("streamlet.component.read")),
        )
        self.reopen()
        self.it.adopted()
        self.it.attempt.phase = AttemptPhase.RUNNING

    # the coordinator and the gate

    def on_parted(self, call: object) -> None: ...

    def get_my_managed_partitions(self) -> list[PartitionManager]:
        return [self.manager]

    def get_manager(self, partition: Partition) -> PartitionManager:
        return self.manager

    def leader(self, partition: Partition) -> None: ...

    def hold(self) -> None:
        self.manager.close()

    def reopen(self) -> None:
        retries = ExponentialBackoffMsgRetryManager(Backoff(1.0, 8.0), 0)
        limits = EmitLimits(on_poison=self.config.on_poison, in_attempts=True)
        self.manager = PartitionManager(P, 7, OffsetLedger(self.committed, self.counts), retries, self.scheme, limits)
        rest = self.values[self.committed :]
        self.manager.add(iter([batch(self.committed, rest)]), 100, len(self.values), len(self.values))

    def may_emit(self, now_s: float) -> bool:
        return True

    # the spout

    def take(self, row: list[Any], tup_id: tuple[int, int], stream: str | None = None) -> None:
        number = tup_id[1]
        if stream == LETTERS:
            self.letters[number] = LetterRow(*row)
        elif stream == EPOCHS:
            self.said.append((row[0], number))
        else:
            self.emitted.append(number)

    emit = take

    def emit_each(self, rows: Sequence[Any], ids: Sequence[tuple[int, int]]) -> bool:
        self.emitted += [offset for _, offset in ids]
        return True

    def read_all(self) -> list[int]:
        """Emit all that is there; return the offsets."""
        self.emitted = []
        self.manager.begin_turn(self.now, 10)
        while self.manager.next(self, 100).name != "NO_EMITTED":  # type: ignore[arg-type]
            pass
        assert self.it.letters is None or self.it.letters.serve([self.manager], self.now) is None
        return self.emitted

    def fail(self, offset: int, cause: FailureCause = NOT_WANTED) -> None:
        reason = FailReason.DEAD_LETTER if cause.to_dead_letters else FailReason.FAILED
        self.it.failed(self.manager, offset, reason, final=cause.to_dead_letters, cause=cause)

    def answer(self, kind: str) -> None:
        told, number = self.said[-1]
        assert told == kind
        self.it.acked(number, self.now)

    def begin(self) -> None:
        """The next attempt, up to where it may emit."""
        self.now += 5.0
        self.it.poll()
        self.answer(BEGIN)
        self.it.adopted()
        self.it.poll()
        assert self.it.attempt.phase is AttemptPhase.RUNNING

    def write_letters(self) -> list[LetterRow]:
        rows = [*self.letters.values()]
        for number in [*self.letters]:
            self.it.acked(number, self.now)
        self.letters.clear()
        return rows


@pytest.mark.parametrize(
    ("reason", "final", "failures"),
    [(FailReason.FAILED, False, 1), (FailReason.CRASHED, True, 1), (FailReason.LOST, False, 0)],
)
def test_a_failure_that_counts_as_a_try_is_counted_in_the_status(
    reason: FailReason, final: bool, failures: int
) -> None:
    rig = Rig(on_poison="skip")
    rig.it.failed(rig.manager, 3, reason, final=final)
    for kind, number in rig.said:
        assert kind == ASK
        rig.it.attempt.acked(number, 0.0)
    assert rig.counts.failed == failures


def test_records_that_a_bolt_sent_to_the_dead_letters_are_passed_over_together_and_end_waits_for_their_letters() -> (
    None
):
    rig = Rig()
    rig.read_all()
    rig.fail(2)
    assert rig.it.attempt.phase is AttemptPhase.RUNNING, "others may follow"
    rig.fail(5)
    rig.now += LOOK_FURTHER_S
    rig.it.poll()
    assert rig.it.attempt.phase is AttemptPhase.CLOSING
    for offset in {*range(10)} - {2, 5, 9}:
        rig.manager.ack(offset)
    rig.it.poll()
    assert rig.it.attempt.phase is AttemptPhase.CLOSING, "one may follow yet"
    rig.fail(9)
    assert (rig.it.attempt.phase, rig.said, rig.letters) == (AttemptPhase.OFF, [], {}), "no END, no letter"
    rig.begin()
    assert rig.read_all() == [0, 1, 3, 4, 6, 7, 8]
    rig.manager.ack_many(rig.emitted)
    assert not rig.it.is_done(), "END waits for the letters"
    rows = rig.write_letters()
    assert rig.it.is_done()
    assert [row.value for row in rows] == [b"2", b"5", b"9"]
    letter = read((0, 0), rows[0].headers)
    assert letter is not None
    assert (letter.topic, letter.offset, letter.leader_epoch, letter.tries) == ("t", 2, 4, 1)
    assert (letter.component, letter.text) == ("judge", "not wanted")
    assert (rows[0].topic, rows[0].key, rows[0].record) == ("dead", b"k", "topic 't', partition 0, offset 2")


def test_a_record_whose_tries_are_used_up_keeps_what_the_bolt_said_and_each_failure_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig, raised = Rig(), FailureCause("judge", "ValueError", "unlucky")
    for _ in range(2):
        rig.read_all()
        rig.fail(3, raised)
        rig.answer(ASK)
        rig.begin()
    assert "topic t, partition 0, offset 3 failed in judge (ValueError: unlucky): try 1 of 2" in caplog.text
    assert 3 not in rig.read_all()
    (row,) = rig.write_letters()
    letter = read((0, 0), row.headers)
    assert letter is not None and (letter.error, letter.text, letter.tries) == ("ValueError", "unlucky", 2)


def test_an_undecodable_record_has_its_letter_in_the_attempt_that_reads_it() -> None:
    def decoded(record: Record) -> list[list[int]]:
        return [[int(record.value or b"")]]

    rig = Rig()
    rig.values[4] = b"four"
    rig.scheme = type("Numbers", (), {"deserialize": staticmethod(decoded)})()
    rig.reopen()
    assert rig.read_all() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    (row,) = rig.write_letters()
    assert row.value == b"four" and rig.it.attempt.phase is AttemptPhase.RUNNING


def given_up(rig: Rig) -> tuple[int, int]:
    assert rig.it.letters is not None
    return rig.counts.given_up, rig.it.letters.written


def test_a_letter_counts_when_it_is_committed_and_one_of_an_attempt_that_failed_counts_once() -> None:
    rig = Rig()
    rig.read_all()
    died = FailureCause("parse", "WorkerDied", "the worker was killed")
    rig.it.failed(rig.manager, 2, FailReason.CRASHED, final=True, cause=died, deaths=3)
    for _ in range(3):
        rig.begin()
        rig.read_all()
        (row,) = rig.write_letters()
        assert given_up(rig) == (0, 0)
        rig.it.attempt.lost(rig.now)
    headers = dict(row.headers)
    assert headers["streamlet.dlq.error.class"] == b"WorkerDied" and headers["streamlet.dlq.component"] == b"parse"
    assert headers["streamlet.dlq.tries"] == b"3"
    rig.committed = 5
    rig.begin()
    assert given_up(rig) == (1, 1), "the commit was made, though nobody heard of it"
    rig.it.attempt.lost(rig.now)
    rig.begin()
    assert rig.read_all() == [5, 6, 7, 8, 9] and given_up(rig) == (1, 1)


def test_a_letter_that_was_aborted_does_not_count_where_its_record_is_good_the_second_time() -> None:
    """A scheme may decode a record that it could not decode before."""
    rig = Rig()
    rig.scheme = type("Fails", (), {"deserialize": staticmethod(lambda record: 1 / 0)})()
    rig.reopen()
    assert rig.read_all() == [] and len(rig.write_letters()) == 10
    rig.it.attempt.lost(rig.now)
    rig.scheme = StringScheme()
    rig.begin()
    assert rig.read_all() == [*range(10)]
    rig.it.attempt.lost(rig.now)
    rig.committed = 10
    rig.begin()
    assert given_up(rig) == (0, 0)


def test_a_letter_that_was_not_written_ends_the_attempt_and_blames_no_record() -> None:
    rig = Rig()
    rig.read_all()
    rig.it.failed(rig.manager, 2, FailReason.CRASHED, final=True)
    rig.begin()
    rig.read_all()
    (number,) = rig.letters
    rig.it.not_taken(number)
    assert (rig.it.attempt.phase, rig.it.attempt.tries) == (AttemptPhase.OFF, {})
    assert rig.it.letters is not None and rig.it.letters.waiting == 0
    assert rig.it.letters.acked(number) is False, "of an attempt that is over"


def test_letters_are_bounded_by_their_bytes_and_one_that_no_tuple_holds_stops_the_spout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(epoch_letters, "HOLD_BYTES", 1000)
    rig = Rig()
    rig.read_all()
    for offset in (1, 2, 3, 4):
        rig.fail(offset)
    rig.it.attempt.lost(rig.now)
    rig.begin()
    rig.read_all()
    letters = rig.it.letters
    assert letters is not None and letters.holds and letters.waiting == 4
    rig.write_letters()
    assert not letters.holds
    monkeypatch.setattr(epoch_letters, "MOST_BYTES", 100)
    rig.it.attempt.lost(rig.now)
    rig.begin()
    with pytest.raises(DeadLetterRefused, match="partition 0, offset 1, was refused by topic 'dead': it has"):
        rig.read_all()


def test_an_epoch_keeps_the_stop_of_a_bounded_read_with_its_offsets() -> None:
    """A run that goes on after a stop would choose another end."""
    rig, stored = Rig(), []
    member = SimpleNamespace(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
    rig.it._store = SimpleNamespace(  # type: ignore[assignment]
        member=member, cluster_id="c", row=lambda _tp, position: stored.append(position) or ()
    )
    rig.manager.stop = StopOffset(12, "latest")
    rig.read_all()
    rig.manager.ack(0)
    told = rig.it.end()
    assert told is not None and EndOfEpoch.of(told).cluster == "c"
    (position,) = stored
    assert (position.offset, position.stop) == (1, StopOffset(12, "latest"))
