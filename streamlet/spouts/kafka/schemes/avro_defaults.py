"""Defaults of a reader's schema of Avro, as the values that records have. Pure.

A schema writes them in JSON: bytes as text, dates and decimals as what they are encoded in, records without what their
own fields have as default.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

LogicalReaders = Mapping[str, Callable[[Any, Any, Any], Any]]
"""By type and logical type, as ``int-date``: from the encoded value to the one that records have."""

NUMBERS = {"int": 1 << 31, "long": 1 << 63}


class UnfitDefault(ValueError):
    """A default that a field of its type cannot have."""


def decode_defaults(names: Mapping[str, Any], logical_readers: LogicalReaders) -> None:
    """Put values as records have them in place of defaults. Raises UnfitDefault."""
    # Rule: fastavro gives a row the JSON of a default as it stands. Decoded here, once, a record that lacks a field has
    # what one has that was written with the default: else a bolt would get 19000 from old records and a date from new.
    defaults = _Defaults(names, logical_readers)
    found = []
    for name, schema in names.items():
        for field in schema.get("fields", ()):
            if "default" in field:
                try:
                    found.append((field, defaults.value(field["type"], field["default"])))
                except (ValueError, OverflowError, RecursionError) as error:
                    shown = "it holds itself" if isinstance(error, RecursionError) else error
                    raise UnfitDefault(
                        f"the default of the field {field['name']!r} of {name} is {field['default']!r:.80}, which "
                        f"does not fit: {shown}"
                    ) from error
    for field, value in found:  # after all: records have the defaults of their fields
        field["default"] = value


class _Defaults(NamedTuple):
    names: Mapping[str, Any]
    logical_readers: LogicalReaders

    def value(self, schema: Any, given: Any) -> Any:
        """Return the value of a type that JSON stands for. Raises UnfitDefault."""
        if isinstance(schema, list):
            return self._first_that_fits(schema, given)
        if isinstance(schema, str):
            schema = self.names.get(schema, {"type": schema})
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, _asked(isinstance(given, dict), given, "an object"))
        if kind == "array":
            return [self.value(schema["items"], one) for one in _asked(isinstance(given, list), given, "a list")]
        if kind == "map":
            items = _asked(isinstance(given, dict), given, "an object").items()
            return {key: self.value(schema["values"], one) for key, one in items}
        read = self.logical_readers.get(f"{kind}-{schema.get('logicalType')}")
        encoded = _plain(kind, schema, given)
        return encoded if read is None else read(encoded, schema, schema)

    def _first_that_fits(self, branches: list[Any], given: Any) -> Any:
        for branch in branches:
            try:
                return self.value(branch, given)
            except UnfitDefault:
                continue
        raise UnfitDefault(f"no branch of its union takes {given!r:.80}")

    def _record(self, schema: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for field in schema["fields"]:
            name = field["name"]
            if name not in given and "default" not in field:
                raise UnfitDefault(f"it lacks the field {name!r} of {schema['name']}, which has no default")
            found[name] = self.value(field["type"], given[name] if name in given else field["default"])
        return found


def _plain(kind: str, schema: Any, given: Any) -> Any:
    """Return a value as it is encoded, without its logical type."""
    if kind in NUMBERS:
        most = NUMBERS[kind]
        return _asked(type(given) is int and -most <= given < most, given, f"a whole number of type {kind}")
    if kind in ("float", "double"):
        number = float(_asked(isinstance(given, int | float | str) and not isinstance(given, bool), given, "a number"))
        return struct.unpack("<f", struct.pack("<f", number))[0] if kind == "float" else number
    if kind in ("bytes", "fixed"):
        encoded: bytes = _asked(isinstance(given, str), given, "text, a character for each byte").encode("latin-1")
        size = schema.get("size", len(encoded))
        return _asked(len(encoded) == size, encoded, f"text of {size} characters")
    if kind == "enum":
        return _asked(given in schema["symbols"], given, f"one of {', '.join(schema['symbols'])}")
    if kind == "null":
        return _asked(given is None, given, "null")
    if kind == "boolean":
        return _asked(isinstance(given, bool), given, "true or false")
    return _asked(isinstance(given, str), given, "text")


def _asked(fits: bool, given: Any, what: str) -> Any:
    if not fits:
        raise UnfitDefault(f"{given!r:.80} is not {what}")
    return given
