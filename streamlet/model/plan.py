"""From topology and worker count to tasks and routes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamlet.model.delivery import with_epochs
from streamlet.model.grouping import Grouping
from streamlet.model.spec import BOLT, SPOUT
from streamlet.model.stream import Stream, StreamId
from streamlet.model.topology import ComponentDef, TopologySpec

TICK_PERIOD = "topology.tick.tuple.freq.secs"
TIME_OUT = "topology.message.timeout.secs"


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task: dense id from 1 in declaration order, its component, its place in it, its worker."""

    task_id: int
    component: str
    index: int
    worker: int


@dataclass(frozen=True, slots=True)
class Route:
    """One consumer of one stream."""

    source: StreamId
    target: str
    grouping: Grouping


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything the placement decides. Equal inputs give equal plans, in every process."""

    topology: TopologySpec
    workers: int
    tasks: tuple[TaskPlan, ...]
    routes: tuple[Route, ...]

    def tasks_of(self, component: str) -> tuple[TaskPlan, ...]:
        """Return the tasks of a component, by index."""
        return tuple(task for task in self.tasks if task.component == component)

    def tasks_on(self, worker: int) -> tuple[TaskPlan, ...]:
        """Return the tasks placed on a worker."""
        return tuple(task for task in self.tasks if task.worker == worker)

    @property
    def spout_tasks(self) -> tuple[TaskPlan, ...]:
        """The tasks of spouts: they hold the ledgers."""
        return tuple(task for task in self.tasks if self.topology.component(task.component).kind == SPOUT)

    def spout_workers(self) -> frozenset[int]:
        """Return the workers that hold spout tasks, and so ledgers."""
        return frozenset(task.worker for task in self.spout_tasks)

    @property
    def bolt_tasks(self) -> tuple[TaskPlan, ...]:
        """Every task that is not a spout's."""
        return tuple(task for task in self.tasks if self.topology.component(task.component).kind != SPOUT)

    def depths(self) -> dict[str, int]:
        """Return each component's distance from the spouts, the longest way.

        Edges that close a cycle count for nothing.
        """
        sources: dict[str, list[str]] = {component.name: [] for component in self.topology.components}
        for route in self.routes:
            sources[route.target].append(route.source.component)
        depths: dict[str, int] = {}
        for name in self._spouts_first():
            depths[name] = 1 + max((depths[source] for source in sources[name] if source in depths), default=-1)
        return depths

    def _spouts_first(self) -> list[str]:
        """Return each component before those that read it.

        An edge that closes a cycle is left out.
        """
        after: dict[str, list[str]] = {component.name: [] for component in self.topology.components}
        for route in self.routes:
            after[route.source.component].append(route.target)
        # Depth first: a component is done when everything that reads it is. Only an edge to one that is entered and not
        # done closes a cycle. From the spouts on, so that it is the edge that goes back.
        done: list[str] = []
        entered: set[str] = set()
        for component in sorted(self.topology.components, key=lambda component: component.kind != SPOUT):
            way = [] if component.name in entered else [(component.name, iter(after[component.name]))]
            entered.add(component.name)
            while way:
                at, rest = way[-1]
                ahead = next((name for name in rest if name not in entered), None)
                if ahead is None:
                    done.append(at)
                    way.pop()
                else:
                    entered.add(ahead)
                    way.append((ahead, iter(after[ahead])))
        return done[::-1]

    def ahead_of(self, task: TaskPlan, depths: Mapping[str, int]) -> frozenset[int]:
        """Return the deeper tasks that a task may emit to."""
        depth = depths[task.component]
        ahead = {r.target for r in self.routes if r.source.component == task.component and depths[r.target] > depth}
        return frozenset(other.task_id for other in self.tasks if other.component in ahead)

    def ticking(self, conf: Mapping[str, Any]) -> list[list[str]]:
        """Return the bolts that get ticks or have a timer, by depth.

        Each list feeds only later ones, loops left out.
        """
        depths = self.depths()
        found: dict[int, list[str]] = {}
        for component in self.topology.components:
            own = {**conf, **component.config}.get(TICK_PERIOD)
            timed = getattr(component.cls, "timer_interval_s", None) is not None
            if component.kind == BOLT and (timed or own not in (None, "")):
                found.setdefault(depths[component.name], []).append(component.name)
        return [found[depth] for depth in sorted(found)]

    def longest_timeout_s(self, conf: Mapping[str, Any]) -> float:
        """Return the longest time-out of messages, over all spouts, in seconds."""
        spouts = [component for component in self.topology.components if component.kind == SPOUT]
        return max((float({**conf, **spout.config}[TIME_OUT]) for spout in spouts), default=0.0)

    def routes_of(self, source: StreamId) -> tuple[Route, ...]:
        """Return the consumers of a stream, in declaration order."""
        return tuple(route for route in self.routes if route.source == source)


def make_plan(topology: TopologySpec, workers: int, conf: Mapping[str, Any] = {}) -> Plan:
    """Place the tasks of a valid topology, and connect its streams.

    ``conf``: the run's settings; some add streams.
    """
    topology = with_epochs(topology, conf)
    tasks: list[TaskPlan] = []
    for component in topology.components:
        # The turn goes on from component to component, so that single-task components do not pile up on worker 0.
        for index in range(component.par):
            # From 1: a root has its spout's task id in the upper bits, and root 0 means untracked.
            task_id = len(tasks) + 1
            tasks.append(TaskPlan(task_id, component.name, index, (task_id - 1) % workers))
    routes = tuple(
        Route(sub.source, component.name, effective_grouping(topology, sub.source, sub.grouping))
        for component in topology.components
        for sub in component.inputs
    )
    return Plan(topology, workers, tuple(tasks), routes)


def effective_grouping(topology: TopologySpec, source: StreamId, grouping: Grouping | None) -> Grouping:
    """Return the grouping in force. An unnamed one is DIRECT on a direct stream, else SHUFFLE (as streamparse)."""
    if grouping is not None:
        return grouping
    stream = stream_of(topology.component(source.component), source.stream)
    return Grouping.DIRECT if stream.direct else Grouping.SHUFFLE


def stream_of(component: ComponentDef, name: str) -> Stream:
    """Return the declared stream of that name. Raises KeyError."""
    # Searched each time: plans are made once a process, and a topology has a handful of streams.
    for stream in component.streams():
        if stream.name == name:
            return stream
    raise KeyError(name)


def fingerprint(plan: Plan) -> str:
    """Return a text that is equal for equal plans in every process. A worker compares it before it runs anything."""
    # Classes by name: each process has imported its own, so their identities differ.
    parts = [
        (c.name, c.kind, f"{c.cls.__module__}.{c.cls.__qualname__}", c.par, [(s.name, s.fields) for s in c.streams()])
        for c in plan.topology.components
    ]
    text = repr((plan.topology.name, plan.workers, parts, plan.tasks, plan.routes))
    return hashlib.sha256(text.encode()).hexdigest()
