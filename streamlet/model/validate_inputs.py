"""Checks of what a bolt reads: components, streams, groupings and the fields they name. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from streamlet.model.grouping import KINDS, Grouping
from streamlet.model.problem import Problem, listed, nearest
from streamlet.model.stream import DEFAULT_STREAM, Stream
from streamlet.model.topology import ComponentDef, Subscription, TopologySpec, declared_streams
from streamlet.model.validate_outputs import outputs_problem


def input_problems(topology: TopologySpec, component: ComponentDef) -> Iterator[Problem]:
    """Everything wrong with the inputs of one component."""
    for subscription in component.inputs:
        yield from _subscription(topology, component, subscription)
    seen = Counter((sub.source, str(sub.grouping)) for sub in component.inputs)
    for (source, _), count in seen.items():
        if count > 1:
            yield Problem(
                component.name,
                f"inputs names {source} {count} times with one grouping, so each tuple would come {count} times.",
                "Name it once.",
            )


def _subscription(topology: TopologySpec, component: ComponentDef, sub: Subscription) -> Iterator[Problem]:
    grouping = sub.grouping
    if grouping is not None and (not isinstance(grouping, Grouping) or str(grouping.kind) not in KINDS):
        yield Problem(
            component.name,
            f"The grouping of input {sub.source} is {grouping!r:.80}.",
            'Use one of Grouping\'s: Grouping.SHUFFLE, Grouping.fields("word"), Grouping.ALL, Grouping.GLOBAL, '
            "Grouping.LOCAL_OR_SHUFFLE, Grouping.NONE, Grouping.DIRECT.",
        )
        grouping = None
    source = next((c for c in topology.components if c.name == sub.source.component), None)
    if sub.stray:
        yield Problem(
            component.name,
            f"inputs holds {sub.source.component}, which stands in no line of this topology.",
            "Use a name assigned in the topology's own body, as in `split = Split.spec(inputs=[lines])`.",
        )
    elif source is None:
        names = [c.name for c in topology.components if c is not component]
        yield Problem(
            component.name,
            f"inputs names the component {sub.source.component!r}, and there is none of that name.",
            nearest(sub.source.component, names, f"The others are: {listed(names)}."),
        )
    elif outputs_problem(source.outputs) is None:
        yield from _stream(component, sub, source, grouping)


def _stream(
    component: ComponentDef, sub: Subscription, source: ComponentDef, grouping: Grouping | None
) -> Iterator[Problem]:
    declared = {stream.name: stream for stream in declared_streams(source.outputs)}
    stream = declared.get(sub.source.stream)
    if stream is None and not declared:
        yield Problem(
            component.name,
            f"It reads {source.name}, which declares no outputs.",
            f'Give the class {source.cls.__qualname__} a line such as outputs = ["word"].',
        )
    elif stream is None:
        name = next(iter(declared))
        example = source.name if name == DEFAULT_STREAM else f"{source.name}[{name!r}]"
        yield Problem(
            component.name,
            f"It reads the stream {sub.source.stream!r} of {source.name}, which declares "
            f"{', '.join(map(repr, declared))} only.",
            nearest(sub.source.stream, declared, f"As an input, write {example}."),
        )
    elif grouping is not None:
        yield from _grouping(component, source, stream, grouping)


def _grouping(component: ComponentDef, source: ComponentDef, stream: Stream, grouping: Grouping) -> Iterator[Problem]:
    of = source.name if stream.name == DEFAULT_STREAM else f"{source.name}[{stream.name}]"
    if stream.direct and grouping.kind != "direct":
        yield Problem(
            component.name,
            f"It reads {of} with {grouping}, but that stream is direct: its producer names the task.",
            "Use Grouping.DIRECT, or declare the stream without direct=True.",
        )
    if grouping.kind == "direct" and not stream.direct:
        yield Problem(
            component.name,
            f"It reads {of} with Grouping.DIRECT, but that stream is not declared as direct.",
            f"Declare it so: Stream({list(stream.fields)!r}, name={stream.name!r}, direct=True).",
        )
    if grouping.kind == "fields":
        if not grouping.field_names:
            yield Problem(
                component.name,
                f"It reads {of} with Grouping.fields() that names no field.",
                f"Name at least one of: {', '.join(stream.fields)}.",
            )
        for name in grouping.field_names:
            if name not in stream.fields:
                remedy = "Group by one of these."
                yield Problem(
                    component.name,
                    f"It groups {of} by the field {name!r}, which that stream does not have: it declares "
                    f"{', '.join(map(repr, stream.fields)) or 'none'}.",
                    nearest(name, stream.fields, remedy) if isinstance(name, str) else remedy,
                )
