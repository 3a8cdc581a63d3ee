"""What a topology becomes on DataFrames: stages of bolts between exchanges, and what cannot become one. Pure.

A stage runs in one Spark operator. It begins with the bolts that read its inputs; bolts that read only what the stage
itself gives, by shuffle, follow in the same process. A fields or global grouping begins a stage of its own, for its
rows have to meet.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamlet.model.grouping import Grouping
from streamlet.model.plan import TICK_PERIOD, effective_grouping
from streamlet.model.spec import SPOUT
from streamlet.model.stream import DEFAULT_STREAM, Stream, StreamId
from streamlet.model.topology import ComponentDef, TopologySpec
from streamlet.model.validate import InvalidTopology, Problem, listed, nearest

FREE = "free"
"""A stage whose rows may go anywhere: one partition is as good as another."""
KEYED = "keyed"
"""A stage whose first bolt gets equal values of its fields in one place."""
SINGLE = "single"
"""A stage whose first bolt gets all rows in one place."""

_WAYS = {"shuffle": FREE, "none": FREE, "local_or_shuffle": FREE, "fields": KEYED, "global": SINGLE}
_NAME = re.compile(r"([^\[\]]+)(?:\[([^\[\]]+)\])?")


class NotForDataFrames(InvalidTopology):
    """A valid topology that DataFrames cannot carry; ``problems`` says all of why."""

    def __init__(self, topology: str, problems: Iterable[Problem]) -> None:
        super().__init__(topology, tuple(problems), "cannot be applied to DataFrames")


@dataclass(frozen=True, slots=True)
class StageInput:
    """A stream that a stage reads from outside. ``key``: the fields that it is grouped by."""

    stream: StreamId
    fields: tuple[str, ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """Bolts of one Spark operator, each after those that it reads. ``gives``: the streams that leave."""

    kind: str
    inputs: tuple[StageInput, ...]
    bolts: tuple[str, ...]
    gives: tuple[StreamId, ...]

    @property
    def name(self) -> str:
        """The name of its first bolt."""
        return self.bolts[0]


@dataclass(frozen=True, slots=True)
class DataFramePlan:
    """Stages, each after those that it reads; ``sources`` are the streams that DataFrames stand for."""

    topology: TopologySpec
    sources: tuple[StreamId, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[StreamId, ...]

    def readers(self, stage: Stage) -> int:
        """Count the stage inputs and results that read a stage's rows."""
        read = [one.stream for other in self.stages for one in other.inputs]
        return sum(sid in stage.gives for sid in (*read, *self.outputs))


def stream_named(text: str) -> StreamId:
    """Return the stream that ``count`` or ``split[errors]`` names."""
    found = _NAME.fullmatch(text)
    return StreamId(found[1], found[2] or DEFAULT_STREAM) if found else StreamId(text)


def fields_of(topology: TopologySpec, stream: StreamId) -> tuple[str, ...]:
    """Return the fields of a declared stream."""
    return next(one.fields for one in topology.component(stream.component).streams() if one.name == stream.stream)


def ticks(topology: TopologySpec, conf: Mapping[str, Any], bolt: str) -> float | None:
    """Return a bolt's seconds from tick to tick; None: it gets none."""
    period = {**topology.config, **conf, **topology.component(bolt).config}.get(TICK_PERIOD)
    return None if period in (None, "") else float(period)


def plan_dataframes(
    topology: TopologySpec,
    given: Collection[str] | None = None,
    outputs: Collection[str] | None = None,
    *,
    conf: Mapping[str, Any] = {},
    streaming: bool = False,
) -> DataFramePlan:
    """Plan a valid topology. Raises NotForDataFrames with every problem.

    ``given`` names the streams that DataFrames stand for, None: those of all spouts. ``outputs`` names the streams that
    are wanted, None: all that no bolt reads.
    """
    return _Planning(topology, given, outputs, conf, streaming).plan()


