"""Records of Avro as tuples with named fields; schemas from a registry, or given."""

from __future__ import annotations

import io
import json
import types
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from streamlet.base.errors import SettingError
from streamlet.components.tuples import MAX_DEPTH
from streamlet.spouts.kafka.errors import UnreadableData
from streamlet.spouts.kafka.schemes.avro_defaults import UnfitDefault, decode_defaults
from streamlet.spouts.kafka.schemes.avro_nesting import check_nesting, refers_to_itself
from streamlet.spouts.kafka.schemes.record_fields import Paths, PathSteps, RecordFields, find_in_object
from streamlet.spouts.kafka.schemes.schema_registry import SchemaRegistry
from streamlet.spouts.kafka.schemes.scheme import Column, Record, Row
from streamlet.spouts.kafka.schemes.wire_header import Data, split_header

MOST_DIGITS = 1_000_000
"""Digits of a decimal; one of so many does not fit into a record."""

TRAVEL = frozenset({str, int, float, bool, bytes, type(None)})


class AvroScheme:
    """Fields of Avro records: the value's, the key's, then parts of the record.

    ``registry``: each key and value begins with its schema's id. ``schema`` (text or parsed JSON) alone: bytes without
    a header, unless ``framed=True``. Both: records are read as ``schema`` says, by Avro's rules of resolution.
    ``key_schema``: as ``schema``, for keys. The rest as for JsonScheme. Needs fastavro. Raises SettingError.
    """

    def __init__(
        self,
        fields: Paths = (),
        *,
        registry: SchemaRegistry | None = None,
        schema: Any = None,
        key: Paths = (),
        key_schema: Any = None,
        record: Paths = (),
        default: Mapping[str, Any] | None = None,
        tombstones: bool = False,
        framed: bool | None = None,
    ) -> None:
        _fastavro()
        if registry is not None and (framed is False or not isinstance(registry, SchemaRegistry)):
            raise SettingError(
                "AvroScheme: registry is a SchemaRegistry(...), and its records always have a header: leave `framed` "
                "out."
            )
        self._fields = RecordFields(
            "AvroScheme", fields, key, record, default, tombstones=tombstones, find=find_what_travels
        )
        self.outputs = self._fields.outputs
        for chosen, given, name in (
            (self._fields.of_value, schema, "schema"),
            (self._fields.of_key, key_schema, "key_schema"),
        ):
            if chosen and given is None and registry is None:
                raise SettingError(f"AvroScheme: give {name}=, or the registry that has the schemas: registry=.")
        self._value = AvroReader("schema", schema, registry, framed=bool(framed))
        self._key = AvroReader("key_schema", key_schema, registry, framed=bool(framed))

    def deserialize(self, record: Record) -> list[Row] | None:
        return self._fields.tuples(record, self._value.decode, self._key.decode)

    @property
    def deserialize_columns(self) -> Callable[[Column, Column], list[Row | None]] | None:
        """The way with whole columns; None where a tuple holds parts of the record that are no columns."""
        return self._fields.columns(self._value.decode, self._key.decode)


class AvroReader:
    """Decodes the keys or the values of a topic."""

    def __init__(self, argument: str, schema: Any, registry: SchemaRegistry | None, *, framed: bool) -> None:
        self._registry = registry
        self._framed = framed or registry is not None
        self._without_header = "framed=False" if registry is None else f"{argument}=... in place of registry=..."
        self._argument = argument
        self._given = None if schema is None else _given(argument, schema, is_readers=registry is not None)
        self._by_id: dict[int, ParsedSchema] = {}

    def decode(self, data: Data) -> Any:
        """Return what Avro bytes say. Raises UnreadableData, UnknownSchema and SchemeNotReady."""
        schema_id, body = split_header(data, self._without_header) if self._framed else (None, data)
        writer, reader = self._given, None
        if self._registry is not None:
            assert schema_id is not None
            writer, reader = self._by_id.get(schema_id) or self._look_up(schema_id), self._given
        assert writer is not None, "it was asked for where a field is read"
        if writer.may_be_deep:
            check_nesting(body, writer.parsed, writer.names)
        stream = io.BytesIO(body)
        try:
            found = _fastavro().schemaless_reader(stream, writer.parsed, reader and reader.parsed)["value"]
        except _fastavro().read.SchemaResolutionError as error:
            raise UnreadableData(
                f"it was written with schema id {schema_id}, and {self._argument}= does not fit that schema: "
                f"{error!s:.400}"
            ) from error
        except Exception as error:
            of = "the given schema" if schema_id is None or self._registry is None else f"schema id {schema_id}"
            raise UnreadableData(f"it is not Avro of {of} ({type(error).__name__}: {error})") from error
        left = len(body) - stream.tell()
        if left:
            hint = "" if self._framed else "; if a registry's serializer wrote it, say framed=True or registry=..."
            raise UnreadableData(f"{left} of its {len(body)} bytes are left over after its Avro value{hint}")
        return found

    def _look_up(self, schema_id: int) -> ParsedSchema:
        assert self._registry is not None
        found = self._registry.schema_at_hand(schema_id)
        if found.kind != "AVRO":
            raise UnreadableData(f"its schema id {schema_id} is a schema of {found.kind}, not of AVRO")
        try:
            parsed = parsed_schema(found.text, (text for _, text in found.references))
        except Exception as error:
            raise UnreadableData(f"its schema id {schema_id} cannot be used: {error}") from error
        self._by_id[schema_id] = parsed
        return parsed


