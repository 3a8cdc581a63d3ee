"""Delivery of records to their user: deserializing, and what counts as handed out. Pure.

A record passes four places, and a commit without named offsets covers only the last one:

1. taken: the fetcher has moved the position past it and it is being unpacked (:class:`Taking`);
2. undelivered: an iteration took it with many others and has not given it yet (:class:`Undelivered`);
3. in hand: it was given last, and its user may be at work on it (:class:`LastGiven`);
4. consumed: its user came back for more, or committed.

Positions are moved early, at place 1, because the next fetch goes out before anything is unpacked. So
:meth:`HandedOut.consumed` starts from the positions and goes back to the first record at place 1 or 2. Records in hand
count as consumed, with one exception: a ``with`` block that an error leaves. The error may be one of the work on them.

All of it belongs to the user's thread. A signal's handler runs on that thread too, between any two statements, and may
commit or close the consumer: at each moment the places must hold every record that the user has not got.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
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
from streamlet.kafka.consumer.subscription_state import AssignedPartition, Position, SubscriptionState
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition

# -- deserializing


@runtime_checkable
class Deserializer(Protocol):
    """A deserializer as an object (Java: ``Deserializer``)."""

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        """Return the value of ``data``; None stands for a null in the log."""


DeserializerLike = Callable[[bytes], Any] | Deserializer | None
"""A function never sees None: a missing key or a tombstone stays None. An object is given it, as in Java."""
Deserialize = Callable[[str, Sequence[bytes | None]], Sequence[Any]]
"""Topic and a column in, a column out. Raises PartlyDeserialized."""


class PartlyDeserialized(Exception):
    """Failure of a deserializer at index ``len(done)`` of a column."""

    def __init__(self, done: list[Any], cause: Exception) -> None:
        super().__init__()
        self.done = done
        self.cause = cause


def by_column(deserializer: DeserializerLike) -> Deserialize:
    """Return the deserializer as a function of whole columns; None leaves bytes as they are."""
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
    except Exception as err:  # the user's code may raise anything; the caller names the record
        raise PartlyDeserialized(done, err) from err
    return done


class Deserializers:
    """Deserializers of keys and of values."""

    def __init__(self, key: DeserializerLike, value: DeserializerLike) -> None:
        self.key, self.value = key, value
        self._keys, self._values = by_column(key), by_column(value)

    def apply(self, chunks: Iterable[Chunk]) -> tuple[list[DecodedChunk], list[RecordDeserializationFailed]]:
        """Return the chunks with their columns, and the errors of bad records.

        A partition ends before its first bad record, whose error is returned; the others go on.
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
                # Values are made only up to the first bad key, so the last stop is the earliest record.
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


# -- handing out

FirstOffsets = Mapping[TopicPartition, tuple[int, int]]
"""Offset and leader epoch of the first record of each partition."""


