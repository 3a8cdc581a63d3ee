"""One range of offsets as Arrow batches, on an executor.

Consumers stay with the Python worker, one for each set of settings, and so do their connections.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import pyarrow
import pyarrow.compute

from streamlet.kafka.admin import Admin
from streamlet.kafka.consumer import Consumer, RecordColumns
from streamlet.kafka.consumer.errors import LogTruncated, PositionOutOfRange
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.spark.options import SourceOptions
from streamlet.spark.planning import DataLost, TaskRange

_log = logging.getLogger(__name__)
_POLL_MS = 100
"""Milliseconds of one poll: a position that moved without records is seen after it."""
_READ_AHEAD_WAIT_MS = 10
"""Milliseconds that a broker may hold a fetch back: all that is planned is there, and the fetch ahead of a range's
end would delay the next range on this connection."""
_PARTITION_BYTES = 8 * 1024 * 1024
"""Bytes of one fetch: a task reads one partition, so Kafka's 1 MiB would be many small answers."""

_idle: dict[tuple[tuple[str, Any], ...], list[Consumer]] = {}
"""Consumers that no task uses, by settings."""


def read_range(part: TaskRange, options: SourceOptions, schema: Any) -> Iterator[Any]:
    """Yield a range's records as RecordBatches of ``schema``, a pyarrow schema.

    Ends when the *position* reaches the range's end: offsets of compacted records, and of a transaction's markers and
    aborted records, never come. Raises DataLost under ``failOnDataLoss``.
    """
    settings = {
        "fetch_max_wait_ms": _READ_AHEAD_WAIT_MS,
        "max_partition_fetch_bytes": _PARTITION_BYTES,
        **options.client,
    }
    key = tuple(sorted(settings.items()))
    waiting = _idle.setdefault(key, [])
    consumer = waiting.pop() if waiting else Consumer(**settings)
    kept = False
    try:
        yield from _read(consumer, part, options, schema)
        kept = True
    finally:
        # One that failed, or whose task was broken off, is closed: nothing of it reaches the next task.
        if kept:
            waiting.append(consumer)
        else:
            consumer.close(0)


def _read(consumer: Consumer, part: TaskRange, options: SourceOptions, schema: Any) -> Iterator[Any]:
    tp = TopicPartition(part.topic, part.partition)
    consumer.assign([tp])
    consumer.seek(tp, part.start)
    position, end, heard_s = part.start, part.end, time.monotonic()
    while position < end:
        try:
            columns = consumer.poll_columns(_POLL_MS).get(tp)
            reached = consumer.position(tp)
        except (PositionOutOfRange, LogTruncated) as error:
            position, end = _go_on(consumer, part, position, options, error)
            continue
        if columns is not None and columns.offsets[0] < end:
            yield as_batch(columns, end, schema, options.include_headers)
        if reached != position:
            position, heard_s = reached, time.monotonic()
        elif time.monotonic() - heard_s > options.poll_timeout_ms / 1000:
            raise DataLost(
                f"Topic {part.topic!r}, partition {part.partition} gave nothing at offset {position} for "
                f"{options.poll_timeout_ms / 1000:.3g} s (kafkaConsumer.pollTimeoutMs), and the batch ends at "
                f"{part.end}. Its log was cut, or no broker answers: look at the topic, then start the query again."
            )


def _go_on(
    consumer: Consumer, part: TaskRange, position: int, options: SourceOptions, error: PositionOutOfRange | LogTruncated
) -> tuple[int, int]:
    """Return where to read on and where to end; raise DataLost where the query must fail."""
    tp = TopicPartition(part.topic, part.partition)
    first = consumer.beginning_offsets([tp])[tp]
    last = _log_end(consumer, tp, options) if isinstance(error, LogTruncated) else None
    resume, end = after_gap(part, position, first, last)
    where = f"Topic {part.topic!r}, partition {part.partition}"
    if last is None:
        gap = f"offsets {position} to {resume - 1} are no longer there"
    else:
        gap = f"its log was cut, and now ends at offset {last}; the batch goes on at {resume} and ends at {end}"
    # Not the consumer's own words: they name its settings and calls, which a query does not have.
    text = f"{where}: {gap}. Records were deleted by retention, or the topic was cut or made again."
    if options.fail_on_data_loss:
        raise DataLost(f"{text} With failOnDataLoss = false the query goes on without them.") from error
    _log.warning("%s The query goes on without them (failOnDataLoss = false).", text)
    consumer.seek(tp, resume)
    return resume, end


def _log_end(consumer: Consumer, tp: TopicPartition, options: SourceOptions) -> int:
    # Rule: the log's own end, not the last stable offset, behind which records of an open transaction are: they are
    # in the log, and would be passed over for good.
    if options.isolation_level == "read_uncommitted":
        return consumer.end_offsets([tp])[tp]
    with Admin(**options.admin) as admin:
        return admin.list_offsets({tp: "latest"}, isolation_level="read_uncommitted")[tp].offset


def after_gap(part: TaskRange, position: int, first: int, last: int | None) -> tuple[int, int]:
    """Return where to read on and where to end after a gap. Pure.

    ``first``: the log's first offset. ``last``: the end of a log that was cut; None: the position is not in the log.
    """
    # Rule: a log that was cut is read on where it has records again, to its new end at most. Nothing may ever come at
    # the offsets behind it, and the next batch does not ask for them.
    if last is not None:
        end = min(part.end, last)
        return min(max(position, first), end), end
    # A position behind the log's end: what lay between is gone with the end of the old log.
    return (min(first, part.end) if position < first else part.end), part.end


def as_batch(columns: RecordColumns, end: int, schema: Any, include_headers: bool) -> Any:
    """Return the records before offset ``end`` as one RecordBatch of ``schema``."""
    offsets = columns.offsets
    count = len(offsets) if offsets[-1] < end else bisect_left(offsets, end)
    topic, number = columns.topic_partition
    arrays = [
        _bytes(columns.keys, count),
        _bytes(columns.values, count),
        pyarrow.repeat(pyarrow.scalar(topic, pyarrow.string()), count),
        pyarrow.repeat(pyarrow.scalar(number, pyarrow.int32()), count),
        _whole(offsets[:count]),
        pyarrow.compute.multiply(_whole(columns.timestamps[:count]), 1000).cast(schema.field("timestamp").type),
        pyarrow.array(columns.timestamp_types()[:count], pyarrow.int32()),
    ]
    if include_headers:
        arrays.append(_headers(columns, count, schema.field("headers").type))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _bytes(column: Any, count: int) -> Any:
    return pyarrow.array(column if len(column) == count else column[:count], pyarrow.binary())


def _whole(numbers: Any) -> Any:
    import numpy

    if isinstance(numbers, range):
        return pyarrow.array(numpy.arange(numbers.start, numbers.stop, dtype="int64"))
    return pyarrow.array(numpy.array(numbers, dtype="int64"))


def _headers(columns: RecordColumns, count: int, kind: Any) -> Any:
    """Return the headers' column; null for a record without any, as Spark's connector has it."""
    if not columns.has_headers():
        return pyarrow.nulls(count, kind)
    rows = ([{"key": name, "value": value} for name, value in columns.headers(at)] or None for at in range(count))
    return pyarrow.array(list(rows), kind)
