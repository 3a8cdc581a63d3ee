"""The format as Spark calls it: schema, plans of batches and of a stream, readers and writers."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamlet.base.errors import BadInput, StreamletError
from streamlet.kafka.admin import Admin, TopicDescription
from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.spark import planning
from streamlet.spark.executors import require
from streamlet.spark.options import FORMAT, PlaceInLogs, SourceOptions, Use, read_options, write_options
from streamlet.spark.plain_errors import plain_errors
from streamlet.spark.planning import DataLost, Logs, PartitionKey, TaskRange

_log = logging.getLogger(__name__)
_ASK_MS = 60_000
"""Milliseconds of a ``default.api.timeout.ms`` that is not given."""
_ASK_AGAIN_S = 0.5
"""Seconds between two questions about what seems lost, or is not known yet."""
_SURE_LOOKS = 6
"""Answers in a row that must agree before a topic counts as unknown, or as made again."""
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema_of(include_headers: bool) -> Any:
    """Return the fixed schema of a read, that of Spark's own connector."""
    columns = [
        ("key", BinaryType()),
        ("value", BinaryType()),
        ("topic", StringType()),
        ("partition", IntegerType()),
        ("offset", LongType()),
        ("timestamp", TimestampType()),
        ("timestampType", IntegerType()),
    ]
    if include_headers:
        columns.append(("headers", _HEADERS))
    return StructType([StructField(name, kind) for name, kind in columns])


@plain_errors
class KafkaDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed for us
    """Format ``streamlet-kafka``. Spark makes one for each load, save and query."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> Any:
        """Return the schema of a read."""
        return schema_of(str(self.options.get("includeHeaders", "false")).strip().lower() == "true")

    def reader(self, schema: Any) -> BatchReader:
        """Return the reader of a batch. Raises BadInput for wrong options."""
        options = read_options(dict(self.options), Use.BATCH_READ)
        return BatchReader(options, _fixed(schema, options))

    def streamReader(self, schema: Any) -> StreamReader | RefusedStream:  # noqa: N802 - Spark's name
        """Return the reader of a stream; for wrong options one whose calls raise BadInput."""
        # Rule: raise nothing here. Spark's own code then stops a reader that it does not have, and tells of that alone:
        # "UnboundLocalError: cannot access local variable 'reader'".
        try:
            options = read_options(dict(self.options), Use.STREAM_READ)
            return StreamReader(options, _fixed(schema, options))
        except StreamletError as error:
            return RefusedStream(error)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Return the writer of a batch. Raises BadInput for wrong options, columns or mode."""
        from streamlet.spark.sink import BatchWriter, WrittenColumns, find_topic

        _refuse_overwrite(overwrite)
        options = write_options(dict(self.options), Use.BATCH_WRITE)
        columns = WrittenColumns.of(schema, options)
        find_topic(options)
        return BatchWriter(options, columns)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        """Return the writer of a stream. Raises BadInput for wrong options or columns."""
        from streamlet.spark.sink import StreamWriter, WrittenColumns, find_topic

        options = write_options(dict(self.options), Use.STREAM_WRITE)
        columns = WrittenColumns.of(schema, options)
        find_topic(options)
        return StreamWriter(options, columns)


def _fixed(schema: Any, options: SourceOptions) -> Any:
    wanted = schema_of(options.include_headers)
    if schema != wanted:
        raise BadInput(
            f"The schema of format {FORMAT!r} is fixed ({wanted.simpleString()}): leave schema() out, and cast columns "
            "after the load."
        )
    return to_arrow_schema(wanted, timezone="UTC")


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise BadInput("A topic cannot be overwritten, only appended to: write with mode('append').")


