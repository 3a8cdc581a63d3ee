"""Sizes from samples: near enough to what the rows really take."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from streamlet.runtime.tasks.emitter import SAMPLED, SampledSizes, row_bytes

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
