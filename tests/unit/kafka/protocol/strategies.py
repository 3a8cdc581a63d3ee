"""Any message in any version, made from its field table, so that a new message is tested by being registered."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from streamlet.kafka.protocol import schema
from streamlet.kafka.protocol.schema import Array, Kind, Struct, Wire, uuid_text

_RANGES = {schema.INT8: 8, schema.INT16: 16, schema.INT32: 32, schema.INT64: 64}


def values_of(kind: Kind, version: int, flexible: bool, nullable: bool) -> st.SearchStrategy[Any]:
    """What a field of this kind may hold."""
    if kind in _RANGES:
        half = 1 << (_RANGES[kind] - 1)
        return st.integers(-half, half - 1)
    if kind is schema.BOOL:
        return st.booleans()
    if kind is schema.UUID:
        return st.binary(min_size=16, max_size=16).map(uuid_text)
    if isinstance(kind, Struct):
        made = messages(kind._cls, version, flexible)
        return st.none() | made if nullable else made
    if isinstance(kind, Array):
        found = st.lists(values_of(kind._item, version, flexible, False), max_size=3).map(tuple)
    elif kind is schema.STRING:
        found = st.text(max_size=20)
    else:
        found = st.binary(max_size=40)
    return st.none() | found if nullable else found


def messages(cls: type, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    """Instances with every field of the version set, and the others at their defaults."""
    fields = {}
    for spec in dataclasses.fields(cls):
        row: Wire = spec.metadata["wire"]
        if not row.since <= version <= row.until or (row.tag is not None and not flexible):
            continue
        fields[spec.name] = values_of(row.kind, version, flexible, version >= row.nullable_since)
    return st.builds(cls, **fields)
