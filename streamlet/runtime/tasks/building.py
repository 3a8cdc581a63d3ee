"""From plan to live tasks: instances, contexts, emitters. The only place where user classes are instantiated."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from streamlet.base.clock import Clock
from streamlet.base.pools import NO_CALLS, PoolCalls
from streamlet.components.bolt import Bolt
from streamlet.components.component import COMPONENT_LOGGER, Component
from streamlet.components.context import SharedFiles, TopologyContext
from streamlet.components.spout import Spout
from streamlet.model.plan import Plan, TaskPlan
from streamlet.model.settings import longest_wait_s, parse_setting
from streamlet.model.stream import Stream, StreamId
from streamlet.model.time_outs import first_time_out, spouts_behind
from streamlet.model.topology import ComponentDef
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.emitter import Emitter, Outbox, StreamRoutes, Target
from streamlet.runtime.tasks.failure_causes import FailureCauses
from streamlet.runtime.tasks.in_hand import UNWATCHED, CallWatch, InHand, Key
from streamlet.runtime.tasks.named_values import tuple_classes
from streamlet.runtime.tasks.other_threads import OtherThreads, TaskCalls
from streamlet.runtime.tasks.shuffle import Shuffle
from streamlet.runtime.tasks.spout_task import SpoutTask
from streamlet.runtime.tasks.untracked_counts import TaskCells
from streamlet.runtime.tasks.user_errors import Defined
from streamlet.tracking.shared_roots import Root
from streamlet.tracking.window import PendingWindow

ReportFrom = Callable[[str, int, BaseException, Any, Defined], None]
"""(component, task id, error, tuple or None, called function): an error of the user's code."""


@dataclass
class WorkerContext:
    """Everything that the tasks of one worker share."""

    plan: Plan
    worker: int
    epoch: int
    topology_id: str
    conf: Mapping[str, Any]
    clock: Clock
    rng: random.Random
    report: ReportFrom
    wake: Callable[[], None]
    explain: Callable[[str], None] = lambda why: None
    """Takes why tuples failed though nothing was raised: the end of the run may name it."""
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    acks: dict[Root, int] = field(default_factory=dict)
    fails: list[int] = field(default_factory=list)
    causes: FailureCauses = field(default_factory=FailureCauses)
    resting: set[int] = field(default_factory=set)
    """Bolt tasks that want no tuples for now (``BoltTask.rest``)."""
    shuffles: list[Shuffle[Outbox]] = field(default_factory=list)
    """Shuffles of tasks here to tasks of several workers."""
    run_began: bool = False
    """Whether all workers had stood before this one was started."""
    in_hand: InHand = field(default_factory=InHand)
    page: Any = None
    """The memory of ``in_hand`` with room for ``UntrackedCounts`` behind; None: of this process."""
    crashes: Mapping[int, Mapping[Key, int]] = field(default_factory=dict)
    """Spout task -> message -> how often its worker died at work on it, while the spout lived there too."""
    tells_given: bool = True
    """Whether an exception that a bolt gives to ``fail`` is reported. Testers have ``fail_reasons`` for it."""
    built: Callable[[LiveTask], None] = lambda live: None
    """Called with each task before its ``initialize``: tests put their recorders in front of its ``emit``."""
    finish_pools: Callable[[], PoolCalls] = lambda: NO_CALLS
    """Lets thread pools of this process make their calls at a clean end; returns those that they have not made."""
    tell: Callable[[str, str, str, int], None] = lambda level, text, component, task: None
    """Shows a line (level, text, component, task id or 0) to the person who watches the run."""


@dataclass
class LiveTask:
    """A task with its outboxes, which the loop empties after it ran.

    ``conf`` is the run's with the component's own settings over it.
    """

    plan: TaskPlan
    component: Component
    conf: Mapping[str, Any]
    context: TopologyContext
    boxes: list[Outbox]
    task: SpoutTask | BoltTask


def component_names(tasks: Iterable[LiveTask]) -> dict[int, str]:
    """Return the name of each component by the id of its object."""
    return {id(live.component): live.plan.component for live in tasks}


