"""``send_many``: a list of records to the appender, and what its errors say of those taken before (P10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import time
from typing import Any

from streamlet.base.errors import StreamletError
from streamlet.kafka.arguments import check_place, check_timestamp, listed
from streamlet.kafka.errors import copy_of
from streamlet.kafka.producer.append import Appender
from streamlet.kafka.producer.errors import SerializationFailed
from streamlet.kafka.producer.record_future import FutureRecordMetadata
from streamlet.kafka.producer.serializing import Serialize, as_bytes, check_headers

_OF_ONE = (" The record was not taken.", " No record was taken.")
"""What the errors of a single record say; of a list there is more to say."""


class RecordLists:
    """One producer's. Any thread."""

    def __init__(
        self, appender: Appender, key_serializer: Serialize | None, value_serializer: Serialize | None
    ) -> None:
        self._appender = appender
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer

    def send(
        self,
        topic: str,
        values: Iterable[Any],  # Any: what the user's serializers take
        keys: Iterable[Any] | None,
        partition: int | None,
        headers: Any,
        timestamp_ms: int | None,
    ) -> list[FutureRecordMetadata]:
        """See ``Producer.send_many``."""
        taken: list[FutureRecordMetadata] = []
        count = None
        try:
            rows = list(listed("values", values))
            count = len(rows)
            self._take(taken, topic, rows, keys, partition, headers, timestamp_ms)
        except Exception as err:  # whatever it is, a list's user must know how far it came
            told = _told(err, taken, count)
            if told is err:
                raise
            raise told from (err.__cause__ or err)
        return taken

    def _take(
        self,
        taken: list[FutureRecordMetadata],
        topic: str,
        values: list[Any],
        keys: Iterable[Any] | None,
        partition: int | None,
        headers: Any,
        timestamp_ms: int | None,
    ) -> None:
        check_place(topic, partition)
        given = None if keys is None else list(listed("keys", keys))
        if given is not None and len(given) != len(values):
            raise ValueError(f"send_many was given {len(values)} values and {len(given)} keys: each value needs one.")
        timestamp = int(time() * 1000) if timestamp_ms is None else check_timestamp(timestamp_ms)
        extra = check_headers(topic, headers) if headers else ()
        raws = _serialized("value", self._value_serializer, topic, values)
        if given is None and (partition is not None or self._appender.topics.custom is None):
            self._appender.append_many(taken, topic, raws, extra, timestamp, partition)
            return
        raw_keys = [None] * len(raws) if given is None else _serialized("key", self._key_serializer, topic, given)
        originals = given if self._appender.hashes_raw_keys else None
        self._appender.append_keyed(taken, topic, raw_keys, raws, extra, timestamp, partition, originals)


def _serialized(what: str, serialize: Serialize | None, topic: str, given: Sequence[Any]) -> list[bytes | None]:
    """All of them, before the first is taken: SerializationFailed names the one that cannot be."""
    raws: list[bytes | None] = []
    try:
        if serialize is not None:
            for one in given:
                raws.append(serialize(topic, one))  # noqa: PERF401 - how far it came is asked below
        else:
            for one in given:
                plain = one.__class__ is bytes or one is None
                raws.append(one if plain else as_bytes(f"{what}_serializer", topic, one))
    except SerializationFailed as err:
        raise SerializationFailed(f"{what}s[{len(raws)}]: {err.message}") from err.__cause__
    return raws


def _told(error: Exception, taken: list[FutureRecordMetadata], count: int | None) -> Exception:
    """The error as it is raised to this caller: with ``taken``, and a text that says how many of how many.

    One of ours is raised as a copy: the same object may go to others who wait. One of the user's own code stays.
    """
    ours = isinstance(error, (StreamletError, ValueError)) and [type(arg) for arg in error.args[:1]] == [str]
    if not ours:
        error.taken = taken  # type: ignore[attr-defined]  # documented in send_many
        error.add_note("send_many: no record was taken." if not taken else _counted(len(taken), count or 0))
        return error
    if count is None:
        error.taken = taken  # type: ignore[attr-defined]
        return error
    text: str = error.args[0]
    for sentence in _OF_ONE:
        text = text.replace(sentence, "")
    told = copy_of(error)
    told.args = (f"{text} {_counted(len(taken), count)}", *error.args[1:])
    if isinstance(told, StreamletError):
        told.message = told.args[0]
    told.taken = taken  # type: ignore[attr-defined]
    return told


def _counted(taken: int, count: int) -> str:
    said = f"{taken} of {count} records were taken"
    return f"{said}: to send the rest, go on from values[{taken}] on." if taken else f"{said}."
