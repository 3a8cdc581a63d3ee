"""Records of Avro as tuples: with a schema at hand, and with those of a registry."""

from __future__ import annotations

import io
import json
import pickle
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from streamlet.base.errors import SettingError
from streamlet.components.tuples import MAX_DEPTH
from streamlet.runtime.tasks.values import travelling
from streamlet.spouts.kafka import AvroScheme, Record, SchemaRegistry
from streamlet.spouts.kafka.errors import FieldMissing, UnreadableData
from streamlet.spouts.kafka.schemes.schema_registry import RegisteredSchema
from streamlet.spouts.kafka.schemes.scheme import columns_of

ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "user", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
ANN = {"user": "ann", "amount": Decimal("1.50"), "at": datetime(2026, 1, 2, 3, tzinfo=UTC), "day": date(2026, 1, 2)}


def avro(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + avro(schema, value)


def record(value: bytes | None, key: bytes | None = None) -> Record:
    return Record("orders", 1, 7, 1700, key, value, ())


def registry(**schemas: RegisteredSchema) -> SchemaRegistry:
    """Return one that has its schemas already."""
    made = SchemaRegistry("http://nowhere:1")
    made._known.update({schema.schema_id: schema for schema in schemas.values()})
    return made


def test_avro_with_a_given_schema_becomes_rows_that_travel() -> None:
    scheme = AvroScheme(["user", "amount", "at", "day"], schema=json.dumps(ORDER))
    row = ["ann", "1.50", datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02"]
    assert scheme.deserialize(record(avro(ORDER, ANN))) == [row]
    assert scheme.deserialize(record(None)) is None
    columns = columns_of(pickle.loads(pickle.dumps(scheme)))
    assert columns is not None and columns([None, None], [avro(ORDER, ANN), None]) == [row, None]


def test_avro_of_a_registry_is_read_with_the_schema_of_each_record() -> None:
    newer = {"type": "record", "name": "Order", "fields": [{"name": "user", "type": "string"}]}
    known = registry(
        a=RegisteredSchema(1, "AVRO", json.dumps(ORDER)),
        b=RegisteredSchema(2, "AVRO", json.dumps(newer)),
        key=RegisteredSchema(3, "AVRO", '"long"'),
    )
    scheme = AvroScheme(["user"], key=["."], record=["offset"], registry=known)
    assert scheme.outputs == ("user", "key", "offset")
    assert scheme.deserialize(record(framed(1, ORDER, ANN), framed(3, "long", 9))) == [["ann", 9, 7]]
    assert scheme.deserialize(record(framed(2, newer, {"user": "b"}), framed(3, "long", 8))) == [["b", 8, 7]]
    with pytest.raises(FieldMissing, match="its value has no field 'amount': it has user"):
        AvroScheme(["amount"], registry=known).deserialize(record(framed(2, newer, {"user": "b"})))


def test_a_given_schema_beside_a_registry_is_the_readers() -> None:
    reader = {"type": "record", "name": "Order", "fields": [{"name": "user", "type": ["null", "string"]}]}
    more = {"name": "more", "type": "int", "default": 5}
    reader["fields"] = [*reader["fields"], more]  # type: ignore[misc]
    known = registry(a=RegisteredSchema(1, "AVRO", json.dumps(ORDER)))
    scheme = AvroScheme(["user", "more"], registry=known, schema=reader)
    assert scheme.deserialize(record(framed(1, ORDER, ANN))) == [["ann", 5]]


def test_references_and_unions_of_references_are_found() -> None:
    items = {
        "type": "record",
        "name": "Items",
        "fields": [{"name": "all", "type": {"type": "array", "items": "shop.Item"}}],
    }
    needs = (("shop.Item", json.dumps(ITEM)),)
    known = registry(
        a=RegisteredSchema(1, "AVRO", json.dumps(items), needs),
        b=RegisteredSchema(2, "AVRO", json.dumps(["null", "shop.Item"]), needs),
    )
    item = fastavro.parse_schema(ITEM)
    array = b"\0\0\0\0\x01\x02" + avro(item, {"sku": "x"}) + b"\0"
    assert AvroScheme(["all"], registry=known).deserialize(record(array)) == [[[{"sku": "x"}]]]
    of_union = b"\0\0\0\0\x02\x02" + avro(item, {"sku": "y"})
    assert AvroScheme(["sku"], registry=known).deserialize(record(of_union)) == [["y"]]


def test_bytes_that_are_not_of_the_schema_are_named() -> None:
    known = registry(a=RegisteredSchema(1, "AVRO", json.dumps(ORDER)), p=RegisteredSchema(2, "PROTOBUF", "syntax"))
    scheme = AvroScheme(["user"], registry=known)
    with pytest.raises(UnreadableData, match="its value cannot be read: it is not Avro of schema id 1"):
        scheme.deserialize(record(framed(1, ORDER, ANN)[:9]))
    with pytest.raises(UnreadableData, match="a schema of PROTOBUF, not of AVRO"):
        scheme.deserialize(record(b"\0\0\0\0\x02abc"))
    with pytest.raises(UnreadableData, match=r"registry's header.* say schema=... in place of registry=..."):
        scheme.deserialize(record(avro(ORDER, ANN)))
    plain = AvroScheme(["."], schema='"int"')
    with pytest.raises(UnreadableData, match=r"5 of its 6 bytes are left over.* say framed=True"):
        plain.deserialize(record(framed(1, "int", 1)))
    assert AvroScheme(["."], schema='"int"', framed=True).deserialize(record(framed(1, "int", 1))) == [[1]]


def test_arguments_of_an_avro_scheme_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="give schema="):
        AvroScheme(["user"])
    with pytest.raises(SettingError, match="give key_schema="):
        AvroScheme(["user"], schema=ORDER, key=["id"])
    with pytest.raises(SettingError, match="schema is not an Avro schema"):
        AvroScheme(["user"], schema={"type": "rekord"})
    with pytest.raises(SettingError, match="leave `framed` out"):
        AvroScheme(["user"], registry=registry(), framed=False)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(SettingError, match=r"pip install 'streamlet-storm\[avro\]'"):
        AvroScheme(["user"], schema=ORDER)


LIST = {
    "type": "record",
    "name": "Linked",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Linked"]}],
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 3}},
        {"name": "note", "type": ["null", "string", "double", "float", "boolean"]},
        {"name": "below", "type": {"type": "array", "items": "Tree"}},
        {"name": "named", "type": {"type": "map", "values": ["null", "Tree"]}},
    ],
}


