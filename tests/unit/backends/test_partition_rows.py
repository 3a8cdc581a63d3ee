"""Counters of a partition's row outlive the worker that counted."""

from __future__ import annotations

from typing import Any

from streamlet.backends.partition_rows import PartitionRows


def row(number: int, *, lost: int = 0, given_up: int = 0, **more: Any) -> dict[str, Any]:
    return {"component": "lines", "topic": "t", "partition": number, "lost": lost, "given_up": given_up, **more}


def test_counters_do_not_fall_when_a_worker_is_replaced() -> None:
    rows = PartitionRows()
    rows.heard(0, [row(0, lost=3, given_up=1, lag=7), row(1)])
    rows.heard(1, [row(2, lost=1)])
    before = rows.all()
    rows.gone(0)
    assert sorted(rows.all(), key=str) == sorted(before, key=str), "its last rows are shown until others come"
    rows.heard(0, [row(0, lost=2, lag=0), row(1, given_up=4)])
    rows.gone(0)
    rows.heard(0, [row(0, lost=1, lag=0)])
    assert rows.all() == (row(0, lost=6, given_up=1, lag=0), row(2, lost=1))


def test_rows_of_spouts_that_count_otherwise_are_left_as_they_are() -> None:
    rows = PartitionRows()
    for _ in range(2):
        rows.heard(0, [{"shard": 1, "lost": None}])
        rows.gone(0)
    rows.heard(0, [{"shard": 1, "lost": None}])
    assert rows.all() == ({"shard": 1, "lost": None},)
