"""Kafka as DataFrames on the executors of a local cluster; what is read and written is compared by librdkafka."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark.errors import StreamingQueryException

from streamlet.backends.spark.spark_session import Session
from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin, TopicPartition
from tests.command_line import ROOT
from tests.marked_processes import command_line, parent
from tests.patience import PATIENCE_S
from tests.real.spark.topics import Row, fill, rows_of

pytestmark = pytest.mark.spark

MakeTopic = Callable[..., str]


def reading(reader: Any, cluster: DevCluster, **options: object) -> Any:
    """A reader with the options of one topic; underscores are dots."""
    reader = reader.format("streamlet-kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    return reader.options(**{name.replace("_", "."): value for name, value in options.items()})


def writing(writer: Any, cluster: DevCluster, **options: object) -> Any:
    writer = writer.format("streamlet-kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    return writer.options(**{name.replace("_", "."): value for name, value in options.items()})


def collected(frame: Any) -> list[Row]:
    return sorted(
        (
            row.partition,
            row.offset,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            round(row.timestamp.timestamp() * 1000),
        )
        for row in frame.collect()
    )


def test_a_batch_is_what_was_produced_however_many_tasks_read_it(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(kafka4, partitions=2)
    fill(kafka4, topic, 20_000)
    truth = rows_of(kafka4, topic)
    frame = reading(spark.read, kafka4, subscribe=topic, minPartitions=5).load()
    assert frame.rdd.getNumPartitions() == 5
    frame.write.parquet(str(tmp_path / "out"))
    assert collected(spark.read.parquet(str(tmp_path / "out"))) == truth


def test_a_dataframe_is_written_with_its_keys_headers_topics_and_partitions(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic
) -> None:
    one, other = make_topic(kafka4, partitions=3), make_topic(kafka4, partitions=3)
    frame = spark.range(0, 1000).selectExpr(
        "CAST(id AS STRING) AS key",
        "CAST(concat('v', id) AS BINARY) AS value",
        f"CASE WHEN id % 2 = 0 THEN '{one}' ELSE '{other}' END AS topic",
        "CAST(id % 3 AS INT) AS partition",
        "array(named_struct('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )
    writing(frame.write, kafka4, includeHeaders="true").mode("append").save()
    read = reading(spark.read, kafka4, subscribe=f"{one},{other}", includeHeaders="true").load().collect()
    assert len(read) == 1000
    for row in read:
        number = int(row.key)
        assert (row.topic, row.partition) == ((one, other)[number % 2], number % 3)
        assert bytes(row.value) == b"v%d" % number
        assert [(entry.key, bytes(entry.value)) for entry in row.headers] == [("h", b"%d" % number)]


def begun(query: Any, batches: int) -> None:
    """Wait until so many batches are done."""
    deadline = time.monotonic() + PATIENCE_S
    while not (query.lastProgress and query.lastProgress["batchId"] >= batches - 1):
        assert query.exception() is None and time.monotonic() < deadline, query.exception()
        time.sleep(0.02)


def finished(query: Any) -> None:
    """Wait for the end of a query that ends by itself."""
    assert query.awaitTermination(PATIENCE_S), "the query goes on"
    assert query.exception() is None


def values(rows: list[Row]) -> list[int]:
    return sorted(int(row[3] or b"-1") for row in rows)


def test_a_stream_that_is_stopped_goes_on_from_its_checkpoint(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(kafka4, partitions=2)
    fill(kafka4, topic, 20_000)
    stream = reading(spark.readStream, kafka4, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=3000)
    written = stream.load().writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = written.start(str(tmp_path / "out"))
    begun(query, 2)
    query.stop()
    assert 0 < spark.read.parquet(str(tmp_path / "out")).count() < 20_000
    fill(kafka4, topic, 1000, first=20_000)
    finished(written.trigger(availableNow=True).start(str(tmp_path / "out")))
    assert collected(spark.read.parquet(str(tmp_path / "out"))) == rows_of(kafka4, topic)


def test_the_first_batch_is_the_same_after_a_restart_that_begins_at_the_latest(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """It failed, and meanwhile the log has grown: "latest" is another place now."""
    topic = make_topic(kafka4)
    fill(kafka4, topic, 10)
    fails = tmp_path / "fails"
    fails.touch()

    def write(frame: Any, batch: int) -> None:
        if frame.count() and fails.exists():
            raise RuntimeError("the first batch fails")
        frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS n").write.mode("append").parquet(str(tmp_path / "out"))

    stream = reading(spark.readStream, kafka4, subscribe=topic, startingOffsets="latest").load()
    written = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = written.start()
    deadline = time.monotonic() + PATIENCE_S
    while query.exception() is None:
        assert time.monotonic() < deadline
        fill(kafka4, topic, 5, first=10)
        time.sleep(0.5)
    fill(kafka4, topic, 5, first=100)
    fails.unlink()
    finished(written.trigger(availableNow=True).start())
    found = {row.n for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert found == {10, 11, 12, 13, 14, 100, 101, 102, 103, 104}


def piped(spark: Any, cluster: DevCluster, source: str, sink: str, checkpoint: Path, **options: object) -> Any:
    """A stream from topic to topic, not started."""
    stream = reading(spark.readStream, cluster, subscribe=source, startingOffsets="earliest", **options).load()
    writer = writing(stream.select("key", "value").writeStream, cluster, topic=sink)
    return writer.option("checkpointLocation", str(checkpoint))


def test_an_epoch_that_is_tried_again_is_written_once(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Spark's own record that the epoch is done is taken away, as if the driver had died before it."""
    source, sink = make_topic(kafka4, partitions=2), make_topic(kafka4, partitions=2)
    fill(kafka4, source, 6000)
    finished(piped(spark, kafka4, source, sink, tmp_path, maxOffsetsPerTrigger=2500).trigger(availableNow=True).start())
    assert values(rows_of(kafka4, sink)) == list(range(6000))
    last = max(int(path.name) for path in (tmp_path / "commits").iterdir() if path.name.isdigit())
    for path in (tmp_path / "commits" / str(last), tmp_path / "commits" / f".{last}.crc"):
        path.unlink()
    fill(kafka4, source, 500, first=6000)
    finished(piped(spark, kafka4, source, sink, tmp_path, maxOffsetsPerTrigger=2500).trigger(availableNow=True).start())
    assert values(rows_of(kafka4, sink)) == list(range(6500))


