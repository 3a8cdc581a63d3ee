"""What becomes of tuples on their way to records, and which of them fail."""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.bolts.kafka.record_maker import RecordMaker, only_bytes, plain_bytes, serializer
from streamlet.components.batch import Batch

FIELDS = ["word", "count", "where"]


def batch(*rows: list[Any]) -> Batch:
    return Batch(list(rows), "count", fields=FIELDS)


def raises(tup: Any) -> Any:
    if tup.values[0] == "bad":
        raise RuntimeError("no key for it.")
    return tup.values[0].upper()


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (b"\xff", b"\xff"),
        ("größe", "größe".encode()),
        (None, None),
        (3, b"3"),
        (True, b"true"),
        (-1.5, b"-1.5"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode()),
        (bytearray(b"x"), b"x"),
    ],
)
def test_bytes_stay_text_becomes_utf8_and_the_rest_json(value: Any, raw: bytes | None) -> None:
    assert plain_bytes(value) == raw


class Colour(StrEnum):
    RED = "röt"


class Shade(str, Enum):  # noqa: UP042 - as users write it
    DARK = "dark"


class Raw(bytes): ...


class Level(IntEnum):
    HIGH = 3


def test_text_and_bytes_of_a_subclass_are_text_and_bytes() -> None:
    """As JSON the key had quotes, and went to another partition than the same text of every other writer."""
    rows = [[Colour.RED, Raw(b"x"), 0], [Shade.DARK, Colour.RED, 0], [Level.HIGH, Shade.DARK, 0]]
    made = RecordMaker("t", key="word", value="count").make(batch(*rows))
    assert made.keys == ["röt".encode(), b"dark", b"3"]
    assert made.values == [b"x", "röt".encode(), b"dark"]
    assert {type(one) for one in [*made.keys, *made.values]} == {bytes}, "the producer asks for bytes by their class"
    assert type(only_bytes(Raw(b"x"))) is bytes
    named = RecordMaker(None, topics="word", value="count", headers=lambda _: {Shade.DARK: Colour.RED})
    (record,) = named.make(batch([Shade.DARK, 1, 0])).each()
    assert (record.topic, [*record.headers]) == ("dark", [("dark", "röt".encode())])


def test_key_and_value_are_columns_of_fields_or_of_functions() -> None:
    made = RecordMaker("t", key=lambda tup: tup.values[0].upper(), value="count").make(batch(["a", 1, 0], ["b", 2, 0]))
    assert (made.topics, made.keys, made.values, made.failed) == ("t", [b"A", b"B"], [b"1", b"2"], {})
    assert made.is_plain
    assert [*made.shares()] == [("t", None, range(2))]


def test_the_only_field_is_the_value_where_none_is_named() -> None:
    assert RecordMaker("t").make(Batch([["x"], [None]], fields=["word"])).values == [b"x", None]


def test_what_cannot_be_made_fails_its_own_tuple_only() -> None:
    maker = RecordMaker("t", key=raises, value="count")
    made = maker.make(batch(["a", 1, 0], ["bad", 2, 0], ["c", float("nan"), 0], ["d", "\ud800", 0], ["e", 5, 0]))
    assert [made.values[at] for at in (0, 4)] == [b"1", b"5"]
    assert sorted(made.failed) == [1, 2, 3]
    assert str(made.failed[1]) == "The function for key raised RuntimeError: no key for it."
    assert str(made.failed[2]).startswith("Value cannot be made of float nan: ValueError: Out of range float values")
    assert [*made.shares()] == [("t", None, [0, 4])]


def test_a_topic_of_each_tuple_divides_the_batch_and_none_skips() -> None:
    rows = [["a", 1, "x"], ["b", 2, None], ["c", 3, "y"], ["d", 4, "x"], ["e", 5, 7]]
    made = RecordMaker(None, topics="where", value="word").make(batch(*rows))
    assert [*made.shares()] == [("x", None, [0, 3]), ("y", None, [2])]
    assert str(made.failed[4]).startswith("Topic cannot be made of int 7: TypeError: the name of a topic is a text")


