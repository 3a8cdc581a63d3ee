"""Test one bolt or a whole topology in this process.

Lists go in; emitted tuples, acks, failures and errors come out.

Both testers run what a worker runs, the loop with its routing, tracking, time-outs and ticks, on the calling thread,
with a seed and a clock that moves only by ``advance``. So a test is repeatable, never sleeps and starts nothing.
`streamlet docs testing` shows each in ten lines.

A ``BoltTester`` is a worker with one task. The tuples it is given come over a link, as if from a spout of another
worker, and its acks and failures leave over that link. A ``TopologyTester`` is a worker with all tasks; spouts that
read lists stand for the real ones, and bolts that keep records for those that write outside. Emits are recorded at the
component's own ``emit``, so they are seen whether or not anybody reads the stream.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import math
import random
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

from streamlet.backends.contract import ComponentStatus
from streamlet.base.clock import ManualClock
from streamlet.base.errors import BadInput, StreamletError, WrongArgument
from streamlet.components.batch import Batch
from streamlet.components.bolt import Bolt, KeptInTests
from streamlet.components.component import BoltPort
from streamlet.components.reliable_spout import ReliableSpout
from streamlet.components.spout import FailReason, Spout
from streamlet.components.tuples import Tuple
from streamlet.model.delivery import AT_LEAST_ONCE, DELIVERY
from streamlet.model.grouping import Grouping
from streamlet.model.plan import TICK_PERIOD, Plan, make_plan
from streamlet.model.settings import resolve
from streamlet.model.spec import BOLT, SPOUT, ComponentSpec, OutputRef, as_name, input_pairs, source_stream
from streamlet.model.stream import DEFAULT_STREAM, Stream, StreamId
from streamlet.model.topology import BoltInput, ComponentDef, TopologyMeta, TopologySpec, declared_streams
from streamlet.model.validate import checked
from streamlet.running import FROM_PYTHON, check_topology, make_request, settings_given
from streamlet.runtime.links.links import Links, NoLinks
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.building import LiveTask, WorkerContext
from streamlet.runtime.tasks.emitter import Incoming, Outgoing, Run
from streamlet.runtime.tasks.task_stats import component_rows
from streamlet.runtime.tasks.values import travelling
from streamlet.runtime.worker.loop import DRAINING, WorkerLoop
from streamlet.tracking.acker import AckLedger
from streamlet.tracking.pending import PendingSet
from streamlet.tracking.roots import STEP
from streamlet.tracking.shared_roots import Root, each_root

__all__ = ["BoltTester", "Emitted", "ManualClock", "Raised", "TopologyTester"]

STEP_S = 0.1
"""Seconds of one step of the clock at most.

Spouts are asked after each, so those that emit by the clock are not late.
"""

MOST_TURNS = 2_000
"""Turns of the loop at one moment that take no given row, before the topology is taken for endless."""

LOOK_S = 0.002
"""Seconds between two looks at what a bolt's threads have done."""

B = TypeVar("B", bound=Bolt)

GivenFields = Mapping[str, Mapping[str, Sequence[str] | None]]
"""Component -> stream -> its fields; None: nobody named them."""


class Emitted(NamedTuple):
    """One call of ``emit``, with its values at that moment."""

    component: str
    task: int
    stream: str
    values: list[Any]
    direct_task: int | None = None


