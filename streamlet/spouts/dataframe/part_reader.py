"""One part as rows of Python values, a batch at a time, and the types of columns that tuples can hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamlet.base.arrow import finer_cut, parquet_for
from streamlet.spouts.dataframe.part_folder import PartsUnreadable

BATCH_ROWS = 1024
"""Rows that are made into Python values at once: a turn of the loop stays short."""


class PartReader:
    """Reads columns of a Parquet file. Holds one row group, and the values of BATCH_ROWS rows."""

    def __init__(self, path: Path, columns: Sequence[str], component: str) -> None:
        self._arrow, parquet = parquet_for(component)
        self._path, self._component = path, component
        self.row = 0
        """The number of the next row."""
        try:
            # Rule: INT96, as Spark writes times by default, in microseconds: in nanoseconds a year after 2262 would
            # arrive as another one.
            self._file = parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")
        except (OSError, self._arrow.ArrowException) as error:
            raise self._unreadable(error) from error
        try:
            self._cast = self._checked(columns)
            self._batches = self._file.iter_batches(batch_size=BATCH_ROWS, columns=[*columns])
        except BaseException:
            self._file.close()
            raise
        self._columns = columns
        self._rows: Iterator[list[Any]] = iter(())

    @property
    def row_count(self) -> int:
        """How many rows the whole part has."""
        count: int = self._file.metadata.num_rows
        return count

    def take(self, most: int) -> list[list[Any]]:
        """Return the next rows, at most so many; none at the end. Raises PartsUnreadable."""
        taken: list[list[Any]] = []
        for values in self._rows:
            taken.append(values)
            if len(taken) == most:
                break
        if not taken:
            try:
                batch = next(self._batches, None)
            except (OSError, self._arrow.ArrowException) as error:
                raise self._unreadable(error) from error
            if batch is not None:
                try:
                    self._rows = self._values(batch)
                except (ValueError, OverflowError, self._arrow.ArrowException) as error:
                    raise PartsUnreadable(
                        f"{self._component} cannot read rows {self.row} to {self.row + batch.num_rows - 1} of "
                        f"{self._path}, for Python has no such value: {str(error).rstrip('.')}. A time must be within "
                        "the years 1 to 9999, and text be UTF-8: cast or leave out what is not, before it is written."
                    ) from error
                return self.take(most)
        self.row += len(taken)
        return taken

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _values(self, batch: Any) -> Iterator[list[Any]]:
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self._columns]
        for at, kind in self._cast.items():
            columns[at] = columns[at].cast(options=finer_cut(kind))
        return map(list, zip(*(column.to_pylist() for column in columns), strict=True))

    def _checked(self, columns: Sequence[str]) -> dict[int, Any]:
        """Return the types of columns with times, by their place. Raises PartsUnreadable."""
        schema, stored = self._file.schema_arrow, self._file.schema
        # Rule: by the order of the leaves, which both schemas have. A path cannot tell a column named "a.b" from a
        # field of a struct.
        leaves = iter([stored.column(at).physical_type for at in range(len(stored.names))])
        kinds = [self._in_utc(field.type, leaves) for field in schema]
        cast = {}
        for at, name in enumerate(columns):
            if schema.names.count(name) != 1:
                there = ", ".join(schema.names)
                raise PartsUnreadable(
                    f"{self._component} declares the field {name!r}, and {self._path} has no column of that name, or "
                    f"several. It has: {there}. Fields of a DataFrameSpout bear the names of columns."
                )
            kind = kinds[schema.get_field_index(name)]
            if (wrong := self._wrong(kind)) is not None:
                raise PartsUnreadable(
                    f"{self._component} declares the field {name!r}, and {self._path} has that column as {wrong}, "
                    "which no tuple can hold. Cast it before it is written: decimals to double or string, dates and "
                    "times without a zone to string or timestamp, maps to a struct or JSON text."
                )
            if kind != schema.field(name).type:
                cast[at] = kind
        return cast

    def _in_utc(self, kind: Any, leaves: Iterator[str]) -> Any:
        """Return a type with its instants in UTC; ``leaves``: how those of the file are stored, from this type's on."""
        types, arrow = self._arrow.types, self._arrow
        if types.is_list(kind) or types.is_large_list(kind):
            inner = kind.value_field.with_type(self._in_utc(kind.value_type, leaves))
            return arrow.list_(inner) if types.is_list(kind) else arrow.large_list(inner)
        if types.is_struct(kind):
            return arrow.struct([field.with_type(self._in_utc(field.type, leaves)) for field in kind])
        if types.is_nested(kind):  # such as a map, which no tuple can hold
            for at in range(kind.num_fields):
                self._in_utc(kind.field(at).type, leaves)
            return kind
        stored = next(leaves, "")
        instant = types.is_timestamp(kind) and (kind.tz is not None or stored == "INT96")
        return arrow.timestamp("us", tz="UTC") if instant else kind

    def _wrong(self, kind: Any) -> Any:
        """Return the type in this one that no tuple can hold; None if there is none."""
        types = self._arrow.types
        if types.is_list(kind) or types.is_large_list(kind):
            return self._wrong(kind.value_type)
        if types.is_dictionary(kind):
            return self._wrong(kind.value_type)
        if types.is_struct(kind):
            return next((wrong for one in kind if (wrong := self._wrong(one.type)) is not None), None)
        if types.is_timestamp(kind):
            return None if kind.tz is not None else kind
        plain = (
            *(types.is_null, types.is_boolean, types.is_integer, types.is_floating, types.is_string),
            *(types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
        )
        fits = any(test(kind) for test in plain) and not types.is_uint64(kind)
        return None if fits else kind

    def _unreadable(self, error: Exception) -> PartsUnreadable:
        return PartsUnreadable(
            f"{self._component} cannot read {self._path}: {str(error).rstrip('.')}. A part must be a whole Parquet "
            "file that nobody changes during the run."
        )
