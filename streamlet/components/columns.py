"""Rows of one stream as a list for each field: what batches are made of where nobody asks for rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload


class Columns:
    """Rows, held by field. Read like a list of rows; a row is made when it is asked for."""

    __slots__ = ("by_field",)

    def __init__(self, by_field: Sequence[list[Any]]) -> None:
        self.by_field = by_field
        """The values of each field: one list at least, all of one length."""

    def __len__(self) -> int:
        return len(self.by_field[0])

    def __iter__(self) -> Iterator[list[Any]]:
        return map(list, zip(*self.by_field, strict=True))

    @overload
    def __getitem__(self, at: int) -> list[Any]: ...

    @overload
    def __getitem__(self, at: slice) -> Columns: ...

    def __getitem__(self, at: int | slice) -> list[Any] | Columns:
        chosen = [column[at] for column in self.by_field]
        return Columns(chosen) if isinstance(at, slice) else chosen

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Columns) and [*self.by_field] == [*other.by_field]

    __hash__ = None  # type: ignore[assignment]  # of lists, as a list has none

    def __repr__(self) -> str:
        return f"Columns({len(self)} rows of {len(self.by_field)} fields)"

    def select(self, select: Callable[[list[Any]], list[Any]]) -> Columns:
        """Return what ``select`` takes out of each column."""
        return Columns([*map(select, self.by_field)])

    def extend(self, rows: Rows) -> None:
        """Append rows of as many fields."""
        more = rows.by_field if isinstance(rows, Columns) else [*zip(*rows, strict=True)]
        for column, values in zip(self.by_field, more, strict=bool(rows)):
            column.extend(values)


Rows = list[list[Any]] | Columns
"""Rows of one stream, in order."""


def as_columns(columns: Iterable[Any]) -> Columns:
    """Return copies of columns, as lists. Raises ValueError for different lengths, or none."""
    # `tolist` of numpy, pandas and arrow gives Python's own values: their scalars cannot travel.
    by_field = [column.tolist() if hasattr(column, "tolist") else [*column] for column in columns]
    if len(set(map(len, by_field))) != 1:
        lengths = ", ".join(str(len(column)) for column in by_field) or "none"
        raise ValueError(f"columns of one length are needed, one for each field, and these are: {lengths}")
    return Columns(by_field)