def build_task(
    shared: WorkerContext,
    task: TaskPlan,
    other_threads: OtherThreads,
    cells: TaskCells | None = None,
    watch: CallWatch = UNWATCHED,
    emitted_much: Callable[[Collection[Outbox]], bool] = lambda boxes: False,
) -> LiveTask:
    """Instantiate and bind one task; ``initialize`` is not called yet.

    ``cells`` outlive the process. ``emitted_much`` tells whether what waits in outboxes is as much as one turn may
    emit.
    """
    definition = shared.plan.topology.component(task.component)
    own = {key: parse_setting(key, value, f"{task.component}'s config") for key, value in definition.config.items()}
    conf = {**shared.conf, **own, "topology.name": shared.plan.topology.name}
    kwargs = definition.cls.with_overrides(definition.kwargs, shared.overrides.get(task.component, {}))
    component = definition.cls(**kwargs)
    component.logger = logging.getLogger(f"{COMPONENT_LOGGER}.{task.component}")
    # Long: the parts of a task in the order in which they need each other, an argument a line.
    # Each task draws from a generator of its own: two tasks never share edge ids, nor does a restarted one.
    rng = random.Random(shared.rng.getrandbits(128))
    boxes: dict[int, Outbox] = {}
    emitter = Emitter(task.component, [_routes(shared, task, stream, boxes, rng) for stream in definition.streams()])
    context = _context(shared, task, definition, rng)
    component.bind_context(conf, context)
    calls = TaskCalls(other_threads, task.component, cells, task.task_id)
    run: SpoutTask | BoltTask
    if isinstance(component, Spout):
        run = SpoutTask(
            component,
            task.task_id,
            shared.epoch,
            emitter,
            rng.getrandbits,
            shared.clock,
            tracked=conf["topology.acker.executors"] > 0,
            window=PendingWindow(conf["topology.max.spout.pending"], longest_wait_s(conf)),
            timeout_s=conf["topology.message.timeout.secs"],
            crashes=shared.crashes.get(task.task_id, {}),
            most_crashes=conf["streamlet.tuple.crashes.max"],
            calls=calls,
            cells=cells,
            by_batch=_readers_take_batches(shared.plan, task.component),
            may_join=_is_acked_at_once(shared.plan, task.component),
            emitted_much=partial(emitted_much, boxes.values()),
        )
    else:
        assert isinstance(component, Bolt)
        sources = dict(context.tasks)
        run = BoltTask(
            component,
            emitter,
            shared.acks,
            shared.fails,
            rng.getrandbits,
            sources,
            shared.clock,
            partial(shared.report, task.component, task.task_id),
            task_id=task.task_id,
            first_failures=conf["streamlet.first.failures.max"],
            named=tuple_classes(type(component), context.sources),
            fields={
                (name, stream): own for name, streams in context.sources.items() for stream, own in streams.items()
            },
            boxes=boxes.values(),
            in_hand=shared.in_hand,
            calls=calls,
            cells=cells,
            tells_given=shared.tells_given,
            resting=shared.resting,
            causes=shared.causes,
            without_dead_letters=_without_dead_letters(shared),
            longest_wait_s=_shortest_target_s(shared, task.component),
            watch=watch,
            emitted_much=partial(emitted_much, boxes.values()),
        )
    return LiveTask(task, component, conf, context, list(boxes.values()), run)


def _shortest_target_s(shared: WorkerContext, bolt: str) -> float:
    """Return how long tuples may wait for a bolt."""
    # Rule: by the settings of the spouts, whose windows are steered by them. A target in a spout's config is not in its
    # bolts', and their calls would take a share of the time-out.
    targets = []
    for spout in spouts_behind(shared.plan.topology, bolt):
        own = {key: parse_setting(key, value, f"{spout.name}'s config") for key, value in spout.config.items()}
        targets.append(longest_wait_s({**shared.conf, **own}))
    return min(targets, default=inf)