def linked(length: int) -> bytes:
    return b"\x02\x02" * (length - 1) + b"\x02\x00"


@pytest.mark.parametrize("length", [600, 100_000])
def test_a_record_nested_without_bound_is_unreadable_and_kills_no_worker(length: int) -> None:
    """The compiled reader has no bound: the worker ended by a signal, and so did each that read the record then."""
    scheme = AvroScheme(["v"], schema=LIST)
    with pytest.raises(UnreadableData, match=r"deeper than 1000 .* its schema allows, for it refers to itself"):
        scheme.deserialize(record(linked(length)))
    assert scheme.deserialize(record(linked(490))) == [[1]]
    known = registry(a=RegisteredSchema(1, "AVRO", json.dumps(["null", "Linked"]), (("Linked", json.dumps(LIST)),)))
    with pytest.raises(UnreadableData, match="nested deeper"):
        AvroScheme(["v"], registry=known).deserialize(record(b"\0\0\0\0\x01\x02" + linked(length)))


def test_what_is_too_deep_to_travel_is_unreadable() -> None:
    with pytest.raises(UnreadableData, match="next is nested too deep to be a field of a tuple"):
        AvroScheme(["v", "next"], schema=LIST).deserialize(record(linked(499)))
    # What a tuple takes is read, and one more is not; each of these records is one more around the last.
    scheme = AvroScheme(["next"], schema=LIST)
    ((found,),) = scheme.deserialize(record(linked(MAX_DEPTH + 2)))
    assert travelling([found], "spout", "default", ["next"]) == [found]
    with pytest.raises(UnreadableData, match="nested too deep"):
        scheme.deserialize(record(linked(MAX_DEPTH + 3)))


def test_a_schema_that_holds_itself_without_end_is_read_by_no_record() -> None:
    endless = {"type": "record", "name": "Endless", "fields": [{"name": "again", "type": "Endless"}]}
    with pytest.raises(UnreadableData, match="nested deeper"):
        AvroScheme(["."], schema=endless).deserialize(record(b""))


def test_records_of_a_schema_that_refers_to_itself_are_followed_through_all_kinds() -> None:
    leaf = {"kind": "B", "mark": b"abc", "note": 1.5, "below": [], "named": {}}
    tree = {"kind": "A", "mark": b"xyz", "note": None, "below": [leaf, leaf], "named": {"a": leaf, "b": None}}
    scheme = AvroScheme(["."], schema=TREE)
    written = avro(fastavro.parse_schema(TREE), tree)
    assert scheme.deserialize(record(written)) == [[tree]]
    # Blocks whose size is written, as other languages do; and bytes that end anywhere are for the reader to refuse.
    sized = b"\0abc\0\x01\x0e" + b"\0abc\0\0\0" + b"\0\0"
    assert scheme.deserialize(record(sized))
    for at in range(len(written)):
        with pytest.raises(UnreadableData, match="not Avro of the given schema"):
            scheme.deserialize(record(written[:at]))


def of_type(kind: Any, **more: Any) -> dict[str, Any]:
    """Return a record's schema: an id, and a field of that type."""
    fields = [{"name": "id", "type": "int"}, {"name": "more", "type": kind, **more}]
    return {"type": "record", "name": "Versioned", "fields": fields}


