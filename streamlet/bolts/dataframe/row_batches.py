"""Batches of tuples as columns of pyarrow, and the tuples that do not fit the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamlet.base.arrow import array_of, parquet_for
from streamlet.base.errors import StreamletError
from streamlet.bolts.dataframe.column_types import SinkColumn
from streamlet.components.batch import Batch


class RowRefused(StreamletError):
    """A tuple holds a value that its column cannot have."""


class RowBatches:
    """Makes record batches of one schema."""

    def __init__(self, columns: Sequence[SinkColumn], component: str) -> None:
        self.arrow, self.parquet = parquet_for(component)
        self._component = component
        self._types = [(column.name, column.arrow_type(self.arrow)) for column in columns]
        self._words = {column.name: column.word for column in columns}
        self.schema = self.arrow.schema(self._types)
        self._refusals = (self.arrow.ArrowException, ValueError, TypeError, OverflowError)  # UnicodeError is one

    def of(self, batch: Batch) -> tuple[Any, dict[int, RowRefused]]:
        """Return the rows of a batch; and by their place those that do not fit, left out."""
        places = range(len(batch))
        try:
            return self._made(batch, places), {}
        except self._refusals:
            refused = {at: error for at in places if (error := self._refusal(batch, at)) is not None}
            return self._made(batch, [at for at in places if at not in refused]), refused

    def _made(self, batch: Batch, places: Sequence[int]) -> Any:
        columns = []
        for name, kind in self._types:
            values = batch.values(name)
            chosen = values if len(places) == len(values) else [values[at] for at in places]
            columns.append(array_of(self.arrow, chosen, kind))
        return self.arrow.RecordBatch.from_arrays(columns, schema=self.schema)

    def _refusal(self, batch: Batch, at: int) -> RowRefused | None:
        for name, kind in self._types:
            value = batch.values(name)[at]
            try:
                array_of(self.arrow, [value], kind)
            except self._refusals as error:
                return RowRefused(
                    f"{self._component} could not write a tuple of {batch.component}: its field {name!r} is "
                    f"{value!r:.100}, and the column is {self._words[name]} ({str(error).rstrip('.')}). Change the "
                    "schema, or the value before it is emitted."
                )
        return None