class Kafka:
    """What a plan asks the brokers. Made in the planning process, on first use."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin = Admin(**options.admin)

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def partitions(self) -> list[PartitionKey]:
        """Return the partitions that the options name, as of now."""
        assigned = self._options.topics.assigned
        return sorted(assigned) if assigned else _partitions(self._described())

    def logs(self) -> Logs:
        """Return the ends of the partitions in the options, as of now."""
        described = self._described()
        assigned = self._options.topics.assigned
        ids = {topic: row.topic_id for topic, row in described.items() if row.topic_id is not None}
        return Logs(self.ends(sorted(assigned) if assigned else _partitions(described)), ids)

    def _described(self) -> Mapping[str, TopicDescription]:
        for _ in range(_SURE_LOOKS - 1):
            try:
                return self._look()
            except UnknownTopicOrPartition:  # a topic that was just created: brokers hear of it one after the other
                time.sleep(_ASK_AGAIN_S)
        return self._look()

    def _look(self) -> Mapping[str, TopicDescription]:
        wanted = self._options.topics
        names = wanted.names or tuple(sorted({topic for topic, _ in wanted.assigned}))
        if wanted.pattern is not None:
            # As in Spark's connector, a pattern that is found anywhere in a name is enough.
            names = tuple(name for name in self._admin.list_topics() if re.search(wanted.pattern, name))
        return self._admin.describe_topics(names) if names else {}

    def ends(self, partitions: list[PartitionKey]) -> dict[PartitionKey, int]:
        """Return where each log ends; under read_committed, the last stable offset."""
        return self._listed(dict.fromkeys(partitions, "latest"))

    def offsets(self, place: PlaceInLogs, partitions: list[PartitionKey], late_is_end: bool) -> dict[PartitionKey, int]:
        """Return the offset of a place in each partition. Raises BadInput."""
        wanted = planning.look_up(place, partitions)
        found = self._listed(wanted.ask)
        late = [tp for tp, offset in found.items() if offset < 0]
        if late and not late_is_end:
            raise planning.refuse_no_match(place, late[0])
        return {**wanted.fixed, **found, **self.ends(late)}

    def _listed(self, ask: Mapping[PartitionKey, str | int]) -> dict[PartitionKey, int]:
        if not ask:
            return {}
        specs: dict[TopicPartition, Any] = {TopicPartition(*tp): spec for tp, spec in ask.items()}
        rows = self._admin.list_offsets(specs, isolation_level=self._options.isolation_level)
        return {(tp.topic, tp.partition): row.offset for tp, row in rows.items()}


def _partitions(described: Mapping[str, TopicDescription]) -> list[PartitionKey]:
    return sorted((topic, row.partition) for topic, one in described.items() for row in one.partitions)


def _lost(options: SourceOptions) -> Any:
    def report(text: str) -> None:
        if options.fail_on_data_loss:
            raise DataLost(f"{text} With failOnDataLoss = false the query goes on without it.")
        _log.warning("%s The query goes on (failOnDataLoss = false).", text)

    return report


def _tasks(ranges: list[TaskRange], options: SourceOptions) -> list[Any]:
    return [InputPartition(each) for each in planning.split(ranges, options.min_partitions, options.max_records)]


def _records(partition: Any, options: SourceOptions, schema: Any) -> Iterator[Any]:
    # A batch without any range still has one task, with no range.
    if partition.value is None:
        return iter(())
    require("pyarrow", "numpy")
    from streamlet.spark.arrow_reader import read_range

    return read_range(partition.value, options, schema)


@plain_errors
class BatchReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed for us
    """Reads from one place to another. The plan fixes both."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[Any]:
        """Return one task for each range of offsets."""
        kafka, options = Kafka(self._options), self._options
        try:
            there = kafka.partitions()
            start = kafka.offsets(options.start, there, options.time_strategy == "latest")
            end = kafka.offsets(options.end, there, late_is_end=True)
        finally:
            kafka.close()
        planning.refuse_backwards(start, end, options.start, options.end)
        return _tasks(planning.batch_ranges(start, end, _lost(options)), options)

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the range's records as RecordBatches. On an executor."""
        yield from _records(partition, self._options, self._schema)