def test_an_epoch_that_is_cut_otherwise_than_before_ends_the_query(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, sink = make_topic(kafka4, partitions=1), make_topic(kafka4, partitions=1)
    fill(kafka4, source, 1000)
    finished(piped(spark, kafka4, source, sink, tmp_path).trigger(availableNow=True).start())
    for path in (tmp_path / "commits" / "0", tmp_path / "commits" / ".0.crc"):
        path.unlink()
    query = piped(spark, kafka4, source, sink, tmp_path, minPartitions=2).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match=r"partition 0 had 1000 rows.* now it has 500.*minPartitions"):
        query.awaitTermination(PATIENCE_S)


def test_offsets_without_records_end_no_read_too_early_and_none_too_late(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic
) -> None:
    """Markers, aborted transactions and an open one."""
    topic = make_topic(kafka4)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka4.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for number in range(10):
        producer.begin_transaction()
        for at in range(50):
            producer.produce(topic, b"%d" % (number * 50 + at))
        producer.flush()
        (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"-5")
    producer.flush()
    committed = reading(spark.read, kafka4, subscribe=topic, kafka_isolation_level="read_committed").load()
    assert collected(committed) == rows_of(kafka4, topic)
    assert committed.count() == 350
    everything = reading(spark.read, kafka4, subscribe=topic).load()
    assert everything.count() == 501
    producer.abort_transaction(PATIENCE_S)


def test_records_that_are_gone_fail_the_query_by_name_or_are_passed_over(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4)
    fill(kafka4, topic, 100)
    with Admin(bootstrap_servers=kafka4.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 40})
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":10}}}}'}
    with pytest.raises(Exception, match=rf"Topic '{topic}', partition 0: offsets 10 to 39 are no longer there"):
        reading(spark.read, kafka4, **options).load().count()
    assert reading(spark.read, kafka4, **options, failOnDataLoss="false").load().count() == 60


