"""The fields that a scheme takes from a decoded record, and the row made of them.

A tuple has the fields of the value first, then those of the key, then the parts of the record itself. A field is named
by its path, dots as underscores; fields of the key begin with ``key_``. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

from streamlet.base.errors import SettingError
from streamlet.spouts.kafka.errors import FieldMissing, UnreadableData
from streamlet.spouts.kafka.schemes.scheme import Column, Record, Row
from streamlet.spouts.kafka.schemes.wire_header import Data

Paths = Sequence[str] | Mapping[str, str | Sequence[str]]
"""Paths as ``"customer.name"``, or names with their paths. A path may be given in steps, which may have dots."""

PathSteps = tuple[str, ...]
DecodeBytes = Callable[[Data], Any]

WHOLE = "."
"""The path of all that a key or a value holds."""

OF_THE_RECORD = ("topic", "partition", "offset", "timestamp", "headers", "key", "key_text")
OF_ITS_KEY = frozenset({"key", "key_text"})


class AbsentField(LookupError):
    """A path leads nowhere; the text says what stands there instead."""


class ChosenField(NamedTuple):
    """A field of the tuple, and its path in key or value."""

    name: str
    steps: PathSteps


def find_in_object(found: Any, steps: PathSteps) -> Any:
    """Return what a path leads to through dicts. Raises AbsentField."""
    for at, step in enumerate(steps):
        if not isinstance(found, dict):
            where = f"{'.'.join(steps[:at])!r}" if at else "it"
            raise AbsentField(f"{where} is {found!r:.80}, which is not an object")
        if step not in found:
            where = f"{'.'.join(steps[:at])!r}" if at else "it"
            names = ", ".join(map(str, list(found)[:12])) + (", ..." if len(found) > 12 else "")
            raise AbsentField(f"{where} has {names or 'no fields'}")
        found = found[step]
    return found


class RecordFields:
    """Makes a record's row from its decoded key and value.

    ``find`` follows a path in decoded data, or raises AbsentField. Raises SettingError for names that
    clash, and for defaults of no field.
    """

    def __init__(
        self,
        scheme: str,
        fields: Paths,
        key: Paths = (),
        record: Paths = (),
        default: Mapping[str, Any] | None = None,
        *,
        tombstones: bool = False,
        find: Callable[[Any, PathSteps], Any] = find_in_object,
    ) -> None:
        self.of_value = _chosen(scheme, "fields", fields, "value", "")
        self.of_key = _chosen(scheme, "key", key, "key", "key_")
        self._of_record = _parts(scheme, record)
        self._tombstones = tombstones
        self._default = _defaults(scheme, default)
        self._find = find
        read = [field.name for field in (*self.of_value, *self.of_key)]
        self.outputs = (*read, *(name for name, _ in self._of_record))
        """The names of the fields, in order."""
        self._check_names(scheme, read)
        self.needs_no_record = OF_ITS_KEY.issuperset(part for _, part in self._of_record)
        """Whether keys and values are enough, so that whole columns can be taken."""
        flat = find is find_in_object and self.needs_no_record and not (self.of_key or self._of_record)
        steps = [field.steps for field in self.of_value]
        self._flat = [step for (step,) in steps] if flat and all(len(one) == 1 for one in steps) else None

    def _check_names(self, scheme: str, read: Sequence[str]) -> None:
        if not self.outputs:
            raise SettingError(f'{scheme} has no fields. Name those of the value: {scheme}(["user", "amount"]).')
        twice = sorted({name for name in self.outputs if self.outputs.count(name) > 1})
        if twice:
            raise SettingError(
                f"{scheme} gives two fields of its tuples the name {twice[0]!r}: they would be "
                f"{', '.join(self.outputs)}. "
                f'Choose another name for one of them with a dict of names and paths: {{"other": "{twice[0]}"}}.'
            )
        unknown = sorted(set(self._default) - set(read))
        if unknown:
            raise SettingError(
                f"{scheme}: default names {unknown[0]!r}. Only fields that are read from a key or a value "
                f"have one: {', '.join(read) or 'none here'}."
            )

    def tuples(self, record: Record, decode_value: DecodeBytes, decode_key: DecodeBytes) -> list[Row] | None:
        """Return the only tuple of a record, as a scheme's ``deserialize`` does."""
        row = self.row(record, decode_value, decode_key)
        return None if row is None else [row]

    def columns(
        self, decode_value: DecodeBytes, decode_key: DecodeBytes
    ) -> Callable[[Column, Column], list[Row | None]] | None:
        """Return the way with columns, or None, as a scheme's ``deserialize_columns`` is."""
        if not self.needs_no_record:
            return None
        return partial(self.rows, decode_value=decode_value, decode_key=decode_key)

    def row(self, record: Record, decode_value: DecodeBytes, decode_key: DecodeBytes) -> Row | None:
        """Return the values of a record's tuple; None: a tombstone, to be passed over.

        Raises UnreadableData and FieldMissing, and what the decoders raise.
        """
        return self._row(record.key, record.value, record, decode_value, decode_key)

    def rows(
        self, keys: Column, values: Column, decode_value: DecodeBytes, decode_key: DecodeBytes
    ) -> list[Row | None]:
        """Return the rows of many records, as ``row`` does; only with ``needs_no_record``."""
        flat = self._flat
        if flat is None or (self._tombstones and None in values):
            return [
                self._row(key, value, None, decode_value, decode_key) for key, value in zip(keys, values, strict=True)
            ]
        rows: list[Row | None] = []
        for value in values:
            if value is None:
                rows.append(None)
                continue
            found = decode_value(value)
            try:
                rows.append([found[name] for name in flat])
            except (KeyError, TypeError):  # a default, or the sentence about a missing field
                rows.append(self._found(self.of_value, "value", found))
        return rows

    def _row(
        self,
        key: Data | None,
        value: Data | None,
        record: Record | None,
        decode_value: DecodeBytes,
        decode_key: DecodeBytes,
    ) -> Row | None:
        row: list[Any] = []
        if value is None:
            if not self._tombstones:
                return None
            row += [None] * len(self.of_value)
        elif self.of_value:
            row += self._found(self.of_value, "value", _decoded(decode_value, value, "value"))
        if self.of_key:
            row += self._found(self.of_key, "key", None if key is None else _decoded(decode_key, key, "key"))
        for _, part in self._of_record:
            row.append(_part(part, key, record))
        return row

    def _found(self, fields: Iterable[ChosenField], side: str, decoded: Any) -> list[Any]:
        row = []
        for name, steps in fields:
            try:
                row.append(self._find(decoded, steps))
            except AbsentField as absent:
                if name not in self._default:
                    raise FieldMissing(f"its {side} has no field {'.'.join(steps)!r}: {absent}") from None
                row.append(deepcopy(self._default[name]))  # a bolt may change what it gets
        return row


