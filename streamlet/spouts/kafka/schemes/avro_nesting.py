"""How deep a record of Avro is nested, seen before a reader in C follows it. Pure.

A schema bounds that itself, unless it refers to itself, as a list of linked records or a tree does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streamlet.spouts.kafka.errors import UnreadableData
from streamlet.spouts.kafka.schemes.wire_header import Data

MOST_NESTED = 1000
"""Records, unions, arrays and maps around a value: some 1.5 MB of the reader's stack, of the usual 8."""

SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
NUMBERS = frozenset({"int", "long", "enum"})
TEXTS = frozenset({"string", "bytes"})


def refers_to_itself(names: Mapping[str, Any]) -> bool:
    """Tell whether a named schema is used within its own definition."""
    # That finds all: a name can be used only from its definition on, so each round begins within one.
    return any(_uses(schema, frozenset()) for schema in names.values())


def _uses(schema: Any, around: frozenset[str]) -> bool:
    if isinstance(schema, str):
        return schema in around
    if isinstance(schema, list):
        return any(_uses(branch, around) for branch in schema)
    inner = around | {schema["name"]} if "name" in schema else around
    parts = [field["type"] for field in schema.get("fields", ())]
    return any(_uses(part, inner) for part in (*parts, *(schema[key] for key in ("items", "values") if key in schema)))


def check_nesting(data: Data, schema: Any, names: Mapping[str, Any]) -> None:
    """Raise UnreadableData for a record that is nested deeper than ``MOST_NESTED``.

    What else is wrong with its bytes is left to the reader.
    """
    # Rule: such a record is followed here, without recursion, before fastavro's compiled reader recurses into it. That
    # has no bound: one record with a list of some thousands would kill the worker, and each that reads it after it.
    body = _Body(data, names)
    around = [iter((schema,))]
    try:
        while around:
            if len(around) > MOST_NESTED:
                raise UnreadableData(
                    f"it is nested deeper than {MOST_NESTED} records, unions, arrays and maps, which its schema "
                    "allows, for it refers to itself"
                )
            found = next(around[-1], None)
            if found is None:
                around.pop()
            elif (inner := body.skip(found)) is not None:
                around.append(inner)
    except (IndexError, ValueError):
        return


class _Body:
    """A record's bytes, and how far they are read. Raises IndexError at their end."""

    def __init__(self, data: Data, names: Mapping[str, Any]) -> None:
        self._data = data
        self._names = names
        self._at = 0

    def skip(self, schema: Any) -> Iterator[Any] | None:
        """Pass a value over; of one that holds others return their schemas, to be passed over next."""
        if isinstance(schema, list):
            return iter((schema[self._long()],))
        schema = self._names.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in SIZES:
            self._forward(SIZES[kind])
        elif kind in NUMBERS:
            self._long()
        elif kind in TEXTS:
            self._forward(self._long())
        elif kind == "fixed":
            self._forward(schema["size"])
        elif kind == "array":
            return self._blocks((schema["items"],))
        elif kind == "map":
            return self._blocks(("string", schema["values"]))
        else:
            return iter([field["type"] for field in schema["fields"]])
        return None

    def _blocks(self, each: tuple[Any, ...]) -> Iterator[Any]:
        while count := self._long():
            if count < 0:
                self._long()  # the block's size
            for _ in range(abs(count)):
                yield from each

    def _forward(self, size: int) -> None:
        if size < 0 or self._at + size > len(self._data):
            raise IndexError
        self._at += size

    def _long(self) -> int:
        found = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found >> 1 ^ -(found & 1)
            shift += 7
