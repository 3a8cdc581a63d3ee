"""pyarrow, where something needs it: it is no requirement of streamlet without Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from math import inf
from typing import Any

from streamlet.base.errors import BadInput


def parquet_for(who: str) -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module. Raises BadInput where it is not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(
            f"{who} reads or writes Parquet with pyarrow, which the Python of this worker ({sys.executable}) cannot "
            f"import ({error}). Install it there: {sys.executable} -m pip install 'pyarrow>=18'. Of streamlet's extras "
            "it is part of streamlet-storm[spark]."
        ) from None
    return pyarrow, parquet


_NONE = type(None)
_TAKEN = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), frozenset({int, _NONE})),
    **dict.fromkeys(("float", "double"), frozenset({float, int, _NONE})),
    "timestamp": frozenset({datetime, _NONE}),
    "list": frozenset({list, tuple, _NONE}),
    "struct": frozenset({dict, _NONE}),
}
"""Types of values by Arrow's name of a column's, where Arrow would take others and change them."""
_NATURAL = {
    **_TAKEN,
    "string": frozenset({str}),
    "bool": frozenset({bool}),
    "binary": frozenset({bytes, bytearray, memoryview}),
}
"""Types of values that columns are made for."""
_WORDS = {
    "int8": "byte",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "bool": "boolean",
    "null": "void",
}
"""Arrow's names of types in the words of a schema, where they differ."""
_BEYOND_FLOAT = 2.0**128 - 2.0**103
"""Least number that a column of 32 bits rounds to infinity."""


def array_of(arrow: Any, column: Sequence[Any], kind: Any) -> Any:
    """Return values as an array. Raises as ``pyarrow.array``; TypeError where that would change a value."""
    # Rule: never leave it to Arrow whether a value fits. It cuts 20.7 to 20, takes a number for microseconds since
    # 1970, makes 1e300 infinite in a column `float`, and leaves out what a struct has no field for: without an error.
    _check(column, kind)
    return arrow.array(column, kind)


def word_for(kind: Any) -> str:
    """Return the word that a schema has for a type: boolean, long, array<string>."""
    # Rule: a message has the words that its reader wrote. `bool` and `int64` are Arrow's, whom nobody asked.
    name = _base(kind)
    if name == "list":
        return f"array<{word_for(kind.value_type)}>"
    if name == "struct":
        return f"struct<{', '.join(f'{field.name}: {word_for(field.type)}' for field in kind)}>"
    return _WORDS.get(name, name)


def is_of_its_type(value: Any, kind: Any) -> bool:
    """Tell whether a column is made for values of such a type."""
    name = _base(kind)
    return name in ("list", "struct") or type(value) in _NATURAL.get(name, ())


def finer_cut(kind: Any) -> Any:
    """Return options of a cast to a type that cuts finer times."""
    from pyarrow.compute import CastOptions

    # Rule: allow that and nothing else, as safe=False would. A time in milliseconds that has no number of microseconds,
    # as Java's greatest ("never"), would come as another one without an error: 1969.
    return CastOptions(kind, allow_time_truncate=True)


def _check(column: Sequence[Any], kind: Any) -> None:
    name = _base(kind)
    taken = _TAKEN.get(name)
    if taken is None:
        return
    wrong = set(map(type, column)) - taken
    if wrong:
        raise TypeError(f"{' and '.join(sorted(one.__name__ for one in wrong))} is not {word_for(kind)}")
    if name == "float":
        for value in column:
            if value is not None and _BEYOND_FLOAT <= abs(value) < inf:
                raise ValueError("a float holds numbers up to 3.4e+38, and a larger one would become infinite")
    elif name == "list":
        if _base(kind.value_type) in _TAKEN:
            _check([*chain.from_iterable(filter(None, column))], kind.value_type)
    elif name == "struct":
        fields = {field.name: field.type for field in kind}
        there = [value for value in column if value is not None]
        for key in set().union(*there).difference(fields):
            raise TypeError(f"the struct has no field {key!r}")
        for key, inner in fields.items():
            _check([value.get(key) for value in there], inner)


def _base(kind: Any) -> str:
    return str(kind).partition("<")[0].partition("[")[0]
