"""Users' deserializers, called by the column, and how their errors are told.

A deserializer is a function ``data -> value`` or an object with ``deserialize(topic, data)``. A function never sees
None: a record without a key, or a tombstone, stays None. An object is given it, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from streamlet.kafka.consumer.errors import RecordDeserializationFailed
from streamlet.kafka.consumer.records import Chunk, DecodedChunk, offsets_of, part_of
from streamlet.kafka.metadata.cluster import TopicPartition


@runtime_checkable
class Deserializer(Protocol):
    """The object form."""

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        """The value of ``data``; None in is a null of the log."""
        ...


DeserializerLike = Callable[[bytes], Any] | Deserializer | None
Deserialize = Callable[[str, Sequence[bytes | None]], Sequence[Any]]
"""Topic and a column in, a column out. Raises PartlyDeserialized."""


class PartlyDeserialized(Exception):
    """A deserializer raised at index ``len(done)`` of the column."""

    def __init__(self, done: list[Any], cause: Exception) -> None:
        super().__init__()
        self.done = done
        self.cause = cause


def by_column(deserializer: DeserializerLike) -> Deserialize:
    """The deserializer as a function of whole columns; None leaves bytes as they are."""
    if deserializer is None:
        return lambda topic, column: column
    if isinstance(deserializer, Deserializer):
        method = deserializer.deserialize
        return lambda topic, column: _each(lambda data: method(topic, data), column)
    call = deserializer

    def function(topic: str, column: Sequence[bytes | None]) -> Sequence[Any]:
        if None in column:
            return _each(lambda data: None if data is None else call(data), column)
        return _each(call, column)

    return function


def _each(call: Callable[[Any], Any], column: Sequence[Any]) -> list[Any]:
    done: list[Any] = []
    try:
        done.extend(map(call, column))
    except Exception as err:  # the user's code: told with the record's coordinates, whatever it raised
        raise PartlyDeserialized(done, err) from err
    return done


@dataclass(slots=True)
class Deserializers:
    """Both deserializers, and what is handed out of a list of chunks."""

    key: DeserializerLike
    value: DeserializerLike
    _keys: Deserialize = field(init=False)
    _values: Deserialize = field(init=False)

    def __post_init__(self) -> None:
        self._keys, self._values = by_column(self.key), by_column(self.value)

    def apply(self, chunks: Iterable[Chunk]) -> tuple[list[DecodedChunk], list[RecordDeserializationFailed]]:
        """All chunks with their columns. A partition ends before its first record that cannot be deserialized, and
        that record's error is told; the other partitions go on.
        """
        decoded: list[DecodedChunk] = []
        failures: dict[TopicPartition, RecordDeserializationFailed] = {}
        for chunk in chunks:
            tp = chunk.topic_partition
            if tp in failures:
                continue
            raw_keys, raw_values = part_of(chunk.batch.keys, chunk), part_of(chunk.batch.values, chunk)
            stops: list[tuple[int, str, DeserializerLike, Exception]] = []
            keys: Sequence[Any] = ()
            values: Sequence[Any] = ()
            try:
                keys = self._keys(tp.topic, raw_keys)
            except PartlyDeserialized as err:
                keys = err.done
                stops.append((len(err.done), "key_deserializer", self.key, err.cause))
            try:
                values = self._values(tp.topic, raw_values[: len(keys)] if stops else raw_values)
            except PartlyDeserialized as err:
                values = err.done
                stops.append((len(err.done), "value_deserializer", self.value, err.cause))
            if stops:
                index, setting, deserializer, cause = stops[-1]
                offset = offsets_of(chunk)[index]
                failures[tp] = _failed(tp, offset, setting, deserializer, cause)
                chunk = Chunk(tp, chunk.batch, chunk.start, chunk.start + index)
                keys = keys[:index]
            if len(values):
                decoded.append(DecodedChunk(chunk, keys, values))
        return decoded, list(failures.values())


def _failed(
    tp: TopicPartition, offset: int, setting: str, deserializer: object, cause: Exception
) -> RecordDeserializationFailed:
    name = getattr(deserializer, "__qualname__", None) or type(deserializer).__name__
    return RecordDeserializationFailed(
        f"The {setting} ({name}) raised {type(cause).__name__} for the record of topic {tp.topic!r}, partition "
        f"{tp.partition}, offset {offset}: {cause}. The position stays at this record: correct the deserializer and "
        f"poll again, or pass over the record with seek(TopicPartition({tp.topic!r}, {tp.partition}), {offset + 1}).",
        tp,
        offset,
    )
