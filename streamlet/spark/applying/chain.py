"""The bolts of one stage in one Spark task: rows go in by input, and leave by stream. Knows neither Spark nor Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamlet.base.clock import Clock, SystemClock
from streamlet.base.errors import hurts_one_tuple
from streamlet.components.batching import BatchingBolt
from streamlet.components.context import TopologyContext
from streamlet.model.dataframe_plan import Stage
from streamlet.model.stream import StreamId
from streamlet.runtime.tasks.user_errors import could_not_close
from streamlet.runtime.tasks.values import copies
from streamlet.spark.applying.applied_bolt import AppliedBolt, BoltDef, FailedRow

ColumnsOf = dict[StreamId, list[Sequence[Any]]]
"""The columns of each stream that has rows."""

_CHANGEABLE = frozenset({list, dict})


@dataclass(frozen=True, slots=True)
class StageJob:
    """A stage as it travels to executors. ``tasks``: the topology's components by number, as in a context.

    ``zips``: names of the files that its bolts' modules travel in.
    """

    topology: str
    run_id: str
    stage: Stage
    bolts: tuple[BoltDef, ...]
    on_failed: str
    tasks: Mapping[int, str]
    zips: tuple[str, ...] = ()


class Chain:
    """A stage's bolts, each after those that it reads. One Spark task, one thread."""

    def __init__(
        self,
        job: StageJob,
        index: int,
        count: int,
        failed: Callable[[FailedRow], None],
        clock: Clock | None = None,
    ) -> None:
        self.job = job
        clock = clock or SystemClock()
        self.bolts = [
            AppliedBolt(bolt, _context(job, bolt, index, count, clock), job.on_failed, failed) for bolt in job.bolts
        ]
        self._last_reader = {source: bolt.name for bolt in job.bolts for source in bolt.sources}
        self._started: list[AppliedBolt] = []

    @property
    def head(self) -> AppliedBolt:
        """The stage's first bolt: the one with a key, in a keyed stage."""
        return self.bolts[0]

    def start(self) -> None:
        """Make and initialize all bolts. Raises ComponentFailed."""
        for bolt in self.bolts:
            bolt.start()
            self._started.append(bolt)

    def feed(self, source: StreamId, columns: list[Sequence[Any]]) -> ColumnsOf:
        """Pass an input's rows through all bolts; return what leaves."""
        return self._flow({source: columns})

    def tick_head(self) -> ColumnsOf:
        """Give the first bolt a tick; what it emits goes through the others."""
        self.head.tick()
        return self._flow({})

    def end_key(self) -> ColumnsOf:
        """Fail the open tuples, but those that a key's state keeps.

        Raises TupleFailed.
        """
        # Rule: every bolt's open tuples end here, not the first one's only. What stayed open would never be told.
        if isinstance(self.head.bolt, BatchingBolt):
            self.head.forget_held()
        else:
            self.head.finish()
        for bolt in self.bolts[1:]:
            bolt.finish()
        return self._flow({})

    def finish(self) -> ColumnsOf:
        """Give the last ticks, and fail what nobody has acked."""
        return self._flow({}, last=True)

    def close(self, clean: bool) -> None:
        """Call each ``cleanup``, as far as bolts were started. Raises ComponentFailed if ``clean``."""
        first: BaseException | None = None
        for bolt in self._started:
            try:
                bolt.close()
            except BaseException as error:
                if not hurts_one_tuple(error):
                    raise
                if first is None:
                    first = could_not_close(bolt.name, 0, "cleanup", error)
        self._started.clear()
        if first is not None and clean:
            raise first

    def _flow(self, there: ColumnsOf, last: bool = False) -> ColumnsOf:
        leaving: ColumnsOf = {}
        gives = self.job.stage.gives
        for bolt in self.bolts:
            for source in bolt.definition.sources:
                if source in there:
                    last_reader = self._last_reader[source] == bolt.name
                    bolt.take(source, there[source] if last_reader else _copies(there[source]))
            if last:
                if bolt.definition.tick_s is not None:
                    bolt.last_ticks()
                bolt.finish()
            for name in bolt.definition.streams:
                columns = bolt.give(name)
                if columns:
                    stream = StreamId(bolt.name, name)
                    there[stream] = columns
                    if stream in gives:
                        leaving[stream] = _copies(columns) if stream in self._last_reader else columns
        return leaving


def _copies(columns: list[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return columns whose lists and dicts a reader may change."""
    # Rule: each reader, and the result, has values of its own, as in a resident topology. A bolt that appends to a list
    # would change what its neighbour reads and what was promised as a result.
    return [
        next(copies([*column], 2)) if not _CHANGEABLE.isdisjoint(map(type, column)) else column for column in columns
    ]


def _context(job: StageJob, bolt: BoltDef, index: int, count: int, clock: Clock) -> TopologyContext:
    sources: dict[str, dict[str, tuple[str, ...]]] = {}
    for sid, fields in bolt.sources.items():
        sources.setdefault(sid.component, {})[sid.stream] = fields
    return TopologyContext(
        topology_name=job.topology,
        topology_id=job.run_id,
        component_name=bolt.name,
        task_id=next(number for number, name in job.tasks.items() if name == bolt.name),
        task_index=index,
        task_count=count,
        worker=index,
        tasks=job.tasks,
        clock=clock,
        outputs=bolt.streams,
        sources=sources,
    )
