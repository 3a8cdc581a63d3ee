"""Writers of DataFrames to topics, on executors; the driver only looks at what they say."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow
import pyarrow.compute
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from streamlet.base.errors import BadInput, StreamletError
from streamlet.kafka.producer import FutureRecordMetadata, Producer
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.spark.epochs import Epoch, check_plan, write_epoch
from streamlet.spark.options import FORMAT, SinkOptions
from streamlet.spark.plain_errors import plain_errors

_TRANSACTION_MS = 900_000
"""Milliseconds of a transaction, unless the options say: brokers allow no more by default, and a batch takes time."""
_FOUND_MS = 10_000
"""Milliseconds for a topic to be found before a job begins, unless ``kafka.max.block.ms`` says otherwise."""
_KEPT = 8
"""Arrow batches whose futures are kept, to name the error of one that failed."""


class WriteFailed(StreamletError):
    """Records of a task were refused by the brokers."""


@dataclass(frozen=True, slots=True)
class WrittenColumns:
    """The columns that are written, checked against the schema; ``topic`` as an option goes before the column."""

    topic: str | None
    has_key: bool
    has_headers: bool
    has_partition: bool

    @classmethod
    def of(cls, schema: Any, options: SinkOptions) -> WrittenColumns:
        """Return the columns of a DataFrame. Raises BadInput, naming the one that does not fit."""
        kinds = {field.name: field.dataType for field in schema.fields}
        if "value" not in kinds:
            raise BadInput(
                f"Format {FORMAT!r} writes a column `value`, and there are {', '.join(kinds) or 'no columns'}: rename "
                "one, as in selectExpr('CAST(word AS STRING) AS value')."
            )
        for name, allowed in _KINDS.items():
            if name in kinds and not any(_is(kinds[name], kind) for kind in allowed):
                names = " or ".join(kind.simpleString() for kind in allowed)
                raise BadInput(f"Column `{name}` is {kinds[name].simpleString()}, and must be {names}: cast it.")
        if options.topic is None and "topic" not in kinds:
            raise BadInput("Where to write is not said: give option('topic', NAME), or have a column `topic`.")
        return cls(options.topic, "key" in kinds, "headers" in kinds, "partition" in kinds)


_KINDS = {
    "value": (StringType(), BinaryType()),
    "key": (StringType(), BinaryType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),),
}


def _is(kind: Any, wanted: Any) -> bool:
    return bool(kind.simpleString() == wanted.simpleString())  # whether it may be null does not matter


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed for us
    """What a task did; travels to the driver."""

    rows: int
    begun_before: bool = False
    query: str = ""
    partition: int = -1


def find_topic(options: SinkOptions) -> None:
    """Ask for the topic of the options before a job begins. Blocks. Raises KafkaError."""
    # Rule: on the driver. A task waits for a topic a minute, and Spark tries it four times. By a producer, which has
    # the broker make the topic where brokers do that.
    if options.topic is not None:
        with Producer(**{"max_block_ms": _FOUND_MS, **options.client}) as producer:
            producer.partitions_for(options.topic)


@plain_errors
class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed for us
    """Writes a DataFrame. At least once: a task that Spark tries again writes its rows again."""

    def __init__(self, options: SinkOptions, columns: WrittenColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write one task's rows; return when the brokers have them. On an executor."""
        with Producer(**self._options.client) as producer:
            _topic, rows = send_all(producer, iterator, self._columns)
        return Written(rows)


