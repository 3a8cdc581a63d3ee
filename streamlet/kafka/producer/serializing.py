"""Keys and values to bytes, by whatever the user gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamlet.kafka.producer.errors import SerializationFailed
from streamlet.kafka.producer.record_arguments import cut

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


def _shown(value: object) -> str:
    return f"{type(value).__name__} {cut(value)}"