class ParsedSchema(NamedTuple):
    """A schema for fastavro, as the only field of a record, ``value``."""

    parsed: Any
    names: Mapping[str, Any]
    """The schemas that have a name, by it."""
    may_be_deep: bool
    """It refers to itself, so that nothing but its bytes bounds how deep a record is nested."""


def parsed_schema(schema: Any, references: Iterable[str] = ()) -> ParsedSchema:
    """Return a schema for fastavro.

    ``references``: texts of the schemas whose names it uses. Raises fastavro's
    errors and ValueError.
    """
    # A record's bytes are those of its fields, so the wrap changes nothing on the wire. Without it fastavro would look
    # for the names that a union of references holds, and find none: only a record carries the names it was parsed with.
    named: dict[str, Any] = {}
    for text in references:
        _fastavro().parse_schema(json.loads(text), named)
    inner = json.loads(schema) if isinstance(schema, str) else schema
    wrapped = {"type": "record", "name": "StreamletOneValue", "fields": [{"name": "value", "type": inner}]}
    parsed = _fastavro().parse_schema(wrapped, named)
    for definition in named.values():
        _read_decimals_exactly(definition)
    return ParsedSchema(parsed, named, refers_to_itself(named))


def find_what_travels(found: Any, steps: PathSteps) -> Any:
    """Return what a path leads to, fit for a tuple. Raises AbsentField."""
    found = find_in_object(found, steps)
    if found.__class__ in TRAVEL:
        return found
    try:
        return in_travelling_form(found)
    except RecursionError:
        raise UnreadableData(f"{'.'.join(steps) or 'it'} is nested too deep to be a field of a tuple") from None


def in_travelling_form(value: Any, depth: int = 0) -> Any:
    """Return a value with decimals, dates, times and UUIDs as text.

    Raises RecursionError where it is nested too deep for a tuple.
    """
    # Counted: how deep the interpreter itself can follow differs from one version of Python to the next.
    if depth > MAX_DEPTH and isinstance(value, dict | list | tuple):
        raise RecursionError
    if isinstance(value, dict):
        return {name: in_travelling_form(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [in_travelling_form(inner, depth + 1) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.isoformat()
    if isinstance(value, date | time_of_day):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value


def _read_decimals_exactly(schema: Any) -> None:
    """Let a reader round no decimal of a schema."""
    # Rule: fastavro takes the precision for the number of digits to round to. A writer that does not keep to it loses
    # nothing here: the number comes as it was written.
    for part in schema if isinstance(schema, list) else ():
        _read_decimals_exactly(part)
    if isinstance(schema, dict):
        if schema.get("logicalType") == "decimal" and isinstance(schema.get("precision"), int):
            schema["precision"] = MOST_DIGITS
        parts = [field["type"] for field in schema.get("fields", ())]
        for part in (*parts, *(schema[key] for key in ("items", "values") if key in schema)):
            _read_decimals_exactly(part)


def _given(argument: str, schema: Any, *, is_readers: bool) -> ParsedSchema:
    try:
        parsed = parsed_schema(deepcopy(schema))
    except Exception as error:
        raise SettingError(
            f"AvroScheme: {argument} is not an Avro schema, as text or as parsed JSON: {type(error).__name__}: {error}"
        ) from error
    if is_readers:
        try:
            decode_defaults(parsed.names, _fastavro().read.LOGICAL_READERS)
        except UnfitDefault as error:
            raise SettingError(
                f"AvroScheme: {argument} cannot be the reader's schema: {error}. Records without the field would have "
                "it: give one that fits."
            ) from error
    return parsed


def _fastavro() -> types.ModuleType:
    """Return the library. Raises SettingError where it is missing."""
    try:
        import fastavro
    except ImportError as error:
        raise SettingError(
            f"AvroScheme needs the library fastavro, which cannot be imported here ({error}). Install it, on every "
            "machine that runs workers: pip install 'streamlet-storm[avro]', or pip install fastavro."
        ) from None
    return fastavro
