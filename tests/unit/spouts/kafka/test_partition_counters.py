"""Counters of a partition: each thing once, over all its openings."""

from __future__ import annotations

import pytest

from streamlet.spouts.kafka.offset_ledger import OffsetLedger
from streamlet.spouts.kafka.partition import OffsetRange
from streamlet.spouts.kafka.partition_counters import PartitionCounters


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        ([(5, 10)], 5),
        ([(5, 10), (20, 25)], 10),
        ([(8, 10), (5, 10)], 5),
        ([(5, 10), (8, 12)], 7),
        ([(5, 10), (8, 12), (5, 12)], 7),
    ],
)
def test_what_retention_took_is_counted_once_however_often_it_is_found(found: list[tuple[int, int]], lost: int) -> None:
    """An attempt that failed, or an answer that was damaged, leads to the same gap again."""
    counts = PartitionCounters()
    for gone in found:
        counts.retired(OffsetRange(*gone))
    assert counts.lost == lost


def test_what_is_cut_off_a_second_time_is_lost_a_second_time() -> None:
    """Other records stood there by then."""
    counts = PartitionCounters()
    counts.retired(OffsetRange(0, 4))
    for _ in range(2):
        counts.cut(OffsetRange(4, 6))
    counts.cut(None)
    counts.retired(OffsetRange(0, 4))
    assert counts.lost == 12


def test_a_record_that_is_given_up_and_read_again_counts_once() -> None:
    counts = PartitionCounters()
    for _ in range(2):
        ledger: OffsetLedger[str] = OffsetLedger(3, counts)
        for offset in (3, 4):
            ledger.passed_poison(offset)
    assert counts.given_up == 2
    ledger.committed_to(5)
    assert not counts._passed, "nothing below is read again"
    counts.cut(None)
    OffsetLedger(3, counts).passed_poison(3)
    assert counts.given_up == 3, "another record"


def test_a_letter_counts_once_it_is_committed_and_of_another_topic_never() -> None:
    counts = PartitionCounters()
    ledger: OffsetLedger[str] = OffsetLedger(3, counts)
    for offset in (3, 4, 5):
        ledger.awaits_letter(offset, "row")
    assert (ledger.open_count, ledger.waiting_count, ledger.next_committable()) == (3, 3, 3)
    for offset in (3, 4):
        ledger.letter_written(offset)
    assert (counts.given_up, ledger.next_committable()) == (0, 5)
    assert (counts.letters_committed(4), counts.given_up) == (1, 1)
    assert (counts.letters_committed(4), counts.given_up) == (0, 1)
    assert (counts.first_told(4), counts.first_told(4)) == (True, False)
    counts.cut(None)
    assert (counts.letters_committed(9), counts.given_up) == (0, 1)
    assert counts.first_told(4), "another record"
