"""Rows held by field."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from streamlet import Batch, BatchingBolt, Bolt, Tuple, ValueCannotTravel
from streamlet.components.columns import Columns, as_columns
from streamlet.testing import BoltTester


def test_columns_read_like_their_rows() -> None:
    held = Columns([["a", "b", "c"], [1, 2, 3]])
    rows = [["a", 1], ["b", 2], ["c", 3]]
    assert [*held] == rows and len(held) == 3
    assert held[1] == rows[1] and held[-1] == rows[-1]
    assert [*held[1:]] == rows[1:] and [*held[3:]] == []


def test_a_change_of_a_row_or_slice_changes_nothing_else() -> None:
    held = Columns([["a", "b"]])
    next(iter(held))[0] = "x"
    held[0][0] = "x"
    held[:1].extend([["x"]])
    assert [*held] == [["a"], ["b"]]


@pytest.mark.parametrize("more", [[["c", 3]], Columns([["c"], [3]]), [], Columns([[], []])], ids=repr)
def test_rows_of_either_form_are_appended(more: Any) -> None:
    held = Columns([["a", "b"], [1, 2]])
    held.extend(more)
    assert [*held] == [["a", 1], ["b", 2], *more]


def test_rows_read_while_more_are_appended_are_all_read() -> None:
    held = Columns([["a"]])
    rows = iter(held)
    held.extend([["b"]])
    assert [*rows] == [["a"], ["b"]]


def test_columns_are_copied_into_lists_of_python_values() -> None:
    given: list[Any] = ["a", "b"]
    made = as_columns([given, (1, 2), iter("xy"), array("d", [0.5, 1.5])])
    given.append("c")
    assert [*made] == [["a", 1, "x", 0.5], ["b", 2, "y", 1.5]]


def test_as_columns_numpy_and_arrow_become_values_that_travel() -> None:
    numpy, pyarrow = pytest.importorskip("numpy"), pytest.importorskip("pyarrow")
    made = as_columns([numpy.arange(2), pyarrow.array(["a", None])])
    assert [*made] == [[0, "a"], [1, None]]
    assert type(made[0][0]) is int


@pytest.mark.parametrize("columns", [[], [[1], [1, 2]]], ids=repr)
def test_as_columns_different_lengths_are_refused(columns: Any) -> None:
    with pytest.raises(ValueError, match="columns of one length"):
        as_columns(columns)


class Doubles(Bolt):
    outputs = ["word", "n"]

    def process_batch(self, batch: Batch) -> None:
        words = batch.values("word")
        self.emit_columns(words, [len(word) for word in words])


def test_columns_are_emitted_as_tuples_of_the_batch() -> None:
    with BoltTester(Doubles, sources={"words": ["word"]}) as tester:
        tester.give(["a"], ["bcd"])
        assert tester.emitted() == [["a", 1], ["bcd", 3]]
        assert sorted(tester.acked) == [["a"], ["bcd"]]


class Wrong(Bolt):
    outputs = ["word"]

    def process_batch(self, batch: Batch) -> None:
        kind = batch.values("word")[0]
        if kind == "too many":
            self.emit_columns([1], [2])
        elif kind == "a set":
            self.emit_columns(["a", {1}])
        elif kind == "large":
            self.emit_columns([1, 1 << 64])


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        ("too many", ValueError, r"declares 1 field\(s\): word"),
        ("a set", ValueCannotTravel, "whose field 'word' is a set"),
        ("large", ValueCannotTravel, "int of 65 bits"),
    ],
)
def test_columns_that_cannot_travel_emit_nothing_and_name_the_field(
    kind: str, error: type[Exception], said: str
) -> None:
    with BoltTester(Wrong, sources={"words": ["word"]}) as tester:
        with pytest.raises(error, match=said):
            tester.give([kind])
        assert tester.emitted() == [] and tester.failed == [[kind]]


def test_as_columns_no_rows_emit_nothing() -> None:
    class Nothing(Bolt):
        outputs = ["word"]

        def process_batch(self, batch: Batch) -> None:
            self.emit_columns([])

    with BoltTester(Nothing, sources={"words": ["word"]}) as tester:
        tester.give(["a"])
        assert (tester.emitted(), tester.acked) == ([], [["a"]])


def test_a_batching_bolt_anchors_columns_to_its_batch() -> None:
    class Keyed(BatchingBolt):
        outputs = ["word"]
        config = {"topology.tick.tuple.freq.secs": 1}

        def process_batch(self, key: Any, tups: list[Tuple]) -> None:
            self.emit_columns([tup.values[0] for tup in tups])

    with BoltTester(Keyed, sources={"words": ["word"]}) as tester:
        tester.give(["a"], ["b"])
        tester.tick()
        assert (tester.emitted(), sorted(tester.acked)) == ([["a"], ["b"]], [["a"], ["b"]])


def test_rows_of_a_batch_are_made_once_and_share_their_tuples_values() -> None:
    batch = Batch(Columns([["a", "b"], [1, 2]]), fields=("word", "n"))
    column = batch.values("word")
    column.append("c")
    assert batch.values("word") == ["a", "b"]
    batch.rows[0][1] = 7
    assert batch.tuples[0].values == ["a", 7] and batch.values("n") == [7, 2]