class Raised(NamedTuple):
    """What a call of a bolt raised. ``values``: None where there was no tuple, of a batch a list of its rows."""

    component: str
    task: int
    error: BaseException
    values: list[Any] | None
    by_batch: bool = False
    call: str = ""
    """The method that was called, as ``process`` or ``process_tick``, where it is known."""


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
        if clock is not None and not isinstance(clock, ManualClock):
            raise WrongArgument(f"clock= is {clock!r}: give a streamlet.testing.ManualClock, or leave it out.")
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
        self._dead_letters: dict[str, list[tuple[list[Any], str]]] = defaultdict(list)
        self._open = True
        self._ended = False
        """Whether an error has ended what a run would be."""
        rng = random.Random(seed)
        shared = WorkerContext(
            plan=plan,
            worker=0,
            epoch=1,
            topology_id=str(uuid.UUID(int=rng.getrandbits(128))),
            conf=conf,
            clock=self.clock,
            rng=rng,
            report=self._note_error,
            wake=lambda: self._loop.post(lambda: None),
            overrides=overrides,
            built=self._record,
        )
        self._loop = WorkerLoop(shared, links)
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
        """Stop as at the end of a run.

        Tuples under way are worked off, and each bolt with ticks gets its last one, unless an error has ended the run;
        then come ``cleanup`` of bolts and ``close`` of spouts. Raises the first error, after all of that. Tuples that
        wait for time or threads stay open.
        """
        if not self._open:
            return
        self._raised = len(self.errors)  # an error that has ended it was raised by the call that met it
        try:
            self._drain()
        except BaseException:
            self._shut(clean=False)
            raise
        raised = self._shut(clean=True)
        self._raise_first()
        for error in raised:
            raise error

    def _drain(self) -> None:
        """Work off tuples under way; give bolts their last ticks, down the topology."""
        # Rule: a tester ends as a run does: what a bolt keeps of acked tuples until its next tick is nowhere else.
        if self._ended:
            return
        self._loop.pause(DRAINING)
        self._turn()
        for step in range(self._loop.quiet_steps):
            self._loop.be_quiet(step + 1)
            self._turn()

    @contextlib.contextmanager
    def _noting_the_end(self) -> Iterator[None]:
        """Note an error that would end a run at once."""
        try:
            yield
        except BaseException:
            self._ended = True
            raise

    def run(self) -> None:
        """Work until nothing is left to do at this moment.

        Raises what a bolt raised meanwhile.
        """
        self._check_open()
        self._turn()
        self._raise_first()

    def wait(self, seconds: float = 10.0) -> None:
        """Work until every tuple is acked or failed: for bolts with threads.

        The one call that takes real time, at most ``seconds``; the tester's clock stands still. Raises as ``run``, and
        StreamletError with the tuples still open when the time is over.
        """
        self._check_open()
        _check_seconds("wait", seconds)
        end = time.monotonic() + seconds
        self.run()
        while (still_open := self._still_open())[0]:
            if time.monotonic() >= end:
                who, which = still_open
                raise StreamletError(
                    f"{who} still open after {seconds:g} s of waiting for threads{which}. If the bolt waits for a tick "
                    "or a time-out, call advance(): the tester's clock stands still here. Else look at what should "
                    "have acked or failed it."
                )
            time.sleep(LOOK_S)
            self.run()

    def _still_open(self) -> tuple[str, str]:
        """Say how much is open, and which; empty: nothing."""
        raise NotImplementedError

    def advance(self, seconds: float) -> None:
        """Let time pass: ticks, time-outs and replays happen when they are due.

        Raises as ``run``.
        """
        self._check_open()
        _check_seconds("advance", seconds)
        if seconds < 0:
            raise ValueError(f"a clock cannot go back ({seconds} seconds)")
        self._turn()
        clock, timers = self.clock, self._loop.timers
        end = clock.monotonic() + seconds
        while (now := clock.monotonic()) < end:
            due = timers.next_due()
            clock.advance(min(end, now + STEP_S, due if due > now else end) - now)
            self._turn()
        self._raise_first()

    def _turn(self) -> None:
        turns, left = 0, self._rows_left()
        while turns < MOST_TURNS:
            with self._noting_the_end():
                sleep_s = self._loop.turn()
            if sleep_s > 0:
                return
            # Given rows come to an end, however many: a turn that takes some says nothing of an endless spout.
            before, left = left, self._rows_left()
            turns = turns + 1 if left >= before else 0
        raise StreamletError(
            f"The topology was still busy after {MOST_TURNS:,} turns at one moment of the clock. A test needs spouts "
            "that come to an end, or that emit by the clock: give a list in place of one that always has more."
        )

    def _rows_left(self) -> int:
        """Count the given rows that no spout has taken yet."""
        return 0

    def _raise_first(self) -> None:
        new, self._raised = self.errors[self._raised :], len(self.errors)
        if new and self._raise_errors:
            first = new[0]
            what = f"a batch of {len(first.values or ())} tuples," if first.by_batch else "the tuple"
            on = f"in {first.call or 'a call of its own'}" if first.values is None else f"on {what} {first.values!r}"
            first.error.add_note(f"raised by {first.component} (task {first.task}) {on}")
            if remedy := self._remedy(first):
                first.error.add_note(remedy)
            raise first.error

    def _remedy(self, raised: Raised) -> str:
        """Say how to mend the test, where it caused the error."""
        return ""

    def _note_error(self, component: str, task: int, error: BaseException, tup: Any, called: Any) -> None:
        values = tup.rows if isinstance(tup, Batch) else None if tup is None else list(tup.values)
        call = getattr(called, "__name__", "")
        self.errors.append(Raised(component, task, error, values, isinstance(tup, Batch), call))

    def _check_open(self) -> None:
        if not self._open:
            raise StreamletError(
                "This tester is closed: its components have had their cleanup and take nothing more. Call it inside "
                "of the `with` block; what it recorded can still be read."
            )

    def _shut(self, clean: bool) -> list[BaseException]:
        if not self._open:
            return []
        self._open = False
        return [told.__cause__ or told for told in self._loop.close(clean)]  # a test expects the component's own error

    def _emitted(self, component: str, stream: str) -> list[list[Any]]:
        # "It emits nothing" is what a test may say of a bolt that declares no stream at all.
        definition = self._loop.plan.topology.component(component)
        if definition.streams() or stream != DEFAULT_STREAM:
            _check_stream(definition, stream)
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
            own["emit_many"] = self._recording_many(live, own["emit_many"], 0)
            if live.component.takes_batches():
                own["process_batch"] = self._without_withdrawn(live, live.component.process_batch)
            return
        spout = cast(Spout, live.component)
        own["emit"] = self._recording(live, own["emit"])
        own["emit_many"] = self._recording_many(live, own["emit_many"], 1)
        own["emit_each"] = self._recording_many(live, own["emit_each"], 1)
        own["ack_many"] = _noting(spout.ack_many, self._acked[name])
        own["fail_many"] = _noting(spout.fail_many, self._failed[name])
        if isinstance(spout, ReliableSpout):
            given_up, list_of, letters = spout.given_up, self._given_up[name], self._dead_letters[name]

            def note(tup_id: Any, values: Sequence[Any], fails: int) -> None:
                list_of.append(list(values))
                if spout.fail_reason is FailReason.DEAD_LETTER:
                    letters.append((list(values), spout.fail_cause.text if spout.fail_cause else ""))
                given_up(tup_id, values, fails)

            own["given_up"] = note

    def _without_withdrawn(self, live: LiveTask, process_batch: Callable[[Batch], None]) -> Callable[[Batch], None]:
        """Wrap a call, so that emits it took back are forgotten."""

        @functools.wraps(process_batch)
        def recorded(batch: Batch) -> None:
            before = len(self.log)
            try:
                process_batch(batch)
            except BaseException:
                if cast(BoltTask, live.run).withdraws(batch):
                    del self.log[before:]
                raise

        return recorded

    def _recording(self, live: LiveTask, emit: Callable[..., Any]) -> Callable[..., Any]:
        # A bolt's third argument is anchors, a spout's second tup_id and third stream: both also come by name.
        stream_at = 1 if isinstance(live.component, Bolt) else 2

        def recorded(tup: Sequence[Any], *rest: Any, **more: Any) -> Any:
            answer = emit(tup, *rest, **more)  # what it refuses was not emitted
            kept = copy.deepcopy([*tup])
            stream = more.get("stream", rest[stream_at - 1] if len(rest) >= stream_at else None)
            direct = more.get("direct_task", rest[2] if len(rest) > 2 else None)
            self._note(live, stream, kept, direct)
            return answer

        return recorded

    def _recording_many(self, live: LiveTask, emit_many: Callable[..., Any], stream_at: int) -> Callable[..., Any]:
        def recorded(tuples: Iterable[Sequence[Any]], *rest: Any, **more: Any) -> Any:
            rows = [*tuples]
            result = emit_many(rows, *rest, **more)
            stream = more.get("stream", rest[stream_at] if len(rest) > stream_at else None)
            for row in rows:
                self._note(live, stream, copy.deepcopy([*row]), None)
            return result

        return recorded

    def _note(self, live: LiveTask, stream: str | None, values: list[Any], direct_task: int | None) -> None:
        made = Emitted(live.plan.component, live.plan.task_id, stream or DEFAULT_STREAM, values, direct_task)
        self.log.append(made)


