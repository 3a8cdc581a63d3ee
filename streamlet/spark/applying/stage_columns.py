"""How a stage's rows lie in the columns of a DataFrame, and in Arrow. Pure but for Arrow; knows no Spark.

One stream alone: columns ``c0``, ``c1``, ... in the order of its fields. Several: ``which`` says whose row it is, and
``v0``, ``v1``, ... hold a struct of such columns for each, null for all but one.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.compute

from streamlet.base.arrow import array_of, is_of_its_type, word_for
from streamlet.base.errors import StreamletError
from streamlet.model.stream import StreamId
from streamlet.spark.applying.applied_bolt import FailedRow
from streamlet.spark.applying.chain import ColumnsOf

WHICH = "which"
DEAD = StreamId("__dead_letters")
"""Stands for failed tuples among the streams that leave a stage."""
DEAD_FIELDS = ("bolt", "source", "tuple", "reason")
BYTES_AT_ONCE = 64 << 20
"""Most bytes of rows that go through a stage together, or leave it in one batch, unless it is one row alone."""


class ValueDoesNotFit(StreamletError):
    """A bolt emitted a value of another type than ``schemas`` says."""


@dataclass(frozen=True, slots=True)
class RowsIn:
    """The inputs of a stage, and their widths. ``keys``: columns before them."""

    streams: tuple[StreamId, ...]
    widths: tuple[int, ...]
    keys: int = 0

    def columns(self, batch: Any) -> Iterator[tuple[StreamId, list[Sequence[Any]]]]:
        """Yield the rows of a RecordBatch as columns, stream by stream."""
        if len(self.streams) == 1:
            if batch.num_rows:
                yield self.streams[0], [_values(batch.column(self.keys + at)) for at in range(self.widths[0])]
            return
        which = batch.column(self.keys)
        for at, stream in enumerate(self.streams):
            mine = batch.filter(pyarrow.compute.equal(which, at)).column(self.keys + 1 + at)
            if len(mine):
                yield stream, [_values(column) for column in mine.flatten()]


@dataclass(frozen=True, slots=True)
class RowsOut:
    """The streams that leave a stage, their fields, and the Arrow schema.

    ``written``: the types of the fields as ``schemas=`` has them, where that is a word.
    """

    streams: tuple[StreamId, ...]
    fields: tuple[tuple[str, ...], ...]
    schema: Any
    written: tuple[tuple[str, ...], ...] = ()

    def batches(self, leaving: ColumnsOf) -> Iterator[Any]:
        """Yield the columns that leave as RecordBatches. Raises ValueDoesNotFit."""
        for at, stream in enumerate(self.streams):
            columns = leaving.get(stream)
            if not columns:
                continue
            for arrays in _pieces([self._array(at, place, column) for place, column in enumerate(columns)]):
                batch = self._batch(at, arrays)
                # Rule: a batch that leaves is bounded by bytes, too. Of a column beyond 2 GiB Arrow makes several
                # arrays, which fit into no batch; and Java holds a batch whole, beside its heap.
                rows = rows_of(batch, batch.num_rows)
                yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))

    def _batch(self, at: int, arrays: Sequence[Any]) -> Any:
        if len(self.streams) == 1:
            return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)
        which, *others = self.schema
        tagged: list[Any] = [pyarrow.nulls(len(arrays[0]), field.type) for field in others]
        tagged[at] = pyarrow.StructArray.from_arrays(arrays, fields=[*others[at].type])
        first = pyarrow.array([at] * len(arrays[0]), which.type)
        return pyarrow.RecordBatch.from_arrays([first, *tagged], schema=self.schema)

    def check(self, leaving: ColumnsOf, fitting: set[tuple[int, int, type]]) -> None:
        """Raise ValueDoesNotFit as ``batches`` would. ``fitting``: types that passed, by stream and field."""
        # Spark makes Arrow of rows itself and names no bolt. A type is tried once, but for what holds others, and for
        # numbers that a column of 32 bits would make infinite.
        for at, stream in enumerate(self.streams):
            for place, column in enumerate(leaving.get(stream, ())):
                new = {(at, place, kind) for kind in set(map(type, column))} - fitting
                if new and not pyarrow.types.is_float32(self._array(at, place, column).type):
                    fitting |= {one for one in new if one[2] not in (list, tuple, dict)}

    def _array(self, at: int, place: int, column: Sequence[Any]) -> Any:
        outer = self.schema.field(place) if len(self.streams) == 1 else [*self.schema.field(at + 1).type][place]
        try:
            return array_of(pyarrow, column, outer.type)
        except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
            value = next((one for one in column if not _fits(one, outer.type)), column[0])
            stream, field = self.streams[at], self.fields[at][place]
            word = (self.written[at][place] if self.written else "") or word_for(outer.type)
            # Of a value of another type Arrow tells what stands here already, in its own words.
            says_more = is_of_its_type(value, outer.type) and not isinstance(error, pyarrow.ArrowTypeError)
            more = f" ({str(error).rstrip('.')}.)" if says_more else ""
            raise ValueDoesNotFit(
                f"{stream.component} emitted {value!r:.100} ({type(value).__name__}) as field {field!r} of its stream "
                f"{stream.stream!r}, and schemas= says that it is {word}. Name the type that is emitted, or emit that "
                f"type.{more}"
            ) from error


def _pieces(arrays: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield columns in pieces. Of one with more than 2 GiB of text or bytes Arrow makes several arrays."""
    if not any(isinstance(array, pyarrow.ChunkedArray) for array in arrays):
        yield arrays
        return
    for batch in pyarrow.Table.from_arrays(arrays, names=[str(at) for at in range(len(arrays))]).to_batches():
        yield batch.columns