@plain_errors
class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is not typed for us
    """Stands for the reader of a stream with wrong options: what Spark asks of it raises why."""

    def __init__(self, error: StreamletError) -> None:
        self._error = error

    def _raise(self, *_: Any) -> Any:
        raise self._error

    def initialOffset(self) -> Any:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._raise()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._raise()

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._raise(start, limit)

    def reportLatestOffset(self) -> Any:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._raise()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._raise()

    def partitions(self, start: Any, end: Any) -> Any:
        """Raise the error."""
        self._raise(start, end)

    def read(self, partition: Any) -> Any:
        """Raise the error."""
        self._raise(partition)

    def stop(self) -> None:
        """Do nothing: nothing was begun."""


@plain_errors
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is not typed for us
    """Plans micro-batches in one process beside the driver; reads on executors."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._kafka: Kafka | None = None
        self._target: Logs | None = None
        self._told: set[str] = set()
        self._planned_s = float("-inf")

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels to executors: no connection."""
        return {**self.__dict__, "_kafka": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        kafka, options = self._connected(), self._options
        logs = kafka.logs()
        start = kafka.offsets(options.start, [*logs.ends], options.time_strategy == "latest")
        return planning.initial(start, logs.ids)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the limit of the options. Spark passes it on to latestOffset, or all instead."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        return ReadAllAvailable() if options.min_offsets is None else ReadMinRows(options.min_offsets)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next batch; ``start`` where there is none yet."""
        options, logs = self._options, self._judged(start)
        begun, end = planning.begun(start, logs), logs.ends
        if not isinstance(limit, ReadAllAvailable):
            due = time.monotonic() - self._planned_s >= options.max_delay_s
            least = options.min_offsets if self._target is None else None
            if least is not None and not due and planning.too_few(begun, end, least):
                return start
            if options.max_offsets is not None:
                end = planning.limited(begun, end, options.max_offsets)
        found = planning.batch_end(start, end, logs.ids)
        if found != start:
            self._planned_s = time.monotonic()
        return found

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the ends of all logs, for the query's progress."""
        return planning.to_json(self._connected().logs().ends)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the ends of now: the query ends there."""
        self._target = self._connected().logs()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        """Return one task for each range. The same two offsets give the same tasks."""
        begun = planning.batch_start(start, end)
        return _tasks(planning.batch_ranges(begun, planning.from_json(end), _lost(self._options)), self._options)

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the range's records as RecordBatches. On an executor."""
        yield from _records(partition, self._options, self._schema)

    def stop(self) -> None:
        """Close the connections."""
        if self._kafka is not None:
            self._kafka.close()
            self._kafka = None

    def _connected(self) -> Kafka:
        self._kafka = self._kafka or Kafka(self._options)
        return self._kafka

    def _judged(self, start: dict[str, Any]) -> Logs:
        """Return the logs of now; report losses. Raises DataLost."""
        # Rule: judge before Spark writes the plan down, and ask again before a loss is believed. A plan made of one
        # stale answer would fail at every restart, and its way out would read a partition from its beginning again.
        deadline = time.monotonic() + self._options.client.get("default_api_timeout_ms", _ASK_MS) / 1000
        strange = 0
        while True:
            late = time.monotonic() > deadline
            try:
                logs = self._target or self._connected().logs()
            except UnknownTopicOrPartition:
                if late:
                    raise
            else:
                found = [*planning.losses(start, logs)]
                if not found:
                    return logs.with_missing(start)
                # An id, too, may be an old one: of a broker that lags behind, after a plan with the new one.
                strange = strange + 1 if planning.made_again(start, logs.ids) else 0
                if late or (strange >= _SURE_LOOKS if strange else not self._options.fail_on_data_loss):
                    break
                if self._target is not None:
                    self._target = self._connected().logs()
            time.sleep(_ASK_AGAIN_S)
        for text in found:
            if text not in self._told:
                self._told.add(text)
                _lost(self._options)(text)
        return logs.with_missing(start)
