"""Rows of one stream or of several in the columns of one DataFrame, by Arrow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow
import pytest

from streamlet import StreamId
from streamlet.spark.applying import stage_columns
from streamlet.spark.applying.applied_bolt import FailedRow
from streamlet.spark.applying.stage_columns import DEAD, DEAD_FIELDS, RowsIn, RowsOut, ValueDoesNotFit, dead_columns

LINES, WORDS = StreamId("lines"), StreamId("words")
TEXT, LONG, INT = pyarrow.string(), pyarrow.int64(), pyarrow.int32()
TIME, DOUBLE = pyarrow.timestamp("us", "UTC"), pyarrow.float64()
FLOAT = pyarrow.float32()
LINE = pyarrow.struct([("c0", TEXT)])
WORD = pyarrow.struct([("c0", TEXT), ("c1", LONG)])


def test_rows_of_one_stream_come_without_the_columns_of_the_key() -> None:
    batch = pyarrow.RecordBatch.from_pydict({"k0": ["a"], "c0": ["a"], "c1": [1]})
    assert [*RowsIn((WORDS,), (2,), 1).columns(batch)] == [(WORDS, [["a"], [1]])]
    assert [*RowsIn((WORDS,), (2,), 1).columns(batch.slice(0, 0))] == []


def test_rows_of_several_streams_are_told_apart() -> None:
    schema = pyarrow.schema([("which", INT), ("v0", LINE), ("v1", WORD)])
    rows_out = RowsOut((LINES, WORDS), (("line",), ("word", "n")), schema)
    first, second = rows_out.batches({WORDS: [["a", "b"], [1, None]], LINES: [["a b"]]})
    assert first.to_pylist() == [{"which": 0, "v0": {"c0": "a b"}, "v1": None}]
    rows_in = RowsIn((LINES, WORDS), (1, 2))
    both = pyarrow.Table.from_batches([second, first]).combine_chunks().to_batches()[0]
    assert [*rows_in.columns(both)] == [(LINES, [["a b"]]), (WORDS, [["a", "b"], [1, None]])]


def chunked(arrow: Any, column: Sequence[Any], kind: Any) -> Any:
    """As of more than 2 GiB: the text in two arrays."""
    whole = arrow.array(column, kind)
    return arrow.chunked_array([whole[:1], whole[1:]]) if kind == TEXT else whole


def test_a_column_that_fits_into_no_array_leaves_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_columns, "array_of", chunked)
    words = {WORDS: [["a", "b", "c"], [1, 2, 3]]}
    rows_out = RowsOut((WORDS,), (("word", "n"),), pyarrow.schema([*WORD]))
    assert [batch.to_pydict() for batch in rows_out.batches(words)] == [
        {"c0": ["a"], "c1": [1]},
        {"c0": ["b", "c"], "c1": [2, 3]},
    ]
    schema = pyarrow.schema([("which", INT), ("v0", LINE), ("v1", WORD)])
    batches = [*RowsOut((LINES, WORDS), (("line",), ("word", "n")), schema).batches(words)]
    assert [batch.num_rows for batch in batches] == [1, 2]
    assert batches[1].to_pylist()[1] == {"which": 1, "v0": None, "v1": {"c0": "c", "c1": 3}}


def test_rows_with_many_bytes_leave_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_columns, "BYTES_AT_ONCE", 1000)
    rows_out = RowsOut((LINES,), (("line",),), pyarrow.schema([*LINE]))
    lines = ["a" * 400] * 5 + ["b" * 5000]
    batches = [*rows_out.batches({LINES: [lines]})]
    assert [line for batch in batches for line in batch.column(0).to_pylist()] == lines
    assert len(batches) == 6, "1172 bytes a row in the mean"
    assert [batch.num_rows for batch in rows_out.batches({LINES: [["a"] * 100]})] == [100]


def test_times_come_in_utc_wherever_they_stand() -> None:
    there = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    kind = pyarrow.timestamp("us", "+02:00")
    times = pyarrow.array([there, None], kind)
    nested = pyarrow.array([[there], None], pyarrow.list_(kind))
    batch = pyarrow.RecordBatch.from_arrays([times, nested], ["c0", "c1"])
    ((_, (alone, inside)),) = RowsIn((WORDS,), (2,)).columns(batch)
    assert [alone[0].tzinfo, inside[0][0].tzinfo, alone[1], inside[1]] == [UTC, UTC, None, None]
    assert alone[0] == there


@pytest.mark.parametrize(
    ("kind", "column", "told"),
    [
        (LONG, [1, "a"], r"words emitted 'a' \(str\) as field 'word' of its stream 'default'.* says that it is long"),
        (INT, [1, 1 << 40], "emitted 1099511627776 .* says that it is int"),
        (TEXT, ["a", 1.5], r"emitted 1\.5 \(float\) .* says that it is string"),
        (LONG, [1, 20.7], r"emitted 20\.7 \(float\) .* says that it is long"),
        (DOUBLE, [1.5, 1, None, True], r"emitted True \(bool\) .* says that it is double"),
        (TIME, [1732000000000], r"emitted 1732000000000 \(int\) .* says that it is timestamp"),
        (pyarrow.list_(LONG), [None, [1], [1, 2.5]], r"emitted \[1, 2\.5\] \(list\)"),
        (WORD, [{"c0": "a"}, {"c0": "a", "c1": 1, "more": 2}], "emitted .*'more'.* no field 'more'"),
        (WORD, [{"c0": "a", "c1": 1.5}], r"emitted .*'c1': 1\.5"),
        (FLOAT, [1.5, -1e300], r"emitted -1e\+300 \(float\) .* says that it is float.*up to 3\.4e\+38"),
        (FLOAT, [1, 10**400], r"emitted 10000.* says that it is float.*up to 3\.4e\+38"),
        (pyarrow.list_(pyarrow.struct([("c0", FLOAT)])), [[{"c0": 1e39}]], r"emitted \[{'c0': 1e\+39}\]"),
    ],
)
def test_a_value_of_another_type_is_named(kind: object, column: list[object], told: str) -> None:
    rows_out = RowsOut((WORDS,), (("word",),), pyarrow.schema([("c0", kind)]))
    with pytest.raises(ValueDoesNotFit, match=told):
        [*rows_out.batches({WORDS: [column]})]
    with pytest.raises(ValueDoesNotFit, match=told):
        rows_out.check({WORDS: [column]}, set())


@pytest.mark.parametrize(
    ("kind", "value", "word", "more"),
    [
        (TEXT, 3, "string", ""),
        (pyarrow.bool_(), 3, "boolean", ""),
        (pyarrow.binary(), 3, "binary", ""),
        (LONG, "a", "long", ""),
        (DOUBLE, True, "double", ""),
        (pyarrow.list_(TEXT), [3], "array<string>", ""),
        (pyarrow.list_(LONG), ["a"], "array<long>", " (str is not long.)"),
        (pyarrow.struct([("a", pyarrow.bool_())]), 3, "struct<a: boolean>", " (int is not struct<a: boolean>.)"),
        (
            TEXT,
            "\ud800",
            "string",
            " ('utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed.)",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_told_in_the_words_of_the_schema(
    kind: object, value: object, word: str, more: str
) -> None:
    rows_out = RowsOut((WORDS,), (("word",),), pyarrow.schema([("c0", kind)]))
    with pytest.raises(ValueDoesNotFit) as caught:
        [*rows_out.batches({WORDS: [[value]]})]
    assert caught.value.message == (
        f"words emitted {value!r} ({type(value).__name__}) as field 'word' of its stream 'default', and schemas= says "
        f"that it is {word}. Name the type that is emitted, or emit that type.{more}"
    )


def test_the_type_is_told_as_it_was_written() -> None:
    schema = pyarrow.schema([("c0", TEXT), ("c1", LONG)])
    rows_out = RowsOut((WORDS,), (("word", "n"),), schema, (("", "BIGINT"),))
    with pytest.raises(ValueDoesNotFit, match=r"says that it is BIGINT\. "):
        [*rows_out.batches({WORDS: [["a"], ["b"]]})]
    with pytest.raises(ValueDoesNotFit, match=r"says that it is string\. "):
        [*rows_out.batches({WORDS: [[1], [1]]})]


def test_each_value_within_a_list_is_looked_at_though_lists_have_passed() -> None:
    rows_out = RowsOut((WORDS,), (("word",),), pyarrow.schema([("c0", pyarrow.list_(LONG))]))
    fitting: set[tuple[int, int, type]] = set()
    rows_out.check({WORDS: [[[1]]]}, fitting)
    with pytest.raises(ValueDoesNotFit, match=r"emitted \[2\.5\]"):
        rows_out.check({WORDS: [[[2.5]]]}, fitting)


def test_each_value_of_a_float_column_is_looked_at_though_floats_have_passed() -> None:
    rows_out = RowsOut((WORDS,), (("word",),), pyarrow.schema([("c0", FLOAT)]))
    fitting: set[tuple[int, int, type]] = set()
    rows_out.check({WORDS: [[1.5]]}, fitting)
    with pytest.raises(ValueDoesNotFit, match=r"emitted 1e\+39"):
        rows_out.check({WORDS: [[1e39]]}, fitting)


def test_what_a_float_column_can_have_stays_infinity_too() -> None:
    rows_out = RowsOut((WORDS,), (("word",),), pyarrow.schema([("c0", FLOAT)]))
    largest = 3.4028234663852886e38
    column = [largest, math.nextafter(float(2**128 - 2**103), 0), -largest, math.inf, -math.inf, math.nan, None]
    (batch,) = rows_out.batches({WORDS: [column]})
    found = batch.column(0).to_pylist()
    assert found[:5] == [largest, largest, -largest, math.inf, -math.inf]
    assert math.isnan(found[5]) and found[6] is None


def test_a_failed_tuple_is_readable_text() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [FailedRow("count", "words", ["ä", when, b"\xff"], "why"), FailedRow("count", "__tick", None, "late")]
    found = dead_columns(rows, {"words": ("word", "at", "raw")})
    assert len(found) == len(DEAD_FIELDS) and DEAD.component.startswith("__")
    assert found[2] == ['{"word": "ä", "at": "2026-01-01T00:00:00+00:00", "raw": "\\\\xff"}', None]
    assert [found[0], found[1], found[3]] == [["count", "count"], ["words", "__tick"], ["why", "late"]]


def test_a_dead_letter_shows_keys_and_text_that_are_no_utf_8() -> None:
    rows = [FailedRow("count", "words", [{b"k\xff": {("a", 1): b"v"}}, ["\udc80"], 1], "bad \udc80")]
    found = dead_columns(rows, {"words": ("word", "at", "raw")})
    assert pyarrow.array(found[2], TEXT).to_pylist() == [
        '{"word": {"k\\\\xff": {"(\'a\', 1)": "v"}}, "at": ["\\udc80"], "raw": 1}'
    ]
    assert pyarrow.array(found[3], TEXT).to_pylist() == ["bad \\udc80"]