def rows_of(batch: Any, most: int) -> int:
    """Return how many rows of a batch go together: by their mean size, and at most ``most``."""
    fitting: int = BYTES_AT_ONCE * batch.num_rows // max(1, batch.nbytes)
    return max(1, min(most, fitting))


def dead_columns(rows: Sequence[FailedRow], fields: dict[str, tuple[str, ...]]) -> list[Sequence[Any]]:
    """Return failed tuples as columns: bolt, source, tuple as JSON text, reason."""
    shown = [
        None
        if row.values is None
        else _utf8(json.dumps(_shown(dict(zip(fields[row.source], row.values, strict=False))), ensure_ascii=False))
        for row in rows
    ]
    return [[row.bolt for row in rows], [row.source for row in rows], shown, [_utf8(row.reason) for row in rows]]


def _shown(value: Any) -> Any:
    # Rule: a dead letter never ends the job. JSON has keys of text only, and Arrow text only what UTF-8 has.
    if isinstance(value, dict):
        return {_plain(key): _shown(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_shown, value)]
    return _plain(value)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float) else _as_text(value)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _as_text(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else repr(value)


def column_names(count: int, keys: int = 0) -> list[str]:
    """Return the names of a stage's columns for one stream."""
    return [*(f"k{at}" for at in range(keys)), *(f"c{at}" for at in range(count))]


def _values(array: Any) -> Sequence[Any]:
    values: Sequence[Any] = array.to_pylist()
    return in_utc(values) if _has_timestamp(array.type) else values


def _has_timestamp(kind: Any) -> bool:
    if pyarrow.types.is_nested(kind):
        return any(_has_timestamp(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pyarrow.types.is_timestamp(kind))


def in_utc(column: Sequence[Any]) -> Sequence[Any]:
    """Return times in UTC, as tuples have them wherever they come from."""
    first = next((value for value in column if value is not None), None)
    if not isinstance(first, (datetime.datetime, list, dict)):
        return column
    return [_one_in_utc(value) for value in column]


def _one_in_utc(value: Any) -> Any:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    if isinstance(value, list):
        return [_one_in_utc(one) for one in value]
    if isinstance(value, dict):
        return {name: _one_in_utc(one) for name, one in value.items()}
    return value


def _fits(value: Any, kind: Any) -> bool:
    try:
        array_of(pyarrow, [value], kind)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        return False
    return True
