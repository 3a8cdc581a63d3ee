"""Records of JSON objects as tuples."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.spouts.kafka import JsonScheme, Record
from streamlet.spouts.kafka.errors import FieldMissing, UnreadableData
from streamlet.spouts.kafka.schemes.scheme import columns_of

VALUES = st.none() | st.fixed_dictionaries({"user": st.text()}, optional={"amount": st.integers()}).map(
    lambda made: json.dumps(made).encode()
)


def record(value: bytes | None, key: bytes | None = None) -> Record:
    return Record("orders", 1, 7, 1700, key, value, ())


@given(st.lists(VALUES, max_size=6), st.booleans(), st.sampled_from([(), ("key",), ("key_text",)]))
def test_columns_of_json_give_what_records_one_by_one_give(values: Any, tombstones: bool, parts: Any) -> None:
    scheme = JsonScheme(["user", "amount"], record=parts, default={"amount": 0}, tombstones=tombstones)
    columns = columns_of(scheme)
    assert columns is not None
    singles = [scheme.deserialize(record(value, b"k")) for value in values]
    assert columns([b"k"] * len(values), values) == [None if single is None else single[0] for single in singles]


def test_a_scheme_that_wants_offsets_takes_records_one_by_one() -> None:
    scheme = JsonScheme(["user"], record=["offset"])
    assert columns_of(scheme) is None
    assert scheme.deserialize(record(b'{"user": "ann"}')) == [["ann", 7]]


def test_a_value_that_is_no_json_is_named_with_its_begin() -> None:
    for wrong in (b"<xml/>", b"", b"\xff", b"[" * 200_000):
        with pytest.raises(UnreadableData, match="its value cannot be read: it is not JSON"):
            JsonScheme(["user"], key=["."]).deserialize(record(wrong, b"1"))
    with pytest.raises(UnreadableData, match="its key cannot be read: it is not JSON"):
        JsonScheme(["user"], key=["."]).deserialize(record(b'{"user": 1}', b"k"))
    with pytest.raises(FieldMissing, match="its value has no field 'user': it is 3, which is not an object"):
        JsonScheme(["user"]).deserialize(record(b"3"))


def test_numbers_beyond_json_are_taken_as_floats() -> None:
    """Python's json and others write them; `docs schemes` says so."""
    scheme = JsonScheme(["n"])
    for number, value in ((b"1e400", "inf"), (b"-Infinity", "-inf"), (b"NaN", "nan")):
        assert str(scheme.deserialize(record(b'{"n": %b}' % number))) == f"[[{value}]]"


def test_a_registrys_header_is_skipped_where_the_topic_has_one() -> None:
    scheme = JsonScheme(["user"], framed=True)
    assert scheme.deserialize(record(b'\0\0\0\0\x05{"user": "ann"}')) == [["ann"]]
    with pytest.raises(UnreadableData, match="does not begin with a schema registry's header"):
        scheme.deserialize(record(b'{"user": "ann"}'))


def test_a_json_scheme_travels() -> None:
    scheme = pickle.loads(pickle.dumps(JsonScheme(["user"], record=["offset"], framed=True)))
    assert scheme.outputs == ("user", "offset")
    assert scheme.deserialize(record(b'\0\0\0\0\x05{"user": "ann"}')) == [["ann", 7]]
