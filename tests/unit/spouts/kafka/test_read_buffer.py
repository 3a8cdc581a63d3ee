"""Records that wait to be emitted: what leaves is what came, in whatever form it is held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamlet.components.columns import Columns
from streamlet.spouts.kafka.read_buffer import WaitingRecords

BATCHES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.sampled_from(["rows", "columns", "odd"])))
"""Batches: the hole before them in the log, their records, and the form in which a scheme gives them."""


def formed(offsets: Sequence[int], form: str) -> Sequence[Any] | Columns:
    """Return the rows of some offsets in one of the forms."""
    if form == "columns":
        return Columns([[*map(str, offsets)]])
    return [None if form == "odd" and offset % 2 else [str(offset)] for offset in offsets]


@given(BATCHES, st.lists(st.integers(0, 4)), st.booleans())
def test_records_leave_in_the_order_in_which_they_came(
    batches: list[tuple[int, int, str]], takes: list[int], with_holes: bool
) -> None:
    waiting, expected, left = WaitingRecords(), list[tuple[int, Any]](), list[tuple[int, Any]]()
    at = 0
    for hole, count, form in batches:
        at += hole
        offsets: Sequence[int] = range(at, at + count)
        if with_holes:
            offsets = [*range(at, at + 2 * count, 2)]
        at = offsets[-1] + 1
        expected += zip(offsets, formed(offsets, form), strict=True)
        waiting.extend(offsets, formed(offsets, form))
        assert len(waiting) == len(expected) - len(left)
        if takes and (most := takes.pop()):
            taken, rows = waiting.take(most)
            left += zip(taken, rows, strict=True)
        elif waiting:
            left.append(waiting.next())
    while waiting:
        taken, rows = waiting.take(2)
        waiting.put_back(len(taken) - 1)
        left += zip(taken[:1], rows[:1], strict=True)
    assert left == expected


@given(BATCHES, st.integers(0, 30))
def test_a_cut_drops_what_lies_behind_it(batches: list[tuple[int, int, str]], end: int) -> None:
    waiting, offsets = WaitingRecords(), list[int]()
    for hole, count, form in batches:
        first = (offsets[-1] + 1 if offsets else 0) + hole
        waiting.extend(range(first, first + count), formed(range(first, first + count), form))
        offsets += range(first, first + count)
    assert [*waiting.cut(end)] == [offset for offset in offsets if offset >= end]
    taken, rows = waiting.take(1000)
    assert [*taken] == [offset for offset in offsets if offset < end] and len(rows) == len(taken)


def test_a_list_that_its_scheme_fills_again_keeps_what_it_held() -> None:
    waiting, own = WaitingRecords(), [["a"], ["b"]]
    waiting.extend(range(2), own)
    own[:] = [["c"]]
    waiting.extend(range(2, 3), own)
    assert waiting.take(3) == ([0, 1, 2], [["a"], ["b"], ["c"]])


def test_one_batch_is_held_as_it_came() -> None:
    waiting = WaitingRecords()
    waiting.extend(range(5, 9), Columns([["a", "b", "c", "d"]]))
    offsets, rows = waiting.take(3)
    assert offsets == range(5, 8) and rows == Columns([["a", "b", "c"]])
    assert waiting.next() == (8, ["d"])
