"""A topology drawn: as text for a person, as DOT and Mermaid for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamlet.model.plan import Plan, Route, make_plan, stream_of
from streamlet.model.spec import SPOUT
from streamlet.model.stream import DEFAULT_STREAM
from streamlet.model.topology import TopologySpec


@dataclass(frozen=True, slots=True)
class Strokes:
    """The characters a drawing is made of."""

    fork: str
    last: str
    trunk: str
    line: str
    arrow: str
    times: str


LINES = Strokes(fork="├─", last="└─", trunk="│ ", line="──", arrow="─▶", times="×")
ASCII = Strokes(fork="|-", last="`-", trunk="| ", line="--", arrow="->", times="x")
"""For terminals that have no line characters."""

INDENT = "    "


def text(topology: TopologySpec, strokes: Strokes = LINES) -> str:
    """Draw a valid topology as a tree from its spouts.

    It shows what each component emits, how it is divided, who reads it. A component that is read from two sides is
    drawn in full once; elsewhere it says ``(above)``.
    """
    routes = make_plan(topology, 1).routes
    drawn: set[str] = set()
    lines: list[str] = []
    spouts = [component.name for component in topology.components if component.kind == SPOUT]
    for name in spouts:
        lines += ["", *_tree(topology, routes, name, strokes, drawn)]
    return "\n".join(lines[1:]) + "\n"


def _tree(
    topology: TopologySpec, routes: tuple[Route, ...], name: str, strokes: Strokes, drawn: set[str]
) -> Iterator[str]:
    # Each component is drawn once: circles end, and a bolt with two sources does not double everything below it.
    drawn.add(name)
    component = topology.component(name)
    yield f"{name} {strokes.times}{component.par} ({component.cls.__name__})"
    children = [route for route in routes if route.source.component == name]
    for route in children:
        is_last = route is children[-1]
        branch = f"{strokes.last if is_last else strokes.fork} {_label(topology, route)} {strokes.arrow} "
        if route.target in drawn:
            yield f"{branch}{route.target} (above)"
            continue
        below = INDENT if is_last else strokes.trunk + INDENT[len(strokes.trunk) :]
        subtree = _tree(topology, routes, route.target, strokes, drawn)
        yield branch + next(subtree)
        yield from (below + line for line in subtree)


def _label(topology: TopologySpec, route: Route) -> str:
    """Return ``word, fields(word)``: the values that travel, and how they are divided."""
    fields = ", ".join(stream_of(topology.component(route.source.component), route.source.stream).fields)
    named = f"{route.source.stream}[{fields}]" if route.source.stream != DEFAULT_STREAM else f"[{fields}]"
    return f"{named} {route.grouping}"


def placement(plan: Plan, strokes: Strokes = LINES) -> str:
    """Draw the tasks of each worker, by task id. One line a worker."""
    lines = []
    for worker in range(plan.workers):
        tasks = "   ".join(f"{task.component} #{task.task_id}" for task in plan.tasks_on(worker))
        lines.append(f"worker {worker} {strokes.line} {tasks or 'nothing'}")
    return "\n".join(lines) + "\n"


def dot(topology: TopologySpec) -> str:
    """Draw for Graphviz: spouts as houses, bolts as boxes, streams as labelled arrows."""
    lines = [f"digraph {_quoted(topology.name)} {{", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    for component in topology.components:
        shape = "house" if component.kind == SPOUT else "box"
        label = f"{component.name} ×{component.par}\n{component.cls.__name__}"
        lines.append(f"  {_quoted(component.name)} [shape={shape}, label={_quoted(label)}];")
    for route in make_plan(topology, 1).routes:
        label = _label(topology, route)
        lines.append(f"  {_quoted(route.source.component)} -> {_quoted(route.target)} [label={_quoted(label)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def mermaid(topology: TopologySpec) -> str:
    """Draw for Mermaid: spouts rounded, bolts square."""
    # Mermaid's own words (`end`, `graph` ...) cannot be ids, so the ids are numbered.
    ids = {component.name: f"c{number}" for number, component in enumerate(topology.components)}
    lines = ["flowchart LR"]
    for component in topology.components:
        opening, closing = ("([", "])") if component.kind == SPOUT else ("[", "]")
        label = _entities(f"{component.name} ×{component.par}")
        lines.append(f'  {ids[component.name]}{opening}"{label}"{closing}')
    for route in make_plan(topology, 1).routes:
        label = _entities(_label(topology, route))
        lines.append(f'  {ids[route.source.component]} -->|"{label}"| {ids[route.target]}')
    return "\n".join(lines) + "\n"


def _entities(value: str) -> str:
    return value.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
