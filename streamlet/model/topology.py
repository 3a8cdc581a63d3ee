"""``Topology``: the class body a user writes, and the frozen value everything else reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from streamlet.model.grouping import Grouping
from streamlet.model.spec import ComponentSpec, OutputRef, as_name, input_pairs, source_stream
from streamlet.model.stream import DEFAULT_STREAM, Stream, StreamId


@dataclass(frozen=True, slots=True)
class Subscription:
    """A bolt reads one stream. ``grouping`` is None where the user named none (shuffle, or direct)."""

    source: StreamId
    grouping: Grouping | None
    stray: bool = False
    """The source is an object that stands in no line of this topology."""


@dataclass(frozen=True, slots=True)
class ComponentDef:
    """One component of a topology, with its name. ``outputs`` is as declared, not yet checked."""

    name: str
    kind: str
    cls: type
    outputs: Any
    inputs: tuple[Subscription, ...]
    par: Any
    config: Mapping[str, Any]
    kwargs: Mapping[str, Any]

    def streams(self) -> tuple[Stream, ...]:
        """The declared streams; a list of field names declares the default one."""
        return declared_streams(self.outputs)


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """A topology as data: components in declaration order (task ids follow it) and its configuration."""

    name: str
    components: tuple[ComponentDef, ...]
    config: Mapping[str, Any]

    def component(self, name: str) -> ComponentDef:
        """The component of that name. KeyError if there is none."""
        for component in self.components:
            if component.name == name:
                return component
        raise KeyError(name)


def declared_streams(outputs: Any) -> tuple[Stream, ...]:
    """``outputs`` as streams: ``["word"]`` is the default stream, ``[Stream(...), ...]`` are themselves."""
    if outputs is None:
        return ()
    if isinstance(outputs, Stream):
        return (outputs,)
    if isinstance(outputs, str):
        return (Stream([outputs]),)
    items = list(outputs)
    if items and all(isinstance(item, Stream) for item in items):
        return tuple(items)
    return (Stream(items),) if items else ()


class TopologyMeta(type):
    """Reads the class body into a :class:`TopologySpec`, kept as ``__topology__``. Checks nothing."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> TopologyMeta:
        cls = super().__new__(mcs, name, bases, namespace)
        inherited: dict[str, ComponentSpec] = {}
        config: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            config.update(vars(base).get("config") or {})
            inherited.update({k: v for k, v in vars(base).items() if isinstance(v, ComponentSpec)})
        cls.__topology__ = _freeze(name, inherited, config)  # type: ignore[attr-defined]
        return cls


def _freeze(topology: str, specs: Mapping[str, ComponentSpec], config: Mapping[str, Any]) -> TopologySpec:
    names = {id(spec): as_name(spec.name or attribute) for attribute, spec in specs.items()}
    components = tuple(
        ComponentDef(
            name=names[id(spec)],
            kind=spec.kind,
            cls=spec.cls,
            outputs=spec.outputs if spec.outputs is not None else getattr(spec.cls, "outputs", None),
            inputs=tuple(_subscription(source, grouping, names) for source, grouping in input_pairs(spec.inputs)),
            par=spec.par,
            config=spec.config,
            kwargs=spec.kwargs,
        )
        for spec in specs.values()
    )
    return TopologySpec(name=topology, components=components, config=dict(config))


def _subscription(source: Any, grouping: Any, names: Mapping[int, str]) -> Subscription:
    if isinstance(source, StreamId):
        return Subscription(StreamId(*map(as_name, source)), grouping)
    if isinstance(source, str):
        return Subscription(StreamId(source, DEFAULT_STREAM), grouping)
    spec = source.spec if isinstance(source, OutputRef) else source
    if id(spec) in names:
        return Subscription(StreamId(names[id(spec)], source_stream(source)), grouping)
    shown = as_name(spec.name or spec.cls.__name__) if isinstance(spec, ComponentSpec) else repr(spec)
    return Subscription(StreamId(shown, source_stream(source)), grouping, stray=True)


class Topology(metaclass=TopologyMeta):
    """Subclass it and name components in the body; the attribute names are the component names.

    >>> from streamlet import Bolt, Grouping, Spout
    >>> class Lines(Spout):
    ...     outputs = ["line"]
    >>> class Split(Bolt):
    ...     outputs = ["word"]
    >>> class Count(Bolt):
    ...     pass
    >>> class WordCount(Topology):
    ...     lines = Lines.spec()
    ...     split = Split.spec(inputs=[lines], par=2)
    ...     count = Count.spec(inputs={split: Grouping.fields("word")}, par=2)
    >>> [(component.name, component.par) for component in WordCount.__topology__.components]
    [('lines', 1), ('split', 2), ('count', 2)]

    ``config`` may hold Storm's keys (``topology.max.spout.pending`` ...) and keys of your own.
    """

    config: ClassVar[Mapping[str, Any]] = {}
    __topology__: ClassVar[TopologySpec]
