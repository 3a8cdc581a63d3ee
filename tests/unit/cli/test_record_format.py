"""Records as lines and as JSON, and lines as records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamlet.base.errors import BadInput
from streamlet.cli.record_format import JsonLines, Lines, key_and_value
from streamlet.kafka import ConsumerRecord
from streamlet.kafka.records.record_batch import TimestampType


def record(value: bytes | None = b"v", key: bytes | None = b"k", **more: Any) -> ConsumerRecord:
    made = ConsumerRecord("t", 1, 7, 5, TimestampType.CREATE_TIME, key, value, (("h", b"x"), ("n", None)), 3)
    return made._replace(**more)


@pytest.mark.parametrize(
    ("form", "line"),
    [
        (Lines(), b"v\n"),
        (Lines(keys=True), b"k\tv\n"),
        (Lines(headers=True), b"h:x,n:\tv\n"),
        (Lines(keys=True, headers=True), b"h:x,n:\tk\tv\n"),
    ],
)
def test_key_and_headers_come_before_the_value_where_they_are_wanted(form: Lines, line: bytes) -> None:
    assert form.line(record()) == line


def test_bytes_go_through_as_they_are() -> None:
    """A topic may be copied: what is no text must not be escaped."""
    assert Lines().line(record(b"\xff\x00\n")) == b"\xff\x00\n\n"


def test_a_record_without_a_value_is_not_an_empty_one() -> None:
    assert Lines(keys=True).line(record(None, None)) == b"null\tnull\n"
    assert Lines(keys=True).line(record(b"", b"")) == b"\t\n"
    assert json.loads(JsonLines().line(record(None, b"")))["value"] is None
    assert json.loads(JsonLines().line(record(None, b"")))["key"] == ""


def test_a_json_line_has_all_that_a_record_has_and_is_one_line() -> None:
    line = JsonLines().line(record("z\u00e4hlt\n".encode()))
    assert line.endswith(b"\n") and line.count(b"\n") == 1 and "z\u00e4hlt".encode() in line
    assert json.loads(line) == {
        "topic": "t", "partition": 1, "offset": 7, "timestamp": 5, "key": "k", "value": "z\u00e4hlt\n",
        "headers": [["h", "x"], ["n", None]],
    }  # fmt: skip


def test_bytes_that_are_no_text_are_told_from_text_in_json() -> None:
    assert json.loads(JsonLines().line(record(b"\xff\xfe")))["value"] == {"base64": "//4="}


@pytest.mark.parametrize(
    ("line", "separator", "found"),
    [
        (b"value\n", None, (None, b"value")),
        (b"k:v:w\n", b":", (b"k", b"v:w")),
        (b":v\n", b":", (b"", b"v")),
        (b"k:", b":", (b"k", b"")),
        (b"a => b\r\n", b" => ", (b"a", b"b\r")),
    ],
)
def test_a_line_is_a_key_and_a_value_at_its_first_separator(
    line: bytes, separator: bytes | None, found: tuple[bytes | None, bytes]
) -> None:
    assert key_and_value(line, 1, separator) == found


def test_a_line_without_a_key_is_named_by_its_number() -> None:
    with pytest.raises(BadInput, match="Line 12 has no key: ':'"):
        key_and_value(b"value\n", 12, b":")
