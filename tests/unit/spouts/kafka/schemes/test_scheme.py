"""Schemes: one record to many tuples, columns equal to one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.base.errors import SettingError
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from streamlet.spouts.kafka.schemes.scheme import (
    KeyValueScheme,
    RawScheme,
    Record,
    StringKeyValueScheme,
    StringScheme,
    as_scheme,
)

SCHEMES = [StringScheme(), RawScheme(), KeyValueScheme(), StringKeyValueScheme()]
TEXT = st.none() | st.text(max_size=5).map(str.encode)


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record("t", 0, 0, 0, key, value, ())


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: type(s).__name__)
@given(st.lists(st.tuples(TEXT, TEXT), max_size=8), st.booleans())
def test_columns_give_what_records_one_by_one_give(
    scheme: Any, pairs: list[tuple[bytes | None, bytes | None]], as_views: bool
) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    if as_views:
        values = [value and memoryview(value) for value in values]
    rows = [*scheme.deserialize_columns(keys, values)]
    singles = [scheme.deserialize(record(key, value)) for key, value in pairs]
    assert rows == [None if single is None else single[0] for single in singles]
    assert all(row is None or len(row) == len(scheme.outputs) for row in rows)


def test_the_default_gives_one_text_field_named_value() -> None:
    assert tuple(StringScheme.outputs) == ("value",)
    assert StringScheme().deserialize(record(None, "grün".encode())) == [["grün"]]


def test_undecodable_text_raises() -> None:
    with pytest.raises(UnicodeDecodeError):
        StringScheme().deserialize(record(None, b"\xff"))


def test_a_tombstone_is_passed_over_unless_keys_are_read() -> None:
    assert StringScheme().deserialize(record(b"k", None)) is None
    assert StringKeyValueScheme().deserialize(record(b"k", None)) == [["k", None]]


def test_a_plain_function_needs_its_fields_named() -> None:
    def words(record: Record) -> list[Sequence[Any]]:
        return [[word] for word in str(record.value, "utf-8").split()]

    scheme = as_scheme(words, ["word"])
    assert scheme.outputs == ("word",)
    assert list(scheme.deserialize(record(None, b"a b")) or ()) == [["a"], ["b"]]
    with pytest.raises(SettingError, match="Name them"):
        as_scheme(words)


def test_a_value_that_is_not_a_scheme_is_refused() -> None:
    class Nameless:
        def deserialize(self, record: Record) -> None: ...

    with pytest.raises(SettingError, match="has no `outputs`"):
        as_scheme(Nameless())
    with pytest.raises(SettingError, match="A scheme is an object"):
        as_scheme(42)
    assert isinstance(as_scheme(RawScheme), RawScheme)


def test_a_class_of_schemes_that_needs_arguments_is_refused_with_what_to_give() -> None:
    class Needs(RawScheme):
        def __init__(self, unit: str) -> None: ...

    said = r"the class Needs, which cannot be made without arguments .*'unit'\)\. Give an object of it: scheme=Needs"
    with pytest.raises(SettingError, match=said):
        as_scheme(Needs)
    with pytest.raises(SettingError, match=said):
        SpoutConfig(KafkaHosts("a:1"), "t", id="i", scheme=Needs)
