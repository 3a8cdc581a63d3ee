"""Which dead letters are replayed, and up to where a topic can be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.base.errors import BadInput
from streamlet.spouts.kafka.dead_letters.dead_letter import Fault, GivenUp, RunStamp, headers_of, marker_headers
from streamlet.spouts.kafka.dead_letters.dead_letter_choice import (
    LetterFilter,
    LetterLog,
    parse_letter,
    parse_offsets_range,
    plan_purge,
    plan_replay,
)
from streamlet.spouts.kafka.schemes.scheme import Record

STAMP = RunStamp("Counts", "run-1", "lines", "0.1.0", None)


def headers(offset: int, error: str = "ValueError", replays: int = 0, at: int = 99) -> list[tuple[str, bytes | None]]:
    record = Record("lines", offset % 2, offset, 5, None, b"v", [("streamlet.dlq.replays", b"%d" % replays)])
    return headers_of(GivenUp(record, 0, 3, Fault("count", error, "no")), STAMP, at)


def log(*rows: Any) -> LetterLog:
    """A log of partition 0: an error's class for a letter, a number for a marker, None for a foreign record."""
    made = LetterLog(ends={0: len(rows)})
    for offset, row in enumerate(rows):
        if isinstance(row, str):
            made.add((0, offset), headers(offset, row))
        else:
            made.add((0, offset), [("x", b"y")] if row is None else marker_headers(row))
    return made


ALL, A = LetterFilter(), LetterFilter(errors=["A"])


def offsets(letters: Any) -> list[int]:
    return [letter.place[1] for letter in letters]


def test_open_letters_are_replayed_and_marked_ones_are_not() -> None:
    found = log("A", "B", 0, "A")
    assert [found.state(letter) for letter in found.letters] == ["replayed", "open", "open"]
    assert offsets(plan_replay(found, ALL, 3).chosen) == [1, 3]
    assert offsets(plan_replay(found, A, 3).chosen) == [3]
    found.mark(found.letters[1:])
    assert {found.state(letter) for letter in found.letters} == {"replayed"}


def test_what_was_replayed_too_often_stays() -> None:
    found = LetterLog()
    for offset, replays in enumerate((0, 2, 3, 7)):
        found.add((0, offset), headers(offset, replays=replays))
    plan = plan_replay(found, ALL, 3)
    assert (offsets(plan.chosen), offsets(plan.exhausted)) == ([0, 1], [2, 3])


def two_partitions() -> LetterLog:
    """Letters by the time they were given up: 0:0, 1:0, then 1:1 beside 1:2, whose clock was behind, then 0:1."""
    found = LetterLog(ends={0: 2, 1: 3})
    for place, at in (((0, 0), 10), ((0, 1), 50), ((1, 0), 20), ((1, 1), 40), ((1, 2), 15)):
        found.add(place, headers(place[1], at=at))
    return found


def test_a_limit_replays_the_oldest_letters_and_leaves_the_others() -> None:
    """In a partition in order, whatever the clocks say."""
    for most, taken in ((1, [(0, 0)]), (3, [(0, 0), (1, 0), (1, 1)]), (4, [(0, 0), (1, 0), (1, 1), (1, 2)])):
        plan = plan_replay(two_partitions(), ALL, 3, most)
        assert [letter.place for letter in plan.chosen] == taken and plan.later == 5 - most
    for no_limit in (5, 9, None):
        plan = plan_replay(two_partitions(), ALL, 3, no_limit)
        assert len(plan.chosen) == 5 and plan.later == 0


def test_a_limit_deletes_the_oldest_letters_and_leaves_the_others() -> None:
    plan = plan_purge(two_partitions(), ALL, unreplayed=True, most=3)
    assert [letter.place for letter in plan.deleted] == [(0, 0), (1, 0), (1, 1)]
    assert plan.before == {0: 1, 1: 2} and plan.later == 2 and plan.stays == []
    plan = plan_purge(two_partitions(), ALL, unreplayed=True, most=5)
    assert plan.before == {0: 2, 1: 3} and plan.later == 0
    plan = plan_purge(log("A", "A", "B", "A"), A, unreplayed=True, most=1)
    assert plan.before == {0: 1} and plan.later == 1
    assert [(letter.place[1], behind) for letter, behind in plan.stays] == [(3, 2)]


@pytest.mark.parametrize(
    "wanted, chosen",
    [
        (LetterFilter(topics=["other"]), []),
        (LetterFilter(partitions=[1]), [1]),
        (LetterFilter(offsets=(1, 2)), [1, 2]),
        (LetterFilter(errors=["B", "C"]), [1]),
        (LetterFilter(components=["count"], errors=["A"]), [0, 2]),
        (LetterFilter(since_ms=101), [1, 2]),
        (LetterFilter(until_ms=101), [0]),
    ],
)
def test_a_filter_chooses(wanted: LetterFilter, chosen: list[int]) -> None:
    found = LetterLog()
    for offset, error in enumerate("ABA"):
        found.add((0, offset), headers(offset, error, at=100 + offset))
    assert offsets(filter(wanted.takes, found.letters)) == chosen


@pytest.mark.parametrize(
    "rows, wanted, unreplayed, before, stays",
    [
        (("A", "A", 0, 1), ALL, False, {0: 4}, []),
        (("A", "A", 0), ALL, False, {0: 1}, []),
        (("A", "A", 1), ALL, False, {}, [(1, 0)]),
        (("A", "B", "A"), ALL, True, {0: 3}, []),
        (("A", "B", "A"), A, True, {0: 1}, [(2, 1)]),
        (("A", None, "A"), ALL, True, {0: 1}, [(2, 1)]),
        ((None, "A"), ALL, True, {}, [(1, 0)]),
        ((), ALL, True, {}, []),
    ],
)
def test_a_partition_is_deleted_up_to_the_first_record_that_stays(
    rows: Any, wanted: LetterFilter, unreplayed: bool, before: dict[int, int], stays: list[tuple[int, int]]
) -> None:
    plan = plan_purge(log(*rows), wanted, unreplayed=unreplayed)
    assert plan.before == before
    assert [(letter.place[1], behind) for letter, behind in plan.stays] == stays
    assert all(offset < before[0] for offset in offsets(plan.deleted))


def test_words_of_the_command_line_are_read_or_refused() -> None:
    assert (parse_offsets_range("5-9"), parse_offsets_range("7"), parse_letter("1:42")) == ((5, 9), (7, 7), (1, 42))
    for word in ("9-5", "-1", "a-b", "1-", "\u0661"):
        with pytest.raises(BadInput, match="names no range of offsets"):
            parse_offsets_range(word)
    for word in ("1", "1:", ":1", "a:1", "1:-1"):
        with pytest.raises(BadInput, match="names no dead letter"):
            parse_letter(word)
