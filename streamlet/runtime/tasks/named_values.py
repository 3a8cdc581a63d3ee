"""Decides whether a bolt reads ``tup.values`` by field name.

Rows travel and arrive as plain lists: a row with names costs each tuple an object more. So a bolt gets rows with names
only where its file uses one, and those that index pay nothing. Pure.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType

from streamlet.components.bolt import Bolt
from streamlet.components.tuples import NAMES_OF_ROWS, Tuple, tuple_with_names

Sources = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Component -> stream -> fields."""


_BY_STRING = {"getattr", "hasattr"}


def tuple_classes(cls: type[Bolt], sources: Sources) -> dict[tuple[str, str], type[Tuple]]:
    """Return the tuple class by (component, stream) that is read by name."""
    named = cls.named_values
    if named is None:
        fields = {name for streams in sources.values() for names in streams.values() for name in names}
        named = not fields.union(NAMES_OF_ROWS).isdisjoint(_attributes_beside_values(cls))
    if not named:
        return {}
    return {
        (component, stream): tuple_with_names(fields)
        for component, streams in sources.items()
        for stream, fields in streams.items()
    }


def _attributes_beside_values(cls: type) -> Iterator[str]:
    """Yield the names in functions that mention ``values``: of the class, its bases, and its module."""
    for code in _codes(cls):
        if "values" in code.co_names:
            yield from code.co_names
            # Rule: a name may be given as a string. Without this `getattr(tup.values, "word", None)` is None, unsaid.
            if not _BY_STRING.isdisjoint(code.co_names):
                yield from (constant for constant in code.co_consts if isinstance(constant, str))


def _codes(cls: type) -> Iterator[CodeType]:
    own = [base for base in cls.__mro__ if not base.__module__.startswith("streamlet.")]
    modules = {base.__module__ for base in own}
    for place in [*own, *(sys.modules[name] for name in modules if name in sys.modules)]:
        for value in list(vars(place).values()):
            function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else value
            if isinstance(function, FunctionType) and function.__module__ in modules:
                yield from _within(function.__code__)


def _within(code: CodeType) -> Iterable[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)