def _decoded(decode: DecodeBytes, data: Data, side: str) -> Any:
    try:
        return decode(data)
    except UnreadableData as error:
        raise UnreadableData(f"its {side} cannot be read: {error.message}") from error


def _part(part: str, key: Data | None, record: Record | None) -> Any:
    """Return a part of the record itself, in a form that travels."""
    if part == "key":
        return None if key is None else bytes(key)
    if part == "key_text":
        try:
            return None if key is None else str(key, "utf-8")
        except UnicodeDecodeError:
            raise UnreadableData(f"its key is not UTF-8 text: {bytes(key or b'')!r:.120}") from None
    assert record is not None
    if part == "headers":
        return [[name, None if value is None else bytes(value)] for name, value in record.headers]
    return getattr(record, part)


def _chosen(scheme: str, argument: str, given: Paths, whole: str, prefix: str) -> tuple[ChosenField, ...]:
    """Return the fields that a user names for key or value. Raises SettingError."""
    fields = []
    for name, path in _named(scheme, argument, given).items():
        given_steps = path.split(".") if isinstance(path, str) else path if isinstance(path, Iterable) else [path]
        steps = () if path == WHOLE else tuple(given_steps)
        if not all(isinstance(step, str) and step for step in steps) or not path:
            raise SettingError(f'{scheme}: {argument} holds the path {path!r}. A path is "user" or "customer.name".')
        if not isinstance(given, Mapping):
            name = whole if path == WHOLE else prefix + "_".join(steps)
        fields.append(ChosenField(name, steps))
    return tuple(fields)


def _defaults(scheme: str, given: Any) -> dict[str, Any]:
    try:
        return dict(given or {})
    except (TypeError, ValueError):
        raise SettingError(
            f'{scheme}: default is {given!r:.120}. It is a dict of names of fields and their values, {{"amount": 0}}.'
        ) from None


def _parts(scheme: str, given: Paths) -> tuple[tuple[str, str], ...]:
    parts = []
    for name, part in _named(scheme, "record", given).items():
        if part not in OF_THE_RECORD:
            raise SettingError(f"{scheme}: record names {part!r}. A record has {', '.join(OF_THE_RECORD)}.")
        parts.append((name, str(part)))
    return tuple(parts)


def _named(scheme: str, argument: str, given: Paths) -> dict[str, Any]:
    """Return paths by name. Raises SettingError. In a list the paths are the names."""
    named = dict(given) if isinstance(given, Mapping) else None
    if named is None and isinstance(given, Sequence) and not isinstance(given, str | bytes):
        named = {path: path for path in given if isinstance(path, str)}
        if len(named) < len(given):
            named = None
    if named is None or not all(isinstance(name, str) and name for name in named):
        raise SettingError(
            f'{scheme}: {argument} is {given!r:.120}. It is a list of different names, ["user", "customer.name"], or a '
            'dict of names of fields and their paths, {"name": "customer.name"}.'
        )
    return named
