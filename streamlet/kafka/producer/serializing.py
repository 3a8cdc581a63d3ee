"""Keys, values and headers as bytes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

from streamlet.kafka.arguments import shortened
from streamlet.kafka.producer.errors import SerializationFailed

Serialize = Callable[[str, Any], bytes | None]  # Any: what users send


def serializer(setting: str, given: Any) -> Serialize | None:  # Any: an object with `serialize`, or a function
    """Return the user's serializer as (topic, value) -> bytes or None; None when there is none."""
    if given is None:
        return None
    method = getattr(given, "serialize", None)
    call: Serialize = method if callable(method) else lambda _topic, value: given(value)

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
    """Return a bytes-like value as bytes; SerializationFailed for any other."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise SerializationFailed(
        f"A record for topic {topic!r} has {_shown(value)} where bytes are needed: give the producer a {setting} (such "
        "as str.encode), or send bytes. The record was not taken."
    )


def _shown(value: object) -> str:
    return f"{type(value).__name__} {shortened(value)}"


def check_headers(topic: str, headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers, given as pairs or a mapping, as pairs. Raises SerializationFailed."""
    rows = headers.items() if isinstance(headers, Mapping) else headers
    found = []
    for row in rows if isinstance(rows, Iterable) else [rows]:
        name, value = row if isinstance(row, (tuple, list)) and len(row) == 2 else (None, None)
        if not _is_text(name) or not (value is None or isinstance(value, (bytes, bytearray, memoryview))):
            raise SerializationFailed(
                f"headers = {shortened(headers)} of a record for topic {topic!r}: {shortened(row)} is not a pair of a "
                "name and bytes (or None). Write [('source', b'docs'), ...], or a dict. The record was not taken."
            )
        found.append((name, None if value is None else bytes(value)))
    return tuple(found)


def _is_text(name: object) -> TypeGuard[str]:
    # A str with a lone surrogate has no UTF-8: it must fail here, not when its batch is encoded.
    if not isinstance(name, str):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
