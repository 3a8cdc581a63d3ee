"""Test one bolt or a whole topology in this process.

Lists go in; emitted tuples, acks, failures and errors come out.

Both testers run what a worker runs, the loop with its routing, tracking, time-outs and ticks, on the calling thread,
with a seed and a clock that moves only by ``advance``. So a test is repeatable, never sleeps and starts nothing.
`streamlet docs testing` shows each in ten lines.

A ``BoltTester`` is a worker with one task. The tuples it is given come over a link, as if from a spout of another
worker, and its acks and failures leave over that link. A ``TopologyTester`` is a worker with all tasks; spouts that
read lists stand for the real ones. Emits are recorded at the component's own ``emit``, so they are
seen whether or not anybody reads the stream.
"""

from __future__ import annotations

import copy
import random
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

from streamlet.backends.contract import ComponentStatus
from streamlet.base.clock import ManualClock
from streamlet.base.errors import BadInput, StreamletError
from streamlet.components.bolt import Bolt
from streamlet.components.reliable_spout import ReliableSpout
from streamlet.components.spout import Spout
from streamlet.components.tuples import Tuple
from streamlet.model.grouping import Grouping
from streamlet.model.plan import Plan, make_plan
from streamlet.model.settings import resolve
from streamlet.model.spec import BOLT, SPOUT, ComponentSpec, as_name
from streamlet.model.stream import DEFAULT_STREAM, Stream, StreamId
from streamlet.model.topology import ComponentDef, Subscription, TopologyMeta, TopologySpec
from streamlet.model.validate import checked
from streamlet.running import FROM_PYTHON, make_request
from streamlet.runtime.links.links import Links, NoLinks
from streamlet.runtime.tasks.building import LiveTask, Running
from streamlet.runtime.tasks.emitter import Incoming, Outgoing, Run
from streamlet.runtime.tasks.task_stats import component_rows
from streamlet.runtime.tasks.values import travelling
from streamlet.runtime.worker.loop import WorkerLoop
from streamlet.tracking.pending import PendingSet

__all__ = ["BoltTester", "Emitted", "ManualClock", "Raised", "TopologyTester"]

STEP_S = 0.1
"""Seconds of one step of the clock at most.

Spouts are asked after each, so those that emit by the clock are not late.
"""

MOST_TURNS = 2_000
"""Turns of the loop at one moment, before the topology is taken for endless."""

B = TypeVar("B", bound=Bolt)


class Emitted(NamedTuple):
    """One call of ``emit``, with its values at that moment."""

    component: str
    task: int
    stream: str
    values: list[Any]
    direct_task: int | None = None


class Raised(NamedTuple):
    """What ``process`` or ``process_tick`` raised; ``values`` is None of a tick."""

    component: str
    task: int
    error: BaseException
    values: list[Any] | None