def test_of_a_tuple_that_the_topic_skips_nothing_else_is_made() -> None:
    """A key that it does not have failed a tuple that was filtered out, and on_poison="stop" ended the run by it."""
    asked: list[Any] = []

    def seen(tup: Any) -> Any:
        asked.append(tup.values[0])
        return tup.values[0].upper()

    maker = RecordMaker(
        None,
        topics=lambda tup: "" if tup.values[0] == "none" else tup.values[2],
        key=seen,
        value="count",
        headers=[("n", seen), ("c", "count")],
        partition=lambda tup: len(seen(tup)),
        timestamp=lambda tup: len(seen(tup)),
        value_serializer=serializer("value_serializer", "json"),
    )
    rows = [["a", 1, "x"], [None, float("nan"), None], [None, object(), None], ["none", 1, "x"]]
    made = maker.make(batch(*rows))
    assert [(one.topic, one.key, one.value, one.partition) for one in made.each()] == [("x", b"A", b"1", 1)]
    assert {*asked} == {"a"}
    assert ([*made.failed], made.skipped) == ([3], 2)
    by_function = RecordMaker(None, topics="where", value="word", headers=lambda tup: {tup.values[0]: None})
    assert by_function.make(batch(["a", 1, "x"], [None, 1, None])).failed == {}


def test_what_a_serializer_refuses_is_named_without_its_topic() -> None:
    serialize = serializer("value_serializer", "bytes")
    made = RecordMaker(None, topics="where", value="count", value_serializer=serialize).make(batch(["a", 3, "paid"]))
    assert str(made.failed[0]).startswith("Value cannot be made of int 3: TypeError: it is a int")


def test_partitions_named_by_tuples_are_lots_of_their_own() -> None:
    made = RecordMaker("t", value="word", partition="count").make(batch(["a", 1, 0], ["b", 0, 0], ["c", 1, 0]))
    assert not made.is_plain
    assert [*made.shares()] == [("t", 1, [0, 2]), ("t", 0, [1])]
    assert [*RecordMaker("t", value="word", partition="count").make(batch(["a", -1, 0])).failed] == [0]


def test_headers_are_pairs_a_dict_or_what_a_function_returns() -> None:
    by_pairs = RecordMaker("t", value="word", headers=[("from", "where"), ("n", lambda tup: tup.values[1])])
    assert by_pairs.make(batch(["a", 1, "x"])).headers == [[("from", b"x"), ("n", b"1")]]
    by_function = RecordMaker("t", value="word", headers=lambda tup: {"from": tup.values[2], "none": None})
    assert by_function.make(batch(["a", 1, "x"])).headers == [[("from", b"x"), ("none", None)]]
    nameless = RecordMaker("t", value="word", headers=lambda tup: [(1, b"x")]).make(batch(["a", 1, "x"]))
    assert "the name of a header is text" in str(nameless.failed[0])
    assert RecordMaker("t", value="word", headers=[]).make(batch(["a", 1, "x"])).headers == [[]]


def test_a_serializer_is_a_function_an_object_or_a_name() -> None:
    class WithTopic:
        def serialize(self, topic: str, value: Any) -> bytes:
            return f"{topic}:{value}".encode()

    def of(given: Any, value: Any) -> bytes | None:
        serialize = serializer("value_serializer", given)
        return RecordMaker("t", value="word", value_serializer=serialize).make(batch([value, 1, 0])).values[0]

    assert of(WithTopic(), "x") == b"t:x"
    assert of(str.upper, "x") == b"X"
    assert of("json", "x") == b'"x"'
    assert of("plain", "x") == b"x"
    assert of(str.upper, None) is of("json", None) is of(WithTopic(), None) is None
    with pytest.raises(SettingError, match="it is one of 'plain', 'json', 'bytes', a function"):
        serializer("value_serializer", "avro")
    bytes_only = RecordMaker("t", value="word", value_serializer=serializer("value_serializer", "bytes"))
    made = bytes_only.make(batch([b"x", 1, 0], ["x", 1, 0], [bytearray(b"y"), 1, 0]))
    assert made.values == [b"x", None, b"y"]
    assert [*made.failed] == [1]


def test_a_serializer_is_not_asked_for_a_tuple_that_is_skipped() -> None:
    def refuse(value: Any) -> bytes:
        raise AssertionError

    serialize = serializer("value_serializer", refuse)
    made = RecordMaker(None, topics="where", value="word", value_serializer=serialize).make(batch(["a", 1, None]))
    assert made.failed == {}
