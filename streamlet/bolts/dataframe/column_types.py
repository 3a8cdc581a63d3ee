"""The columns of a sink as its user writes them: ``"station string, celsius double"``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PLAIN = {
    "string": "string",
    "boolean": "bool_",
    "tinyint": "int8",
    "byte": "int8",
    "smallint": "int16",
    "short": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "float": "float32",
    "real": "float32",
    "double": "float64",
    "binary": "binary",
}
"""Spark's name of a type -> pyarrow's function for it."""

KNOWN = "string, boolean, tinyint, smallint, int, bigint, float, double, binary, timestamp and array<...> of these"

_PART = re.compile(r"((?:`(?:[^`]|``)*`|\([^)]*\)|[^,])*),")
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s*:?\s+(.+?)\s*", re.DOTALL)
_ARRAY = re.compile(r"array\s*<\s*(.+?)\s*>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class SinkColumn:
    """A column: ``base`` is the type within so many lists."""

    name: str
    base: str
    lists: int = 0

    @property
    def word(self) -> str:
        """The type, as it was written."""
        return "array<" * self.lists + self.base + ">" * self.lists

    def arrow_type(self, pyarrow: Any) -> Any:
        """Return its type, of pyarrow."""
        kind = pyarrow.timestamp("us", tz="UTC") if self.base == "timestamp" else getattr(pyarrow, PLAIN[self.base])()
        for _ in range(self.lists):
            kind = pyarrow.list_(kind)
        return kind


def parse_columns(text: str) -> tuple[SinkColumn, ...]:
    """Return the columns of a schema. Raises ValueError with the reason."""
    columns = tuple(_column(part) for part in _PART.findall(f"{text},"))
    # Rule: names are compared as Spark does, without their case. It reads no folder of files that have "Name" and
    # "name" (COLUMN_ALREADY_EXISTS): what was written and acked would be out of its reach.
    first: dict[str, str] = {}
    for column in columns:
        name, other = column.name, first.get(column.name.lower())
        if other == name:
            raise ValueError(f"it names the column {name!r} twice")
        if other is not None:
            raise ValueError(
                f"it names the columns {other!r} and {name!r}, which differ in nothing but upper and lower case: to "
                "Spark they are one, and it could not read the files. Give one of the fields another name"
            )
        first[name.lower()] = name
    return columns


def _column(text: str) -> SinkColumn:
    found = _COLUMN.fullmatch(text)
    if found is None:
        raise ValueError(f'{text.strip()!r} cannot be read as a column, which is a name and a type: "station string"')
    name, kind, lists = (found[1] or found[2]).replace("``", "`"), found[3], 0
    while inner := _ARRAY.fullmatch(kind):
        kind, lists = inner[1], lists + 1
    base = kind.lower()
    if base != "timestamp" and base not in PLAIN:
        raise ValueError(f"the column {name!r} has the type {kind!r}. Known are {KNOWN}")
    return SinkColumn(name, base, lists)


def missing_fields(columns: tuple[SinkColumn, ...], source: str, fields: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (problem, remedy) where a stream lacks a column."""
    for column in columns:
        if column.name not in fields:
            yield (
                f"schema has the column {column.name!r}, and {source}, which it reads, has no field of that name: it "
                f"declares {', '.join(map(repr, fields)) or 'none'}.",
                "Give the columns the names of fields; fields without a column are not written.",
            )