class _Planning:
    """One planning: the bolts needed, every problem, the stages."""

    def __init__(
        self,
        topology: TopologySpec,
        given: Collection[str] | None,
        outputs: Collection[str] | None,
        conf: Mapping[str, Any],
        streaming: bool,
    ) -> None:
        self.topology = topology
        self.conf = conf
        self.streaming = streaming
        self.components = {component.name: component for component in topology.components}
        self.given = self._spouts() if given is None else [stream_named(name) for name in given]
        self.replaced = {stream.component for stream in self.given}
        self.asked = outputs
        self.wanted = self._unread() if outputs is None else [stream_named(name) for name in outputs]

    def plan(self) -> DataFramePlan:
        problems = [*self._wrong_names()]
        if problems:  # what else is wrong depends on what was meant
            raise NotForDataFrames(self.topology.name, problems)
        needed = self._needed()
        order = self._in_order(needed)
        problems += self._circle(needed, order)
        problems += self._no_results()
        for component in self.topology.components:
            if component.name in needed:
                problems += (Problem(component.name, *finding) for finding in self._refusals(component))
        problems += self._spouts_without_frame(needed)
        if problems:
            raise NotForDataFrames(self.topology.name, problems)
        stages = _Stages(self.topology, order, self.replaced, self._needs_an_end)
        return stages.plan(tuple(self.given), tuple(self.wanted))

    # -- needed bolts

    def _spouts(self) -> list[StreamId]:
        read = {sub.source for component in self.topology.components for sub in component.inputs}
        spouts = [component for component in self.topology.components if component.kind == SPOUT]
        return [sid for spout in spouts for sid in _streams(spout) if sid in read]

    def _unread(self) -> list[StreamId]:
        read = {sub.source for component in self.topology.components for sub in component.inputs}
        return [sid for component in self._bolts() for sid in _streams(component) if sid not in read]

    def _bolts(self) -> list[ComponentDef]:
        return [one for one in self.topology.components if one.kind != SPOUT and one.name not in self.replaced]

    def _needed(self) -> set[str]:
        """Return the bolts that lead to a wanted stream; what stands before a given stream is left out."""
        todo = [stream.component for stream in self.wanted]
        if self.asked is None:  # a bolt without results is named, not forgotten
            todo += [component.name for component in self._bolts() if not component.streams()]
        needed: set[str] = set()
        while todo:
            name = todo.pop()
            if name not in needed and name not in self.replaced:
                needed.add(name)
                todo += [sub.source.component for sub in self.components[name].inputs]
        return needed

    def _in_order(self, needed: set[str]) -> list[str]:
        """Return the needed bolts, each after those that it reads; those of circles are left out."""
        order: list[str] = []
        bolts = [one for one in self.topology.components if one.name in needed and one.kind != SPOUT]
        there = self.replaced | {one.name for one in self.topology.components if one.kind == SPOUT}
        grown = True
        while grown:
            ready = [one.name for one in bolts if one.name not in order and self._sources(one) <= there | {*order}]
            order += ready
            grown = bool(ready)
        return order

    def _sources(self, component: ComponentDef) -> set[str]:
        return {sub.source.component for sub in component.inputs}

    # -- refusals

    def _wrong_names(self) -> Iterator[Problem]:
        streams = {_shown(sid): sid for one in self.topology.components for sid in _streams(one)}
        bolts = [name for name, sid in streams.items() if self.components[sid.component].kind != SPOUT]
        for what, names, right in (
            ("inputs=", [*map(_shown, self.given)], [*streams]),
            ("outputs=", [*map(_shown, self.wanted)], bolts),
        ):
            for name in names:
                if name not in right:
                    who = "bolt" if right is bolts else "component"
                    yield Problem(
                        None,
                        f"{what} names {name!r}, and no {who} gives a stream of that name.",
                        nearest(name, right, f"There are: {listed(right)}."),
                    )
        for sid in self.wanted:
            if sid.component in self.replaced:
                yield Problem(None, f"outputs= names {_shown(sid)!r}, which inputs= replaces.", "Use that DataFrame.")

    def _circle(self, needed: set[str], order: list[str]) -> Iterator[Problem]:
        left = {name for name in needed - {*order} if self.components[name].kind != SPOUT}
        circle = {name for name in left if self._reaches_itself(name, left)}
        if circle:
            yield Problem(
                None,
                f"Tuples go in a circle through {listed(circle)}, and DataFrames go one way.",
                "Run it as a resident topology, or let one of these bolts be replaced by an input.",
            )

    def _reaches_itself(self, name: str, left: set[str]) -> bool:
        before: set[str] = set()
        todo = [name]
        while todo:
            more = self._sources(self.components[todo.pop()]) & left - before
            before |= more
            todo += more
        return name in before

    def _no_results(self) -> Iterator[Problem]:
        if self.asked is None:
            for component in self._bolts():
                if not component.streams():
                    yield Problem(
                        component.name,
                        "It declares no outputs, so nothing of it would reach a DataFrame.",
                        "Declare what it finds as outputs and emit it, in process or process_tick; or name the "
                        "results that are wanted, outputs=[...], and it is left out.",
                    )
        if not self.wanted and all(component.streams() for component in self._bolts()):
            yield Problem(None, "No stream is left that could be a result.", "Name those that are wanted: outputs=.")

    def _spouts_without_frame(self, needed: set[str]) -> Iterator[Problem]:
        for name in sorted(needed):
            if self.components[name].kind == SPOUT:
                streams = ", ".join(f"{_shown(sid)!r}: df" for sid in _streams(self.components[name]))
                yield Problem(
                    name, "It is a spout, and no DataFrame stands for it.", f"Give one: inputs={{{streams}}}."
                )

    def _refusals(self, component: ComponentDef) -> Iterator[tuple[str, str]]:
        cls = component.cls
        if component.kind == SPOUT:
            return
        own_time = any(
            getattr(cls, name, False) for name in ("answers_for_held", "answers_for_untracked", "commits_epochs")
        )
        if own_time or getattr(cls, "timer_interval_s", None) is not None:
            yield (
                f"{cls.__qualname__} answers for tuples later and from threads of its own (a KafkaBolt does, a "
                "ThreadedBolt, an AsyncBolt), and a DataFrame's row is done when its bolt returns.",
                "Leave it out, and let Spark write the result: df.write.parquet, "
                'df.write.format("streamlet-kafka"). Where it asks a service, let a plain Bolt do so.',
            )
        for sid in _streams(component):
            if not fields_of(self.topology, sid):
                yield (
                    f"Its stream {sid.stream!r} has no fields, and a row has columns.",
                    "Declare a field, and emit it.",
                )
            if _is_direct(component, sid):
                yield (
                    f"Its stream {sid.stream!r} is direct: the bolt names the task that gets a tuple, and Spark has "
                    "none of its tasks.",
                    'Declare the stream without direct=True, and let its reader use Grouping.fields("...").',
                )
        yield from self._grouping_refusals(component)

    def _grouping_refusals(self, component: ComponentDef) -> Iterator[tuple[str, str]]:
        ways: dict[str, list[str]] = {}
        widths: set[int] = set()
        for sub in component.inputs:
            missing = sub.source.component in self.replaced and sub.source not in self.given
            if missing:
                yield (
                    f"It reads {sub.source}, and inputs= has a DataFrame only for another stream of that component.",
                    f"Give it, too: inputs={{{_shown(sub.source)!r}: df}}.",
                )
            grouping = effective_grouping(self.topology, sub.source, sub.grouping)
            if grouping.kind == "all":
                yield (
                    f"It reads {sub.source} with Grouping.ALL: each of its tasks gets each tuple, and on DataFrames "
                    "there is no fixed number of tasks.",
                    "Use Grouping.GLOBAL where one task is enough, or join the two DataFrames before.",
                )
            elif grouping.kind in _WAYS:
                ways.setdefault(_WAYS[grouping.kind], []).append(str(sub.source))
                if grouping.kind == "fields":
                    widths.add(len(grouping.field_names))
            elif sub.source.component in self.replaced:
                yield (f"It reads {sub.source} with Grouping.DIRECT.", "Use a fields grouping.")
        if len(ways) > 1:
            told = "; ".join(f"{', '.join(sources)} by {_SAID[way]}" for way, sources in ways.items())
            yield (
                f"It reads with different groupings: {told}. Which of its instances should meet which rows cannot be "
                "said.",
                "Give all its inputs the same kind of grouping, or make two bolts of it.",
            )
        if len(widths) > 1:
            yield (
                "Its fields groupings name different numbers of fields.",
                "Group all its inputs by equally many fields: rows with equal values meet.",
            )

    def _needs_an_end(self, bolt: str) -> bool:
        """Tell whether a following bolt needs a stage of its own."""
        # In a stream a keyed stage has no end of a batch, at which a bolt that follows could be given its tick, or must
        # have acked by hand what it was given: its rows are those of many keys.
        by_hand = not self.topology.component(bolt).cls.auto_ack
        return self.streaming and (by_hand or ticks(self.topology, self.conf, bolt) is not None)


