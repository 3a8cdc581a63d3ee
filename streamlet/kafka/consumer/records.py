"""The two forms of records: light objects, or a partition's records as columns.

Batches come as columns and stay columns as long as possible: a list or a slice for all records of a chunk costs less
than one object for each. So nothing here makes a Python call for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.records.record_batch import Headers, RecordBatch, TimestampType


class ConsumerRecord(NamedTuple):
    """One record: timestamp in ms since 1970, key and value deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: Headers
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records ``start`` to ``stop`` of a batch."""

    topic_partition: TopicPartition
    batch: RecordBatch
    start: int
    stop: int


@dataclass(slots=True)
class DecodedChunk:
    """A chunk and its deserialized columns."""

    chunk: Chunk
    keys: Sequence[Any]
    values: Sequence[Any]


@dataclass(slots=True)
class RecordColumns:
    """Records of one partition in columns of equal length, in offset order.

    ``next_offset`` is where the partition is read on; ``leader_epoch`` that of the last record.
    """

    topic_partition: TopicPartition
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[Any]
    values: Sequence[Any]
    next_offset: int
    leader_epoch: int
    _chunks: Sequence[Chunk]

    def __len__(self) -> int:
        return len(self.values)

    def headers(self, index: int) -> Headers:
        """Return the headers of record ``index``."""
        chunk, at = self._place_of(index)
        return chunk.batch.headers(at)

    def timestamp_type(self, index: int) -> TimestampType:
        """Return whose clock made the timestamp of record ``index``."""
        return self._place_of(index)[0].batch.timestamp_type

    def timestamp_types(self) -> list[int]:
        """Return whose clock made each timestamp, as numbers of :class:`TimestampType`."""
        found: list[int] = []
        for chunk in self._chunks:
            found += [int(chunk.batch.timestamp_type)] * (chunk.stop - chunk.start)
        return found

    def _place_of(self, index: int) -> tuple[Chunk, int]:
        """Return the chunk of record ``index``, and its index in the batch. Raises IndexError."""
        for chunk in self._chunks:
            size = chunk.stop - chunk.start
            if index < size:
                return chunk, chunk.start + index
            index -= size
        raise IndexError("no such record")

    def first(self) -> tuple[int, int]:
        """Return offset and leader epoch of the first record."""
        return self.offsets[0], self._chunks[0].batch.leader_epoch

    def has_headers(self) -> bool:
        """Return whether any record has headers; most topics have none."""
        return any(chunk.batch.raw_headers for chunk in self._chunks)


# One C loop makes all records of a chunk; NamedTuple's own constructor would be a Python call for each.
_new: Callable[..., ConsumerRecord] = tuple.__new__


def records_of(part: DecodedChunk) -> Iterator[ConsumerRecord]:
    """Yield the records of a chunk."""
    chunk = part.chunk
    (topic, partition), batch = chunk.topic_partition, chunk.batch
    headers: Iterator[Headers] = repeat(())
    if batch.raw_headers:
        headers = map(batch.headers, range(chunk.start, chunk.stop))
    rows = zip(
        repeat(topic),
        repeat(partition),
        offsets_of(chunk),
        timestamps_of(chunk),
        repeat(batch.timestamp_type),
        part.keys,
        part.values,
        headers,
        repeat(batch.leader_epoch),
    )
    return map(_new, repeat(ConsumerRecord), rows)


def offsets_of(chunk: Chunk) -> Sequence[int]:
    """Return the offsets of a chunk; a range where the batch has no holes."""
    base, deltas = chunk.batch.base_offset, chunk.batch.offset_deltas[chunk.start : chunk.stop]
    if isinstance(deltas, range):
        return range(base + deltas.start, base + deltas.stop)
    return [base + delta for delta in deltas]


def timestamps_of(chunk: Chunk) -> Sequence[int]:
    """Return the timestamps of a chunk."""
    batch = chunk.batch
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return [batch.header.max_timestamp] * (chunk.stop - chunk.start)
    base, deltas = batch.header.base_timestamp, batch.timestamp_deltas
    if chunk.stop - chunk.start != len(deltas):
        deltas = deltas[chunk.start : chunk.stop]
    return [base + delta for delta in deltas]


def part_of(column: Sequence[Any], chunk: Chunk) -> Sequence[Any]:
    """Return the chunk's part of one of its batch's columns."""
    return column if chunk.stop - chunk.start == len(column) else column[chunk.start : chunk.stop]


def columns_of(tp: TopicPartition, parts: Sequence[DecodedChunk]) -> RecordColumns:
    """Join all chunks of one partition to one set of columns."""
    last = parts[-1].chunk
    offsets, timestamps = offsets_of(last), timestamps_of(last)
    keys, values = parts[-1].keys, parts[-1].values
    if len(parts) > 1:
        offsets, timestamps, keys, values = [], [], [], []
        for part in parts:
            offsets.extend(offsets_of(part.chunk))
            timestamps.extend(timestamps_of(part.chunk))
            keys.extend(part.keys)
            values.extend(part.values)
    chunks = [part.chunk for part in parts]
    return RecordColumns(tp, offsets, timestamps, keys, values, offsets[-1] + 1, last.batch.leader_epoch, chunks)


def records_by_partition(parts: Iterable[DecodedChunk]) -> dict[TopicPartition, list[ConsumerRecord]]:
    """Return a poll's records."""
    found: dict[TopicPartition, list[ConsumerRecord]] = {}
    for part in parts:
        found.setdefault(part.chunk.topic_partition, []).extend(records_of(part))
    return found


def columns_by_partition(parts: Iterable[DecodedChunk]) -> dict[TopicPartition, RecordColumns]:
    """Return a poll's columns."""
    rows: dict[TopicPartition, list[DecodedChunk]] = {}
    for part in parts:
        rows.setdefault(part.chunk.topic_partition, []).append(part)
    return {tp: columns_of(tp, found) for tp, found in rows.items()}
