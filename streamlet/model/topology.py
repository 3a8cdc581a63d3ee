"""``Topology``: the class body that a user writes, and its frozen value."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Never, TypeGuard

from streamlet.base.errors import BadInput, SettingError
from streamlet.base.loaded_sources import note_defined
from streamlet.model.grouping import Grouping
from streamlet.model.pystorm_names import TOPOLOGY, missing
from streamlet.model.settings import SETTINGS, parse_setting
from streamlet.model.spec import ComponentSpec, OutputRef, as_name, input_pairs, source_stream
from streamlet.model.stream import DEFAULT_STREAM, Stream, StreamId


@dataclass(frozen=True, slots=True)
class BoltInput:
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
    cls: type[Any]
    outputs: Any
    inputs: tuple[BoltInput, ...]
    par: Any
    config: Mapping[str, Any]
    kwargs: Mapping[str, Any]

    def streams(self) -> tuple[Stream, ...]:
        """Return the declared streams. A list of field names declares the default one."""
        return declared_streams(self.outputs)


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """A topology as data: components in declaration order (task ids follow it) and its configuration."""

    name: str
    components: tuple[ComponentDef, ...]
    config: Mapping[str, Any]
    forgotten: tuple[tuple[str, str], ...] = ()
    """Lines that name a component without ``.spec()``: attribute and class."""

    def component(self, name: str) -> ComponentDef:
        """Return the component of that name. Raises KeyError."""
        for component in self.components:
            if component.name == name:
                return component
        raise KeyError(name)


def declared_streams(outputs: Any) -> tuple[Stream, ...]:
    """Return ``outputs`` as streams. ``["word"]`` is the default stream, ``[Stream(...), ...]`` are themselves."""
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
    """Reads the class body into a :class:`TopologySpec`, kept as ``__topology__``.

    Checks only what could not even be read; the rest is said by ``model.validate``.
    """

    __topology__: TopologySpec

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> TopologyMeta:
        _check_names(name, namespace)
        cls = super().__new__(mcs, name, bases, namespace)
        config: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            config.update(vars(base).get("config") or {})
        _check_no_settings(name, namespace, config)
        lines = _lines(cls)
        # Frozen when the class body ends: from here on the topology is data. Coordinator and workers each import the
        # file and derive the same plan from it; nothing that code does to a spec afterwards can make them differ.
        cls.__topology__ = _freeze(name, lines, config, _forgotten(cls, lines))
        note_defined(cls.__module__)
        return cls

    # Rule: a topology's class takes no component and no config after its body. The data is frozen there; what is set
    # later would be ignored in silence, and streamparse read a config that was.
    def __setattr__(cls, name: str, value: object) -> None:
        if name == "config" or isinstance(value, ComponentSpec):
            raise BadInput(
                f"{cls.__name__}.{name} is set after the body of the class, where the topology is fixed: it would be "
                "ignored. Write it in the body; settings of one run are given to it (-c, --config, settings=)."
            )
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # with it a type checker would accept every name

        def __getattr__(cls, name: str) -> Never:
            raise AttributeError(missing(f"type object {cls.__name__!r}", name, TOPOLOGY), name=name, obj=cls)


def _check_names(topology: str, namespace: Mapping[str, Any]) -> None:
    """Refuse a class body that hides what a topology has itself. Raises BadInput."""
    for name in ("run", "config"):
        given = namespace.get(name)
        if isinstance(given, ComponentSpec):
            raise BadInput(
                f"{topology}.{name} is a component, and every topology has a {name} of its own, which it would hide. "
                f"Give the line another name; the component may keep it: my_{name} = {given.cls.__name__}.spec("
                f"name={name!r}, ...)."
            )
    config = namespace.get("config")
    if config is not None and not isinstance(config, Mapping):
        raise BadInput(f'{topology}.config is {config!r:.80}: give a dict, {{"topology.max.spout.pending": 100}}.')


_AS_ATTRIBUTES = {key.replace(".", "_"): key for key in SETTINGS} | {
    name: key
    for key in SETTINGS
    if key.startswith("topology.")
    and ("_" in (name := key.removeprefix("topology.").replace(".", "_")) or name == "delivery")
}
"""A setting's name as an attribute would have it, with the key. Of one word are constants of a user's own, too."""


def _check_no_settings(topology: str, namespace: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse a setting that is written as an attribute of the class. Raises BadInput."""
    # Rule: nothing reads it there. A topology with delivery = "exactly-once" in its body ran at least once, and no word
    # was said. It may be a constant of the user's own, for a config or with another meaning.
    given = {*config, *(key for spec in namespace.values() if isinstance(spec, ComponentSpec) for key in spec.config)}
    for name, value in namespace.items():
        key = _AS_ATTRIBUTES.get(name)
        if key is not None and key not in given and isinstance(value, (str, int, float)) and _is_of(key, value):
            raise BadInput(
                f"{topology}.{name} = {value!r:.80} sets nothing: a topology's settings stand in its config. Write "
                f'config = {{"{key}": {value!r:.80}}}; a value of your own needs another name.'
            )


