"""``apply``: the DataFrames that a topology's bolts make of DataFrames. On the driver."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from streamlet.backends.contract import RunRequest
from streamlet.base.errors import BadInput, WrongArgument
from streamlet.model.dataframe_plan import (
    FREE,
    KEYED,
    SINGLE,
    DataFramePlan,
    Stage,
    fields_of,
    plan_dataframes,
    stream_named,
    ticks,
)
from streamlet.model.settings import parse_setting
from streamlet.model.stream import StreamId
from streamlet.model.topology import TopologyMeta
from streamlet.model.validate import listed
from streamlet.running import check_topology, make_request, settings_given
from streamlet.spark.applying.applied_bolt import DEAD_LETTER, ON_FAILED, BoltDef
from streamlet.spark.applying.chain import StageJob
from streamlet.spark.applying.shipping import module_folders, zip_modules
from streamlet.spark.executors import ALWAYS, KEYED_STREAMS, check_workers
from streamlet.spark.registration import check_packages, context_of, frame_problem, pack

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class NoSuchResult(BadInput, KeyError):
    """``apply`` was asked for no such stream."""

    __str__ = BadInput.__str__


class Applied(Mapping[str, Any]):
    """What ``apply`` returns: a DataFrame for each wanted stream, by its name."""

    def __init__(self, frames: dict[str, Any], dead_letters: Any, skipped: Any, kept: list[Any]) -> None:
        self._frames = frames
        self._dead_letters = dead_letters
        self._skipped = skipped
        self._kept = kept

    def __getitem__(self, name: str) -> Any:
        if name not in self._frames:
            raise NoSuchResult(
                f"There is no result {name!r}: apply gave {', '.join(self._frames)}. Name what you want in outputs=."
            )
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        return f"Applied({', '.join(self._frames)})"

    @property
    def dead_letters(self) -> Any:
        """A DataFrame of failed tuples: bolt, source, tuple (JSON text), reason. Raises BadInput."""
        if self._dead_letters is None:
            raise BadInput('There are no dead letters: give apply(..., on_failed="dead-letter").')
        return self._dead_letters

    @property
    def skipped(self) -> dict[str, int]:
        """The number of tuples that each bolt failed so far, with ``on_failed="skip"``."""
        return dict(self._skipped.value)

    def unpersist(self) -> None:
        """Free the stages that ``persist=True`` keeps."""
        for frame in self._kept:
            frame.unpersist()


def apply(
    topology: TopologyMeta,
    inputs: Mapping[str, Any],
    *,
    schemas: Mapping[str, Any] | None = None,
    outputs: Collection[str] | None = None,
    on_failed: str = "stop",
    settings: Mapping[str, Any] | None = None,
    persist: bool = False,
) -> Applied:
    """Return a DataFrame for each result of a topology's bolts. No bolt runs yet.

    ``inputs`` names the DataFrame that stands for each spout (``"lines"``, ``"lines[errors]"`` for a further stream);
    columns are found by the names of its fields. ``schemas`` gives the columns of each stream that leaves Python, as
    ``{"count": "word string, n long"}``. ``outputs`` names the wanted streams, None: all that no bolt reads.
    ``on_failed``: "stop", "skip" or "dead-letter". ``settings`` are those of ``streamlet.run``. With ``persist`` a
    batch keeps what several DataFrames come from.

    Raises BadInput with everything that is wrong.
    """
    check_topology(topology, "apply")
    _check_options(inputs, schemas, outputs, on_failed, persist)
    check_packages()
    frames = {str(stream_named(name)): frame for name, frame in inputs.items()}
    spark = next(iter(frames.values())).sparkSession
    context = context_of(spark)
    streaming = _is_streaming(frames, persist)
    request = make_request(topology.__topology__, settings_given(settings), backend="inline")
    plan = plan_dataframes(request.topology, [*frames], outputs, conf=request.conf, streaming=streaming)
    keyed = streaming and any(stage.kind != FREE for stage in plan.stages)
    if keyed:
        _check_state_store(spark)
    compiled = _Compiled(request, plan, frames, schemas or {}, on_failed, streaming, context)
    check_workers(context, KEYED_STREAMS if keyed else ALWAYS, here=keyed)
    # Before the operators are made: each notes then which files it needs.
    compiled.zips = _ship(context, plan)
    return compiled.applied(persist)


class _Compiled:
    """The DataFrames of one ``apply``, stage by stage."""

    def __init__(
        self,
        request: RunRequest,
        plan: DataFramePlan,
        frames: Mapping[str, Any],
        schemas: Mapping[str, Any],
        on_failed: str,
        streaming: bool,
        context: Any,
    ) -> None:
        from streamlet.spark.applying.frame_types import given_columns, named_types
        from streamlet.spark.applying.operators import SkippedByBolt

        self.request = request
        self.plan = plan
        self.on_failed = on_failed
        self.streaming = streaming
        self.run_id = str(uuid.uuid4())
        self.skipped = context.accumulator({}, SkippedByBolt())
        leaving = [sid for stage in plan.stages for sid in stage.gives]
        self.schemas = schemas
        self.types = named_types(plan.topology, leaving, schemas)
        self.frames: dict[StreamId, Any] = {}
        for source, (frame, kind) in given_columns(plan, frames).items():
            self.frames[source], self.types[source] = frame, kind
        self.zips: tuple[str, ...] = ()
        """Names of the files that the topology's modules travel in."""
        self._made: dict[StreamId, Any] = {}
        """How the rows of a stream come about, where no other stream comes with it."""
        self.dead: list[Any] = []
        self.kept: list[Any] = []

    def applied(self, persist: bool) -> Applied:
        from pyspark.sql.functions import col

        for stage in self.plan.stages:
            self._add(stage, persist)
        results = {}
        for sid in self.plan.outputs:
            fields = fields_of(self.plan.topology, sid)
            named = [col(f"c{at}").alias(field) for at, field in enumerate(fields)]
            results[str(sid)] = self.frames[sid].select(*named)
        dead = reduce(lambda one, other: one.unionByName(other), self.dead) if self.dead else None
        return Applied(results, dead, self.skipped, self.kept)

    def _add(self, stage: Stage, persist: bool) -> None:
        from streamlet.spark.applying.frame_types import (
            Made,
            packed_frame,
            packed_schema,
            read_frame,
            split_frame,
            unpacked_frames,
            written_schema,
        )
        from streamlet.spark.applying.operators import KeyedStage, MappedStage

        job = self._job(stage)
        keeps_dead = self.on_failed == DEAD_LETTER
        frame, rows_in, keys = read_frame(stage, self.frames, self.types, self.streaming)
        schema, rows_out = written_schema(self.plan.topology, stage.gives, self.types, self.schemas, keeps_dead)
        if self.streaming and stage.kind != FREE:
            processor = KeyedStage(job, rows_in, rows_out, self.skipped, tuple(schema.names))
            mode = "None" if job.bolts[0].tick_s is None else "ProcessingTime"
            grouped = packed_frame(frame, rows_in, stage, self._made).groupBy(*keys)
            made = grouped.transformWithState(processor, packed_schema(schema, rows_out), "Append", mode)
            parts = unpacked_frames(made, rows_out)
        else:
            if stage.kind == KEYED:
                frame = frame.repartition(*keys)
            elif stage.kind == SINGLE:
                frame = _in_one_partition(frame)
            mapped = MappedStage(job, rows_in, rows_out, self.skipped)
            made = frame.mapInArrow(mapped, schema)
            if len(rows_out.streams) == 1:
                self._made[rows_out.streams[0]] = Made(frame, mapped)
            # Rule: what is read more than once is kept. One stream with two readers is worked off twice without.
            if persist and self.plan.readers(stage) + keeps_dead > 1:
                self.kept.append(made.persist())
            parts = split_frame(made, rows_out)
        if keeps_dead:
            self.dead.append(parts.pop())
        self.frames.update(zip(stage.gives, parts, strict=True))

    def _job(self, stage: Stage) -> StageJob:
        topology = self.plan.topology
        tasks = {number: component.name for number, component in enumerate(topology.components, 1)}
        bolts = tuple(self._bolt(name) for name in stage.bolts)
        return StageJob(topology.name, self.run_id, stage, bolts, self.on_failed, tasks, self.zips)

    def _bolt(self, name: str) -> BoltDef:
        request, topology = self.request, self.plan.topology
        component = topology.component(name)
        own = {key: parse_setting(key, value, f"{name}'s config") for key, value in component.config.items()}
        return BoltDef(
            name,
            component.cls,
            component.cls.with_overrides(component.kwargs, request.overrides.get(name, {})),
            {**request.conf, **own, "topology.name": topology.name},
            {sub.source: fields_of(topology, sub.source) for sub in component.inputs},
            {stream.name: stream.fields for stream in component.streams()},
            ticks(topology, request.conf, name),
        )