_SAID = {FREE: "shuffle", KEYED: "fields", SINGLE: "global"}


class _Stages:
    """Cuts bolts, in order, into stages."""

    def __init__(self, topology: TopologySpec, order: list[str], replaced: set[str], apart: Any) -> None:
        self.topology = topology
        self.order = order
        self.apart = apart
        self.stages: list[_Growing] = []
        self.of: dict[str, _Growing] = {}
        self.at: dict[StreamId, _Growing] = {}
        """The free stage that reads a given stream."""
        self.replaced = replaced

    def plan(self, given: tuple[StreamId, ...], wanted: tuple[StreamId, ...]) -> DataFramePlan:
        for name in self.order:
            component = self.topology.component(name)
            stage = self._stage_for(component)
            stage.bolts.append(name)
            self.of[name] = stage
        read = {one.stream for stage in self.stages for one in stage.inputs}
        stages = tuple(stage.frozen(self.topology, read | {*wanted}) for stage in self.stages)
        return DataFramePlan(self.topology, tuple(sid for sid in given if sid in read), stages, wanted)

    def _stage_for(self, component: ComponentDef) -> _Growing:
        groupings = {
            sub.source: effective_grouping(self.topology, sub.source, sub.grouping) for sub in component.inputs
        }
        kind = _WAYS[next(iter(groupings.values())).kind]
        if kind == FREE:
            before = {self._home(source) for source in groupings}
            home = before.pop() if len(before) == 1 else None
            if home is not None and not (home.kind != FREE and self.apart(component.name)):
                return home
            alone = home is None and len(groupings) == 1 and next(iter(groupings)).component in self.replaced
            if alone:
                (source,) = groupings
                self.at[source] = self._new(FREE, groupings)
                return self.at[source]
        return self._new(kind, groupings)

    def _home(self, source: StreamId) -> _Growing | None:
        return self.at.get(source) if source.component in self.replaced else self.of[source.component]

    def _new(self, kind: str, groupings: Mapping[StreamId, Grouping]) -> _Growing:
        inputs = [
            StageInput(source, fields_of(self.topology, source), tuple(grouping.field_names))
            for source, grouping in groupings.items()
        ]
        self.stages.append(_Growing(kind, inputs, []))
        return self.stages[-1]


@dataclass(eq=False, slots=True)
class _Growing:
    """A stage that may get more bolts."""

    kind: str
    inputs: list[StageInput]
    bolts: list[str]

    def frozen(self, topology: TopologySpec, needed: set[StreamId]) -> Stage:
        gives = [sid for name in self.bolts for sid in _streams(topology.component(name)) if sid in needed]
        return Stage(self.kind, tuple(self.inputs), tuple(self.bolts), tuple(gives))


def _streams(component: ComponentDef) -> list[StreamId]:
    return [StreamId(component.name, stream.name) for stream in component.streams()]


def _is_direct(component: ComponentDef, sid: StreamId) -> bool:
    declared: dict[str, Stream] = {stream.name: stream for stream in component.streams()}
    return declared[sid.stream].direct


def _shown(sid: StreamId) -> str:
    return str(sid)
