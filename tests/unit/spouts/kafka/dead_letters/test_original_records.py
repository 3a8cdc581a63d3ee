"""Records kept as they were read: dropped when done, thinned out where few of them are open."""

from __future__ import annotations

import pytest

from streamlet.kafka.records.record_batch import BatchHeader, RecordBatch
from streamlet.spouts.kafka.dead_letters import original_records
from streamlet.spouts.kafka.dead_letters.original_records import NotEmitted, OriginalRecords
from streamlet.spouts.kafka.offset_ledger import OffsetLedger
from streamlet.spouts.kafka.partition import Partition

P = Partition("lines", 3)


def batch(base: int, count: int, size: int = 10) -> RecordBatch:
    header = BatchHeader(base, 0, 4, 2, 0, 0, count - 1, 1000, 2000, -1, -1, -1, count)
    values = [b"%0*d" % (size, base + n) for n in range(count)]
    return RecordBatch(header, range(count), range(count), [b"k"] * count, values, {1: b"\x02\x02h\x02v"})


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> tuple[OffsetLedger[str], OriginalRecords]:
    monkeypatch.setattr(original_records, "WHOLE_BYTES", 500)
    ledger: OffsetLedger[str] = OffsetLedger(0)
    return ledger, OriginalRecords(P, ledger)


def emit(ledger: OffsetLedger[str], first: int, end: int) -> None:
    for offset in range(first, end):
        ledger.emitted(offset, "row")


def test_an_open_record_is_given_as_it_was_read(kept: tuple[OffsetLedger[str], OriginalRecords]) -> None:
    ledger, originals = kept
    originals.add(batch(0, 5))
    emit(ledger, 0, 5)
    record, epoch = originals.of(1)
    assert record == ("lines", 3, 1, 1001, b"k", b"0000000001", (("h", b"v"),))
    assert epoch == 4
    with pytest.raises(KeyError):
        originals.of(5)


def test_what_is_done_is_dropped_from_the_oldest_on(kept: tuple[OffsetLedger[str], OriginalRecords]) -> None:
    ledger, originals = kept
    for base in (0, 5, 10):
        originals.add(batch(base, 5))
        emit(ledger, base, base + 5)
    whole = originals.size_bytes
    for offset in (*range(5), 7):
        ledger.acked(offset)
    originals.drop_done()
    assert originals.size_bytes == whole * 2 // 3
    with pytest.raises(KeyError):
        originals.of(2)
    assert originals.of(7).record.offset == 7, "its batch is open"


def test_a_few_open_records_do_not_hold_their_batches(kept: tuple[OffsetLedger[str], OriginalRecords]) -> None:
    """One of 50 is poison and waits for minutes: without thinning every batch would be kept."""
    ledger, originals = kept
    for base in range(0, 5000, 50):
        originals.add(batch(base, 50))
        emit(ledger, base, base + 50)
        for offset in range(base + 1, base + 50):
            ledger.acked(offset)
    assert originals.size_bytes < 5000
    for base in range(0, 5000, 50):
        assert originals.of(base).record.value == b"%010d" % base
    for base in range(0, 5000, 50):
        ledger.acked(base)
    originals.add(batch(5000, 1))
    assert originals.size_bytes < 200, "and single ones go when they are done"


def test_a_batch_that_is_not_emitted_yet_is_kept_whatever_it_takes(
    kept: tuple[OffsetLedger[str], OriginalRecords],
) -> None:
    ledger, originals = kept
    for base in range(0, 500, 50):
        originals.add(batch(base, 50))
    emit(ledger, 0, 500)
    assert [originals.of(offset).record.offset for offset in (0, 49, 99, 499)] == [0, 49, 99, 499]


def test_what_was_fetched_a_second_time_is_found_whole(kept: tuple[OffsetLedger[str], OriginalRecords]) -> None:
    """The first records of a batch were emitted, the rest came again with the next fetch."""
    ledger, originals = kept
    originals.add(batch(0, 10))
    emit(ledger, 0, 4)
    originals.add(batch(0, 10).starting_at(4))
    originals.add(batch(10, 5))
    emit(ledger, 4, 10)
    originals.add(batch(10, 5))
    emit(ledger, 10, 15)
    assert [originals.of(offset).record.offset for offset in range(15)] == [*range(15)]
    for offset in range(15):
        ledger.acked(offset)
    originals.drop_done()
    assert originals.size_bytes == 0


def test_an_open_batch_does_not_hold_the_done_ones_behind_it(kept: tuple[OffsetLedger[str], OriginalRecords]) -> None:
    """Producers that do not linger write batches of one record: one that is open cannot be thinned."""
    ledger, originals = kept
    for offset in range(5000):
        originals.add(batch(offset, 1))
        emit(ledger, offset, offset + 1)
        if offset % 1000:
            ledger.acked(offset)
    originals.drop_done()
    assert originals.size_bytes < 1000
    assert [originals.of(offset).record.offset for offset in range(0, 5000, 1000)] == [*range(0, 5000, 1000)]
    for offset in range(0, 5000, 1000):
        ledger.acked(offset)
    originals.drop_done()
    assert originals.size_bytes == 0


def test_many_open_batches_are_not_looked_through_for_each_new_one(
    kept: tuple[OffsetLedger[str], OriginalRecords], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, originals = kept
    looks: list[int] = []
    monkeypatch.setattr(originals, "_thin", lambda batch, thin=originals._thin: looks.append(1) or thin(batch))
    for offset in range(4000):
        originals.add(batch(offset, 1))
        emit(ledger, offset, offset + 1)
    assert len(looks) < 3 * 4000


def test_a_record_taken_out_of_a_later_batch_outlives_those_of_an_earlier_one(
    kept: tuple[OffsetLedger[str], OriginalRecords],
) -> None:
    """The batch in front has to stay at first: its records are taken out after those behind it."""
    ledger, originals = kept
    for base in range(0, 100, 10):
        originals.add(batch(base, 10))
        emit(ledger, base, base + 10)
        if base == 10:
            for offset in range(11, 20):
                ledger.acked(offset)
    for offset in range(1, 10):
        ledger.acked(offset)
    originals.drop_done()
    ledger.acked(0)
    originals.drop_done()
    assert originals.of(10).record.offset == 10


def test_where_what_fails_is_read_again_a_batch_is_kept_until_it_is_emitted() -> None:
    ledger: OffsetLedger[str] = OffsetLedger(0)
    originals = OriginalRecords(P, NotEmitted(ledger))
    originals.add(batch(0, 5))
    originals.add(batch(5, 5))
    emit(ledger, 0, 5)
    originals.drop_done()
    assert originals.of(5).record.value == b"0000000005"
    emit(ledger, 5, 9)
    originals.drop_done()
    assert originals.of(9).record.value == b"0000000009", "its batch has one that is not emitted"
    with pytest.raises(KeyError):
        originals.of(3)
    emit(ledger, 9, 10)
    originals.drop_done()
    assert originals.size_bytes == 0
