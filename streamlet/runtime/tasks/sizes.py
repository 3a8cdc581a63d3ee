"""About how much memory a row takes between two tasks: measured now and then, and taken as usual meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Any

from streamlet.components.columns import Rows

SAMPLED = 64
"""Rows of one kind from one measurement to the next."""

ROW_BYTES = 100
"""Root, edge, and the row's places in three columns."""

LOOKED_AT = 64
"""Most values that are looked at in a container; the others are taken to be like these."""

_NESTED: frozenset[type] = frozenset({list, tuple, dict})


def value_bytes(value: Any) -> int:
    """Return about how many bytes a value takes, with its contents."""
    size = getsizeof(value)
    kind: type = value.__class__
    if kind not in _NESTED or len(value) == 0:
        return size
    inside: Any = value.items() if kind is dict else value
    seen = inner = 0
    for item in inside:
        inner += value_bytes(item)
        seen += 1
        if seen == LOOKED_AT:
            break
    return size + inner * len(value) // seen


def row_bytes(values: Sequence[Any]) -> int:
    """Return about how many bytes a row takes between two tasks."""
    return ROW_BYTES + getsizeof(values) + sum(map(value_bytes, values))


class SampledSizes:
    """The usual size of rows, by kind (any hashable): every 64th row is measured."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Any, list[int]] = {}  # kind -> [bytes a row, rows until the next measurement]

    def of(self, kind: Any, rows: Rows) -> int:
        """Return the usual bytes of a row of this kind; ``rows`` are new ones."""
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = [0, 0]
        known[1] -= len(rows)
        if known[1] < 0:
            known[1] = SAMPLED
            size = row_bytes(rows[len(rows) // 2])
            # Up at once and down slowly: an estimate that is too high costs speed, one that is too low, memory.
            known[0] = size if size > known[0] else known[0] - (known[0] - size) // 8
        return known[0]
