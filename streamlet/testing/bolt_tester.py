"""One bolt, fed by hand: a worker with one task.

The tuples that it is given come over a link, as if from a spout of another worker, and its acks and failures leave over
that link.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from streamlet.base.clock import ManualClock
from streamlet.base.errors import BadInput, WrongArgument
from streamlet.components.bolt import Bolt
from streamlet.components.spout import Spout
from streamlet.components.tuples import Tuple
from streamlet.model.grouping import Grouping
from streamlet.model.plan import TICK_PERIOD, TIME_OUT, Plan, make_plan
from streamlet.model.settings import resolve
from streamlet.model.spec import BOLT, SPOUT, ComponentSpec, OutputRef, as_name, input_pairs, source_stream
from streamlet.model.stream import DEFAULT_STREAM, Stream, StreamId
from streamlet.model.topology import BoltInput, ComponentDef, TopologySpec, declared_streams
from streamlet.model.validate import checked
from streamlet.runtime.links.links import NoLinks
from streamlet.runtime.tasks.emitter import Incoming, Outgoing, Run
from streamlet.runtime.tasks.values import travelling
from streamlet.testing.given import counted, row_values
from streamlet.testing.tester import KeptLetter, Raised, Tester, said_of
from streamlet.tracking.acker import AckLedger
from streamlet.tracking.pending import PendingSet
from streamlet.tracking.roots import STEP
from streamlet.tracking.shared_roots import Root, each_root

B = TypeVar("B", bound=Bolt)

GivenFields = Mapping[str, Mapping[str, Sequence[str] | None]]
"""Component -> stream -> its fields; None: nobody named them."""


class BoltTester(Tester, Generic[B]):
    """One bolt, fed by hand.

    ``bolt`` is a class, or a line of a topology (``WordCount.count``) with its own config and the streams that it
    reads. ``conf`` holds what stands in the topology's config (``WordCount.config``).
    ``sources`` are the names that tuples may come from, where no line says them; a mapping gives the fields of each:
    ``{"orders": ["user", "amount"]}``.
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
        # The time-out is that of the topology it will stand in: no tick is too seldom here.
        whole = make_plan(checked(topology, imported=False, settings={TIME_OUT: math.inf}), 1)
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
    def fail_reasons(self) -> list[str]:
        """Why each of ``failed`` did, in the same order: ``ValueError: why``, or a text; empty: nothing was said."""
        return self._fail_reasons[self._name]

    @property
    def dead_letters(self) -> list[KeptLetter]:
        """The values and the reason of each ``dead_letter``, in order; these tuples are in ``failed``, too."""
        return self._dead_letters[self._name]

    @property
    def metrics(self) -> Mapping[str, float]:
        """What the bolt reported by ``report_metric``."""
        return self._live(self._name)[0].task.stats.metrics

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
            values = [
                travelling(row_values(row, component, name, fields), component, name, fields or ()) for row in alike
            ]
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
        return (counted(len(rows), "tuple"), which) if rows else ("", "")

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
            self._fail_reasons[self._name].append(said_of(cause))
            if cause is not None and cause.to_dead_letters:
                self._dead_letters[self._name].append(KeptLetter(values, said_of(cause), 1))
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
