"""What Spark calls on executors: a stage as ``mapInArrow``, and a keyed stage of a stream as ``transformWithState``."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from pyspark import AccumulatorParam, TaskContext, cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from streamlet.base.environment import environment
from streamlet.model.dataframe_plan import SINGLE
from streamlet.spark.applying.applied_bolt import DEAD_LETTER, FailedRow
from streamlet.spark.applying.chain import Chain, ColumnsOf, StageJob
from streamlet.spark.applying.key_state import KeyState
from streamlet.spark.applying.packed_rows import packed, unpacked
from streamlet.spark.applying.shipping import import_from
from streamlet.spark.applying.stage_columns import DEAD, RowsIn, RowsOut, dead_columns, rows_of
from streamlet.spark.plain_errors import plain_errors

ROWS_AT_ONCE = 4096
"""Rows that go through all bolts of a stage before what they gave leaves it."""


class SkippedByBolt(AccumulatorParam):  # type: ignore[misc]  # pyspark is not typed for us
    """Adds up how many tuples each bolt failed."""

    def zero(self, value: dict[str, int]) -> dict[str, int]:
        return {}

    def addInPlace(self, value1: dict[str, int], value2: dict[str, int]) -> dict[str, int]:  # noqa: N802 - Spark's name
        for name, count in value2.items():
            value1[name] = value1.get(name, 0) + count
        return value1


class StageRun:
    """One stage in one Spark task: its bolts, and the rows that they failed."""

    def __init__(self, job: StageJob, rows_in: RowsIn, rows_out: RowsOut, skipped: Any) -> None:
        self.rows_in = rows_in
        self.rows_out = rows_out
        self._job = job
        self._skipped = skipped
        self._failed: list[FailedRow] = []
        self._fields = {str(sid): fields for bolt in job.bolts for sid, fields in bolt.sources.items()}
        task = TaskContext.get()
        index = 0 if task is None else task.partitionId()
        self.chain = Chain(job, index, index + 1, self._failed.append)
        # Rule: lent for this run alone. A Python worker is used again, and the next job, of another topology, would see
        # the password of this one.
        self._lent = ExitStack()
        self._lent.enter_context(environment(job.bolts[0].conf["topology.environment"] or {}))
        try:
            self.chain.start()
        except BaseException:
            self.close(clean=False)  # those that have started
            raise

    def close(self, clean: bool) -> None:
        """Call each ``cleanup``. Raises ComponentFailed if ``clean``."""
        with self._lent:
            self.chain.close(clean)

    def with_failed(self, leaving: ColumnsOf) -> ColumnsOf:
        """Add the failed rows to the leaving columns or the counts."""
        if self._failed:
            if self._job.on_failed == DEAD_LETTER:
                leaving[DEAD] = dead_columns(self._failed, self._fields)
            else:
                counts: dict[str, int] = {}
                for row in self._failed:
                    counts[row.bolt] = counts.get(row.bolt, 0) + 1
                self._skipped.add(counts)
            self._failed.clear()
        return leaving


class _Travelling:
    """A job as it is pickled: its classes are looked up by the task that runs it."""

    def __init__(self, job: StageJob) -> None:
        self._zips = job.zips
        self._pickled = cloudpickle.dumps(job)

    def arrived(self) -> StageJob:
        """Return the job, with its zips first on the path."""
        import_from(self._zips)
        job: StageJob = pickle.loads(self._pickled)  # noqa: S301 - it came with the task that runs it
        return job


def _pickled(state: dict[str, Any]) -> dict[str, Any]:
    """Return a stage's attributes with its job as it travels."""
    job, *rest = state["_parts"]
    return {**state, "_parts": (_Travelling(job), *rest)}


def _begun(job: StageJob | _Travelling, *rest: Any) -> StageRun:
    """Start a stage's bolts in a task."""
    # Rule: look a job's classes up where its bolts are made, not where it is unpickled. Spark unpickles a keyed stage
    # on the driver, too, in a process that has none of the zips on its path, and calls `init` alone there.
    return StageRun(job.arrived() if isinstance(job, _Travelling) else job, *rest)


