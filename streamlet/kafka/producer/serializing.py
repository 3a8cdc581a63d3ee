"""Keys and values to bytes, by whatever the user gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

from streamlet.kafka.producer.errors import SerializationFailed

Serialize = Callable[[str, Any], bytes | None]  # Any: what users send


def serializer(setting: str, given: object) -> Serialize | None:
    """A function (topic, value) -> bytes or None, from the user's function or object; None when there is none."""
    if given is None:
        return None
    method = getattr(given, "serialize", None)
    if callable(method):
        call: Serialize = method
    else:
        plain: Any = given

        def call(_topic: str, value: Any) -> bytes | None:
            return plain(value)  # type: ignore[no-any-return]  # checked right below

    def serialize(topic: str, value: Any) -> bytes | None:
        if value is None:
            return None  # a tombstone has no form
        try:
            raw = call(topic, value)
        except Exception as err:  # the user's code may raise anything
            raise SerializationFailed(
                f"{setting} raised {type(err).__name__}: {err}; it was given {_shown(value)} for topic {topic!r}. The "
                "record was not taken."
            ) from err
        return raw if raw.__class__ is bytes or raw is None else as_bytes(setting, topic, raw)

    return serialize


def as_bytes(setting: str, topic: str, value: Any) -> bytes:
    """Bytes-like values as bytes; SerializationFailed for what is none."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise SerializationFailed(
        f"A record for topic {topic!r} has {_shown(value)} where bytes are needed: give the producer a {setting} (such "
        "as str.encode), or send bytes. The record was not taken."
    )


def check_headers(topic: str, headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as (name, bytes or None) in order; a mapping will do too."""
    rows = headers.items() if hasattr(headers, "items") else headers
    found = []
    for row in rows:
        name, value = row if isinstance(row, (tuple, list)) and len(row) == 2 else (None, None)
        if not _is_text(name) or not (value is None or isinstance(value, (bytes, bytearray, memoryview))):
            raise SerializationFailed(
                f"headers = {headers!r} of a record for topic {topic!r}: give pairs of a name and bytes (or None)."
            )
        found.append((name, None if value is None else bytes(value)))
    return tuple(found)


def check_timestamp(timestamp_ms: object) -> int:
    """Milliseconds since 1970 as they fit into a record; ValueError for what is none."""
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms < 1 << 62:
        raise ValueError(f"timestamp_ms = {timestamp_ms!r}: give whole milliseconds since 1970, or None for now.")
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


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