def _in_one_partition(frame: Any) -> Any:
    # Rule: the one bolt of all gets its partition, though there be no row. Spark's optimizer drops a frame that it
    # knows to be empty, with all its partitions: `limit 0` would give no result, and a filter without a match one.
    spark = frame.sparkSession
    nothing = spark.createDataFrame(spark.sparkContext.parallelize([], 1), frame.schema)  # an RDD it cannot look into
    return frame.unionAll(nothing).repartition(1)


# -- what was given


def _check_options(inputs: object, schemas: object, outputs: object, on_failed: object, persist: object) -> None:
    if not isinstance(inputs, Mapping) or not inputs:
        raise WrongArgument(f'inputs= is {inputs!r:.80}: give a DataFrame for each spout, {{"lines": df}}.')
    for name, frame in inputs.items():
        if not isinstance(name, str):
            raise WrongArgument(f"inputs= holds the key {name!r:.80}: give the name of a spout.")
        if problem := frame_problem(frame):
            raise WrongArgument(f"inputs= holds under {name!r} {problem}.")
    if schemas is not None and not isinstance(schemas, Mapping):
        raise WrongArgument(f'schemas= is {schemas!r:.80}: give columns by stream, {{"count": "word string, n long"}}.')
    if isinstance(outputs, str) or not isinstance(outputs, Collection | None):
        raise WrongArgument(f'outputs= is {outputs!r:.80}: give a list of streams, ["count"].')
    if on_failed not in ON_FAILED:
        raise WrongArgument(f"on_failed= is {on_failed!r}: give {listed(map(repr, ON_FAILED))}.")
    if not isinstance(persist, bool):
        raise WrongArgument(f"persist= is {persist!r}: give True or False.")


