"""Rows of one key lie in lists, in their order, and come out again as columns."""

from __future__ import annotations

from typing import Any

import pyarrow

from streamlet import StreamId
from streamlet.spark.applying.packed_rows import PackedRows, packed, unpacked
from streamlet.spark.applying.stage_columns import RowsIn, RowsOut

LINES, WORDS = StreamId("lines"), StreamId("words")


def lists(**columns: Any) -> Any:
    return pyarrow.schema([*columns.items()])


def test_equal_keys_of_a_batch_become_one_row_in_order() -> None:
    batch = pyarrow.RecordBatch.from_pydict(
        {
            "k0": ["b", "a", None, "b", "a"],
            "k1": [1, 1, 1, 1, 2],
            "c0": ["b", "a", None, "b", "a"],
            "c1": [1, 2, 3, 4, 5],
        }
    )
    text, number = pyarrow.string(), pyarrow.int64()
    schema = lists(k0=text, k1=number, c0=pyarrow.list_(text), c1=pyarrow.list_(number))
    (made,) = PackedRows(2, schema)([batch.slice(0, 0), batch])
    rows = {(row["k0"], row["k1"]): (row["c0"], row["c1"]) for row in made.to_pylist()}
    assert rows == {
        (None, 1): ([None], [3]),
        ("a", 1): (["a"], [2]),
        ("a", 2): (["a"], [5]),
        ("b", 1): (["b", "b"], [1, 4]),
    }


def test_rows_of_a_function_are_packed_as_it_gives_them() -> None:
    def twice(batches: Any) -> Any:
        for batch in batches:
            yield batch.slice(0, 0)
            yield pyarrow.concat_batches([batch, batch])

    batch = pyarrow.RecordBatch.from_pydict({"c0": [1, 2], "c1": ["b", "a"]})
    text, number = pyarrow.string(), pyarrow.int64()
    schema = lists(k0=text, c0=pyarrow.list_(number), c1=pyarrow.list_(text))
    (made,) = PackedRows(1, schema, twice, (1,))([batch])
    assert sorted(made.to_pydict()["c0"]) == [[1, 1], [2, 2]]
    assert {row["k0"]: row["c1"] for row in made.to_pylist()} == {"a": ["a", "a"], "b": ["b", "b"]}


def test_keys_that_are_lists_are_told_apart() -> None:
    kind = pyarrow.list_(pyarrow.int64())
    batch = pyarrow.RecordBatch.from_arrays(
        [pyarrow.array([[1], [2], [1]], kind), pyarrow.array([1, 2, 3])], ["k0", "c0"]
    )
    (made,) = PackedRows(1, lists(k0=kind, c0=kind))([batch])
    assert sorted(map(str, made.to_pylist())) == ["{'k0': [1], 'c0': [1, 3]}", "{'k0': [2], 'c0': [2]}"]


def test_a_packed_row_is_columns_of_its_stream() -> None:
    assert unpacked(RowsIn((WORDS,), (2,), 1), ("a", ["a", "a"], [1, 2])) == (WORDS, [["a", "a"], [1, 2]])
    two = RowsIn((LINES, WORDS), (1, 2), 1)
    row = ("a", 1, None, [{"c0": "a", "c1": 1}, {"c0": "a", "c1": 2}])
    assert unpacked(two, row) == (WORDS, [("a", "a"), (1, 2)])


def test_what_leaves_is_a_row_of_lists_for_each_stream() -> None:
    one = RowsOut((WORDS,), (("word", "n"),), None)
    assert [*packed(one, {WORDS: [["a", "b"], (1, 2)]})] == [(["a", "b"], [1, 2])]
    two = RowsOut((LINES, WORDS), (("line",), ("word", "n")), None)
    assert [*packed(two, {WORDS: [["a"], [1]]})] == [(1, None, {"c0": ["a"], "c1": [1]})]
    assert [*packed(two, {})] == []
