"""Every problem of a topology at once, each with the component it belongs to and what to do about it. Pure."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from streamlet.model.problem import InvalidTopology, Problem
from streamlet.model.spec import BOLT, SPOUT
from streamlet.model.topology import ComponentDef, TopologySpec
from streamlet.model.validate_inputs import input_problems
from streamlet.model.validate_outputs import NAME, outputs_problem
from streamlet.model.validate_settings import config_problems, misplaced_settings, override_problems, unknown_components


def checked(topology: TopologySpec, overrides: Mapping[str, Mapping[str, Any]] | None = None) -> TopologySpec:
    """The topology itself if it is valid. Raises InvalidTopology with every problem."""
    problems = validate(topology, overrides)
    if problems:
        raise InvalidTopology(topology.name, tuple(problems))
    return topology


def validate(topology: TopologySpec, overrides: Mapping[str, Mapping[str, Any]] | None = None) -> list[Problem]:
    """All problems, those of the whole first, then component by component in declaration order.

    ``overrides`` are the ``-c COMPONENT.NAME=VALUE`` of a run, by component.
    """
    problems = [*_whole(topology), *config_problems(None, topology.config)]
    for component in topology.components:
        problems += _component(component)
        problems += input_problems(topology, component)
        problems += config_problems(component.name, component.config)
        problems += misplaced_settings(component)
        problems += override_problems(component, (overrides or {}).get(component.name, {}))
    return [*problems, *unknown_components(topology, overrides or {}), *_unreachable(topology)]


def _whole(topology: TopologySpec) -> Iterator[Problem]:
    if not topology.components:
        yield Problem(
            None,
            f"The topology {topology.name} has no components.",
            "Name a spout and the bolts that read it in its body: `lines = Lines.spec()`. A class without `.spec()` "
            "is not a component.",
        )
    elif not any(component.kind == SPOUT for component in topology.components):
        yield Problem(
            None,
            f"The topology {topology.name} has no spout, so no tuple would ever flow.",
            "Add one, for example a class that inherits from streamlet.ReliableSpout.",
        )
    for name, count in Counter(component.name for component in topology.components).items():
        if count > 1:
            yield Problem(name, f"{count} components have this name.", "Give each its own, with name= or another line.")


def _unreachable(topology: TopologySpec) -> Iterator[Problem]:
    names = {component.name for component in topology.components}
    reached = {component.name for component in topology.components if component.kind == SPOUT}
    if not reached:
        return
    # A source that is not there is a problem of its own; what follows from it is none.
    reached |= {sub.source.component for c in topology.components for sub in c.inputs} - names
    grown = True
    while grown:
        more = {c.name for c in topology.components if any(sub.source.component in reached for sub in c.inputs)}
        grown = not more <= reached
        reached |= more
    for component in topology.components:
        if component.inputs and component.name not in reached:
            sources = ", ".join(dict.fromkeys(sub.source.component for sub in component.inputs))
            yield Problem(
                component.name,
                f"No spout leads here: it reads only {sources}, and nothing reaches that either.",
                "Let one bolt of the circle read a spout.",
            )


def _component(component: ComponentDef) -> Iterator[Problem]:
    yield from _name(component)
    if isinstance(component.par, bool) or not isinstance(component.par, int) or component.par < 1:
        yield Problem(
            component.name,
            f"par is {component.par!r}.",
            "It is the number of tasks: a whole number of at least 1.",
        )
    if component.kind == BOLT and not component.inputs:
        yield Problem(component.name, "It is a bolt without inputs.", "Say what it reads: inputs=[a_spout].")
    yield from _class(component)
    yield from _outputs(component)


def _name(component: ComponentDef) -> Iterator[Problem]:
    name: Any = component.name
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield Problem(
            str(name),
            f"The name {name!r} cannot be used.",
            "Use a letter, then letters, digits, underscores or hyphens.",
        )
    elif name.startswith("__"):
        yield Problem(name, "Names that begin with two underscores are streamlet's own.", "Give it another name.")


HOOKS = (
    *("initialize", "process", "process_tick", "cleanup"),
    *("next_tuple", "ack", "ack_many", "fail", "fail_many", "activate", "deactivate", "close"),
    *("fileno", "on_timer", "unfinished_count", "caught_up", "partition_status", "given_up", "replay"),
)
"""Methods that a component may override: what they do, or answer, comes of a plain call."""

NEVER_RUN: dict[str, Callable[[Any], bool]] = {
    "async": inspect.iscoroutinefunction,
    "a generator (it yields)": inspect.isgeneratorfunction,
    "an async generator": inspect.isasyncgenfunction,
}


def _class(component: ComponentDef) -> Iterator[Problem]:
    cls = component.cls
    shown = f"{cls.__module__}.{cls.__qualname__}"
    if cls.__module__ == "__main__":
        yield Problem(
            component.name,
            f"The class {cls.__qualname__} stands in __main__, where no worker could import it.",
            "Put it into a file of its own and run that: `streamlet run FILE`.",
        )
    elif "<" in cls.__qualname__:
        yield Problem(
            component.name,
            f"The class {shown} is made inside a function, where no worker could import it.",
            "Move it to the top level of its module.",
        )
    duty = getattr(cls, "must_define", None)
    if duty is not None:
        owner = next((base for base in cls.__mro__ if duty in vars(base)), None)
        if owner is None or "must_define" in vars(owner):
            what = "handles a tuple" if component.kind == BOLT else "emits tuples"
            signature = f"{duty}(self, tup)" if component.kind == BOLT else f"{duty}(self)"
            yield Problem(
                component.name,
                f"The class {shown} does not define {duty}.",
                f"Give it a method {signature} that {what}.",
            )
    ours = {name for base in cls.__mro__ if base.__module__.startswith("streamlet.") for name in vars(base)}
    for name in HOOKS:
        method = getattr(cls, name, None) if name in ours else None
        kind = next((kind for kind, test in NEVER_RUN.items() if test(method)), None)
        if kind is not None:
            yield Problem(
                component.name,
                f"The method {name} of {shown} is {kind}: a call of it runs none of it, and what it was given, or is "
                "asked for, would count as done.",
                "Make it a plain method; run coroutines with asyncio.run inside it.",
            )


def _outputs(component: ComponentDef) -> Iterator[Problem]:
    problem = outputs_problem(component.outputs)
    if problem is not None:
        yield Problem(
            component.name,
            problem,
            'Declare field names, outputs = ["word"], or streams, outputs = [Stream(["word"]), Stream(["why"], '
            'name="errors")].',
        )
