"""Fields of records: their names, the rows made of them, and what is said of one that is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.spouts.kafka.errors import FieldMissing
from streamlet.spouts.kafka.schemes.record_fields import RecordFields
from streamlet.spouts.kafka.schemes.scheme import Record

ORDER = {"user": "ann", "amount": 3, "customer": {"name": "Ann", "a.b": 7}, "tags": ["x"]}


def row(fields: RecordFields, value: Any, key: Any = None) -> Any:
    record = Record("t", 2, 5, 77, json.dumps(key).encode(), json.dumps(value).encode(), [("h", memoryview(b"1"))])
    return fields.row(record, lambda data: json.loads(bytes(data)), lambda data: json.loads(bytes(data)))


def test_a_tuple_has_fields_of_the_value_then_of_the_key_then_of_the_record() -> None:
    fields = RecordFields("S", ["user", "customer.name"], ["id"], ["partition", "offset", "timestamp", "topic"])
    assert fields.outputs == ("user", "customer_name", "key_id", "partition", "offset", "timestamp", "topic")
    assert row(fields, ORDER, {"id": 9}) == ["ann", "Ann", 9, 2, 5, 77, "t"]


def test_fields_can_be_named_and_paths_given_in_steps() -> None:
    fields = RecordFields("S", {"who": "customer.name", "seven": ("customer", "a.b")}, {"id": "."}, {"at": "timestamp"})
    assert fields.outputs == ("who", "seven", "id", "at")
    assert row(fields, ORDER, 9) == ["Ann", 7, 9, 77]


def test_the_whole_of_a_value_and_of_a_key_can_be_a_field() -> None:
    fields = RecordFields("S", ["."], ["."])
    assert fields.outputs == ("value", "key")
    assert row(fields, [1], "k") == [[1], "k"]


def test_headers_and_the_key_come_in_a_form_that_travels() -> None:
    fields = RecordFields("S", (), (), ["headers", "key", "key_text"])
    assert row(fields, "anything", 1) == [[["h", b"1"]], b"1", "1"]


def test_a_missing_field_is_named_with_what_was_found() -> None:
    with pytest.raises(FieldMissing, match="its value has no field 'price': it has user, amount, customer, tags"):
        row(RecordFields("S", ["price"]), ORDER)
    with pytest.raises(FieldMissing, match=r"no field 'customer\.street': 'customer' has name, a\.b"):
        row(RecordFields("S", ["customer.street"]), ORDER)
    with pytest.raises(FieldMissing, match=r"no field 'user\.name': 'user' is 'ann', which is not an object"):
        row(RecordFields("S", ["user.name"]), ORDER)
    with pytest.raises(FieldMissing, match=r"its value has no field 'user': it is \[1\], which is not an object"):
        row(RecordFields("S", ["user"]), [1])
    with pytest.raises(FieldMissing, match="its key has no field 'id': it is None"):
        row(RecordFields("S", ["user"], ["id"]), ORDER)


def test_a_default_stands_for_a_missing_field_and_is_each_tuples_own() -> None:
    fields = RecordFields("S", ["user", "more"], default={"more": []})
    first = row(fields, ORDER)
    first[1].append(1)
    assert row(fields, ORDER) == ["ann", []]
    assert row(fields, {"user": None, "more": None}) == [None, None], "null is a value"
    assert fields.rows([None], [b""], lambda data: {"user": "b"}, json.loads) == [["b", []]]


def test_a_tombstone_is_passed_over_unless_it_is_wanted() -> None:
    tombstone = Record("t", 0, 0, 0, b'"k"', None, ())
    assert RecordFields("S", ["user"]).row(tombstone, json.loads, json.loads) is None
    wanted = RecordFields("S", ["user"], ["."], tombstones=True)
    assert wanted.row(tombstone, json.loads, json.loads) == [None, "k"]
    alone = RecordFields("S", ["user"], tombstones=True)
    assert alone.rows([None, None], [None, b'{"user": 1}'], json.loads, json.loads) == [[None], [1]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fields": ["key"], "record": ["key"]}, "two fields of its tuples the name 'key'.*key, key"),
        ({"fields": ["a_b", "a.b"]}, "the name 'a_b'"),
        ({"fields": ["a", "a"]}, "a list of different names"),
        ({"fields": "user"}, "fields is 'user'. It is a list"),
        ({"fields": ["a..b"]}, r"the path 'a\.\.b'"),
        ({"fields": ["a"], "record": ["ofset"]}, "record names 'ofset'. A record has topic, partition, offset"),
        ({"fields": ["a"], "default": {"b": 1}}, "default names 'b'.*: a"),
        ({"fields": []}, "has no fields"),
        ({"fields": {"x": 5}}, "fields holds the path 5"),
        ({"fields": ["a"], "key": {"x": None}}, "key holds the path None"),
        ({"fields": ["a"], "default": ["a"]}, r"default is \['a'\]. It is a dict"),
        ({"fields": ["a"], "default": 3}, "default is 3. It is a dict"),
    ],
)
def test_names_that_cannot_be_are_refused_at_construction(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        RecordFields("S", **given)
