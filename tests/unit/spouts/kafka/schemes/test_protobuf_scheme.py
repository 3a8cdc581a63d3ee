"""Records of Protobuf messages as tuples."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from streamlet.base.errors import SettingError
from streamlet.spouts.kafka import ProtobufScheme, Record
from streamlet.spouts.kafka.errors import FieldMissing, UnreadableData
from streamlet.spouts.kafka.schemes.scheme import columns_of

FIELDS = {
    "user": {"type": 9},
    "note": {"type": 9, "proto3_optional": True, "oneof_index": 0},
    "customer": {"type": 11, "type_name": ".shop.Customer"},
    "tags": {"type": 9, "label": 3},
    "all": {"type": 11, "type_name": ".shop.Customer", "label": 3},
    "state": {"type": 14, "type_name": ".shop.State"},
    "counts": {"type": 11, "type_name": ".shop.Order.CountsEntry", "label": 3},
}


def made() -> Any:
    """Return the class of a message, as protoc would generate it."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    customer = file.message_type.add(name="Customer")
    customer.field.add(name="name", number=1, type=9, label=1)
    state = file.enum_type.add(name="State")
    state.value.add(name="OPEN", number=0)
    state.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="_note")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    for number, (name, settings) in enumerate(FIELDS.items(), 1):
        order.field.add(**{"name": name, "number": number, "label": 1, **settings})
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


ORDER = made()
FULL = ORDER(user="ann", note="n", customer={"name": "Ann"}, tags=["x"], all=[{"name": "B"}], state=1, counts={"k": 2})


def record(value: bytes | None, key: bytes | None = None) -> Record:
    return Record("orders", 1, 7, 1700, key, value, ())


def test_fields_of_messages_become_values_that_travel() -> None:
    scheme = ProtobufScheme(
        ["user", "note", "customer.name", "customer", "tags", "all", "state", "counts"], message=ORDER
    )
    row = ["ann", "n", "Ann", {"name": "Ann"}, ["x"], [{"name": "B"}], "PAID", {"k": 2}]
    assert scheme.deserialize(record(FULL.SerializeToString())) == [row]
    columns = columns_of(scheme)
    assert columns is not None
    assert columns([None, None], [memoryview(FULL.SerializeToString()), None]) == [row, None]
    whole = ProtobufScheme(["."], message=ORDER, key=["user"], key_message=ORDER)
    assert whole.deserialize(record(b"", FULL.SerializeToString())) == [[{}, "ann"]]


def test_a_field_without_presence_has_its_zero_and_one_that_is_not_set_is_missing() -> None:
    assert ProtobufScheme(["user", "tags", "state"], message=ORDER).deserialize(record(b"")) == [["", [], "OPEN"]]
    with pytest.raises(FieldMissing, match="its value has no field 'note': 'note' is not set"):
        ProtobufScheme(["note"], message=ORDER).deserialize(record(b""))
    scheme = ProtobufScheme(["note", "customer.name"], message=ORDER, default={"note": "-", "customer_name": None})
    assert scheme.deserialize(record(b"")) == [["-", None]]


def test_a_null_key_is_missing_and_whole_it_is_none() -> None:
    with pytest.raises(FieldMissing, match="its key has no field 'user': it is null"):
        ProtobufScheme(key=["user"], key_message=ORDER).deserialize(record(b""))
    scheme = ProtobufScheme(key=["user"], key_message=ORDER, default={"key_user": "-"})
    assert scheme.deserialize(record(b"")) == [["-"]]
    assert ProtobufScheme(key=["."], key_message=ORDER).deserialize(record(b"")) == [[None]]


def test_a_protobuf_header_is_skipped_and_other_bytes_are_named() -> None:
    framed = ProtobufScheme(["user"], message=ORDER, framed=True)
    body = FULL.SerializeToString()
    assert framed.deserialize(record(b"\0\0\0\0\x05\0" + body)) == [["ann"]]
    assert framed.deserialize(record(b"\0\0\0\0\x05\x04\x02\x00" + body)) == [["ann"]]
    for wrong in (b"\0\0\0\0\x05\x04", b"\0\0\0\0\x05\0\xff", body):
        with pytest.raises(UnreadableData, match="its value cannot be read"):
            framed.deserialize(record(wrong))


def test_fields_that_a_message_cannot_have_are_refused_at_construction() -> None:
    for path in ("price", "customer.street", "user.name", "all.name"):
        with pytest.raises(SettingError, match=rf"shop.Order has no field '{path}'"):
            ProtobufScheme([path], message=ORDER)
    with pytest.raises(SettingError, match=r"message is None. It is a class that protoc generates"):
        ProtobufScheme(["user"])
    with pytest.raises(SettingError, match="key_message is None"):
        ProtobufScheme(["user"], message=ORDER, key=["id"])
