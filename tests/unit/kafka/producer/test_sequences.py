"""Sequences: what goes out next, what a failure leaves, and when the epoch changes."""

from __future__ import annotations

from streamlet.kafka.broker_errors import (
    InvalidRecord,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.producer_batch import MAX_EPOCH, BatchState, ProducerBatch, Sequences

TP = TopicPartition("t", 0)


def batch(count: int = 1) -> ProducerBatch:
    made = ProducerBatch(TP, 0, 0.0)
    made.record_count = count
    return made


def begun(transactional: bool = False) -> Sequences:
    made = Sequences(transactional)
    made.set_id(7, 0)
    return made


def warm(transactional: bool = False) -> Sequences:
    """One record is in the log."""
    made = begun(transactional)
    made.acked(*drained(made, 1))
    return made


def drained(made: Sequences, *counts: int) -> list[ProducerBatch]:
    rows = [batch(count) for count in counts]
    for row in rows:
        assert made.may_drain(row)
        made.assign(row)
    return rows


def test_nothing_is_drained_without_an_id() -> None:
    """InitProducerId comes first."""
    assert not Sequences(False).may_drain(batch())


def test_sequences_count_records_and_are_kept_for_retries() -> None:
    """A retry that is not the lowest in flight waits for the lower one."""
    made = warm()
    first, second = drained(made, 3, 2)
    assert (first.base_sequence, second.base_sequence) == (1, 4)
    assert made.can_retry(first, NotLeaderOrFollower(), -1)
    assert made.can_retry(second, OutOfOrderSequenceNumber(), -1), "one before it is sent again first"
    assert made.may_drain(first) and not made.may_drain(second)
    made.assign(first)
    assert first.base_sequence == 1
    made.acked(first)
    assert made.may_drain(second)


def test_no_sequence_is_given_twice_whatever_the_broker_took() -> None:
    """A batch is refused, and the one behind it taken: the next one is not numbered like that one, as its copy."""
    made = warm()
    refused, taken = drained(made, 1, 1)
    made.failed(refused, InvalidRecord())
    assert taken.base_sequence == 2, "what is on the wire keeps its number"
    assert made.settle_unresolved() == [] and not made.may_drain(batch())
    made.acked(taken)
    assert made.settle_unresolved() == [] and not made.bump_wanted
    (after,) = drained(made, 1)
    assert after.base_sequence == 3


def test_what_is_refused_alone_takes_a_new_epoch() -> None:
    """It may be in the log all the same, by an earlier try: its number is not used again."""
    made = warm()
    (refused,) = drained(made, 1)
    made.failed(refused, InvalidRecord())
    assert made.settle_unresolved() == [TP] and made.bump_wanted and made.bump_epoch()
    (after,) = drained(made, 1)
    assert (after.producer_epoch, after.base_sequence) == (1, 0)


def test_one_alone_is_in_flight_until_an_epoch_is_acknowledged() -> None:
    """A broker without state of the producer would take the second batch where it refused the first."""
    made = begun()
    (first,) = drained(made, 1)
    assert not made.may_drain(batch()) and made.may_drain(first)
    made.acked(first)
    drained(made, 1, 1, 1, 1, 1)
    assert not made.may_drain(batch()), "a broker knows five batches again"


def test_all_that_is_refused_behind_a_gap_is_sent_again() -> None:
    """The one next to it asks for the new epoch; the others wait for it."""
    made = warm()
    expired, second, third = drained(made, 1, 1, 1)
    made.failed(expired, None)
    assert made.can_retry(third, OutOfOrderSequenceNumber(), -1) and not made.bump_wanted
    assert made.can_retry(second, OutOfOrderSequenceNumber(), -1) and made.bump_wanted
    made.bump_epoch()
    assert [(row.producer_epoch, row.base_sequence) for row in (second, third)] == [(1, 0), (1, 1)]


def test_after_the_last_epoch_nothing_is_numbered_without_an_id() -> None:
    """Until the broker has given another one."""
    made = begun()
    made.producer_epoch = MAX_EPOCH
    made.acked(*drained(made, 1))
    first, second = drained(made, 1, 1)
    made.failed(first, OutOfOrderSequenceNumber())
    assert made.bump_wanted and not made.bump_epoch() and not made.bump_wanted
    made.set_id(8, 0)
    assert (second.producer_id, second.producer_epoch, second.base_sequence) == (8, 0, 0)


def test_sequences_go_round_after_the_greatest() -> None:
    """What is acknowledged behind it counts as later."""
    made = warm()
    row = made.of(TP)
    row.next, row.last_acked = 0x7FFFFFFF, 0x7FFFFFFE
    last, after = drained(made, 1, 2)
    assert (last.base_sequence, after.base_sequence) == (0x7FFFFFFF, 0)
    made.acked(last)
    assert row.last_acked == 0x7FFFFFFF
    made.acked(after)
    assert row.last_acked == 1


def test_e5_what_expired_in_flight_leaves_its_partition_unresolved_until_the_others_are_back() -> None:
    """Nothing new goes out; the next one's success shows that the broker has it."""
    made = warm()
    first, second = drained(made, 3, 2)
    made.failed(first, None)
    assert not made.may_drain(batch()) and made.settle_unresolved() == []
    made.acked(second)
    assert made.settle_unresolved() == [] and not made.bump_wanted
    assert drained(made, 1)[0].base_sequence == 6


def test_e5_a_gap_that_stays_takes_a_new_epoch() -> None:
    """The broker never got it: sequences begin again; in a transaction it is lost."""
    made = warm()
    drained(made, 3)
    (expired,) = drained(made, 2)
    made.acked(made.of(TP).in_flight[0])
    made.failed(expired, None)
    assert made.settle_unresolved() == [TP] and made.bump_wanted and not made.may_drain(batch())
    assert made.bump_epoch() and made.producer_epoch == 1
    (fresh,) = drained(made, 1)
    assert (fresh.producer_epoch, fresh.base_sequence) == (1, 0)
    inside = begun(transactional=True)
    (expired,) = drained(inside, 2)
    inside.failed(expired, None)
    assert inside.settle_unresolved() == [TP] and not inside.bump_wanted


def test_e5_the_batch_behind_the_gap_is_numbered_again() -> None:
    """It is refused as out of order, and is sent again first of the new epoch."""
    made = warm()
    expired, behind = drained(made, 3, 2)
    made.failed(expired, None)
    assert made.can_retry(behind, OutOfOrderSequenceNumber(), -1) and made.bump_wanted
    made.bump_epoch()
    assert (behind.producer_epoch, behind.base_sequence) == (1, 0)
    assert made.may_drain(behind)


def test_nothing_is_numbered_again_while_it_is_on_the_wire() -> None:
    """It may be written under its old number yet, and would come again under the new one."""
    made = warm()
    lost, behind = drained(made, 1, 1)
    behind.move(BatchState.IN_FLIGHT)
    made.failed(lost, OutOfOrderSequenceNumber())
    assert not made.bump_wanted and not made.may_drain(batch())
    behind.answered()
    assert made.bump_wanted


def test_an_unknown_producer_id_begins_sequences_again_or_fails_the_transaction() -> None:
    """Retention took it: sequences begin again; in a transaction that lost records: it has failed."""
    made = begun()
    (first,) = drained(made, 1)
    first.base_offset = 10
    made.acked(first)
    (second,) = drained(made, 1)
    assert made.can_retry(second, UnknownProducerId(), -1) and not made.bump_wanted
    assert made.can_retry(second, UnknownProducerId(), 11) and made.bump_wanted
    inside = begun(transactional=True)
    (first,) = drained(inside, 1)
    first.base_offset = 10
    inside.acked(first)
    (second,) = drained(inside, 1)
    assert not inside.can_retry(second, UnknownProducerId(), 5)
    assert inside.can_retry(second, UnknownProducerId(), 11)


def test_a_new_epoch_waits_for_what_is_in_flight_elsewhere() -> None:
    """Another partition goes on under the old epoch until it has nothing in flight."""
    made = begun()
    other = TopicPartition("t", 1)
    flying = ProducerBatch(other, 0, 0.0)
    flying.record_count = 1
    made.assign(flying)
    (lost,) = drained(made, 1)
    made.failed(lost, OutOfOrderSequenceNumber())
    made.bump_epoch()
    fresh = ProducerBatch(other, 0, 0.0)
    fresh.record_count = 1
    assert flying.producer_epoch == 0 and not made.may_drain(fresh)
    made.acked(flying)
    assert made.may_drain(fresh)
    made.assign(fresh)
    assert (fresh.producer_epoch, fresh.base_sequence) == (1, 0)


def stale(*counts: int) -> tuple[Sequences, list[ProducerBatch]]:
    """Batches in flight under an epoch that another partition has ended meanwhile."""
    made = warm()
    rows = drained(made, *counts)
    lost = ProducerBatch(TopicPartition("t", 1), 0, 0.0)
    lost.record_count = 1
    made.assign(lost)
    made.failed(lost, OutOfOrderSequenceNumber())
    assert made.bump_wanted and made.bump_epoch() and made.producer_epoch == 1
    return made, rows


def test_a_gap_under_an_epoch_that_has_ended_is_settled_like_any_other() -> None:
    """What is refused behind it was sent again for ever, and nothing new went out until it expired."""
    made, (refused, behind, last) = stale(1, 1, 1)
    made.failed(refused, InvalidRecord())
    assert made.can_retry(last, OutOfOrderSequenceNumber(), -1) and not made.bump_wanted
    assert made.can_retry(behind, OutOfOrderSequenceNumber(), -1) and made.bump_wanted and made.bump_epoch()
    assert [(row.producer_epoch, row.base_sequence) for row in (behind, last)] == [(2, 0), (2, 1)]
    assert made.may_drain(behind) and not made.may_drain(last)


def test_what_is_behind_such_a_gap_keeps_its_number_until_it_is_known_not_to_be_in_the_log() -> None:
    """The first one may have been written by an earlier try, and then so may this: a new number would be a copy."""
    made, (expired, behind) = stale(1, 1)
    made.failed(expired, None)
    assert made.can_retry(behind, NotLeaderOrFollower(), -1) and not made.bump_wanted
    assert (behind.producer_epoch, behind.base_sequence) == (0, 2) and made.may_drain(behind)
    made.acked(behind)
    assert made.settle_unresolved() == [] and not made.bump_wanted
    (fresh,) = drained(made, 1)
    assert (fresh.producer_epoch, fresh.base_sequence) == (1, 0)


def test_the_last_in_flight_under_an_epoch_that_has_ended_needs_no_other() -> None:
    """Its partition begins again under the present one."""
    made, (refused,) = stale(1)
    made.failed(refused, OutOfOrderSequenceNumber())
    assert made.settle_unresolved() == [] and not made.bump_wanted
    (fresh,) = drained(made, 1)
    assert (fresh.producer_epoch, fresh.base_sequence) == (1, 0)


def test_a_gap_where_sequences_go_round_is_found() -> None:
    """The one behind it has the sequence 0, which counts as later."""
    made = warm()
    row = made.of(TP)
    row.next, row.last_acked = 0x7FFFFFFE, 0x7FFFFFFD
    first, second, behind = drained(made, 1, 1, 1)
    made.failed(first, None)
    made.failed(second, None)
    assert behind.base_sequence == 0
    assert made.can_retry(behind, OutOfOrderSequenceNumber(), -1) and made.bump_wanted


def test_what_may_be_in_the_log_before_a_gap_is_not_numbered_again() -> None:
    """The last one is refused for the gap before it; the first may have been written, and is asked for as it was."""
    made = warm()
    first, expired, behind = drained(made, 1, 1, 1)
    made.failed(expired, None)
    assert made.can_retry(first, NotLeaderOrFollower(), -1)
    assert made.can_retry(behind, OutOfOrderSequenceNumber(), -1) and not made.bump_wanted
    assert (first.producer_epoch, first.base_sequence) == (0, 1) and made.may_drain(first)
    made.acked(first)
    assert made.can_retry(behind, OutOfOrderSequenceNumber(), -1) and made.bump_wanted


def test_a_gap_is_told_by_the_first_behind_it_whatever_failed_later() -> None:
    """It was sent again until it expired, for the last gap is not the one before it."""
    made = warm()
    expired, behind, refused = drained(made, 1, 1, 1)
    made.failed(expired, None)
    made.failed(refused, InvalidRecord())
    assert made.can_retry(behind, OutOfOrderSequenceNumber(), -1) and made.bump_wanted
