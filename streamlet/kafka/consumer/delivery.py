"""The way of records from fetched chunks to their user."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from streamlet.kafka.client.group_requests import OffsetAndMetadata
from streamlet.kafka.consumer.errors import RecordDeserializationFailed
from streamlet.kafka.consumer.records import (
    Chunk,
    ConsumerRecord,
    DecodedChunk,
    RecordColumns,
    columns_by_partition,
    offsets_of,
    part_of,
    records_by_partition,
)
from streamlet.kafka.consumer.subscription_state import PartitionState, Position, SubscriptionState
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


def but_for_held(
    positions: Mapping[TopicPartition, Position], held: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What may be committed: the positions, or where what is held (offset and leader epoch) begins before them."""
    found = {tp: OffsetAndMetadata(position.offset, position.offset_epoch) for tp, position in positions.items()}
    for tp, (offset, epoch) in held.items():
        if tp in found and offset < found[tp].offset:
            found[tp] = OffsetAndMetadata(offset, epoch)
    return found


class InHand:
    """The records given last. That they are worked on is known when their user comes back for more, or commits."""

    __slots__ = ("_firsts", "_named", "record")

    def __init__(self) -> None:
        self._firsts: dict[TopicPartition, tuple[int, int]] = {}
        self._named: dict[TopicPartition, OffsetAndMetadata] = {}
        self.record: ConsumerRecord | None = None
        """What an iteration gave."""

    def put(self, firsts: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """What a poll gave: the first record of each partition, and its leader epoch."""
        self._firsts, self._named, self.record = dict(firsts), {}, None

    def clear(self) -> None:
        """It is worked on, all of it."""
        self.put({})

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None) -> None:
        """It is worked on up to these offsets, None: all of it. What lies behind them stays in hand."""
        if offsets is None:
            self.clear()
            return
        firsts, named = self.first_offsets(), {**self.named(), **offsets}
        self.put({**firsts, **{tp: (offset.offset, offset.leader_epoch) for tp, offset in offsets.items()}})
        self._named = named

    def named(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What was committed by name since the last records were given: it holds, before the position or behind it."""
        return {} if self.record is not None else self._named

    def forget(self, tp: TopicPartition) -> None:
        """Its position was changed."""
        self._named.pop(tp, None)

    def first_offsets(self) -> dict[TopicPartition, tuple[int, int]]:
        """The first record of each partition, and its leader epoch."""
        if self.record is None:
            return self._firsts
        return {
            TopicPartition(self.record.topic, self.record.partition): (self.record.offset, self.record.leader_epoch)
        }


class Undelivered:
    """Records taken by an iteration and not given yet: partitions in the order they came, each in offset order."""

    def __init__(self) -> None:
        self._rows: dict[TopicPartition, deque[ConsumerRecord]] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def put_all(self, rows: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """What a poll took, all at once; asked for when nothing is left."""
        self._rows = {tp: deque(records) for tp, records in rows.items()}

    def next(self) -> ConsumerRecord | None:
        """The next record, None when there is none."""
        for tp, records in self._rows.items():
            record, last = records[0], len(records) == 1
            # By statements: no signal's handler, which may commit, comes between a record's leaving and its return.
            if last:
                del self._rows[tp]
            else:
                del records[0]
            return record
        return None

    def take(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """So many records at most; the others wait on."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        rest: dict[TopicPartition, deque[ConsumerRecord]] = {}
        for tp, records in self._rows.items():
            rows = list(records)
            if limit > 0:
                taken[tp] = rows[:limit]
            if len(rows) > limit:
                rest[tp] = deque(rows[limit:])
            limit = max(limit - len(rows), 0)
        self._rows = rest
        return taken

    def first_offsets(self) -> dict[TopicPartition, tuple[int, int]]:
        """The first record of each that was not given, and its leader epoch."""
        return {tp: (records[0].offset, records[0].leader_epoch) for tp, records in self._rows.items()}

    def drop(self, tp: TopicPartition) -> None:
        """Its position was changed."""
        self._rows.pop(tp, None)

    def keep(self, assigned: Iterable[TopicPartition]) -> None:
        """The others are no longer ours."""
        ours = set(assigned)
        self._rows = {tp: records for tp, records in self._rows.items() if tp in ours}


class HandedOut:
    """One consumer's: what its user has, what waits, and what may be committed for that.

    One thread; but a signal's handler may close the consumer, or commit, in the middle of anything.
    """

    __slots__ = ("_subscriptions", "in_hand", "in_hand_counts", "taking", "undelivered")

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self._subscriptions = subscriptions
        self.undelivered, self.in_hand = Undelivered(), InHand()
        self.in_hand_counts = True
        """As worked on."""
        self.taking: Mapping[TopicPartition, tuple[int, int]] = {}
        """Where positions stood before what is being taken and unpacked: nobody has that yet."""

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What may be committed: the positions, but for what nobody has got, and after an error for what is in hand."""
        in_hand = {} if self.in_hand_counts else self.in_hand.first_offsets()
        held = {**self.undelivered.first_offsets(), **in_hand, **self.taking}
        found = but_for_held(self._subscriptions.consumed(), held)
        if not self.in_hand_counts:
            found.update((tp, offset) for tp, offset in self.in_hand.named().items() if tp in found)
        return found

    def began(self, before: Iterable[tuple[PartitionState, Position | None]]) -> None:
        """Positions will run ahead of what was given. Who ends that stores ``{}`` in :attr:`taking`, last of all."""
        self.taking = {
            row.topic_partition: (position.offset, position.offset_epoch)
            for row, position in before
            if position is not None
        }

    def take(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What an iteration left, so much of it at most."""
        self.taking = self.undelivered.first_offsets()
        found = self.undelivered.take(limit)
        self.give(found)
        return found

    def give(self, found: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """A poll gives these."""
        self.in_hand.put({tp: (rows[0].offset, rows[0].leader_epoch) for tp, rows in found.items()})

    def records(self, parts: list[DecodedChunk]) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What a poll gives, made of what was taken."""
        found = records_by_partition(parts)
        self.give(found)
        return found

    def columns(self, parts: list[DecodedChunk]) -> dict[TopicPartition, RecordColumns]:
        """The same for a poll by columns."""
        found = columns_by_partition(parts)
        self.in_hand.put({tp: columns.first() for tp, columns in found.items()})
        return found

    def iterate(self, parts: list[DecodedChunk]) -> None:
        """The same for an iteration, which gives them one by one."""
        self.undelivered.put_all(records_by_partition(parts))

    def moved(self, tp: TopicPartition) -> None:
        """Its position was changed by its user, who has done with what there was of it."""
        self.undelivered.drop(tp)
        self.in_hand.forget(tp)

    def put_back(self, row: PartitionState) -> None:
        """What an iteration took of this partition and has not given is read again."""
        first = self.undelivered.first_offsets().get(row.topic_partition)
        if first is not None and row.position is not None:
            row.position = replace(row.position, offset=first[0], offset_epoch=first[1])
            self.undelivered.drop(row.topic_partition)

    def keep(self, assigned: Iterable[TopicPartition]) -> None:
        """The other partitions are no longer ours."""
        self.undelivered.keep(assigned)
