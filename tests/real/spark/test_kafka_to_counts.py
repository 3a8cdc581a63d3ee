"""Records of a topic through Kafka as a DataFrame, then through bolts on DataFrames: as pandas and a run count them."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pandas
import pytest
from pyspark.sql import functions

from streamlet.backends.spark.spark_session import Session
from streamlet.devcluster import DevCluster
from streamlet.spark import apply
from streamlet.spark.applying.apply import ROCKSDB, STATE_STORE
from tests.patience import PATIENCE_S
from tests.real.spark.test_apply import each_once, pairs, sums, until
from tests.real.spark.test_dataframes import executors, reading, writing
from tests.real.spark.topics import rows_of
from tests.topologies.kafka_words import KafkaWords

pytestmark = pytest.mark.spark

RECORDS = 200_000
A_BATCH = 20_000
SCHEMAS = {"lower": "word string", "count": "word string, n long", "window": "word string, n long"}
RESULTS = ["count", "window"]


@pytest.fixture(scope="module")
def words() -> list[str]:
    rng = random.Random(14)
    known = [f"{letter}{number}" for letter in "wW" for number in range(150)]
    return rng.choices(known, k=RECORDS)


@pytest.fixture(scope="module")
def truth(words: list[str]) -> Counter[str]:
    """What pandas says."""
    return Counter({str(word): int(n) for word, n in pandas.Series(words).str.lower().value_counts().items()})


@pytest.fixture(scope="module")
def topic(kafka4: DevCluster, words: list[str]) -> str:
    name = f"words-to-count-{os.getpid()}"
    kafka4.create_topic(name, 2)
    settings = {"bootstrap.servers": kafka4.bootstrap_servers, "enable.idempotence": True, "linger.ms": 20}
    producer = confluent_kafka.Producer({**settings, "queue.buffering.max.messages": 2 * RECORDS})
    for number, word in enumerate(words):
        producer.produce(name, word.encode())
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture
def spark(spark: Any) -> Iterator[Any]:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set(STATE_STORE, ROCKSDB)
    yield spark
    for name in ("spark.sql.shuffle.partitions", STATE_STORE):
        spark.conf.unset(name)


def text(frame: Any) -> Any:
    """What the bolts know: text, where a KafkaSpout's scheme made it."""
    return frame.selectExpr("CAST(value AS STRING) AS value")


def each_record_once(frame: Any) -> None:
    places = frame.agg(functions.count("*"), functions.count_distinct("partition", "offset")).collect()
    assert places == [(RECORDS, RECORDS)]


def stopped_and_hurt(query_of: Callable[[], Any], session: Session) -> None:
    """Stop a query in the middle and start it again; kill an executor in the middle of the rest; wait for its end."""
    last = RECORDS // A_BATCH - 1
    query = query_of().start()
    until(lambda: query.lastProgress and query.lastProgress["batchId"] >= 0, query)
    query.stop()
    assert query.lastProgress["batchId"] < last
    query = query_of().start()
    until(lambda: query.lastProgress and query.lastProgress["numInputRows"], query)
    os.kill(executors(session)[0], signal.SIGKILL)
    assert query.lastProgress["batchId"] < last
    query.processAllAvailable()
    query.stop()


def test_a_run_counts_what_pandas_counts(kafka4: DevCluster, topic: str, truth: Counter[str], tmp_path: Path) -> None:
    settings = {"lines.hosts": f"kafka://{kafka4.bootstrap_servers}", "lines.topic": topic, "lines.id": topic}
    KafkaWords.run(backend="processes", workers=2, until_caught_up=True, settings={**settings, "kept": str(tmp_path)})
    kept = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    for name in RESULTS:
        assert sum((Counter(each[name]) for each in kept), Counter()) == truth, name


def test_a_batch_of_records_in_parquet_has_the_counts_of_the_run_and_of_pandas(
    spark: Any, kafka4: DevCluster, topic: str, truth: Counter[str], tmp_path: Path
) -> None:
    reading(spark.read, kafka4, subscribe=topic).load().write.parquet(str(tmp_path / "records"))
    records = spark.read.parquet(str(tmp_path / "records"))
    each_record_once(records)
    applied = apply(KafkaWords, {"lines": text(records)}, schemas=SCHEMAS, outputs=RESULTS)
    assert each_once(applied["count"]) == truth
    assert pairs(applied["window"]) == sorted(truth.items())


@pytest.mark.faults
def test_a_stream_of_records_into_parquet_is_stopped_and_loses_an_executor_and_has_each_once(
    session: Session, spark: Any, kafka4: DevCluster, topic: str, truth: Counter[str], tmp_path: Path
) -> None:
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": A_BATCH}

    def query() -> Any:
        writer = reading(spark.readStream, kafka4, **options).load().writeStream.format("parquet")
        return writer.option("checkpointLocation", str(tmp_path / "at")).option("path", str(tmp_path / "records"))

    stopped_and_hurt(query, session)
    records = spark.read.parquet(str(tmp_path / "records"))
    each_record_once(records)
    applied = apply(KafkaWords, {"lines": text(records)}, schemas=SCHEMAS, outputs=["count"])
    assert each_once(applied["count"]) == truth


@pytest.mark.faults
def test_counts_from_topic_to_topic_are_stopped_and_lose_an_executor_and_are_there_each_once(
    session: Session, spark: Any, kafka4: DevCluster, topic: str, truth: Counter[str], tmp_path: Path
) -> None:
    """librdkafka reads them, with ``read_committed``. The windows add up to the same."""
    sink = f"{topic}-counts"
    kafka4.create_topic(sink, 2)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": A_BATCH}
    lines = text(reading(spark.readStream, kafka4, **options).load())
    applied = apply(KafkaWords, {"lines": lines}, schemas=SCHEMAS, outputs=RESULTS)
    window = tmp_path / "window"
    into_parquet = applied["window"].writeStream.format("parquet").option("path", str(window / "out"))
    windows = into_parquet.option("checkpointLocation", str(window / "checkpoint")).start()

    def query() -> Any:
        counts = applied["count"].selectExpr("word AS key", "CAST(n AS STRING) AS value")
        writer = writing(counts.writeStream, kafka4, topic=sink)
        return writer.option("checkpointLocation", str(tmp_path / "count"))

    stopped_and_hurt(query, session)
    found = sorted(((key or b"").decode(), int(value or b"0")) for _, _, key, value, _ in rows_of(kafka4, sink))
    assert found == sorted((word, n + 1) for word, count in truth.items() for n in range(count))
    deadline = time.monotonic() + PATIENCE_S
    while sums(spark, window) != truth:
        assert windows.exception() is None and time.monotonic() < deadline, windows.exception()
        time.sleep(0.5)
    windows.stop()