def _check_seconds(taker: str, seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds < math.inf:
        raise WrongArgument(f"{taker} takes a number of seconds, and {seconds!r} is not one.")


def _noting(tell: Callable[[Sequence[Any]], None], noted: list[Any]) -> Callable[[Sequence[Any]], None]:
    def note(tup_ids: Sequence[Any]) -> None:
        noted.extend(each.values if isinstance(each, _Message) else each for each in tup_ids)
        tell(tup_ids)

    return note


# -- one bolt ------------------------------------------------------------------------------------------------


class BoltTester(Tester, Generic[B]):
    """One bolt, fed by hand.

    ``bolt`` is a class, or a line of a topology (``WordCount.count``) with its config and the streams that it reads.
    ``conf`` holds what stands in the topology's config. ``sources`` are the names that tuples may come from, where no
    line says them; a mapping gives the fields of each: ``{"orders": ["user", "amount"]}``.
    ``readers`` are the bolts that read each of its streams, and their number of tasks, for a bolt that asks for task
    ids. Raises what ``initialize`` makes the run raise, and BadInput for arguments that cannot be.
    """

    def __init__(
        self,
        bolt: type[B] | ComponentSpec,
        *,
        conf: Mapping[str, Any] | None = None,
        sources: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        readers: Mapping[str, int] | None = None,
        task_index: int = 0,
        task_count: int = 1,
        seed: int = 0,
        clock: ManualClock | None = None,
        raise_errors: bool = True,
    ) -> None:
        spec = _bolt_spec(bolt)
        _check_tester_options(conf, sources, readers, task_index, task_count)
        name = _name_of(spec)
        self._name = name
        self._fields = _sources_of(spec, sources)
        if readers is None:
            readers = {"its_reader" if "reader" in {name, *self._fields} else "reader": 1}
        topology = _around(spec, name, self._fields, readers, task_count, conf or {})
        whole = make_plan(checked(topology, imported=False), 1)
        # The bolt is alone on worker 0; whatever it talks to is on worker 1, which is this object.
        tasks = tuple(
            replace(task, worker=int((task.component, task.index) != (name, task_index))) for task in whole.tasks
        )
        plan = Plan(topology, 2, tasks, whole.routes)
        self._sources = {source: plan.tasks_of(source)[0].task_id for source in self._fields}
        self._is_line = sources is None and bool(spec.inputs)
        self._trees = PendingSet(next(iter(self._sources.values())), 1, 1.0)
        self._edges = random.Random(seed)
        self._rows: dict[int, list[Any]] = {}
        self._ledger = AckLedger()
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
    def dead_letters(self) -> list[tuple[list[Any], str]]:
        """The values and the reason of each ``dead_letter``, in order; these tuples are in ``failed``, too."""
        return self._dead_letters[self._name]

    @property
    def metrics(self) -> Mapping[str, float]:
        """What the bolt reported by ``report_metric``."""
        return self._live(self._name)[0].run.stats.metrics

    def emitted(self, stream: str = DEFAULT_STREAM) -> list[list[Any]]:
        """Return the values emitted on one stream, in order."""
        return self._emitted(self._name, stream)

    def give(self, *rows: Any, source: str | None = None, stream: str | None = None) -> None:
        """Feed tuples and work them off.

        A row is a list of values, a ``Tuple``, or a bare value for one field. It comes from the first of ``sources``
        on the default stream; a ``Tuple`` from its own component and stream, where it names them.

        Raises BadInput for a row that does not fit the fields, where they are known; what ``process`` raised, after all
        rows were worked off; with ``raise_errors=False`` see ``errors``.
        """
        self._check_open()
        fitting: list[tuple[str, str, list[list[Any]]]] = []
        for (component, name), alike in itertools.groupby(rows, lambda row: self._origin(row, source, stream)):
            fields = self._fields[component].get(name)
            values = [travelling(_row(row, component, name, fields), component, name, fields or ()) for row in alike]
            fitting.append((component, name, values))
        # Only now, when all rows are known to fit: a call that is refused gives nothing.
        runs = [self._under_way(*alike) for alike in fitting]
        if runs:
            self._far.arriving.append(Incoming(runs, [], [], [], worker=1))
        self.run()

    def _under_way(self, component: str, stream: str, values: list[list[Any]]) -> Run:
        """Open a tree for each row; return the run of rows."""
        first = self._trees.next_root
        self._trees.next_root = end = first + len(values) * STEP
        roots = list(range(first, end, STEP))
        self._rows.update(zip(roots, map(copy.deepcopy, values), strict=True))
        edges = [self._edges.getrandbits(64) for _ in roots]
        self._ledger.open.update(zip(roots, edges, strict=True))
        return Run(self._target, self._sources[component], stream, False, roots, edges, values)

    def _origin(self, row: Any, source: str | None, stream: str | None) -> tuple[str, str]:
        """Return a row's component and stream. Raises BadInput."""
        made = isinstance(row, Tuple)
        component = source or (made and row.component) or next(iter(self._sources))
        if component not in self._sources:
            raise BadInput(f"There is no source {component!r}. There are: {', '.join(map(repr, self._sources))}.")
        streams = self._fields[component]
        usual = DEFAULT_STREAM if DEFAULT_STREAM in streams else next(iter(streams))
        name = stream or (row.stream if made else usual)
        if not isinstance(name, str):
            raise WrongArgument(f"stream= is {name!r}: give the stream's name.")
        if self._is_line and name not in streams:
            raise BadInput(
                f"{self._name} reads no stream {name!r} of {component!r}. It reads: {', '.join(map(repr, streams))}."
            )
        return component, name

    def _still_open(self) -> tuple[str, str]:
        rows = [*self._rows.values()]
        which = f": {', '.join(f'{row!r:.100}' for row in rows[:3])}{', ...' * (len(rows) > 3)}"
        return (_counted(len(rows), "tuple"), which) if rows else ("", "")

    def _remedy(self, raised: Raised) -> str:
        error, fields = raised.error, self._fields
        unknown = [name for name, streams in fields.items() if streams.get(DEFAULT_STREAM, ()) is None]
        if not unknown or not isinstance(error, AttributeError) or not isinstance(error.obj, list):
            return ""
        return (
            f"The tester does not know the fields of {unknown[0]!r}, so tup.values has no {error.name!r}. Name them, "
            f'in the order of the values: BoltTester(..., sources={{"{unknown[0]}": ["{error.name}", ...]}}), or give '
            "the line of a topology, which brings them: BoltTester(YourTopology.your_bolt)."
        )

    def tick(self) -> None:
        """Call ``process_tick`` now, whatever ``topology.tick.tuple.freq.secs`` says."""
        self._check_open()
        live = self._live(self._name)[0]
        with self._noting_the_end():
            self._loop.tick(live, live.conf[TICK_PERIOD] or 0.0)
        self.run()

    def _settled(self, outgoing: Outgoing) -> None:
        """Apply acks and failures as a spout's ledger does.

        Readers ack at once what they are sent.
        """
        for root in self._ledger.fail(outgoing.fails):
            values, cause = self._rows.pop(root), outgoing.causes.get(root)
            self._failed[self._name].append(values)
            if cause is not None and cause.to_dead_letters:
                self._dead_letters[self._name].append((values, cause.text))
        sent: list[tuple[Root, int]] = []
        for run in outgoing.runs:
            for root, edge in zip(run.roots, run.edges, strict=True):
                sent += zip(root, edge, strict=True) if run.multi else [(root, edge)]
        deltas = [(one, edge) for root, edge in sent for one in each_root([root])]
        done = self._ledger.apply([*deltas, *zip(outgoing.roots, outgoing.deltas, strict=True)])
        self._acked[self._name] += [self._rows.pop(root) for root in done]


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

    @classmethod
    def takes_dead_letters(cls, kwargs: Mapping[str, Any]) -> bool:
        return True


class _Reader(Bolt):
    """Stands where tuples go to. Never built, like its spout."""

    def process(self, tup: Tuple) -> None: ...


def _around(
    spec: ComponentSpec,
    name: str,
    sources: GivenFields,
    readers: Mapping[str, int],
    tasks: int,
    config: Mapping[str, Any],
) -> TopologySpec:
    """Return a bolt with sources, and readers of each stream."""
    outputs = spec.outputs if spec.outputs is not None else getattr(spec.cls, "outputs", None)
    read = [StreamId(source, stream) for source, streams in sources.items() for stream in streams]
    inputs = tuple(BoltInput(stream, Grouping.SHUFFLE) for stream in read)
    bolt = ComponentDef(name, BOLT, spec.cls, outputs, inputs, tasks, spec.config, spec.kwargs)
    before = [
        ComponentDef(source, SPOUT, _Nobody, [_stream(*named) for named in streams.items()], (), 1, {}, {})
        for source, streams in sources.items()
    ]
    reads = tuple(BoltInput(StreamId(name, stream.name), None) for stream in bolt.streams())
    after = [ComponentDef(reader, BOLT, _Reader, None, reads, count, {}, {}) for reader, count in readers.items()]
    return TopologySpec("Test", (*before, bolt, *(after if reads else [])), dict(config))


def _stream(name: str, fields: Sequence[str] | None) -> Stream:
    return Stream(["value"] if fields is None else fields, name=name)


def _name_of(spec: ComponentSpec) -> str:
    return as_name(spec.name or spec.attribute or spec.cls.__name__.lower())


def _sources_of(spec: ComponentSpec, given: Sequence[str] | Mapping[str, Sequence[str]] | None) -> GivenFields:
    """Return what a bolt reads: as it was given, else as its line says."""
    if isinstance(given, Mapping):
        return {source: {DEFAULT_STREAM: fields} for source, fields in given.items()}
    if given is not None:
        return {source: {DEFAULT_STREAM: None} for source in given}
    found: dict[str, dict[str, Sequence[str] | None]] = {}
    for source, _ in input_pairs(spec.inputs):
        line = source.spec if isinstance(source, OutputRef) else source
        fields: Sequence[str] | None = None
        name = source.component if isinstance(source, StreamId) else source
        if line is spec or (not isinstance(line, ComponentSpec) and as_name(name) == _name_of(spec)):
            continue  # its own stream: it cannot be given
        if isinstance(line, ComponentSpec):
            name = _name_of(line)
            outputs = line.outputs if line.outputs is not None else getattr(line.cls, "outputs", None)
            fields = next((own.fields for own in declared_streams(outputs) if own.name == source_stream(source)), None)
        found.setdefault(as_name(name), {})[source_stream(source)] = fields
    return found or {"source": {DEFAULT_STREAM: None}}


def _bolt_spec(given: object) -> ComponentSpec:
    """Return the line of a topology that a tester was given. Raises WrongArgument."""
    if isinstance(given, Bolt):
        name = type(given).__name__
        raise WrongArgument(
            f"{given!r} is an object, and the tester makes its own, as every worker does: BoltTester({name}). What it "
            "is to know comes to its `initialize`: give conf=, or a line of a topology with its config."
        )
    cls = given.cls if isinstance(given, ComponentSpec) else given
    if isinstance(cls, type) and issubclass(cls, Spout):
        raise WrongArgument(f"{cls.__name__} is a spout: test it in a topology, with streamlet.testing.TopologyTester.")
    if isinstance(cls, type) and issubclass(cls, Bolt) and cls.commits_epochs:
        # Only its topology's tester has one that stands for it: this one would connect, and write.
        raise WrongArgument(
            f"{cls.__name__} writes to Kafka, and a BoltTester runs the bolt itself. Test it in its topology: "
            "TopologyTester(YourTopology, {...}) writes nothing, and written(bolt) has the records."
        )
    if isinstance(given, ComponentSpec):
        return given
    if isinstance(cls, type) and issubclass(cls, Bolt):
        return cls.spec()
    raise WrongArgument(f"{given!r} is neither a class that inherits from streamlet.Bolt nor a line of a topology.")


def _check_tester_options(
    conf: object, sources: object, readers: object, task_index: object, task_count: object
) -> None:
    if conf is not None and not isinstance(conf, Mapping):
        raise WrongArgument(f"conf= is {conf!r}: give a dict, as a topology's config is one.")
    if sources is None:
        sources = ("source",)
    # A str is a sequence, too: of its letters.
    if isinstance(sources, str) or not isinstance(sources, (Sequence, Mapping)) or not sources:
        example = sources if sources and isinstance(sources, str) else "source"
        raise WrongArgument(f'sources= is {sources!r}: give the names of components, ("{example}",).')
    for source in sources:
        if not isinstance(source, str):
            raise WrongArgument(f"sources= holds {source!r}, which is not the name of a component.")
    if len({*sources}) < len(sources):
        raise WrongArgument(f"sources= is {sources!r}: name each component once.")
    for source, fields in sources.items() if isinstance(sources, Mapping) else ():
        if isinstance(fields, str) or not isinstance(fields, Sequence):
            raise WrongArgument(f'sources= says {fields!r} of {source!r}: give the names of its fields, ["value"].')
    if readers is not None and not isinstance(readers, Mapping):
        raise WrongArgument(f'readers= is {readers!r}: give each reader\'s number of tasks, {{"store": 2}}.')
    if isinstance(task_count, bool) or not isinstance(task_count, int) or task_count < 1:
        raise WrongArgument(f"task_count= is {task_count!r}: give a whole number of at least 1.")
    if isinstance(task_index, bool) or not isinstance(task_index, int) or not 0 <= task_index < task_count:
        raise WrongArgument(
            f"task_index= is {task_index!r}: the tasks of a bolt are counted from 0, and task_count= is {task_count}."
        )


def _check_stream(component: ComponentDef, stream: object) -> None:
    """Raise BadInput for a stream that a component does not declare."""
    names = [declared.name for declared in component.streams()]
    if stream not in names:
        listed = ", ".join(map(repr, names)) or "none"
        raise BadInput(f"{component.name} declares no stream {stream!r}. It declares: {listed}.")


# -- a whole topology ----------------------------------------------------------------------------------------


class TopologyTester(Tester):
    """A whole topology, with lists in place of some spouts.

    ``given`` names them. A row is a list of values, or a bare value for one field. Rows that fail are replayed as a
    ReliableSpout does, after a back-off on the tester's clock, and given up after ``max_fails`` replays.
    ``settings`` are those of ``streamlet.run``. Nothing flows before the first ``run``, ``give`` or ``advance``.

    It writes nothing to Kafka: a KafkaBolt, a DataFrameSink and any other bolt with ``kept_in_tests`` is not built; its
    records are ``written``, and its tuples acked. With ``topology.delivery: exactly-once`` it runs at least once, for
    nothing is committed.
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
        check_topology(topology, "TopologyTester")
        wanted = settings_given(settings)
        spec = topology.__topology__
        self._lists = {name: deque(rows) for name, rows in _given_rows(spec, given).items()}
        components = tuple(
            replace(component, cls=_GivenSpout, kwargs=_given_kwargs(component, self._lists[component.name], max_fails))
            if component.name in self._lists
            else component
            for component in spec.components
        )
        if any(getattr(component.cls, "commits_epochs", False) for component in components):
            wanted.append((DELIVERY, AT_LEAST_ONCE, FROM_PYTHON))
        request = make_request(replace(spec, components=components), wanted, backend="inline", writes=False)
        # Replaced after the check: what it says of the bolts is said of those that the user wrote.
        own = [_keeping(component, request.overrides.get(component.name, {})) for component in components]
        self._written = {bolt.name: bolt.kwargs["records"] for bolt in own if bolt.cls is _Keeper}
        overrides = {name: given for name, given in request.overrides.items() if name not in self._written}
        plan = make_plan(replace(request.topology, components=tuple(own)), 1)
        super().__init__(plan, request.conf, NoLinks(), seed, clock, raise_errors, overrides)

    @property
    def open_trees(self) -> int:
        """How many messages of spouts are neither acked nor failed."""
        return self._loop.ledgers.pending()

    def give(self, spout: str, *rows: Any, stream: str | None = None) -> None:
        """Add rows to a spout that is a list, and run. Raises as ``run``.

        ``stream`` None: the default one, or that of a row that is a ``Tuple``.
        """
        self._check_open()
        if spout not in self._lists:
            raise BadInput(f"The spout {spout!r} was not given as a list: TopologyTester(..., {{{spout!r}: []}}).")
        self._lists[spout].extend([_message(self._definition(spout), row, stream) for row in rows])
        self.run()

    def written(self, bolt: str) -> list[Any]:
        """Return what a bolt would have written, in order: nothing was.

        Of a KafkaBolt the records, each with ``topic``, ``key``, ``value`` (bytes), ``headers``, ``partition`` and
        ``timestamp_ms``; of a DataFrameSink the rows, as dicts.
        """
        self._definition(bolt)
        if bolt not in self._written:
            those = ", ".join(map(repr, self._written)) or "none"
            raise BadInput(
                f"{bolt} writes nothing that a test keeps: a KafkaBolt or a DataFrameSink does, and a class with "
                f"kept_in_tests. Those that do: {those}. What it emits is in emitted({bolt!r})."
            )
        return [*self._written[bolt]]

    def _rows_left(self) -> int:
        return sum(map(len, self._lists.values()))

    def _still_open(self) -> tuple[str, str]:
        count = self.open_trees
        return (_counted(count, "message", " of a spout" if count == 1 else " of spouts") if count else "", "")

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

    def dead_letters(self, spout: str) -> list[tuple[list[Any], str]]:
        """Return values and reason of each row sent to the dead letters.

        ``given_up`` has them, too.
        """
        return self._of_spout(spout, self._dead_letters)

    def instances(self, component: str) -> list[Any]:
        """Return the component's objects, in the order of their task index."""
        self._definition(component)
        return [live.component for live in self._live(component)]

    def status(self, component: str) -> ComponentStatus:
        """Return a component's counters and metrics over all its tasks."""
        self._definition(component)
        self._loop.ledgers.note_open()
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


class _Keeper(Bolt):
    """Stands for a bolt that writes outside: keeps what that would write, and acks."""

    named_values = True  # the functions of a KafkaBolt may read fields by their names

    def __init__(self, make: KeptInTests, records: list[Any]) -> None:
        self._make = make
        self._records = records

    def bind(self, port: BoltPort) -> None:
        super().bind(port)
        self._complain = port.complain

    def process_batch(self, batch: Batch) -> None:
        records, failed = self._make(batch)
        self._records += records
        for at, error in failed.items():
            self.fail(batch.tuples[at], error)
            self._complain(error, batch.tuples[at])


def _keeping(bolt: ComponentDef, overrides: Mapping[str, Any]) -> ComponentDef:
    """Return a bolt as it stands in a test: what writes outside is replaced."""
    if bolt.kind != BOLT:
        return bolt
    kwargs = bolt.cls.with_overrides(bolt.kwargs, overrides)
    make = bolt.cls.kept_in_tests(kwargs, bolt.name)
    return bolt if make is None else replace(bolt, cls=_Keeper, kwargs={"make": make, "records": []})


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

    def __init__(self, rows: deque[_Message], max_fails: int | None, keeps_dead_letters: bool) -> None:
        self._rows = rows
        vars(self)["max_fails"] = max_fails

    def next_tuple(self) -> None:
        if self._rows:
            message = self._rows.popleft()
            stream = None if message.stream == DEFAULT_STREAM else message.stream
            self.emit(message.values, tup_id=message, stream=stream)

    def caught_up(self) -> bool:
        return not self._rows and not self.has_unfinished()

    @classmethod
    def takes_dead_letters(cls, kwargs: Mapping[str, Any]) -> bool:
        return bool(kwargs["keeps_dead_letters"])


def _given_kwargs(spout: ComponentDef, rows: deque[_Message], max_fails: int | None) -> dict[str, Any]:
    # A list stands for a spout, and keeps dead letters where that one does. Elsewhere the bolt is refused, as in a run.
    keeps = issubclass(spout.cls, Spout) and spout.cls.takes_dead_letters(spout.kwargs)
    return {"rows": rows, "max_fails": max_fails, "keeps_dead_letters": keeps}


def _given_rows(topology: TopologySpec, given: object) -> dict[str, list[_Message]]:
    """Return the rows of each spout that is given as a list. Raises BadInput."""
    if given is not None and not isinstance(given, Mapping):
        raise WrongArgument(f'given= is {given!r}: give the rows of each spout, {{"lines": ["to be", "or not"]}}.')
    spouts = {component.name: component for component in topology.components if component.kind == SPOUT}
    lists: dict[str, list[_Message]] = {}
    bolts = {component.name for component in topology.components if component.kind == BOLT}
    for name, rows in (given or {}).items():
        if name in bolts:
            raise BadInput(
                f"{name} is a bolt of {topology.name}, and lists stand for spouts: {', '.join(spouts) or 'none'}. What "
                f"a bolt emits is in emitted({name!r}), and what a KafkaBolt would write in written({name!r})."
            )
        if name not in spouts:
            raise BadInput(f"{topology.name} has no spout {name!r}. It has: {', '.join(spouts) or 'none'}.")
        if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
            raise WrongArgument(f"The rows of {name!r} are {rows!r}: give a list of rows, [{rows!r}].")
        lists[name] = [_message(spouts[name], row, None) for row in rows]
    return lists


def _message(spout: ComponentDef, row: Any, stream: str | None) -> _Message:
    """Return a row with its stream. Raises BadInput for one that the spout does not declare."""
    name = stream or (row.stream if isinstance(row, Tuple) else DEFAULT_STREAM)
    if name != DEFAULT_STREAM:  # what the default stream lacks, emit says itself
        _check_stream(spout, name)
    fields = next((declared.fields for declared in spout.streams() if declared.name == name), None)
    return _Message(_row(row, spout.name, name, fields), name)


def _row(given: Any, component: str, stream: str, fields: Sequence[str] | None) -> list[Any]:
    """Return the values of a row. Raises BadInput for one that does not fit the fields.

    ``fields`` None: they are not known.
    """
    is_list = isinstance(given, (list, tuple, Tuple))
    values = [*given.values] if isinstance(given, Tuple) else [*given] if is_list else [given]
    if fields is None or len(values) == len(fields):
        return values
    many, remedy = _counted(len(values), "value", verb=False), "Give a list with a value for each, in this order"
    has = f"has {many}"
    if isinstance(given, Mapping):
        has = f"is a dict, which is {many}"
        remedy += f": [{', '.join(f'row[{name!r}]' for name in fields)}]"
    elif not is_list:
        has = f"is {many}"
    shown = values if isinstance(given, Tuple) else given
    raise BadInput(
        f"The row {shown!r:.200} {has}, and {component!r} emits {len(fields)} on its stream {stream!r}: "
        f"{', '.join(fields)}. {remedy}."
    )


def _counted(count: int, what: str, of: str = "", verb: bool = True) -> str:
    """Return "1 tuple is" or "2 tuples are"."""
    said = f"{count} {what}{'' if count == 1 else 's'}{of}"
    return f"{said} {'is' if count == 1 else 'are'}" if verb else said
