"""Records of Protobuf messages as tuples with named fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamlet.base.errors import SettingError
from streamlet.spouts.kafka.errors import UnreadableData
from streamlet.spouts.kafka.schemes.record_fields import AbsentField, ChosenField, Paths, PathSteps, RecordFields
from streamlet.spouts.kafka.schemes.scheme import Column, Record, Row
from streamlet.spouts.kafka.schemes.wire_header import Data, skip_message_indexes, split_header


class ProtobufScheme:
    """Fields of Protobuf messages: the value's, the key's, then parts of the record.

    ``message``, ``key_message``: the classes that protoc generates. ``framed``: a schema registry's header and message
    indexes are skipped; the class is trusted, no registry is asked. A field that has a presence and is not set counts
    as missing. The rest as for JsonScheme. Raises SettingError.
    """

    def __init__(
        self,
        fields: Paths = (),
        *,
        message: Any = None,
        key: Paths = (),
        key_message: Any = None,
        record: Paths = (),
        default: Mapping[str, Any] | None = None,
        tombstones: bool = False,
        framed: bool = False,
    ) -> None:
        self._fields = RecordFields(
            "ProtobufScheme", fields, key, record, default, tombstones=tombstones, find=find_in_message
        )
        self.outputs = self._fields.outputs
        _check("message", message, self._fields.of_value)
        _check("key_message", key_message, self._fields.of_key)
        self._value = MessageReader(message, framed=framed)
        self._key = MessageReader(key_message, framed=framed)

    def deserialize(self, record: Record) -> list[Row] | None:
        return self._fields.tuples(record, self._value.decode, self._key.decode)

    @property
    def deserialize_columns(self) -> Callable[[Column, Column], list[Row | None]] | None:
        """The way with whole columns; None where a tuple holds parts of the record that are no columns."""
        return self._fields.columns(self._value.decode, self._key.decode)


class MessageReader:
    """Decodes keys or values as messages of one class."""

    def __init__(self, message: Any, *, framed: bool) -> None:
        self._message = message
        self._framed = framed

    def decode(self, data: Data) -> Any:
        """Return the message that bytes hold. Raises UnreadableData."""
        body = skip_message_indexes(split_header(data)[1]) if self._framed else data
        try:
            return self._message.FromString(bytes(body))
        except Exception as error:
            name = self._message.DESCRIPTOR.full_name
            raise UnreadableData(f"it is not a Protobuf message {name} ({type(error).__name__}: {error})") from error


def find_in_message(found: Any, steps: PathSteps) -> Any:
    """Return what a path leads to, fit for a tuple. Raises AbsentField.

    ``found``: a message, or None for a record without a key.
    """
    if found is None:
        if steps:
            raise AbsentField("it is null")
        return None
    value, field = found, None
    for at, step in enumerate(steps):
        field = value.DESCRIPTOR.fields_by_name[step]
        if field.has_presence and not value.HasField(step):
            raise AbsentField(f"{'.'.join(steps[: at + 1])!r} is not set")
        value = getattr(value, step)
    return _in_message(value) if field is None else _of_field(field, value)


def _in_message(message: Any) -> dict[str, Any]:
    """Return a message as a dict of the fields that are set."""
    return {field.name: _of_field(field, value) for field, value in message.ListFields()}


def _of_field(field: Any, value: Any) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = kind.fields_by_name["value"]
        return {name: _one(inner, each) for name, each in value.items()}
    return [_one(field, each) for each in value] if field.is_repeated else _one(field, value)


def _one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _in_message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def _check(argument: str, message: Any, fields: Iterable[ChosenField]) -> None:
    """Refuse a class or a path that cannot be. Raises SettingError."""
    fields = list(fields)
    if fields and not (hasattr(message, "DESCRIPTOR") and hasattr(message, "FromString")):
        raise SettingError(
            f"ProtobufScheme: {argument} is {message!r:.80}. It is a class that protoc generates, which needs the "
            "library protobuf on every machine that runs workers: pip install 'streamlet-storm[protobuf]'."
        )
    for _, steps in fields:
        kind = message.DESCRIPTOR
        for step in steps:
            if kind is None or step not in kind.fields_by_name:
                there = "no fields by name" if kind is None else ", ".join(sorted(kind.fields_by_name)) or "no fields"
                raise SettingError(
                    f"ProtobufScheme: {message.DESCRIPTOR.full_name} has no field {'.'.join(steps)!r}: at {step!r} "
                    f"there are {there}."
                )
            field = kind.fields_by_name[step]
            kind = None if field.is_repeated else field.message_type
