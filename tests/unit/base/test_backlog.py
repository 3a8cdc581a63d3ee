"""What waits for a reader that does not read is bounded, and nothing but lines is ever left out."""

from __future__ import annotations

import random

import pytest

from streamlet.base.backlog import LINE_BYTES, Backlog
from tests.seeds import seeds


def taken(backlog: Backlog[str]) -> list[str]:
    out = []
    while (item := backlog.take()) is not None:
        out.append(item)
    return out


def test_a_newer_item_replaces_an_older_one_of_its_name_and_no_other() -> None:
    backlog: Backlog[str] = Backlog()
    for item, name in (("a1", "a"), ("x", None), ("b1", "b"), ("y", None), ("a2", "a"), ("x", None)):
        backlog.put(item, replaces=name)
    assert taken(backlog) == ["x", "b1", "y", "a2", "x"]
    assert not backlog and backlog.take_left_out() == 0


def test_a_day_of_heartbeats_that_nobody_reads_is_one() -> None:
    backlog: Backlog[int] = Backlog()
    for second in range(86_400):
        backlog.put(second, replaces="beat")
    assert (backlog.take(), backlog.take()) == (86_399, None)


def test_lines_beyond_their_budget_are_counted() -> None:
    """The first ones stay; the count comes behind the last of them, and there is room again then."""
    backlog: Backlog[str] = Backlog()
    room = LINE_BYTES // 1000
    for _ in range(room + 500):
        backlog.put("line", line_bytes=1000)
    backlog.put("small", line_bytes=1)
    backlog.put("last")
    assert backlog.take_left_out() == 0, "lines wait in front of it"
    assert taken(backlog) == ["line"] * room + ["last"]
    assert backlog and backlog.take_left_out() == 501
    backlog.put("again", line_bytes=1000)
    assert taken(backlog) == ["again"] and not backlog


@pytest.mark.parametrize("seed", seeds("backlog"))
def test_what_is_not_a_line_is_never_left_out(seed: int) -> None:
    rng = random.Random(seed)
    backlog: Backlog[str] = Backlog()
    given, got = [], []
    for number in range(3000):
        if rng.random() < 0.9:
            backlog.put("line", line_bytes=1 + rng.randrange(10_000))
        else:
            backlog.put(f"{number}")
            given.append(f"{number}")
        assert backlog._line_bytes <= LINE_BYTES
        if rng.random() < 0.02:
            got += taken(backlog)
            backlog.take_left_out()
    assert [item for item in got + taken(backlog) if item != "line"] == given
    assert backlog._line_bytes == 0
