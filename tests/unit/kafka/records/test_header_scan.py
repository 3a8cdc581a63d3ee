"""What a fetch answer's batch headers say before anything is unpacked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka.records.record_batch import DELETE_HORIZON, HEADER, LOG_APPEND_TIME, first_time_ms, scan_headers


def batch(base: int, last: int, epoch: int = 0, records: int = 0, magic: int = 2) -> bytes:
    """A header that says what a batch holds, without the records."""
    return HEADER.pack(base, HEADER.size - 12, epoch, magic, 0, 0, last - base, 0, 0, -1, -1, -1, records)


def test_whole_batches_are_summed_up_and_a_cut_tail_is_left() -> None:
    whole = batch(10, 14, epoch=3, records=5) + batch(20, 29, epoch=4, records=7)
    for tail in (b"", batch(30, 39, epoch=9, records=10)[:40], b"\0" * 10):
        assert scan_headers(whole + tail, 10) == (12, 30, 4, False)


def test_without_a_batch_position_and_epoch_stay() -> None:
    assert scan_headers(b"", 10, 7) == (0, 10, 7, False)


def test_a_batch_from_below_the_position_never_leads_back() -> None:
    assert scan_headers(batch(0, 4, records=5), 10) == (5, 10, 0, False)


def test_bytes_without_one_whole_batch_are_unreadable() -> None:
    assert scan_headers(batch(10, 14)[:40], 10) == (0, 10, -1, True)
    assert scan_headers(b"\0" * 5, 10) == (0, 10, -1, True)


def test_a_bad_header_ends_the_scan_behind_what_stands_before_it() -> None:
    good = batch(10, 14, epoch=2, records=5)
    short = HEADER.pack(15, 3, 2, 2, 0, 0, 1, 0, 0, -1, -1, -1, 1)
    for bad in (batch(15, 19, magic=1), batch(15, 19, magic=3), batch(15, 10), short, batch(15, 19, magic=1)[:20]):
        assert scan_headers(bad, 10)[1:] == (10, -1, True)
        assert scan_headers(good + bad + good, 10) == (5, 15, 2, True)


def test_a_negative_record_count_counts_as_none() -> None:
    assert scan_headers(batch(10, 14, records=-1), 10).records_at_most == 0


def test_the_time_of_the_first_batch_is_its_producers_or_its_brokers() -> None:
    for attributes, found in ((0, 5), (LOG_APPEND_TIME, 9), (DELETE_HORIZON, 9)):
        data = HEADER.pack(0, HEADER.size - 12, 0, 2, 0, attributes, 0, 5, 9, -1, -1, -1, 1)
        assert first_time_ms(memoryview(data)) == found
    assert first_time_ms(b"") == first_time_ms(batch(0, 0, magic=1)) == -1


@given(st.binary(max_size=200), st.integers(0, 1 << 40))
def test_any_bytes_are_scanned_without_an_error_and_never_lead_back(data: bytes, position: int) -> None:
    scan = scan_headers(memoryview(data), position)
    assert scan.next_offset >= position
    assert scan.records_at_most >= 0
