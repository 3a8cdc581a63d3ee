"""Which run is the newest, and whose the nodes among the owners are."""

from __future__ import annotations

import pytest

from streamlet.spouts.kafka.ownership.owner_nodes import FORMER_RUNS, NewestRun, TaskNode, claimed

A = TaskNode("a", "words", "lines-0", 1)
B = TaskNode("b", "words", "lines-0", 1)


def test_the_run_that_writes_its_name_last_is_the_newest_and_keeps_the_names_before_it() -> None:
    first = claimed(None, A, had_it=False)
    assert first == NewestRun("a", "words")
    second = claimed(first, B, had_it=False)
    assert second == NewestRun("b", "words", ("a",))
    assert NewestRun.decode(second.encode()) == second


def test_a_name_that_stands_is_not_written_again() -> None:
    assert claimed(NewestRun("a", "words"), A, had_it=False) is None


def test_a_run_comes_once() -> None:
    """Neither a task that slept through its successor's start, nor one of the older run that starts late."""
    assert claimed(NewestRun("b", "words", ("a",)), A, had_it=False) is None
    assert claimed(NewestRun("b", "words"), A, had_it=True) is None


def test_only_so_many_former_runs_are_kept_the_latest_first() -> None:
    newest = NewestRun("0", "words")
    for run in range(1, FORMER_RUNS + 5):
        claim = claimed(newest, TaskNode(str(run), "words", "lines-0", 1), had_it=False)
        assert claim is not None
        newest = claim
    assert len(newest.former) == FORMER_RUNS and newest.former[0] == str(FORMER_RUNS + 3)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"run": 1}', b'{"run": "a", "former": [1]}', b"\xff", b"[" * 9999]
)
def test_words_that_no_run_of_ours_wrote_name_nobody(data: bytes) -> None:
    assert NewestRun.decode(data) is None


def test_nodes_of_other_runs_and_of_other_starts_of_a_task_are_told_apart() -> None:
    me = TaskNode("a", "words", "lines-1", 3)
    names = ["a-lines-0-1", "a-lines-1-1", "a-lines-1-2-1", "a-lines-1-3", "b-lines-1-1", "else"]
    assert me.others(names) == ["b-lines-1-1", "else"]
    assert me.predecessors(names) == ["a-lines-1-1"]
    assert not me.is_replaced(names) and me.is_replaced([*names, "a-lines-1-12"])
