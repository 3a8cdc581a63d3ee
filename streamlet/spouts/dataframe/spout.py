"""DataFrameSpout: each row a tuple, each Parquet file a part that is done when all its rows are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from streamlet.base.arrow import parquet_for
from streamlet.base.errors import refuse_all
from streamlet.components.context import TopologyContext
from streamlet.components.reliable_spout import ReliableSpout
from streamlet.model.spec import SPOUT, ComponentSpec
from streamlet.spouts.dataframe.part_folder import DoneMarkers, PartsUnreadable, find_parts
from streamlet.spouts.dataframe.part_reader import PartReader
from streamlet.spouts.dataframe.parts import OpenPart, PartLedger, path_problem, shares


class DataFrameSpout(ReliableSpout):
    """Emits the rows of a DataFrame that was written as Parquet files.

    Use :meth:`spec` in a topology::

        readings = DataFrameSpout.spec(path="/shared/readings", outputs=["station", "celsius"])

    A row that fails is emitted again, as of any ReliableSpout. Each file is a part; it is done when all its rows are
    acked. The spout comes to an end.
    """

    def __init__(self, path: str, columns: Sequence[str], progress: str | None = None) -> None:
        self._path, self._columns = path, columns
        self._progress = progress
        self._ledger = PartLedger([])
        self._listed: Mapping[str, int] = {}
        self._markers: DoneMarkers | None = None
        self._reader: PartReader | None = None
        self._current: OpenPart | None = None
        """The part that is read."""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        par: int | None = None,
        config: Any = None,
        outputs: Any = None,
        *,
        path: Any = None,
        progress: Any = None,
    ) -> ComponentSpec:
        """Return this spout as a line of a topology. Raises SettingError.

        ``outputs``: the columns that are read, each a field. ``path``: the folder of the parts. ``progress``: a folder
        for markers of parts that are done; without it, each start begins again.
        """
        chosen: Any = cls.outputs if outputs is None else outputs
        problems = []
        if not isinstance(chosen, (list, tuple)) or not chosen or not all(isinstance(one, str) for one in chosen):
            problems.append(
                f"{cls.__name__}.spec: outputs is {chosen!r:.100}. It names the columns to read, each a field of the "
                'tuples: outputs=["station", "celsius"].'
            )
        kwargs = {"path": path, "columns": chosen, "progress": progress}
        refuse_all(problems + _wrong_paths(cls.__name__, kwargs))
        merged = {**cls.config, **(config or {})}
        tasks = cls.par if par is None else par
        return ComponentSpec(cls, SPOUT, name=name, par=tasks, config=merged, outputs=list(chosen), kwargs=kwargs)

    @classmethod
    def override_keys(cls) -> frozenset[str]:
        return frozenset({"path", "progress"})

    @classmethod
    def topology_keys(cls) -> frozenset[str]:
        return frozenset({"outputs"})

    @classmethod
    def with_overrides(cls, kwargs: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
        changed = {**kwargs, **overrides}
        refuse_all(_wrong_paths(cls.__name__, changed))
        return changed

    @classmethod
    def is_bounded(cls, kwargs: Mapping[str, Any]) -> bool:
        return True

    # -- life -----------------------------------------------------------------------------------------------

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Find this task's parts, and which of them are done."""
        parquet_for(context.component_name)
        parts, self._listed = find_parts(Path(self._path), context.component_name)
        done: Mapping[str, str] = {}
        if self._progress is not None:
            self._markers = DoneMarkers(Path(self._progress), context.topology_name, context.component_name)
            done = self._markers.read()
        self._ledger = shares(parts, context.task_index, context.task_count, done)
        self._report()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # -- emitting -------------------------------------------------------------------------------------------

    def next_tuple(self) -> None:
        """Emit rows as far as trees may be open."""
        room = self.room()
        if self._reader is None:
            if room <= 0 or not self._ledger.todo:
                return
            self._open_next()
        reader, current = self._reader, self._current
        assert reader is not None and current is not None
        name, row = current.part.name, reader.row
        rows = reader.take(room) if room > 0 else []
        for at, values in enumerate(rows, row):
            self._ledger.emitted(name, 1)
            self.emit(values, (name, at))
        if room > 0 and not rows:
            self._end_part(reader, name)

    def _open_next(self) -> None:
        self._current = self._ledger.begin()
        name = self._current.part.name
        self._reader = PartReader(Path(self._path) / name, self._columns, self.component_name)
        wanted = self._listed.get(name, self._reader.row_count)
        if wanted != self._reader.row_count:
            raise PartsUnreadable(
                f"{self.component_name}: {name} in {self._path} has {self._reader.row_count} rows, and had {wanted} "
                "when it was written: somebody has changed it. Write the DataFrame again, into a folder of its own."
            )

    def _end_part(self, reader: PartReader, name: str) -> None:
        reader.close()
        self._reader = self._current = None
        self._settle(self._ledger.read_out(name))

    # -- what comes back ------------------------------------------------------------------------------------

    def ack(self, tup_id: Any) -> None:
        if tup_id in self.unacked_tuples:
            super().ack(tup_id)
            self._settle(self._ledger.row_over(tup_id[0]))

    def given_up(self, tup_id: Hashable, values: Sequence[Any], fails: int) -> None:
        """Log the row; its part will not be noted as done."""
        super().given_up(tup_id, values, fails)
        self._settle(self._ledger.row_over(cast(tuple[str, int], tup_id)[0], given_up=True))

    def _settle(self, over: OpenPart | None) -> None:
        """Note a part that is done."""
        if over is None:
            return
        if over.given_up:
            # Rule: no marker. The row would be left out by every later run, and only a line in a log would know it.
            self.log(
                f"{over.given_up} of the {over.emitted} rows of {over.part.name} were given up, so this part is not "
                "noted as done: the next run reads it again.",
                "error",
            )
        elif self._markers is not None:
            self._markers.note(over.part, over.emitted)
        self._report()

    def _report(self) -> None:
        self.report_metric("parts_to_read", len(self._ledger.todo) + len(self._ledger.open))
        self.report_metric("parts_done", self._ledger.done)

    def caught_up(self) -> bool:
        return self._ledger.ended


def _wrong_paths(spout: str, kwargs: Mapping[str, Any]) -> list[str]:
    given = [("path", kwargs["path"])]
    if kwargs["progress"] is not None:
        given.append(("progress", kwargs["progress"]))
    found = [path_problem(value, f"{spout}: {name}") for name, value in given]
    return [f"{problem}." for problem in found if problem is not None]
