"""Rows of one key as one row of lists, on their way into and out of a keyed stage of a stream.

Spark hands each row of ``transformWithState`` to Python by itself, cell by cell, and sorts them all by key before. A
list for each field costs a tenth of that. Where each key has one row, nothing is won and little lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow

from streamlet.model.stream import StreamId
from streamlet.spark.applying.chain import ColumnsOf
from streamlet.spark.applying.stage_columns import RowsIn, RowsOut, in_utc
from streamlet.spark.executors import require
from streamlet.spark.plain_errors import plain_errors

Before = Callable[[Iterable[Any]], Iterator[Any]]


@plain_errors
class PackedRows:
    """The function of a ``mapInArrow``: rows of one key in a RecordBatch become one row. Travels to executors.

    ``schema``: the key's columns as they are (``alone``: how many), then a list for each further column. ``before``:
    another such function, which gives the rows; its ``key`` columns are copied in front of them.
    """

    def __init__(self, alone: int, schema: Any, before: Before | None = None, key: Sequence[int] = ()) -> None:
        self._alone = alone
        self._schema = schema
        self._before = before
        self._key = key

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        require("numpy")
        for batch in batches if self._before is None else self._before(batches):
            if batch.num_rows:
                yield self._packed(batch if self._before is None else self._with_key(batch))

    def _with_key(self, batch: Any) -> Any:
        columns = [*(batch.column(at) for at in self._key), *batch.columns]
        return pyarrow.RecordBatch.from_arrays(columns, names=self._schema.names)

    def _packed(self, batch: Any) -> Any:
        import numpy

        order, starts = _grouped([batch.column(at) for at in range(self._alone)], batch.num_rows)
        firsts = pyarrow.array(order[starts])
        offsets = pyarrow.array(numpy.append(starts, batch.num_rows).astype(numpy.int32))
        order = pyarrow.array(order)
        columns = []
        for at, field in enumerate(self._schema):
            column = batch.column(at)
            if at < self._alone:
                columns.append(column.take(firsts).cast(field.type))
            else:
                values = column.take(order).cast(field.type.value_type)
                columns.append(pyarrow.ListArray.from_arrays(offsets, values, type=field.type))
        return pyarrow.RecordBatch.from_arrays(columns, schema=self._schema)


def _grouped(columns: Sequence[Any], count: int) -> tuple[Any, Any]:
    """Return an order with equal keys together, and where each begins."""
    import numpy

    codes = numpy.zeros(count, dtype=numpy.int64)
    for column in columns:
        new = _codes(column)
        _, codes = numpy.unique(codes * (int(new.max()) + 2) + new + 1, return_inverse=True)
    order = numpy.argsort(codes, kind="stable")
    ordered = codes[order]
    return order, numpy.flatnonzero(numpy.append(True, ordered[1:] != ordered[:-1]))


def _codes(column: Any) -> Any:
    """Return equal numbers for equal values; -1 for null."""
    import numpy

    try:
        indices = column.dictionary_encode().indices
    except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowTypeError):  # nested values
        seen: dict[str, int] = {}
        return numpy.array([seen.setdefault(repr(value), len(seen)) for value in column.to_pylist()])
    return indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(numpy.int64)


def unpacked(rows_in: RowsIn, row: Sequence[Any]) -> tuple[StreamId, list[Sequence[Any]]]:
    """Return the stream and the columns of a packed row."""
    if len(rows_in.streams) == 1:
        return rows_in.streams[0], [in_utc(column) for column in row[rows_in.keys :]]
    at = row[rows_in.keys]
    structs = [value.values() for value in row[rows_in.keys + 1 + at]]
    return rows_in.streams[at], [in_utc(column) for column in zip(*structs, strict=True)]


def packed(rows_out: RowsOut, leaving: ColumnsOf) -> Iterator[tuple[Any, ...]]:
    """Yield what leaves as packed rows, one for each stream."""
    for at, stream in enumerate(rows_out.streams):
        columns = leaving.get(stream)
        if not columns:
            continue
        lists = [[*column] for column in columns]
        if len(rows_out.streams) == 1:
            yield tuple(lists)
        else:
            inside = {f"c{place}": values for place, values in enumerate(lists)}
            yield (at, *(inside if place == at else None for place in range(len(rows_out.streams))))