def _without_dead_letters(shared: WorkerContext) -> dict[int, str]:
    """Return the spouts that keep no dead letters, by task."""
    found: dict[int, str] = {}
    for task in shared.plan.spout_tasks:
        spout = shared.plan.topology.component(task.component)
        kwargs = spout.cls.with_overrides(spout.kwargs, shared.overrides.get(task.component, {}))
        if not (issubclass(spout.cls, Spout) and spout.cls.takes_dead_letters(kwargs)):
            found[task.task_id] = task.component
    return found


def takes_batches(plan: Plan, component: str) -> bool:
    """Tell whether a component is a bolt that takes batches."""
    cls = plan.topology.component(component).cls
    return issubclass(cls, Bolt) and cls.takes_batches()


def _readers_take_batches(plan: Plan, component: str) -> bool:
    readers = {route.target for route in plan.routes if route.source.component == component}
    return bool(readers) and all(takes_batches(plan, reader) for reader in readers)


def _is_acked_at_once(plan: Plan, component: str) -> bool:
    """Tell whether every bolt behind a spout acks and fails by itself."""
    # Rule: trees are tracked as a set only where no bolt acks by hand. One that collects all but a few of the tuples
    # that may be open would wait for the few that only its own acks can let in, for a set is open until its last tuple
    # is acked.
    bolts: dict[str, None] = {}
    todo = [component]
    while todo:
        source = todo.pop()
        readers = [route.target for route in plan.routes if route.source.component == source]
        todo += [reader for reader in readers if reader not in bolts]
        bolts.update(dict.fromkeys(readers))
    classes = [plan.topology.component(bolt).cls for bolt in bolts]
    return all(issubclass(cls, Bolt) and cls.acks_at_once() for cls in classes)


def _context(shared: WorkerContext, task: TaskPlan, definition: ComponentDef, rng: random.Random) -> TopologyContext:
    sources: dict[str, dict[str, tuple[str, ...]]] = {}
    for subscription in definition.inputs:
        component, name = subscription.source
        fields = next(s.fields for s in shared.plan.topology.component(component).streams() if s.name == name)
        sources.setdefault(component, {})[name] = fields
    first = first_time_out(shared.plan.topology, task.component, shared.conf)
    return TopologyContext(
        topology_name=shared.plan.topology.name,
        topology_id=shared.topology_id,
        component_name=task.component,
        task_id=task.task_id,
        task_index=task.index,
        task_count=len(shared.plan.tasks_of(task.component)),
        worker=shared.worker,
        epoch=shared.epoch,
        run_began=shared.run_began,
        tasks={other.task_id: other.component for other in shared.plan.tasks},
        clock=shared.clock,
        wake=shared.wake,
        uniform=rng.random,
        first_time_out_s=None if first is None else first.seconds,
        outputs={stream.name: stream.fields for stream in definition.streams()},
        sources=sources,
        shared=SharedFiles({name: Path(path) for name, path in (shared.conf.get("streamlet.shared") or {}).items()}),
    )


def _routes(
    shared: WorkerContext, task: TaskPlan, stream: Stream, boxes: dict[int, Outbox], rng: random.Random
) -> StreamRoutes:
    targets = []
    for route in shared.plan.routes_of(StreamId(task.component, stream.name)):
        consumers = shared.plan.tasks_of(route.target)
        own = tuple(boxes.setdefault(c.task_id, Outbox(task.task_id, c.task_id, stream.name)) for c in consumers)
        local = tuple(boxes[c.task_id] for c in consumers if c.worker == shared.worker)
        key = tuple(stream.fields.index(name) for name in route.grouping.field_names)
        order: Sequence[Outbox] = ()
        follows_load = not shared.conf["topology.disable.loadaware.messaging"]
        if follows_load and route.grouping.kind in ("shuffle", "none") and len({c.worker for c in consumers}) > 1:
            shuffle = Shuffle([(c.worker, boxes[c.task_id]) for c in consumers], shared.worker)
            shared.shuffles.append(shuffle)
            order = shuffle.order
        targets.append(Target(route.grouping, key, own, local, order))
    return StreamRoutes(stream, targets, rng.random)
