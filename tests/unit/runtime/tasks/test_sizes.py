"""Sizes from samples: near enough to what the rows really take."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from sys import getsizeof
from typing import Any

import pytest

from streamlet.components.columns import Columns
from streamlet.components.tuples import value_bytes
from streamlet.runtime.tasks.emitter import SAMPLED, Outbox, Run, SampledSizes, mean_bytes, row_bytes

ROWS: dict[str, Callable[[int], list[Any]]] = {
    "short texts": lambda n: [f"word {n}"],
    "long texts": lambda n: [f"{n:01000}", n + 1000],
    "numbers": lambda n: [n + 1000, n * 0.5, None],
    "nested": lambda n: [{f"key {k}": [f"{n:020}", n * 0.5] for k in range(5)}],
    "a long list": lambda n: [[f"{n} {k}" for k in range(1000)]],
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_row_is_what_its_memory_is(kind: str) -> None:
    """Within a third, with its root, its edge and its places in the columns."""
    tracemalloc.start()
    try:
        roots, edges, values = [], [], []
        for n in range(200):
            roots.append((1 << 60) + n)
            edges.append((1 << 62) + n)
            values.append(ROWS[kind](n))
        taken = tracemalloc.get_traced_memory()[0] / 200
    finally:
        tracemalloc.stop()
    assert taken * 0.66 < row_bytes(values[100]) < taken * 1.6


@pytest.mark.parametrize("small", [10, 1000])
def test_a_large_value_at_the_end_of_a_container_is_seen(small: int) -> None:
    large = "x" * 1_000_000
    for value in (
        [*range(small), large],
        {**dict.fromkeys(map(str, range(small))), "body": [[large]]},
        [[0], (large,)],
    ):
        assert 1_000_000 < value_bytes(value) < 1_000_000 + 200 * (small + 5)


@pytest.mark.parametrize("kind", ROWS)
def test_the_mean_of_rows_is_that_of_each(kind: str) -> None:
    rows = [ROWS[kind](n) for n in range(50)]
    each = sum(map(row_bytes, rows)) / 50
    assert abs(mean_bytes(rows) - each) <= 1
    columns = Columns([*map(list, zip(*rows, strict=True))])
    assert abs(mean_bytes(columns) - each) < 100 and mean_bytes([]) == row_bytes([]) - getsizeof([])


def test_one_row_in_many_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the length of the runs they come in."""
    sizes, measured = SampledSizes(), []
    monkeypatch.setattr("streamlet.runtime.tasks.emitter.row_bytes", lambda row: measured.append(row) or 100)
    for _ in range(10 * SAMPLED):
        assert sizes.of("kind", [["x"]]) == 100
    assert len(measured) <= 11
    sizes.of("another kind", [["x"]])
    assert len(measured) <= 12


def test_what_grows_is_known_at_the_next_sample_and_what_shrinks_slowly() -> None:
    """Too high costs speed, too low costs memory."""
    sizes = SampledSizes()
    small = sizes.of("kind", [["x"]])
    for _ in range(2 * SAMPLED):
        large = sizes.of("kind", [["x" * 10_000]])
    assert large > 10_000
    for _ in range(2 * SAMPLED):
        smaller = sizes.of("kind", [["x"]])
    assert small * 10 < smaller < large


def run_of(source: int, *rows: list[Any]) -> Run:
    return Run(9, source, "default", False, [0] * len(rows), [0] * len(rows), [*rows])


def test_rows_that_are_all_measured_show_which_kinds_a_sample_does_not_tell() -> None:
    """Those measured count as they are from then on; a kind whose rows are alike, and few bytes, by the sample."""
    sizes, large = SampledSizes(), ["x" * 100_000]
    for source in (1, 2, 3):
        sizes.of((source, "default"), [["x"]])
    runs = [run_of(1, *[["x"], large] * 5), run_of(2, *[["x"]] * 1000), run_of(3, ["x" * 10_000])]
    taken = sizes.learn(runs)
    assert taken == pytest.approx(sum(row_bytes(row) for run in runs for row in run.values), rel=0.01)
    assert sizes.mixed == {(1, "default")}
    assert sizes.of((1, "default"), [["x"], large]) > 50_000 and sizes.of((1, "default"), [["x"]]) < 1000


def test_an_outbox_that_is_measured_knows_each_row_until_others_come() -> None:
    box, sizes = Outbox(1, 9, "default"), SampledSizes()
    rows = [["x"]] * 99 + [["x" * 1_000_000]]
    for row in rows:
        box.extend((0, 0, row))
    exact = box.measure(sizes)
    assert exact == box.weigh() == pytest.approx(sum(map(row_bytes, rows)), rel=0.01)
    assert sizes.mixed == {(1, "default")}
    box.extend((0, 0, ["x"]))
    assert box.weigh() == exact + row_bytes(["x"])
    assert [values for run in box.take() for values in run.values] == [*rows, ["x"]]
