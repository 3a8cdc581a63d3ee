"""Headers of dead letters: written, read back, and carried by a replayed record."""

from __future__ import annotations

import pytest

from streamlet.spouts.kafka.dead_letters.dead_letter import (
    MOST_ERROR_TEXT,
    PREFIX,
    Fault,
    GivenUp,
    RunStamp,
    headers_of,
    marked_offset,
    marker_headers,
    read,
    replayed_headers,
)
from streamlet.spouts.kafka.schemes.scheme import Record

STAMP = RunStamp("Counts", "run-1", "lines", "0.1.0", "v7")
OWN: list[tuple[str, bytes | None]] = [("trace", b"\xff"), ("trace", None)]


def given_up(headers: object = OWN, component: str | None = "count", text: str = "no") -> GivenUp:
    record = Record("lines", 3, 42, 1_700_000_000_000, b"k", b"v", headers)  # type: ignore[arg-type]
    return GivenUp(record, 5, 21, Fault(component, "ValueError", text))


def test_a_letter_keeps_the_records_own_headers_and_tells_its_story() -> None:
    headers = headers_of(given_up(), STAMP, 99)
    assert headers[:2] == OWN
    assert dict(headers[2:]) == {
        PREFIX + name: value
        for name, value in {
            "topic": b"lines",
            "partition": b"3",
            "offset": b"42",
            "leader.epoch": b"5",
            "timestamp": b"1700000000000",
            "tries": b"21",
            "component": b"count",
            "error.class": b"ValueError",
            "error.text": b"no",
            "failed.at": b"99",
            "topology": b"Counts",
            "run": b"run-1",
            "streamlet.version": b"0.1.0",
            "code.version": b"v7",
            "replays": b"0",
            "first.record": b"lines/3/42",
            "first.failed.at": b"99",
        }.items()
    }


def test_what_the_spout_itself_could_not_read_has_its_name_and_a_long_text_is_cut() -> None:
    letter = read((0, 1), headers_of(given_up(component=None, text="x" * 5000), STAMP, 99))
    assert letter is not None
    assert (letter.component, len(letter.text)) == ("lines", MOST_ERROR_TEXT)


def test_a_lone_surrogate_in_an_error_is_written_all_the_same() -> None:
    letter = read((0, 1), headers_of(given_up(text="bad \ud800"), STAMP, 99))
    assert letter is not None and letter.text == r"bad \ud800"


def test_a_replayed_record_carries_its_history_and_brings_it_along_when_it_fails_again() -> None:
    first = read((1, 7), headers_of(given_up(), STAMP, 99))
    assert first is not None
    replayed = replayed_headers(first, headers_of(given_up(), STAMP, 99))
    assert replayed[:2] == OWN and len(replayed) == 5
    again = headers_of(given_up(replayed)._replace(record=given_up(replayed).record._replace(offset=50)), STAMP, 500)
    assert [name for name, _ in again].count(PREFIX + "replays") == 1
    letter = read((1, 8), again)
    assert letter is not None
    assert (letter.offset, letter.replays, letter.first_record) == (50, 1, "lines/3/42")
    assert (letter.failed_at_ms, letter.first_failed_at_ms) == (500, 99)


def test_what_is_no_letter_is_told_from_one() -> None:
    assert read((0, 0), OWN) is None
    assert read((0, 0), [(PREFIX + "topic", b"t"), (PREFIX + "partition", b"x"), (PREFIX + "offset", b"1")]) is None
    assert marked_offset(marker_headers(42)) == 42
    assert marked_offset(OWN) is None and read((0, 0), marker_headers(42)) is None


@pytest.mark.parametrize("value", [b"-7", b"9223372036854775808", b"9" * 5000, b"1e3", b"seven", b""])
def test_a_number_that_no_header_of_ours_can_have_counts_as_none(value: bytes) -> None:
    headers = [("streamlet.dlq.topic", b"t"), ("streamlet.dlq.partition", b"0"), ("streamlet.dlq.offset", b"1")]
    found = read((0, 0), [*headers, ("streamlet.dlq.failed.at", value), ("streamlet.dlq.tries", value)])
    assert found is not None and (found.failed_at_ms, found.tries) == (0, 0)
    assert marked_offset([("streamlet.dlq.replayed", value)]) is None
    assert read((0, 0), [*headers[:2], ("streamlet.dlq.offset", value)]) is None