class Tester:
    """What both testers share: the loop, the clock, and the records of what components did."""

    def __init__(
        self,
        plan: Plan,
        conf: Mapping[str, Any],
        links: Links,
        seed: int,
        clock: ManualClock | None,
        raise_errors: bool,
        overrides: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.clock = clock or ManualClock()
        self.log: list[Emitted] = []
        """Every emit of every component, in order."""
        self.errors: list[Raised] = []
        """Every exception of a bolt, in order, also those that a call of the tester raised."""
        self._raise_errors = raise_errors
        self._raised = 0
        self._acked: dict[str, list[Any]] = defaultdict(list)
        self._failed: dict[str, list[Any]] = defaultdict(list)
        self._given_up: dict[str, list[Any]] = defaultdict(list)
        self._open = True
        rng = random.Random(seed)
        running = Running(
            plan=plan,
            worker=0,
            epoch=1,
            topology_id=str(uuid.UUID(int=rng.getrandbits(128))),
            conf=conf,
            clock=self.clock,
            rng=rng,
            report=self._note_error,
            wake=lambda: None,
            overrides=overrides,
            built=self._record,
        )
        self._loop = WorkerLoop(running, links)
        try:
            self._loop.initialize()
            self._loop.activate()
        except BaseException:
            self._shut(clean=False)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._shut(clean=False)  # the first error is the one to be seen

    def close(self) -> None:
        """Stop as at the end of a run: ``cleanup`` of bolts, ``close`` of spouts. Raises what the first raised."""
        for raised in self._shut(clean=True):
            raise raised

    def run(self) -> None:
        """Work until nothing is left to do at this moment.

        Raises what a bolt raised meanwhile.
        """
        self._turn()
        self._raise_first()

    def advance(self, seconds: float) -> None:
        """Let time pass: ticks, time-outs and replays happen when they are due.

        Raises as ``run``.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back ({seconds} s)")
        self._turn()
        clock, timers = self.clock, self._loop.timers
        end = clock.monotonic() + seconds
        while (now := clock.monotonic()) < end:
            due = timers.next_due()
            clock.advance(min(end, now + STEP_S, due if due > now else end) - now)
            self._turn()
        self._raise_first()

    def _turn(self) -> None:
        for _ in range(MOST_TURNS):
            if self._loop.turn() > 0:
                return
        raise StreamletError(
            f"The topology was still busy after {MOST_TURNS:,} turns at one moment of the clock. A test needs spouts "
            "that come to an end, or that emit by the clock: give a list in place of one that always has more."
        )

    def _raise_first(self) -> None:
        new, self._raised = self.errors[self._raised :], len(self.errors)
        if new and self._raise_errors:
            first = new[0]
            on = "in process_tick" if first.values is None else f"on the tuple {first.values!r}"
            first.error.add_note(f"raised by {first.component} (task {first.task}) {on}")
            raise first.error

    def _note_error(self, component: str, task: int, error: BaseException, tup: Any, called: Any) -> None:
        self.errors.append(Raised(component, task, error, None if tup is None else list(tup.values)))

    def _shut(self, clean: bool) -> list[BaseException]:
        if not self._open:
            return []
        self._open = False
        return self._loop.close(clean)

    def _emitted(self, component: str, stream: str) -> list[list[Any]]:
        return [made.values for made in self.log if (made.component, made.stream) == (component, stream)]

    def _live(self, component: str) -> list[LiveTask]:
        return [live for live in self._loop.tasks.values() if live.plan.component == component]

    # -- recording -------------------------------------------------------------------------------------------

    def _record(self, live: LiveTask) -> None:
        """Put recorders in front of a component's emits, acks and failures. Called before ``initialize``."""
        name, own = live.plan.component, vars(live.component)
        if isinstance(live.component, Bolt):
            # The task may choose another closure after `initialize`, which sees auto_anchor: ask it each time. One that
            # the bolt has put around it stays: it may name the anchors.
            bound = own["emit"]
            tasks_own = bound is live.run.emit
            emit = (lambda *values, **more: live.run.emit(*values, **more)) if tasks_own else bound
            own["emit"] = self._recording(live, emit)
            return
        spout = cast(Spout, live.component)
        own["emit"] = self._recording(live, own["emit"])
        own["emit_many"] = self._recording_many(live, own["emit_many"])
        own["ack_many"] = _noting(spout.ack_many, self._acked[name])
        own["fail_many"] = _noting(spout.fail_many, self._failed[name])
        if isinstance(spout, ReliableSpout):
            given_up, list_of = spout.given_up, self._given_up[name]

            def note(tup_id: Any, values: Sequence[Any], fails: int) -> None:
                list_of.append(list(values))
                given_up(tup_id, values, fails)

            own["given_up"] = note

    def _recording(self, live: LiveTask, emit: Callable[..., Any]) -> Callable[..., Any]:
        # A bolt's third argument is anchors, a spout's second tup_id and third stream: both also come by name.
        stream_at = 1 if isinstance(live.component, Bolt) else 2

        def recorded(tup: Sequence[Any], *rest: Any, **more: Any) -> Any:
            kept = copy.deepcopy([*tup]) if not isinstance(tup, (str, bytes)) else []
            answer = emit(tup, *rest, **more)  # what it refuses was not emitted
            stream = more.get("stream", rest[stream_at - 1] if len(rest) >= stream_at else None)
            direct = more.get("direct_task", rest[2] if len(rest) > 2 else None)
            self._note(live, stream, kept, direct)
            return answer

        return recorded

    def _recording_many(self, live: LiveTask, emit_many: Callable[..., None]) -> Callable[..., None]:
        def recorded(tuples: Iterable[Sequence[Any]], tup_id: Any = None, stream: str | None = None) -> None:
            rows = [[*values] for values in tuples]
            kept = copy.deepcopy(rows)
            emit_many(rows, tup_id, stream)
            for row in kept:
                self._note(live, stream, row, None)

        return recorded

    def _note(self, live: LiveTask, stream: str | None, values: list[Any], direct_task: int | None) -> None:
        made = Emitted(live.plan.component, live.plan.task_id, stream or DEFAULT_STREAM, values, direct_task)
        self.log.append(made)


def _noting(tell: Callable[[Sequence[Any]], None], noted: list[Any]) -> Callable[[Sequence[Any]], None]:
    def note(tup_ids: Sequence[Any]) -> None:
        noted.extend(each.values if isinstance(each, _Message) else each for each in tup_ids)
        tell(tup_ids)

    return note


# -- one bolt ------------------------------------------------------------------------------------------------


class BoltTester(Tester, Generic[B]):
    """One bolt, fed by hand.

    ``bolt`` is a class, or a line of a topology (``WordCount.count``) with its config. ``conf`` holds what
    stands in the topology's config. ``sources`` are the names that tuples may come from; a mapping gives the fields of
    each. ``readers`` are the bolts that read each of its streams, and their number of tasks, for a bolt that asks for
    task ids. Raises what ``initialize`` makes the run raise.
    """

    def __init__(
        self,
        bolt: type[B] | ComponentSpec,
        *,
        conf: Mapping[str, Any] | None = None,
        sources: Sequence[str] | Mapping[str, Sequence[str]] = ("source",),
        readers: Mapping[str, int] | None = None,
        task_index: int = 0,
        task_count: int = 1,
        seed: int = 0,
        clock: ManualClock | None = None,
        raise_errors: bool = True,
    ) -> None:
        spec = bolt if isinstance(bolt, ComponentSpec) else bolt.spec()
        name = as_name(spec.name or spec.cls.__name__.lower())
        self._name = name
        topology = _around(spec, name, sources, {"reader": 1} if readers is None else readers, task_count, conf or {})
        whole = make_plan(checked(topology, imported=False), 1)
        # The bolt is alone on worker 0; whatever it talks to is on worker 1, which is this object.
        tasks = tuple(
            replace(task, worker=int((task.component, task.index) != (name, task_index))) for task in whole.tasks
        )
        plan = Plan(topology, 2, tasks, whole.routes)
        self._sources = {source: plan.tasks_of(source)[0].task_id for source in sources}
        self._trees = PendingSet(next(iter(self._sources.values())), 1, 1.0)
        self._edges = random.Random(seed)
        self._rows: dict[int, list[Any]] = {}
        self._far = _FarWorker(self._settled)
        super().__init__(plan, resolve(topology.config, {}), self._far, seed, clock, raise_errors, {})
        self._target = next(task.task_id for task in tasks if task.worker == 0)

    @property
    def bolt(self) -> B:
        """The bolt itself, after ``initialize``."""
        return cast(B, self._live(self._name)[0].component)

    @property
    def acked(self) -> list[list[Any]]:
        """The values of acked tuples, in order."""
        return self._acked[self._name]

    @property
    def failed(self) -> list[list[Any]]:
        """The values of failed tuples, in order."""
        return self._failed[self._name]

    @property
    def metrics(self) -> Mapping[str, float]:
        """What the bolt reported by ``report_metric``."""
        return self._live(self._name)[0].run.stats.metrics

    def emitted(self, stream: str = DEFAULT_STREAM) -> list[list[Any]]:
        """Return the values emitted on one stream, in order."""
        return self._emitted(self._name, stream)

    def give(self, *rows: Any, source: str | None = None, stream: str = DEFAULT_STREAM) -> None:
        """Feed tuples and work them off.

        A row is a list of values, a ``Tuple``, or a bare value for one field.

        Raises what ``process`` raised, after all rows were worked off; with ``raise_errors=False`` see ``errors``.
        """
        source = source or next(iter(self._sources))
        if source not in self._sources:
            raise BadInput(f"There is no source {source!r}. There are: {', '.join(map(repr, self._sources))}.")
        values = [travelling(row, source, stream, ()) for row in map(_row, rows)]
        first = self._trees.next_root
        self._trees.next_root += len(values)
        roots = list(range(first, self._trees.next_root))
        self._rows.update(zip(roots, map(copy.deepcopy, values), strict=True))
        edges = [self._edges.getrandbits(64) for _ in roots]
        if roots:
            run = Run(self._target, self._sources[source], stream, False, roots, edges, values)
            self._far.arriving.append(Incoming([run], [], [], [], worker=1))
        self.run()

    def tick(self) -> None:
        """Call ``process_tick`` now, whatever ``topology.tick.tuple.freq.secs`` says."""
        live = self._live(self._name)[0]
        self._loop.tick(live, live.conf["topology.tick.tuple.freq.secs"] or 0.0)
        self.run()

    def _settled(self, outgoing: Outgoing) -> None:
        # A delta leaves when the bolt acks its tuple and not before, and each tuple has a tree of its own.
        self._acked[self._name] += [self._rows.pop(root) for root in outgoing.roots if root in self._rows]
        self._failed[self._name] += [self._rows.pop(root) for root in outgoing.fails if root in self._rows]


class _FarWorker(NoLinks):
    """The other end of the bolt's links: hands over tuples, takes acks and failures."""

    def __init__(self, settled: Callable[[Outgoing], None]) -> None:
        self.arriving: list[Incoming] = []
        self._settled = settled

    def received(self) -> list[Incoming]:
        arrived, self.arriving = self.arriving, []
        return arrived

    def send(self, worker: int, outgoing: Outgoing) -> list[Run] | None:
        self._settled(outgoing)
        return []


class _Nobody(Spout):
    """Stands where tuples come from. Never built: its task is on the other worker."""

    outputs = ["value"]

    def next_tuple(self) -> None: ...


class _Reader(Bolt):
    """Stands where tuples go to. Never built, like its spout."""

    def process(self, tup: Tuple) -> None: ...


def _around(
    spec: ComponentSpec,
    name: str,
    sources: Sequence[str] | Mapping[str, Sequence[str]],
    readers: Mapping[str, int],
    tasks: int,
    config: Mapping[str, Any],
) -> TopologySpec:
    """Return a bolt with sources, and readers of each stream."""
    outputs = spec.outputs if spec.outputs is not None else getattr(spec.cls, "outputs", None)
    inputs = tuple(Subscription(StreamId(source), Grouping.SHUFFLE) for source in sources)
    bolt = ComponentDef(name, BOLT, spec.cls, outputs, inputs, tasks, spec.config, spec.kwargs)
    fields = sources if isinstance(sources, Mapping) else {source: ["value"] for source in sources}
    before = [ComponentDef(source, SPOUT, _Nobody, [Stream(fields[source])], (), 1, {}, {}) for source in sources]
    reads = tuple(Subscription(StreamId(name, stream.name), None) for stream in bolt.streams())
    after = [ComponentDef(reader, BOLT, _Reader, None, reads, count, {}, {}) for reader, count in readers.items()]
    return TopologySpec("Test", (*before, bolt, *(after if reads else [])), dict(config))


# -- a whole topology ----------------------------------------------------------------------------------------


class TopologyTester(Tester):
    """A whole topology, with lists in place of some spouts.

    ``given`` names them. A row is a list of values, or a bare value for one field. Rows that fail are replayed as a
    ReliableSpout does, after a back-off on the tester's clock, and given up after ``max_fails`` replays.
    ``settings`` are those of ``streamlet.run``. Nothing flows before the first ``run``, ``give`` or ``advance``.
    """

    def __init__(
        self,
        topology: TopologyMeta,
        given: Mapping[str, Iterable[Any]] | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        max_fails: int | None = 3,
        seed: int = 0,
        clock: ManualClock | None = None,
        raise_errors: bool = True,
    ) -> None:
        spec = topology.__topology__
        spouts = [component.name for component in spec.components if component.kind == SPOUT]
        for name in given or {}:
            if name not in spouts:
                raise BadInput(f"{spec.name} has no spout {name!r}. It has: {', '.join(spouts) or 'none'}.")
        self._lists = {name: deque(_Message(_row(row)) for row in rows) for name, rows in (given or {}).items()}
        components = tuple(
            replace(component, cls=_GivenSpout, kwargs={"rows": self._lists[component.name], "max_fails": max_fails})
            if component.name in self._lists
            else component
            for component in spec.components
        )
        wanted = [(key, value, FROM_PYTHON) for key, value in (settings or {}).items()]
        request = make_request(replace(spec, components=components), wanted, backend="inline")
        plan = make_plan(request.topology, 1)
        super().__init__(plan, request.conf, NoLinks(), seed, clock, raise_errors, request.overrides)

    @property
    def open_trees(self) -> int:
        """How many messages of spouts are neither acked nor failed."""
        return self._loop.ledgers.pending()

    def give(self, spout: str, *rows: Any, stream: str = DEFAULT_STREAM) -> None:
        """Add rows to a spout that is a list, and run. Raises as ``run``."""
        if spout not in self._lists:
            raise BadInput(f"The spout {spout!r} was not given as a list: TopologyTester(..., {{{spout!r}: []}}).")
        self._lists[spout].extend(_Message(_row(row), stream) for row in rows)
        self.run()

    def emitted(self, component: str, stream: str = DEFAULT_STREAM) -> list[list[Any]]:
        """Return the values a component emitted on one stream, replays included."""
        self._definition(component)
        return self._emitted(component, stream)

    def acked(self, spout: str) -> list[Any]:
        """Return acked rows of a given list, else message ids."""
        return self._of_spout(spout, self._acked)

    def failed(self, spout: str) -> list[Any]:
        """Return failed rows of a given list, or message ids; one entry a failure."""
        return self._of_spout(spout, self._failed)

    def given_up(self, spout: str) -> list[list[Any]]:
        """Return the rows that a ReliableSpout will not send again."""
        return self._of_spout(spout, self._given_up)

    def instances(self, component: str) -> list[Any]:
        """Return the component's objects, in the order of their task index."""
        self._definition(component)
        return [live.component for live in self._live(component)]

    def status(self, component: str) -> ComponentStatus:
        """Return a component's counters and metrics over all its tasks."""
        self._definition(component)
        pairs = [(live.plan.component, live.run.stats.snapshot()) for live in self._loop.tasks.values()]
        rows = {row["name"]: row for row in component_rows(self._loop.plan.topology, pairs)}
        return ComponentStatus(**rows[component])

    def _of_spout(self, spout: str, lists: Mapping[str, list[Any]]) -> list[Any]:
        if self._definition(spout).kind != SPOUT:
            raise BadInput(f"{spout} is a bolt: messages are acked, failed and given up at spouts.")
        return [*lists.get(spout, [])]

    def _definition(self, name: str) -> ComponentDef:
        topology = self._loop.plan.topology
        try:
            return topology.component(name)
        except KeyError:
            names = ", ".join(component.name for component in topology.components)
            raise BadInput(f"{topology.name} has no component {name!r}. It has: {names}.") from None


class _Message:
    """One row of a given list. It is its own message id: equal rows are different messages."""

    __slots__ = ("stream", "values")

    def __init__(self, values: list[Any], stream: str = DEFAULT_STREAM) -> None:
        self.values = values
        self.stream = stream

    def __repr__(self) -> str:
        return repr(self.values)


class _GivenSpout(ReliableSpout):
    """Emits the rows of a list that all its tasks share."""

    max_fails: ClassVar[int | None] = 3

    def __init__(self, rows: deque[_Message], max_fails: int | None) -> None:
        self._rows = rows
        vars(self)["max_fails"] = max_fails

    def next_tuple(self) -> None:
        if self._rows:
            message = self._rows.popleft()
            stream = None if message.stream == DEFAULT_STREAM else message.stream
            self.emit(message.values, tup_id=message, stream=stream)

    def caught_up(self) -> bool:
        return not self._rows and not self.has_unfinished()


def _row(given: Any) -> list[Any]:
    if isinstance(given, Tuple):
        return [*given.values]
    return [*given] if isinstance(given, (list, tuple)) else [given]