@plain_errors
class MappedStage:
    """The function of a ``mapInArrow``. Travels to executors."""

    def __init__(self, job: StageJob, rows_in: RowsIn, rows_out: RowsOut, skipped: Any) -> None:
        self._parts = (job, rows_in, rows_out, skipped)
        # A partition without rows needs no bolt: of a shuffle most may be empty. One instance of all always is there.
        self._always = job.stage.kind == SINGLE

    def __getstate__(self) -> dict[str, Any]:
        return _pickled(self.__dict__)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        run = _begun(*self._parts) if self._always else None
        try:
            for batch in batches:
                run = run or _begun(*self._parts)
                rows = rows_of(batch, ROWS_AT_ONCE)
                for start in range(0, batch.num_rows, rows):
                    for source, columns in run.rows_in.columns(batch.slice(start, rows)):
                        yield from run.rows_out.batches(run.with_failed(run.chain.feed(source, columns)))
            if run is not None:
                yield from run.rows_out.batches(run.with_failed(run.chain.finish()))
        except BaseException:
            if run is not None:
                run.close(clean=False)
            raise
        if run is not None:
            run.close(clean=True)


@plain_errors
class KeyedStage(StatefulProcessor):  # type: ignore[misc]  # pyspark is not typed for us
    """A keyed stage of a stream: each key's bolt lies in Spark's state store."""

    def __init__(
        self, job: StageJob, rows_in: RowsIn, rows_out: RowsOut, skipped: Any, columns: tuple[str, ...]
    ) -> None:
        self._parts = (job, rows_in, rows_out, skipped)
        self._row = columns
        period = job.bolts[0].tick_s
        self._tick_ms = None if period is None else max(1, round(period * 1000))
        self._run: StageRun | None = None
        self._fitting: set[tuple[int, int, type]] = set()

    def __getstate__(self) -> dict[str, Any]:
        return _pickled(self.__dict__)

    def init(self, handle: Any) -> None:
        """Take the handle. Spark calls it once more on the driver, where no bolt is made."""
        self._handle = handle
        self._state = handle.getValueState("bolt", "kept binary")

    # The names of both and of their arguments are Spark's, which ruff would have otherwise.
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 - above
        """Give a key's rows to its bolt; the first ones set its timer."""
        run, kept = self._restored()
        for row in rows:
            source, columns = unpacked(run.rows_in, row)
            yield from self._out(run, run.chain.feed(source, columns))
        yield from self._end(run)
        changes = self._keys.changes()
        # Rule: a key has a timer exactly while it has a state, be it an empty one. Ticks come on while the bolt
        # remembers something, and a key that came back to nothing is forgotten at its next tick.
        if self._tick_ms is not None and kept is None:
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + self._tick_ms)
        if changes != kept and (changes or self._tick_ms is not None):
            self._state.update((changes,))
        elif kept and not changes:
            self._state.clear()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803 - above
        """Give the bolt of a key its tick."""
        run, kept = self._restored()
        run.chain.head.hold_waiting()
        yield from self._out(run, run.chain.tick_head())
        yield from self._end(run)
        changes = self._keys.changes()
        if not changes:
            self._state.clear()
            return
        if changes != kept:
            self._state.update((changes,))
        assert self._tick_ms is not None
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + self._tick_ms)

    def close(self) -> None:
        """Let the bolts clean up, with the attributes that ``initialize`` left."""
        if self._run is not None:
            run, self._run = self._run, None
            self._keys.restore(None)
            run.close(clean=True)

    def _restored(self) -> tuple[StageRun, bytes | None]:
        if self._run is None:
            run = _begun(*self._parts)
            head = run.chain.head
            try:
                shared = head.definition.conf, head.context, head.bolt.logger
                self._keys = KeyState(head.bolt, head.name, head.make_tuple, shared)
            except BaseException:
                run.close(clean=False)
                raise
            self._run = run
        run, found = self._run, self._state.get()
        kept = None if found is None else bytes(found[0])
        self._keys.restore(kept)
        return run, kept

    def _end(self, run: StageRun) -> Iterator[Any]:
        yield from self._out(run, run.chain.end_key())

    def _out(self, run: StageRun, leaving: ColumnsOf) -> Iterator[Any]:
        leaving = run.with_failed(leaving)
        if leaving:
            run.rows_out.check(leaving, self._fitting)
            make = Row(*self._row)
            for row in packed(run.rows_out, leaving):
                yield make(*row)