def _is_streaming(frames: Mapping[str, Any], persist: bool) -> bool:
    streams = [name for name, frame in frames.items() if frame.isStreaming]
    if streams and len(streams) < len(frames):
        raise BadInput(
            f"inputs= mixes streams ({listed(streams)}) and batches ({listed(frames.keys() - {*streams})}). Give "
            "DataFrames of one kind; join the other one to a stream before."
        )
    if streams and persist:
        raise BadInput("persist=True is for batches: each micro-batch of a stream has rows of its own.")
    return bool(streams)


def _check_state_store(spark: Any) -> None:
    store = spark.conf.get(STATE_STORE)
    if store != ROCKSDB:
        raise BadInput(
            f"A stream with a fields or global grouping keeps what bolts remember in Spark's state store, and "
            f"transformWithState needs RocksDB; this session has {store}. Set it before apply: "
            f'spark.conf.set("{STATE_STORE}", "{ROCKSDB}").'
        )


def _ship(context: Any, plan: DataFramePlan) -> tuple[str, ...]:
    """Send streamlet and the topology's modules to the executors; return the names of the modules' zips."""
    folder = Path(context._temp_dir)
    context.addPyFile(str(pack(folder)))
    bolts = {name for stage in plan.stages for name in stage.bolts}
    classes = [plan.topology.component(name).cls for name in bolts]
    modules = {base.__module__ for cls in classes for base in cls.__mro__}
    before = list(sys.path)
    zips = [zip_modules(root, tops, folder) for root, tops in module_folders(modules).items()]
    for zipped in zips:
        context.addPyFile(str(zipped))
    # Rule: the driver imports the user's own files. Spark puts the zips on its path, too, and a module that is reloaded
    # after an edit would come from there as it was.
    sys.path[:] = before
    return tuple(zipped.name for zipped in zips)
