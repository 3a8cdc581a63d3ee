"""The lines of a topology's class body, before names are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Never

from streamlet.model.pystorm_names import SPEC, missing
from streamlet.model.stream import DEFAULT_STREAM, StreamId

SPOUT = "spout"
BOLT = "bolt"


@dataclass(frozen=True, slots=True)
class OutputRef:
    """One named stream of a spec: what ``spec["errors"]`` gives."""

    spec: ComponentSpec
    stream: str


# Compared by identity: two lines that look alike are two components, and a spec has no name before the class body ends.
@dataclass(eq=False, repr=False)
class ComponentSpec:
    """One line of a topology's class body: a component class and how it is wired.

    Nothing is checked here: ``model.validate`` reads the whole topology and reports every problem at once.
    """

    cls: type[Any]
    kind: str
    _: KW_ONLY
    name: str | None = None
    inputs: Any = None
    par: Any = 1
    config: Mapping[str, Any] = field(default_factory=dict)
    outputs: Any = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    attribute: str | None = field(default=None, init=False)
    """Its first name in a class body: a test of one line has no topology to ask."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = self.attribute or name

    def __post_init__(self) -> None:
        # Nothing is checked or copied here but dictionaries, so that `validate` sees what the user wrote.
        self.config = dict(self.config)
        self.kwargs = dict(self.kwargs)

    def __getitem__(self, stream: str) -> OutputRef:
        """Return the named stream of this component, for ``inputs``."""
        return OutputRef(self, as_name(stream))

    if not TYPE_CHECKING:  # with it a type checker would accept every name

        def __getattr__(self, name: str) -> Never:
            raise AttributeError(missing("a spec", name, SPEC), name=name, obj=self)

    def __repr__(self) -> str:
        return f"<{self.kind} spec {self.name or '?'} of {self.cls.__qualname__}>"


def as_name(given: Any) -> str:
    """Return a name, or a text for a value of wrong type. ``validate`` explains the problem."""
    return given if isinstance(given, str) else repr(given)


def input_pairs(inputs: Any) -> list[tuple[Any, Any]]:
    """Return ``inputs`` of any accepted shape as (source, grouping or None) pairs."""
    if inputs is None:
        return []
    if isinstance(inputs, Mapping):
        return list(inputs.items())
    # Anything else counts as one source without a grouping: `validate` can then say what was written there.
    if isinstance(inputs, (ComponentSpec, OutputRef, StreamId, str)) or not isinstance(inputs, Iterable):
        return [(inputs, None)]
    return [(source, None) for source in inputs]


def source_stream(source: Any) -> str:
    """Return the stream that a source names."""
    return source.stream if isinstance(source, (OutputRef, StreamId)) else DEFAULT_STREAM
