"""What a user gives to ``send`` beside key and value, looked at before the record is taken. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

from streamlet.base.errors import WrongArgument
from streamlet.kafka.arguments import check_topic
from streamlet.kafka.producer.errors import SerializationFailed

V = TypeVar("V")


def check_place(topic: object, partition: object) -> None:
    """InvalidTopic or ValueError for what no record can go to."""
    check_topic(topic, "The record was not taken.")
    if partition is not None and (isinstance(partition, bool) or not isinstance(partition, int) or partition < 0):
        raise ValueError(
            f"partition = {partition!r} of a record for topic {topic!r}: give a number from 0, or None to have it "
            "chosen. The record was not taken."
        )


def listed(what: str, given: Iterable[V]) -> Iterable[V]:
    """The values or keys of ``send_many``. WrongArgument for one by itself: a str would be its letters."""
    if isinstance(given, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(given, Iterable):
        raise WrongArgument(
            f"send_many takes {what} in a list, and was given {type(given).__name__} {cut(given)}: write "
            f"[{what[:-1]}, ...], or use send() for one record. No record was taken."
        )
    return given


def check_headers(topic: str, headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as (name, bytes or None) in order; a mapping will do too."""
    rows = headers.items() if isinstance(headers, Mapping) else headers
    found = []
    for row in rows if isinstance(rows, Iterable) else [rows]:
        name, value = row if isinstance(row, (tuple, list)) and len(row) == 2 else (None, None)
        if not _is_text(name) or not (value is None or isinstance(value, (bytes, bytearray, memoryview))):
            raise SerializationFailed(
                f"headers = {cut(headers)} of a record for topic {topic!r}: {cut(row)} is no pair of a name and "
                "bytes (or None). Write [('source', b'docs'), ...], or a dict. The record was not taken."
            )
        found.append((name, None if value is None else bytes(value)))
    return tuple(found)


def check_timestamp(timestamp_ms: object) -> int:
    """Milliseconds since 1970 as they fit into a record; ValueError for what is none."""
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms < 1 << 62:
        raise ValueError(
            f"timestamp_ms = {timestamp_ms!r}: give whole milliseconds since 1970, or None for now. The record was not "
            "taken."
        )
    return timestamp_ms


def _is_text(name: object) -> TypeGuard[str]:
    """A str that UTF-8 can hold."""
    if not isinstance(name, str):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def cut(value: object) -> str:
    """As a message may show it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