OLD = {"type": "record", "name": "Versioned", "fields": [{"name": "id", "type": "int"}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [
        {"name": "city", "type": "string", "default": "?"},
        {"name": "price", "type": DECIMAL, "default": "\xff"},
    ],
}


@pytest.mark.parametrize(
    ("kind", "default", "written"),
    [
        ({"type": "int", "logicalType": "date"}, 19000, date(2022, 1, 8)),
        ({"type": "long", "logicalType": "timestamp-millis"}, 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (DECIMAL, "\x00\xff", Decimal("2.55")),
        ("bytes", "\xff\x01", b"\xff\x01"),
        ({"type": "fixed", "name": "Two", "size": 2}, "\xff\x01", b"\xff\x01"),
        ("double", 1, 1.0),
        ("double", "NaN", None),
        ("float", 0.1, 0.1),
        ("boolean", True, True),
        ({"type": "enum", "name": "Letter", "symbols": ["A", "B"]}, "B", "B"),
        (PLACE, {}, {"city": "?", "price": Decimal("-0.01")}),
        (PLACE, {"city": "Rome"}, {"city": "Rome", "price": Decimal("-0.01")}),
        ({"type": "array", "items": DECIMAL}, ["\x01"], [Decimal("0.01")]),
        ({"type": "map", "values": PLACE}, {"a": {}}, {"a": {"city": "?", "price": Decimal("-0.01")}}),
        (["null", "string"], None, None),
        ([DECIMAL, "null"], "\x01", Decimal("0.01")),
    ],
)
def test_a_default_of_the_readers_schema_is_what_a_record_written_with_it_has(
    kind: Any, default: Any, written: Any
) -> None:
    """They came as JSON has them: the same field was a date of new records and a number of old ones."""
    new = of_type(kind, default=default)
    known = registry(a=RegisteredSchema(1, "AVRO", json.dumps(OLD)), b=RegisteredSchema(2, "AVRO", json.dumps(new)))
    scheme = AvroScheme(["more"], registry=known, schema=new)
    if default == "NaN":
        written = float("nan")
    (old_row,) = scheme.deserialize(record(framed(1, OLD, {"id": 1}))) or ()
    (new_row,) = scheme.deserialize(record(framed(2, fastavro.parse_schema(new), {"id": 2, "more": written}))) or ()
    assert repr(old_row) == repr(new_row)
    assert new["fields"][1]["default"] == default, "the user's own dict stays as it is"


@pytest.mark.parametrize(
    ("kind", "default", "why"),
    [
        ("bytes", "\u0100", "can't encode character"),
        ("int", 1 << 31, "2147483648 is not a whole number of type int"),
        ("float", 1e300, "too large"),
        ({"type": "fixed", "name": "Two", "size": 2}, "x", "is not text of 2 characters"),
        ({"type": "int", "logicalType": "date"}, 1 << 30, "out of range"),
        (["null", {"type": "fixed", "name": "Two", "size": 2}], "x", "no branch of its union takes 'x'"),
        (
            {"type": "record", "name": "Bare", "fields": [{"name": "a", "type": "int"}]},
            {},
            "lacks the field 'a' of Bare",
        ),
        ({"type": "array", "items": "string"}, [1], "1 is not text"),
        (
            {"type": "record", "name": "Self", "fields": [{"name": "a", "type": "Self", "default": {}}]},
            {},
            "it holds itself",
        ),
    ],
)
def test_a_default_that_its_field_cannot_have_is_refused(kind: Any, default: Any, why: str) -> None:
    known, schema = registry(), of_type(kind, default=default)
    with pytest.raises(SettingError, match=r"the default of the field '(more|a)' of .*does not fit: ") as raised:
        AvroScheme(["more"], registry=known, schema=schema)
    assert why in raised.value.message
    with pytest.raises(SettingError, match="key_schema cannot be the reader's"):
        AvroScheme(key=["more"], registry=known, key_schema=schema)
    AvroScheme(["more"], schema=schema)  # alone no record lacks a field


def test_a_record_that_the_given_schema_does_not_fit_is_told_from_bytes_that_are_no_avro() -> None:
    known = registry(a=RegisteredSchema(1, "AVRO", json.dumps(OLD)))
    scheme = AvroScheme(["more"], registry=known, schema=of_type("int"))
    with pytest.raises(
        UnreadableData, match="with schema id 1, and schema= does not fit that schema: No default value"
    ):
        scheme.deserialize(record(framed(1, OLD, {"id": 1})))


def test_a_decimal_with_more_digits_than_its_precision_is_exact() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    union = ["null", {"type": "array", "items": schema}]
    body = b"\x08" + (123456789).to_bytes(4, "big")
    assert AvroScheme(["."], schema=schema).deserialize(record(body)) == [["1234567.89"]]
    assert AvroScheme(["."], schema=union).deserialize(record(b"\x02\x02" + body + b"\0")) == [[["1234567.89"]]]
    assert schema["precision"] == 4
