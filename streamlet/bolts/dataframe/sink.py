"""DataFrameSink: tuples are rows of Parquet files, and acked when their file is on the disk under its name.

Everything runs on the worker's loop. The file of some thousand rows takes milliseconds; its fsync as long as the disk.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from streamlet.base.errors import BadInput, SettingError, StreamletError, refuse_all
from streamlet.base.whole_file import write_new
from streamlet.bolts.dataframe.column_types import SinkColumn, missing_fields, parse_columns
from streamlet.bolts.dataframe.roll import RollRule, rest_s
from streamlet.bolts.dataframe.row_batches import RowBatches
from streamlet.components.batch import Batch
from streamlet.components.bolt import Bolt, KeptInTests
from streamlet.components.component import BoltPort
from streamlet.components.context import TopologyContext
from streamlet.model.spec import BOLT, ComponentSpec

KEEP_SHARE = 0.8
"""How much of the message time-out unwritten rows are kept: then their tuples fail."""

_NUMBERS = {"max_rows": int, "max_bytes": int, "max_age_s": float, "idle_s": float}


class FileNotWritten(StreamletError):
    """A file of rows could not be written; its tuples have failed."""


class DataFrameSink(Bolt):
    """Writes tuples as rows of Parquet files. A tuple is acked when the file with its row is there, whole.

    Use :meth:`spec` in a topology::

        out = DataFrameSink.spec(inputs=[hot], path="/shared/hot", schema="station string, celsius double")

    ``spark.read.parquet(path)`` reads them at any time. At least once: a tuple that was replayed may stand in two.
    """

    auto_ack = False
    auto_fail = False
    timer_interval_s: ClassVar[float | None] = 0.1

    def __init__(self, path: str, schema: str, **bounds: Any) -> None:
        self._folder = Path(path)
        self._columns: tuple[SinkColumn, ...] = parse_columns(schema)
        self._rule = RollRule(**bounds)
        self._batches: list[Batch] = []
        """Those whose rows wait."""
        self._rows: list[Any] = []
        """Their rows, as record batches."""
        self._count = self._bytes = 0
        self._first_s = self._latest_s = 0.0
        self._written = self._files = 0
        self._names = 0
        """Names of files that are taken."""
        self._failures = 0
        """Files in a row that could not be written."""
        self._again_s: float | None = None
        """When to write, and to take tuples, again; None: nothing keeps it from that."""
        self._keep_s = 0.0
        """Seconds that rows are kept that could not be written."""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Sequence[Any] | Mapping[Any, Any] | None = None,
        par: int | None = None,
        config: Any = None,
        outputs: Any = None,
        *,
        path: Any = None,
        schema: Any = None,
        format: str = "parquet",  # noqa: A002 - Spark's word
        max_rows: int = 100_000,
        max_bytes: int = 64 << 20,
        max_age_s: float = 10.0,
        idle_s: float = 1.0,
    ) -> ComponentSpec:
        """Return this bolt as a line of a topology. Raises SettingError.

        ``schema``: the columns, each the name of a field, with Spark's types. A file ends with the first bound that is
        reached: rows, bytes in memory, seconds since its first row, seconds since its latest.
        """
        if outputs:
            raise SettingError(f"{cls.__name__}.spec: outputs is {outputs!r}, and this bolt emits nothing.")
        if format != "parquet":
            raise SettingError(f'{cls.__name__}.spec: format is {format!r}, and only "parquet" is written.')
        bounds = {"max_rows": max_rows, "max_bytes": max_bytes, "max_age_s": max_age_s, "idle_s": idle_s}
        kwargs = {"path": path, "schema": schema, **bounds}
        refuse_all(_problems(cls.__name__, kwargs))
        merged = {**cls.config, **(config or {})}
        tasks = cls.par if par is None else par
        return ComponentSpec(cls, BOLT, name=name, inputs=inputs, par=tasks, config=merged, kwargs=kwargs)

    @classmethod
    def override_keys(cls) -> frozenset[str]:
        return frozenset({"path", *_NUMBERS})

    @classmethod
    def topology_keys(cls) -> frozenset[str]:
        return frozenset({"schema"})

    @classmethod
    def with_overrides(cls, kwargs: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
        changed = {**kwargs, **{key: _read(key, value) for key, value in overrides.items()}}
        refuse_all(_problems(cls.__name__, changed))
        return changed

    @classmethod
    def wiring_problems(
        cls, kwargs: Mapping[str, Any], sources: Iterable[tuple[str, Sequence[str]]]
    ) -> Iterable[tuple[str, str]]:
        columns = parse_columns(kwargs["schema"])
        for source, fields in sources:
            yield from missing_fields(columns, source, tuple(fields))

    @classmethod
    def time_out_problems(cls, kwargs: Mapping[str, Any], spout: str, timeout_s: float) -> Iterable[tuple[str, str]]:
        if kwargs["max_age_s"] * 2 > timeout_s:
            yield (
                f"max_age_s is {kwargs['max_age_s']:g}, and topology.message.timeout.secs of {spout}, whose tuples "
                f"reach it, is {timeout_s:g}: they are open until their file is written, and would time out and come "
                "again.",
                "Let the time-out be twice max_age_s at least.",
            )

    @classmethod
    def kept_in_tests(cls, kwargs: Mapping[str, Any], component: str) -> KeptInTests:
        """Return what makes the rows of a batch, as dicts by column."""
        maker = RowBatches(parse_columns(kwargs["schema"]), component)

        def kept(batch: Batch) -> tuple[list[Any], Mapping[int, Exception]]:
            rows, refused = maker.of(batch)
            return rows.to_pylist(), refused

        return kept

    # -- life -----------------------------------------------------------------------------------------------

    def bind(self, port: BoltPort) -> None:
        super().bind(port)
        self._complain = port.complain
        self._fail_told = port.fail_told
        self._rest = port.rest

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Find the folder."""
        self._now = context.clock.monotonic
        # Rule: by the tuples that time out first. By its own time-out it kept those of a spout with a shorter one until
        # they had come again.
        first_s = context.first_time_out_s
        self._keep_s = KEEP_SHARE * (conf["topology.message.timeout.secs"] if first_s is None else first_s)
        self._maker = RowBatches(self._columns, context.component_name)
        # Unlike any other file's, of this run or another: nothing is ever written over.
        self._name = f"part-{context.task_index:05d}-{context.topology_id}-{context.task_id}-{context.epoch}"
        # Rule: no folder is made. On a machine that does not share it the rows would lie where nobody looks for them.
        if not self._folder.is_dir():
            raise BadInput(
                f"{context.component_name} writes into {self._folder}, and on {socket.gethostname()} there is no such "
                "folder. Make it first, where all workers reach it under this path: a local one where they are all on "
                "one machine, else one of a shared file system. It is not made here, for on a machine that does not "
                "share it the rows would be seen by nobody."
            )

    def cleanup(self) -> None:
        """Write the rest. Raises FileNotWritten."""
        # The drain has waited for tracked tuples; these are untracked, or the drain was cut short.
        if self._count and (error := self._write()) is not None:
            raise self._told(error, "The run is over, so tracked tuples come again in the next one")

    # -- tuples ---------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch) -> None:
        """Add the rows of a batch to the next file."""
        rows, refused = self._maker.of(batch)
        for at, error in refused.items():
            self._fail_told(batch.tuples[at], error)
            self._complain(error, batch.tuples[at])
        now = self._now()
        if not self._batches:
            self._first_s = now
        self._latest_s = now
        self._batches.append(batch)
        self._rows.append(rows)
        self._count += rows.num_rows
        self._bytes += rows.nbytes
        if not rows.num_rows:
            self._settle_empty(batch)
        self._roll(now)

    def _settle_empty(self, batch: Batch) -> None:
        """Let go of a batch none of whose tuples fits."""
        self._batches.pop()
        self._rows.pop()
        self.ack(batch)

    def on_timer(self) -> None:
        """Write rows that are old enough, or could not be written before."""
        now = self._now()
        if self._again_s is None:
            self._roll(now)
        elif now >= self._again_s:
            self._again_s = None
            self._rest(False)
            if self._count:
                self._try()
        self.report_metric("rows_waiting", self._count)
        self.report_metric("rows_written", self._written)
        self.report_metric("files_written", self._files)

    def _roll(self, now: float) -> None:
        due = self._rule.due(self._count, self._bytes, self._first_s, self._latest_s, now)
        if due and self._again_s is None:
            self._try()

    def _try(self) -> None:
        if (error := self._write()) is not None:
            self._not_written(error)

    def _write(self) -> Exception | None:
        """Write the rows that wait as a file and ack their tuples; or return the error."""
        table = self._maker.arrow.Table.from_batches(self._rows, self._maker.schema)
        path = self._folder / f"{self._name}-{self._names:06d}.parquet"
        try:
            write_new(path, lambda file: self._maker.parquet.write_table(table, file))
        except (OSError, self._maker.arrow.ArrowException) as error:
            # A name that is taken is left to its file, and the next try has the next one.
            self._names += isinstance(error, FileExistsError)
            return error
        self._failures = 0
        self._files += 1
        self._names += 1
        self._written += self._count
        # Rule: only now. A tuple that is acked before its file has its name on the disk is lost with the worker.
        for batch in self._emptied():
            self.ack(batch)
        return None

    def _emptied(self) -> list[Batch]:
        """Return the batches that wait, and have none."""
        batches = self._batches
        self._batches, self._rows, self._count, self._bytes = [], [], 0, 0
        return batches

    def _not_written(self, error: Exception) -> None:
        """Keep the rows for another try, or fail their tuples."""
        self._failures += 1
        wait_s = rest_s(self._failures)
        # Rule: rest. Without it tuples would come and fail as fast as their spout sends them, and reach its limit of
        # tries while the disk is full.
        self._again_s = self._now() + wait_s
        self._rest(True)
        if self._again_s - self._first_s < self._keep_s:
            if self._failures == 1:
                kept = f"Its rows are kept, and tried again for up to {self._keep_s:g} s; no tuple is taken meanwhile"
                self._complain(self._told(error, kept), None)
            return
        told = self._told(
            error, f"Its tuples have failed, and come again from their spouts; none is taken for {wait_s:g} s"
        )
        for batch in self._emptied():
            self._fail_told(batch, told)
        self._complain(told, None)

    def _told(self, error: Exception, then: str) -> FileNotWritten:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        untracked = sum(batch.roots.count(0) for batch in self._batches)
        lost = f" {untracked} of its tuples are not tracked: once failed, nobody sends them again." if untracked else ""
        return FileNotWritten(
            f"{self.component_name} could not write a file of {self._count} rows into {self._folder} on "
            f"{socket.gethostname()}: {why.rstrip('.')}. Nothing of it is left there. {then}.{lost} Make room, or see "
            "to the folder's permissions."
        )


def _read(key: str, value: Any) -> Any:
    kind = _NUMBERS.get(key)
    if kind is None or not isinstance(value, str):
        return value
    try:
        return kind(value)
    except ValueError:
        return value  # refused below, with the others


def _problems(sink: str, kwargs: Mapping[str, Any]) -> list[str]:
    path, schema = kwargs["path"], kwargs["schema"]
    problems = []
    if not isinstance(path, str) or not path or "://" in path:
        problems.append(
            f"{sink}: path is {path!r:.100}. It is a folder, by its path, that all workers reach: "
            '"/shared/averages". Stores behind a URL (hdfs://, s3a://) are not written to.'
        )
    try:
        if not isinstance(schema, str):
            raise ValueError("it must be a string")
        parse_columns(schema)
    except ValueError as error:
        problems.append(
            f'{sink}: schema is {schema!r:.100}: {error}. Give the columns with their types: "station string, celsius '
            'double".'
        )
    for key, kind in _NUMBERS.items():
        value = kwargs[key]
        number = isinstance(value, (int, kind)) and not isinstance(value, bool)
        if not number or not value > 0:
            problems.append(f"{sink}: {key} is {value!r}: give a number above 0.")
    return problems
