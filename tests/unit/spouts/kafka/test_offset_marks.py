"""Numbers known at some offsets, and those between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlet.spouts.kafka.offset_marks import MOST, OffsetMarks


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=30), st.integers(0, 45), st.integers(0, 45))
def test_an_offset_has_the_number_of_the_last_mark_at_or_below_it(
    noted: list[tuple[int, int]], asked: int, done: int
) -> None:
    marks, model = OffsetMarks(), dict[int, int]()
    for offset, number in noted:
        marks.note(offset, number)
        model = {known: each for known, each in model.items() if known < offset} | {offset: number}
    below = [offset for offset in model if offset <= max(asked, done)]
    marks.forget_below(done)
    assert marks.at(max(asked, done)) == (model[max(below)] if below else None)


def test_marks_are_bounded_and_the_oldest_and_the_newest_stay() -> None:
    marks = OffsetMarks()
    for offset in range(10 * MOST):
        marks.note(offset, float(offset))
    assert len(marks._offsets) <= MOST
    assert (marks.at(0), marks.at(10 * MOST)) == (0.0, 10 * MOST - 1.0)
