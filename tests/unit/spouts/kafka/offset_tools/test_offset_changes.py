"""What a change of stored offsets is decided to be."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from streamlet.base.errors import BadInput
from streamlet.spouts.kafka.offset_tools.offset_changes import (
    AnotherTopic,
    NoSuchPartition,
    NotAnExport,
    OffsetOutsideLog,
    StoredEntry,
    Wish,
    changes,
    check_topic,
    export_document,
    moved,
    parse_offsets,
    parse_place,
    read_export,
)
from streamlet.spouts.kafka.partition import OffsetRange
from streamlet.spouts.kafka.stores.offset_store import StopOffset

LOGS = {0: OffsetRange(5, 20), 1: OffsetRange(0, 10)}


def test_a_place_is_a_word_an_offset_or_a_time_with_its_zone() -> None:
    assert parse_place("earliest") == "earliest" and parse_place("latest") == "latest"
    assert parse_place("17") == 17
    assert parse_place("2026-01-31T12:00:00Z") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    for wrong in ("", "-1", "1.5", "end", "2026-01-31", "2026-01-31T12:00:00", "9" * 30, "\u0663"):
        with pytest.raises(BadInput):
            parse_place(wrong)


@pytest.mark.parametrize("given", ["2026-01-31", "2026-01-31T12:00:00"])
def test_the_time_that_is_told_where_one_has_no_zone_can_be_given(given: str) -> None:
    with pytest.raises(BadInput, match="has no zone") as refused:
        parse_place(given)
    told = re.search(r"write (\S+) for UTC, or its distance from UTC, as (\S+)\.$", str(refused.value))
    assert told
    assert [isinstance(parse_place(one), datetime) for one in told.groups()] == [True, True]


def test_offsets_of_partitions_are_pairs_of_whole_numbers() -> None:
    assert parse_offsets(["0=5", "11=0"]) == {0: 5, 11: 0}
    for wrong in (["0"], ["0="], ["=1"], ["0=-1"], ["a=1"], ["0=1", "0=2"], ["0=1=2"]):
        with pytest.raises(BadInput):
            parse_offsets(wrong)


def test_changes_compare_with_what_is_stored_and_name_what_is_needed() -> None:
    stored = {0: StoredEntry(9), 1: StoredEntry(10)}
    first, second = changes("t", None, {1: Wish(10), 0: Wish(6)}, stored, LOGS)
    assert (first.partition, first.difference, first.needed) == (0, -3, True)
    assert (second.partition, second.difference, second.needed) == (1, 0, False)
    (new,) = changes("t", None, {1: Wish(0)}, {}, LOGS)
    assert (new.before, new.difference, new.needed) == (None, None, True)


def test_an_entry_of_a_deleted_topic_is_written_anew_at_the_same_number() -> None:
    (row,) = changes("t", "new", {1: Wish(3)}, {1: StoredEntry(3, topic_id="old")}, LOGS)
    assert row.needed
    (row,) = changes("t", "new", {1: Wish(3)}, {1: StoredEntry(3)}, LOGS)
    assert not row.needed


def test_a_bounded_read_that_is_moved_stops_where_it_would_have() -> None:
    stop, other = StopOffset(9, "latest"), StopOffset(7, "7")
    stored = {0: StoredEntry(6, topic_id="id", stop=stop)}
    (later,) = changes("t", "id", {0: Wish(8)}, stored, LOGS)
    assert later.after == Wish(8, stop=stop) and later.needed
    (beyond,) = changes("t", "id", {0: Wish(9)}, stored, LOGS)
    assert beyond.after.stop is None, "nothing is left of it"
    (again,) = changes("t", "id", {0: Wish(5)}, {0: StoredEntry(9, topic_id="id", stop=stop)}, LOGS)
    assert again.after.stop is None, "it was over: the next read chooses its own"
    (imported,) = changes("t", "id", {0: Wish(6, stop=other)}, stored, LOGS)
    assert imported.after.stop == other and imported.needed, "only the stop differs"
    (same,) = changes("t", "id", {0: Wish(6)}, stored, LOGS)
    assert not same.needed
    (renewed,) = changes("t", "new", {0: Wish(6)}, stored, LOGS)
    assert renewed.after.stop is None, "it was a place in the deleted topic"


def test_both_ends_of_the_log_are_allowed_and_nothing_beyond() -> None:
    for offset in (5, 20):
        assert changes("t", None, {0: Wish(offset)}, {}, LOGS)
    for offset in (4, 21):
        with pytest.raises(OffsetOutsideLog, match=r"from 5 .*reset --to earliest --partition [0-9]+`"):
            changes("t", None, {0: Wish(offset)}, {}, LOGS)
    with pytest.raises(NoSuchPartition, match="no partition 2, 7 of topic 't': it reads 0 to 1"):
        changes("t", None, {7: Wish(0), 2: Wish(0)}, {}, LOGS)


def test_a_move_counts_from_the_stored_offset_and_stays_within_the_log() -> None:
    stored = {0: StoredEntry(50), 1: StoredEntry(5)}
    logs = {0: OffsetRange(10, 60), 1: OffsetRange(2, 9), 2: OffsetRange(0, 9)}
    for by, first, second in ((-20, 30, 2), (7, 57, 9), (0, 50, 5), (-999, 10, 2), (999, 60, 9)):
        assert moved(("t", None), [1, 0], by, stored, logs) == {0: Wish(first), 1: Wish(second)}
    with pytest.raises(BadInput, match="Partition 2 has no stored offset to count from"):
        moved(("t", None), [0, 2], 1, stored, logs)


def test_nothing_is_counted_from_an_offset_of_a_deleted_topic() -> None:
    stored = {0: StoredEntry(9, topic_id="old"), 1: StoredEntry(3, topic_id="new")}
    with pytest.raises(AnotherTopic, match="Partition 0 has the offsets of a topic 't' with id old"):
        moved(("t", "new"), [0, 1], -3, stored, LOGS)
    assert moved(("t", "new"), [1], -3, stored, LOGS) == {1: Wish(0)}


def test_an_export_is_read_back_as_it_was_written() -> None:
    stop = StopOffset(12, "latest")
    stored = {0: StoredEntry(9, leader_epoch=3, metadata="{}", stop=stop), 1: StoredEntry(10)}
    document = export_document({"component": "lines"}, "t", "id", stored)
    found = read_export(json.dumps(document), "file")
    assert (found.topic, found.topic_id, found.wishes) == ("t", "id", {0: Wish(9, 3, stop), 1: Wish(10)})


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"topic": 1},
        {"offsets": None},
        {"offsets": [{"partition": 0, "offset": -1, "leader_epoch": 0}]},
        {"offsets": [{"partition": 0, "offset": True, "leader_epoch": 0}]},
        {"offsets": [{"partition": 0, "offset": 1 << 63, "leader_epoch": 0}]},
        {"offsets": [{"partition": 0, "offset": 1, "leader_epoch": 0}] * 2},
        {"offsets": [7]},
        {"offsets": []},
        {"offsets": {}},
        {"offsets": [{"partition": 0, "offset": 1, "leader_epoch": 1 << 31}]},
    ],
)
def test_what_is_no_export_is_refused(change: dict[str, object]) -> None:
    document = export_document({}, "t", None, {0: StoredEntry(1)})
    with pytest.raises(NotAnExport, match="file cannot be imported"):
        read_export(json.dumps({**document, **change}), "file")
    for text in ("", "[]", "7", "[" * 100_000):
        with pytest.raises(NotAnExport):
            read_export(text, "file")


def test_a_key_that_stands_twice_in_an_export_is_named_and_refused() -> None:
    """The last one would count in silence."""
    text = json.dumps(export_document({}, "t", None, {0: StoredEntry(10)}))
    twice = text.replace('"offset": 10', '"offset": 10, "offset": 20')
    with pytest.raises(NotAnExport, match="'offset' is given twice"):
        read_export(twice, "file")


def test_offsets_of_another_topic_or_of_a_deleted_one_are_refused() -> None:
    check_topic("file", ("t", None), ("t", "b"))
    check_topic("file", ("t", "b"), ("t", "b"))
    with pytest.raises(AnotherTopic, match="another record"):
        check_topic("file", ("s", "b"), ("t", "b"))
    with pytest.raises(AnotherTopic, match="was deleted"):
        check_topic("file", ("t", "a"), ("t", "b"))
