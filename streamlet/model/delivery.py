"""``topology.delivery: exactly-once``: who may take part in it, and the streams that it adds to a topology.

Records and offsets are committed in one transaction, and a transaction has one producer. So one bolt task commits
(``Bolt.commits_epochs``), and every spout tells it where its epochs end (``Spout.tells_epochs``) and gives it dead
letters to write, on streams that no user declares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from streamlet.model.grouping import Grouping
from streamlet.model.spec import BOLT, SPOUT
from streamlet.model.stream import Stream, StreamId
from streamlet.model.topology import BoltInput, ComponentDef, TopologySpec, declared_streams

DELIVERY = "topology.delivery"
AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"

EPOCHS = "__epochs"
"""The stream from spouts to the bolt that commits."""

FIELDS = ("kind", "told")

LETTERS = "__letters"
"""The stream of dead letters, which that bolt writes in the transaction that passes over their records."""

LETTER_FIELDS = ("topic", "key", "value", "headers", "record")

EPOCH_STREAMS = frozenset({EPOCHS, LETTERS})
"""Streams whose tuples are the runtime's own: they are in no counter that a user reads."""


def is_exactly_once(conf: Mapping[str, Any]) -> bool:
    """Tell whether a run's settings ask for it."""
    return conf.get(DELIVERY) == EXACTLY_ONCE


def with_epochs(topology: TopologySpec, conf: Mapping[str, Any]) -> TopologySpec:
    """Add the streams of epochs, where the settings ask for it."""
    if not is_exactly_once(conf):
        return topology
    told = tuple(
        BoltInput(StreamId(component.name, stream), Grouping.GLOBAL)
        for component in topology.components
        if component.kind == SPOUT
        for stream in (EPOCHS, LETTERS)
    )
    components = []
    for component in topology.components:
        if component.kind == SPOUT:
            own = Stream(FIELDS, name=EPOCHS), Stream(LETTER_FIELDS, name=LETTERS)
            component = replace(component, outputs=[*declared_streams(component.outputs), *own])
        elif _commits(component):
            component = replace(component, inputs=(*component.inputs, *told))
        components.append(component)
    return replace(topology, components=tuple(components))


def _commits(component: ComponentDef) -> bool:
    return component.kind == BOLT and bool(getattr(component.cls, "commits_epochs", False))


def _keeps_letters(component: ComponentDef) -> bool:
    takes = getattr(component.cls, "takes_dead_letters", None)
    return takes is not None and bool(takes(component.kwargs))


def delivery_problems(
    topology: TopologySpec, conf: Mapping[str, Any], overrides: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str | None, str, str]]:
    """Yield (component or None, problem, remedy) of a topology with these settings."""
    if not is_exactly_once(conf):
        yield from _found_by(topology, overrides, "at_least_once_problems")
        return
    committing = [component for component in topology.components if _commits(component)]
    if not committing:
        yield (
            None,
            f"{DELIVERY} is {EXACTLY_ONCE}, and no bolt writes to Kafka: only what a KafkaBolt writes can be "
            "committed together with offsets.",
            f"Let a KafkaBolt write the results, or leave {DELIVERY} out.",
        )
    for component in committing[1:]:
        yield (
            component.name,
            f"{DELIVERY} is {EXACTLY_ONCE}, and {committing[0].name} writes to Kafka, too: one transaction has one "
            "producer.",
            "Write through one KafkaBolt; with topic_field it serves several topics.",
        )
    for component in committing:
        if component.par != 1:
            yield (
                component.name,
                f"{DELIVERY} is {EXACTLY_ONCE}, and par is {component.par!r}: one transaction has one producer.",
                "Give this bolt par=1. It takes batches, so one task writes what many make.",
            )
    yield from _found_by(topology, overrides, "exactly_once_problems")


def _found_by(
    topology: TopologySpec, overrides: Mapping[str, Mapping[str, Any]], hook: str
) -> Iterator[tuple[str | None, str, str]]:
    """Yield the problems that components' classes find with their arguments."""
    for component in topology.components:
        problems = getattr(component.cls, hook, None)
        if problems is not None:
            kwargs: Any = component.kwargs
            own = overrides.get(component.name)
            if own:
                kwargs = component.cls.with_overrides(kwargs, own)
            for message, remedy in problems(kwargs):
                yield component.name, message, remedy


def not_covered(topology: TopologySpec) -> str:
    """Return a sentence on what exactly once does not cover."""
    bolts = [c.name for c in topology.components if c.kind == BOLT and not _commits(c)]
    (out,) = [c.name for c in topology.components if _commits(c)]
    letters = any(c.kind == SPOUT and _keeps_letters(c) for c in topology.components)
    among = ", dead letters among them" if letters else ""
    said = f"Exactly once: the records that {out} writes{among}, with the offsets of what they came from."
    if bolts:
        said += (
            f" Not covered: what {', '.join(bolts)} keep{'s' * (len(bolts) == 1)} in memory from tuple to tuple, and "
            "whatever else is done outside of Kafka (files, databases, requests)."
        )
    return said