class LastGiven:
    """Records given last, until their user comes back for more or commits."""

    __slots__ = ("_firsts", "_named", "record")

    def __init__(self) -> None:
        self._firsts: FirstOffsets = {}
        self._named: dict[TopicPartition, OffsetAndMetadata] = {}
        self.record: ConsumerRecord | None = None
        """The record that an iteration gave last."""

    def put(self, firsts: FirstOffsets) -> None:
        """Replace everything in hand by the records of a poll."""
        self._firsts, self._named, self.record = dict(firsts), {}, None

    def clear(self) -> None:
        """Count everything as worked on."""
        self.put({})

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None) -> None:
        """Count records up to these offsets as worked on, None: all. The others stay in hand."""
        if offsets is None:
            self.clear()
            return
        firsts, named = self.first_offsets(), {**self.named(), **offsets}
        self.put({**firsts, **{tp: (offset.offset, offset.leader_epoch) for tp, offset in offsets.items()}})
        self._named = named

    def named(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets committed by name since the last records were given.

        They hold for a last commit, whether they lie before the position or after it.
        """
        return {} if self.record is not None else self._named

    def forget(self, tp: TopicPartition) -> None:
        """Drop the offset committed by name: the user moved the position."""
        self._named.pop(tp, None)

    def first_offsets(self) -> FirstOffsets:
        """Return the first record in hand of each partition."""
        one = self.record
        return (
            self._firsts if one is None else {TopicPartition(one.topic, one.partition): (one.offset, one.leader_epoch)}
        )


class Undelivered:
    """Records that an iteration took and has not given, in order."""

    def __init__(self) -> None:
        self._rows: dict[TopicPartition, deque[ConsumerRecord]] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def put_all(self, rows: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """Take in a poll's records; called when nothing is left."""
        self._rows = {tp: deque(records) for tp, records in rows.items()}

    def next(self) -> ConsumerRecord | None:
        """Remove and return the next record, None when there is none."""
        for tp, records in self._rows.items():
            record, last = records[0], len(records) == 1
            # By del statements and no method call: signals are looked at after calls, and a handler that commits must
            # not run when the record has left this place and its user has not got it.
            if last:
                del self._rows[tp]
            else:
                del records[0]
            return record
        return None

    def of(self, only: Collection[TopicPartition] | None) -> list[TopicPartition]:
        """Return the partitions of ``only`` that have records here; None: all that have."""
        return [tp for tp in self._rows if only is None or tp in only]

    def take(
        self, limit: int, only: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Remove and return at most ``limit`` records, of the partitions in ``only``."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        rest: dict[TopicPartition, deque[ConsumerRecord]] = {}
        for tp, records in self._rows.items():
            if only is not None and tp not in only:
                rest[tp] = records
                continue
            rows = list(records)
            if limit > 0:
                taken[tp] = rows[:limit]
            if len(rows) > limit:
                rest[tp] = deque(rows[limit:])
            limit = max(limit - len(rows), 0)
        self._rows = rest
        return taken

    def first(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Return offset and leader epoch of a partition's first record, or None."""
        records = self._rows.get(tp)
        return None if records is None else (records[0].offset, records[0].leader_epoch)

    def first_offsets(self) -> FirstOffsets:
        """Return the first record of each partition."""
        return {tp: (records[0].offset, records[0].leader_epoch) for tp, records in self._rows.items()}

    def drop(self, tp: TopicPartition) -> None:
        """Forget the records of a partition."""
        self._rows.pop(tp, None)

    def keep(self, assigned: Iterable[TopicPartition]) -> None:
        """Forget the records of all other partitions."""
        ours = set(assigned)
        self._rows = {tp: records for tp, records in self._rows.items() if tp in ours}


class HandedOut:
    """Records that a consumer's user has got, and the offsets to commit."""

    __slots__ = ("_before", "_subscriptions", "in_hand", "in_hand_counts", "undelivered")

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self._subscriptions = subscriptions
        self.undelivered, self.in_hand = Undelivered(), LastGiven()
        self.in_hand_counts = True
        """Whether records in hand count as consumed. Set to False by an error that leaves the ``with`` block."""
        self._before: Sequence[tuple[AssignedPartition, Position]] = ()
        """Positions as they were before the records that are being taken. Empty when none are."""

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit: the positions, but before records that the user has not got."""
        in_hand = {} if self.in_hand_counts else self.in_hand.first_offsets()
        taken = {row.topic_partition: (position.offset, position.offset_epoch) for row, position in self._before}
        found = {
            tp: OffsetAndMetadata(position.offset, position.offset_epoch)
            for tp, position in self._subscriptions.consumed().items()
        }
        for tp, (offset, epoch) in {**self.undelivered.first_offsets(), **in_hand, **taken}.items():
            if tp in found and offset < found[tp].offset:
                found[tp] = OffsetAndMetadata(offset, epoch)
        if not self.in_hand_counts:
            found.update((tp, offset) for tp, offset in self.in_hand.named().items() if tp in found)
        return found

    # -- one poll

    def note_positions(self, rows: Iterable[AssignedPartition]) -> None:
        """Remember positions that are about to move; no rows: none did."""
        self._before = [(row, row.position) for row in rows if row.position is not None]

    def records(self, parts: list[DecodedChunk]) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Make the records that a poll gives."""
        found = records_by_partition(parts)
        self._put_in_hand(found)
        return found

    def columns(self, parts: list[DecodedChunk]) -> dict[TopicPartition, RecordColumns]:
        """Make the columns that a poll gives."""
        found = columns_by_partition(parts)
        self.in_hand.put({tp: columns.first() for tp, columns in found.items()})
        return found

    def iterate(self, parts: list[DecodedChunk]) -> None:
        """Make the records that an iteration gives one by one."""
        self.undelivered.put_all(records_by_partition(parts))

    def take_undelivered(
        self, limit: int, only: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Give a poll what an iteration left, at most ``limit`` records.

        ``only``: of these partitions; None: of all.
        """
        rows = (self._subscriptions.get(tp) for tp in self.undelivered.of(only))
        self._before = [(row, at) for row in rows if row is not None and (at := self._first_undelivered(row))]
        found = self.undelivered.take(limit, only)
        self._put_in_hand(found)
        return found

    def _put_in_hand(self, found: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        self.in_hand.put({tp: (rows[0].offset, rows[0].leader_epoch) for tp, rows in found.items()})

    def _first_undelivered(self, row: AssignedPartition) -> Position | None:
        first = self.undelivered.first(row.topic_partition)
        if first is None or row.position is None:
            return None
        return replace(row.position, offset=first[0], offset_epoch=first[1])

    # -- changes from outside a poll

    def moved(self, tp: TopicPartition) -> None:
        """Forget the records of a partition that its user sought elsewhere."""
        self.undelivered.drop(tp)
        self.in_hand.forget(tp)

    def put_back(self, row: AssignedPartition) -> None:
        """Move the position back before the undelivered records."""
        first = self._first_undelivered(row)
        if first is not None:
            row.position = first
            self.undelivered.drop(row.topic_partition)

    def keep(self, assigned: Iterable[TopicPartition]) -> None:
        """Forget the records of partitions that are no longer assigned."""
        self.undelivered.keep(assigned)


class Taking:
    """Context of one poll: what it took counts as handed out when the context ends without an error.

    ``guard`` is entered inside it: the lock that keeps other threads out.

    One class for both contexts, and no generator: see the last rule of ``__exit__``.
    """

    __slots__ = ("_guard", "_handed_out")

    def __init__(self, handed_out: HandedOut, guard: AbstractContextManager[None]) -> None:
        self._handed_out = handed_out
        self._guard = guard

    def __enter__(self) -> None:
        # A second thread is refused here and has no part in what the first one is taking.
        self._guard.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handed_out = self._handed_out
        # Rule: an interrupt (Ctrl-C, no memory) moves the positions back: the commit at close must not cover records
        # that nobody got. A KafkaError moves nothing: the fetcher has put the positions right before it raised that.
        if kind is not None and not issubclass(kind, KafkaError):
            for row, position in handed_out._before:
                row.position = position
                handed_out.undelivered.drop(row.topic_partition)
        self._guard.__exit__(kind, error, trace)
        # Rule: the store that lets the positions count is the last statement of all, after the lock is released. A
        # signal's handler may run at each call before it, and commit; a plain store and a return let none in between.
        handed_out._before = ()