def _is_of(key: str, value: object) -> bool:
    """Tell whether a setting could have a value."""
    try:
        parse_setting(key, value, "")
    except SettingError:
        return False
    return True


def _lines(topology: type) -> dict[str, ComponentSpec]:
    """Return the topology's lines by their names, those of bases first. Raises BadInput."""
    # Rule: what a subclass gives the name of its parent's line counts, and nothing else: a spec replaces the line, None
    # removes it, a component without its spec counts as forgotten, anything else is refused. Passed over,
    # `store = DryRun` would run the parent's component in silence.
    found: dict[str, ComponentSpec] = {}
    for owner in reversed(topology.__mro__):
        for name, value in vars(owner).items():
            if isinstance(value, ComponentSpec):
                found[name] = value
            elif name in found and value is None:
                del found[name]
            elif name in found and _component_class(value) is None:
                raise BadInput(
                    f"{owner.__name__}.{name} is {value!r:.80}, and {name} is a component of the topology that it "
                    f"inherits from ({found[name].cls.__name__}). Write {name} = ...spec(...) to replace it, {name} = "
                    "None to leave it out, or give this another name."
                )
    return found


def _forgotten(topology: type, specs: Mapping[str, ComponentSpec]) -> tuple[tuple[str, str], ...]:
    """Return the lines that name a component without ``.spec()``, with its class."""
    # Rule: a component's class in a topology's body is a line that lacks its spec, unless it has a class's name and a
    # spec there uses it: it was defined in that body, or chosen there. Left out in silence, `store = Store` would have
    # records committed unprocessed.
    used = {base for spec in specs.values() for base in spec.cls.__mro__}
    found: dict[str, str] = {}
    for owner in reversed(topology.__mro__):
        for name, value in vars(owner).items():
            found.pop(name, None)
            cls = _component_class(value)
            # What has the name of a parent's line is in its place, whatever uses the class.
            if cls is not None and (cls is not value or cls not in used or name in specs or not name[:1].isupper()):
                found[name] = cls.__name__
    return tuple(found.items())


def _component_class(value: Any) -> type | None:
    """Return a component's class; None of other values.

    Also of an instance, and of its ``spec`` that is not called.
    """
    if inspect.ismethod(value) and value.__name__ == "spec":
        value = value.__self__
    cls = value if isinstance(value, type) else type(value)
    return cls if hasattr(cls, "must_define") and hasattr(cls, "spec") else None


def _freeze(
    topology: str,
    specs: Mapping[str, ComponentSpec],
    config: Mapping[str, Any],
    forgotten: tuple[tuple[str, str], ...],
) -> TopologySpec:
    # By identity: two lines that look alike are two components.
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
    return TopologySpec(name=topology, components=components, config=dict(config), forgotten=forgotten)


def _subscription(source: Any, grouping: Any, names: Mapping[int, str]) -> BoltInput:
    if isinstance(source, StreamId):
        return BoltInput(StreamId(*map(as_name, source)), grouping)
    if isinstance(source, str):
        return BoltInput(StreamId(source, DEFAULT_STREAM), grouping)
    spec = source.spec if isinstance(source, OutputRef) else source
    # A spec that stands in no line of this class (one of another topology, say) is kept as stray, for `validate` to
    # name.
    if id(spec) in names:
        return BoltInput(StreamId(names[id(spec)], source_stream(source)), grouping)
    shown = as_name(spec.name or spec.cls.__name__) if isinstance(spec, ComponentSpec) else repr(spec)
    return BoltInput(StreamId(shown, source_stream(source)), grouping, stray=True)


def is_topology(value: object) -> TypeGuard[TopologyMeta]:
    """Tell whether a value is a class derived from ``Topology``."""
    return isinstance(value, TopologyMeta) and value.__bases__ != (object,)
