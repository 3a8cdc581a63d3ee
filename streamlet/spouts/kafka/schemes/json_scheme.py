"""Records of JSON objects as tuples with named fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from streamlet.spouts.kafka.errors import UnreadableData
from streamlet.spouts.kafka.schemes.record_fields import Paths, RecordFields
from streamlet.spouts.kafka.schemes.scheme import Column, Record, Row
from streamlet.spouts.kafka.schemes.wire_header import Data, split_header


class JsonScheme:
    """Fields of JSON objects: the value's, the key's, then parts of the record.

    ``fields`` and ``key``: paths (``"user"``, ``"customer.name"``), or a dict of names and paths. ``record``: parts of
    the record, see ``record_fields.OF_THE_RECORD``. ``default``: by name of a field, the value where it is missing.
    ``tombstones``: let null values come, with None in their fields. ``framed``: a schema registry's header is skipped.
    """

    def __init__(
        self,
        fields: Paths = (),
        *,
        key: Paths = (),
        record: Paths = (),
        default: Mapping[str, Any] | None = None,
        tombstones: bool = False,
        framed: bool = False,
    ) -> None:
        self._fields = RecordFields("JsonScheme", fields, key, record, default, tombstones=tombstones)
        self._decode = decode_framed_json if framed else decode_json
        self.outputs = self._fields.outputs

    def deserialize(self, record: Record) -> list[Row] | None:
        return self._fields.tuples(record, self._decode, self._decode)

    @property
    def deserialize_columns(self) -> Callable[[Column, Column], list[Row | None]] | None:
        """The way with whole columns; None where a tuple holds parts of the record that are no columns."""
        return self._fields.columns(self._decode, self._decode)


def decode_json(data: Data) -> Any:
    """Return what UTF-8 JSON says. Raises UnreadableData."""
    try:
        return json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        said = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise UnreadableData(f"it is not JSON ({said}); it begins with {bytes(data[:80])!r}") from None


def decode_framed_json(data: Data) -> Any:
    """Return what JSON after a schema registry's header says. Raises UnreadableData."""
    return decode_json(split_header(data)[1])