@plain_errors
class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not typed for us
    """Writes a stream: one transaction for each epoch and partition."""

    def __init__(self, options: SinkOptions, columns: WrittenColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write one task's rows of an epoch, unless a former try has. On an executor."""
        epoch = self._epoch()
        first = next((batch for batch in iterator if batch.num_rows), None)
        if first is None:
            return Written(0, query=epoch.query, partition=epoch.partition)
        batches = chain([first], iterator)
        settings = {"transaction_timeout_ms": _TRANSACTION_MS, **self._options.client}
        with Producer(transactional_id=epoch.own, **settings) as producer:
            done = write_epoch(
                epoch,
                producer,
                lambda producer: send_all(producer, batches, self._columns),
                lambda: sum(batch.num_rows for batch in batches),
            )
        return Written(done.rows, done.begun_before, epoch.query, epoch.partition)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Refuse an epoch begun before with rows in other partitions.

        On the driver. Raises PlanChanged.
        """
        # A task without rows asks nobody: most shuffle partitions are empty. The driver looks at the markers of all of
        # them, and only for an epoch that was begun before.
        told = [message for message in messages if message is not None]
        if any(message.begun_before for message in told):
            written = {message.partition for message in told if message.rows}
            settings = ProducerConfig.of(self._options.client)
            check_plan(batchId, told[0].query, written, self._options.prefix, settings)

    def _epoch(self) -> Epoch:
        task = TaskContext.get()
        assert task is not None
        query, number = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
        if query is None or number is None:
            raise WriteFailed("Spark did not tell this task its query and epoch: start the stream with writeStream.")
        run = task.getLocalProperty("spark.jobGroup.id") or ""
        return Epoch(self._options.prefix, query, run, int(number), task.partitionId())


# -- rows to records -------------------------------------------------------------------------------------------------


def send_all(producer: Producer, batches: Iterator[Any], columns: WrittenColumns) -> tuple[str, int]:
    """Hand over every row and wait for the brokers; return a topic of theirs and their number."""
    topic, rows = "", 0
    kept: deque[Sequence[Any]] = deque(maxlen=_KEPT)
    for batch in batches:
        for written, futures in _send(producer, batch, columns):
            topic = written
            kept.append(futures)
        rows += batch.num_rows
        _raise_failed(producer, kept)
    producer.flush()
    _raise_failed(producer, kept)
    return topic, rows


def _raise_failed(producer: Producer, kept: deque[Sequence[Any]]) -> None:
    failed = producer.metrics()["records_failed"]
    if failed:
        error = next((future.exception for futures in kept for future in futures if future.exception), None)
        raise error or WriteFailed(f"{failed} records were not written. {producer.connections()}")


def _send(producer: Producer, batch: Any, columns: WrittenColumns) -> Iterator[tuple[str, Sequence[Any]]]:
    """Hand over a batch; yield topic and futures of each part."""
    values, count = _bytes(batch, "value"), batch.num_rows
    keys = _bytes(batch, "key") if columns.has_key and batch.column("key").null_count < count else None
    topics = _topics(batch, columns)
    headers = _filled(batch, "headers") if columns.has_headers else None
    numbers = _filled(batch, "partition") if columns.has_partition else None
    _check_rows(headers or (), numbers or ())
    if headers is None and numbers is None:
        if isinstance(topics, str):
            yield topics, _offer(producer, topics, values, keys)
            return
        for topic in dict.fromkeys(topics):
            rows = [at for at, name in enumerate(topics) if name == topic]
            yield topic, _offer(producer, topic, [values[at] for at in rows], keys and [keys[at] for at in rows])
        return
    # Headers and numbers are each record's own: one call for each.
    for at in range(count):
        topic = topics if isinstance(topics, str) else topics[at]
        row = headers[at] if headers is not None else None
        given = [(entry["key"], entry["value"]) for entry in row] if row else None
        number = numbers[at] if numbers is not None else None
        yield topic, [producer.send(topic, values[at], keys and keys[at], given, number)]


def _offer(
    producer: Producer, topic: str, values: Sequence[Any], keys: Sequence[Any] | None
) -> Sequence[FutureRecordMetadata]:
    futures, error = producer.offer(topic, values, keys)
    if error is not None:
        raise error
    return futures


def _check_rows(headers: Sequence[Any], numbers: Sequence[int | None]) -> None:
    # Rule: refuse a row by the name of its column. What a record cannot have would be told in words of Python's client,
    # or as a bug of ours.
    if any(None in row for row in headers if row is not None):
        raise BadInput(
            "A row has null in place of a header in its column `headers`. Leave it out: "
            "filter(headers, h -> h IS NOT NULL)."
        )
    least = min((number for number in numbers if number is not None), default=0)
    if least < 0:
        raise BadInput(
            f"A row has {least} in its column `partition`. Give a number from 0, or null to have the partition chosen."
        )


def _bytes(batch: Any, name: str) -> list[Any]:
    found: list[Any] = batch.column(name).cast(pyarrow.binary()).to_pylist()
    return found


def _filled(batch: Any, name: str) -> list[Any] | None:
    """Return a column's values, None where all are null."""
    column = batch.column(name)
    return None if column.null_count == batch.num_rows else column.to_pylist()


def _topics(batch: Any, columns: WrittenColumns) -> str | list[str]:
    """Return the topic of all rows, or of each. Raises BadInput for a null."""
    if columns.topic is not None:
        return columns.topic
    column = batch.column("topic")
    if column.null_count:
        raise BadInput("A row has null in its column `topic`: fill it, or give option('topic', NAME) for all rows.")
    different = pyarrow.compute.unique(column)
    return str(different[0]) if len(different) == 1 else column.to_pylist()