def test_a_batch_begins_and_ends_where_times_and_offsets_say(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka4.bootstrap_servers, "enable.idempotence": True})
    for number in range(100):
        producer.produce(topic, b"%d" % number, timestamp=1_000_000 + number * 1000)
    producer.flush()

    def read(**options: object) -> list[int]:
        return values(collected(reading(spark.read, kafka4, subscribe=topic, **options).load()))

    each = f'{{"{topic}":{{"0":%d}}}}'
    assert read(startingTimestamp=1_050_000) == list(range(50, 100))
    assert read(startingOffsetsByTimestamp=each % 1_049_001, endingTimestamp=1_060_000) == list(range(50, 60))
    assert read(startingOffsets=each % 97, endingOffsets=each % -1) == [97, 98, 99]
    assert read(endingOffsetsByTimestamp=each % 1_003_000) == [0, 1, 2]
    assert read(startingTimestamp=9_000_000, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match="has no record at or after the time"):
        read(startingTimestamp=9_000_000)
    named = reading(spark.read, kafka4, assign=f'{{"{topic}":[0]}}').load()
    matched = reading(spark.read, kafka4, subscribePattern=f"{topic[:-1]}.{{1}}", maxRecordsPerPartition=30).load()
    assert named.count() == 100
    assert matched.filter(f"topic = '{topic}'").count() == 100


def test_what_is_refused_is_refused_in_one_paragraph(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Without a traceback of ours, by the plan of a batch or a stream, and by a task on an executor."""
    topic = make_topic(kafka4)
    text = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    stream = reading(spark.readStream, kafka4, subscribe="no-such-topic").load().writeStream.format("noop")
    null = text.selectExpr("value", "CAST(NULL AS STRING) AS topic")
    refusals: list[tuple[str, Callable[[], Any]]] = [
        (
            "Unknown option 'startingoffset' of format 'streamlet-kafka': the nearest one is",
            lambda: reading(spark.read, kafka4, subscribe="t", startingOffset="earliest").load().count(),
        ),
        ("writes a column `value`", lambda: writing(spark.range(1).write, kafka4, topic="t").mode("append").save()),
        ("only appended to", lambda: writing(text.write, kafka4, topic=topic).mode("overwrite").save()),
        ("UnknownTopicOrPartition", lambda: reading(spark.read, kafka4, subscribe="no-such-topic").load().count()),
        (
            "UnknownTopicOrPartition",
            lambda: stream.option("checkpointLocation", str(tmp_path)).start().awaitTermination(PATIENCE_S),
        ),
        ("A row has null in its column `topic`", lambda: writing(null.write, kafka4).mode("append").save()),
    ]
    for said, act in refusals:
        with pytest.raises(Exception, match=said) as told:
            act()
        assert "Traceback" not in str(told.value), told.value


def test_the_first_program_of_the_page_runs(
    spark: Any, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "guide" / "spark-dataframes.md").read_text(encoding="utf-8")
    topic = make_topic(kafka4)
    fill(kafka4, topic, 10)
    program = page.split("```python\n", 1)[1].split("```", 1)[0]
    program = program.replace("127.0.0.1:9092", kafka4.bootstrap_servers).replace('"lines"', f'"{topic}"')
    names: dict[str, Any] = {"spark": spark}
    exec(program, names)
    query = names["query"].option("checkpointLocation", str(tmp_path / "checkpoint"))
    finished(query.trigger(availableNow=True).start(str(tmp_path / "out")))
    assert [field.name for field in names["lines"].schema.fields][:3] == ["key", "value", "topic"]


@pytest.mark.faults
def test_an_executor_that_is_killed_costs_no_record_and_doubles_none(
    session: Session, spark: Any, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, sink = make_topic(kafka4, partitions=2), make_topic(kafka4, partitions=2)
    fill(kafka4, source, 60_000)
    query = piped(spark, kafka4, source, sink, tmp_path, maxOffsetsPerTrigger=10_000).start()
    begun(query, 2)
    os.kill(executors(session)[0], signal.SIGKILL)
    query.processAllAvailable()
    query.stop()
    assert values(rows_of(kafka4, sink)) == list(range(60_000))


def executors(session: Session) -> list[int]:
    """The executors' processes, below the driver's JVM."""
    assert session.process is not None
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words, above = command_line(int(entry.name)), parent(int(entry.name))
            except OSError:
                continue
            if any("CoarseGrainedExecutorBackend" in word for word in words) and above == session.process.pid:
                found.append(int(entry.name))
    return sorted(found)
