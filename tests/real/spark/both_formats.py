"""One job in our format and in that of Spark's own connector, and what can be seen of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any

import confluent_kafka
from pyspark.sql.functions import spark_partition_id
from pyspark.util import InheritableThread

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin, TopicPartition
from streamlet.spark.options import Use
from streamlet.spark.source import KafkaDataSource
from tests.patience import PATIENCE_S

OURS, THEIRS = "streamlet-kafka", "kafka"
FIRST_MS = 1_000_000
"""Time of the first record of each partition with times of its own; the others follow each second."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job gave: rows and more, or the text of its refusal."""

    refused: str = ""
    schema: str = ""
    rows: tuple[Any, ...] = ()
    tasks: frozenset[tuple[Any, ...]] = frozenset()
    """Of a read: topic, partition, first and last offset of each task with rows."""
    ends: tuple[Any, ...] = ()
    """Of a stream: the offsets at the end of each batch, from its checkpoint."""


def attempt(job: Callable[[], Outcome]) -> Outcome:
    """Run a job; its error is an outcome too."""
    try:
        return job()
    except AssertionError:
        raise
    except Exception as error:  # py4j and Spark raise a dozen kinds
        return Outcome(refused=str(error))


def at_once(*jobs: Callable[[], Outcome]) -> list[Outcome]:
    """Run jobs beside each other; the first one in this thread, in which our format may write, too."""
    found: dict[int, Outcome] = {}

    def run(number: int) -> None:
        found[number] = attempt(jobs[number])

    others = [InheritableThread(target=run, args=(number,)) for number in range(1, len(jobs))]
    for thread in others:
        thread.start()
    run(0)
    for thread in others:
        thread.join()
    return [found[number] for number in range(len(jobs))]


@dataclass(frozen=True, slots=True)
class Formats:
    """Jobs in either format, against one cluster."""

    spark: Any
    cluster: DevCluster
    names: Mapping[str, str]
    """Names of topics for ``$name`` in options."""

    def options(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return a job's options with the names of topics filled in, and the cluster's address unless they have one."""
        filled = {name: Template(value).substitute(self.names) for name, value in given.items()}
        address = {"kafka.bootstrap.servers": self.cluster.bootstrap_servers}
        return {name: value for name, value in {**address, **filled}.items() if value != "left out"}

    def refusal(self, use: Use, given: Mapping[str, str], frame: Any = None, mode: str | None = None) -> Outcome:
        """Do our part of a job in this process, driver's and executors': Spark tries what fails four times."""

        def job() -> Outcome:
            source = KafkaDataSource({name.lower(): value for name, value in self.options(given).items()})
            if use is Use.BATCH_READ:
                reader = source.reader(source.schema())
                for partition in reader.partitions():
                    list(reader.read(partition))
            elif use is Use.STREAM_READ:
                stream = source.streamReader(source.schema())
                try:
                    stream.initialOffset()
                finally:
                    stream.stop()
            elif use is Use.STREAM_WRITE:
                source.streamWriter(frame.schema, False)
            else:
                writer = source.writer(frame.schema, mode == "overwrite")
                writer.write(iter(frame.toArrow().to_batches()))
            return Outcome()

        return attempt(job)

    def read(self, kind: str, given: Mapping[str, str], schema: str | None = None) -> Outcome:
        """Read a batch."""

        def job() -> Outcome:
            reader = self.spark.read.format(kind).options(**self.options(given))
            frame = (reader if schema is None else reader.schema(schema)).load()
            return _read(frame.schema, frame.withColumn("task", spark_partition_id()).collect())

        return attempt(job)

    def stream(self, kind: str, given: Mapping[str, str], checkpoint: Path) -> Outcome:
        """Read what is there as a stream; with a checkpoint that is there already, go on from it."""
        rows: list[Any] = []

        def take(frame: Any, batch: int) -> None:
            found = frame.withColumn("task", spark_partition_id()).collect()
            rows.extend((*row[:-1], (batch, row[-1])) for row in found)

        def job() -> Outcome:
            frame = self.spark.readStream.format(kind).options(**self.options(given)).load()
            writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
            _ended(writer.trigger(availableNow=True).start())
            return replace(_read(frame.schema, rows), ends=ends(checkpoint))

        return attempt(job)

    def write(self, kind: str, frame: Any, given: Mapping[str, str], mode: str | None = "append") -> Outcome:
        """Write a batch; what was written is read back by ``written``."""

        def job() -> Outcome:
            writer = frame.write.format(kind).options(**self.options(given))
            (writer if mode is None else writer.mode(mode)).save()
            return Outcome()

        return attempt(job)

    def write_stream(
        self, kind: str, frame: Any, given: Mapping[str, str], folder: Path, mode: str = "append"
    ) -> Outcome:
        """Write a streaming DataFrame until its source has no more."""

        def job() -> Outcome:
            writer = frame.writeStream.format(kind).options(**self.options(given)).outputMode(mode)
            _ended(writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start())
            return Outcome()

        return attempt(job)

    def written(self, *topics: str) -> list[Any]:
        """Return what is in topics, without offset and time; of a record without a key, without partition, too."""
        given = {"subscribe": ",".join(topics), "includeHeaders": "true", "kafka.isolation.level": "read_committed"}
        found = self.read(THEIRS, given)
        assert not found.refused, found.refused
        rows = [(row[0], row[1], row[0] is not None and row[3], row[7]) for row in found.rows]
        return sorted(rows, key=repr)


def _ended(query: Any) -> None:
    """Wait for the end of a query that ends by itself; raise its error."""
    if not query.awaitTermination(PATIENCE_S):
        query.stop()
        raise AssertionError("the query goes on")


def _read(schema: Any, found: list[Any]) -> Outcome:
    rows = [tuple(map(_plain, row)) for row in found]
    by_task: dict[Any, list[Any]] = {}
    for row in rows:
        by_task.setdefault((row[2], row[3], row[-1]), []).append(row[4])
    tasks = frozenset((topic, number, min(at), max(at)) for (topic, number, _task), at in by_task.items())
    rows.sort(key=lambda row: row[2:5])
    return Outcome("", schema.json(), tuple(row[:-1] for row in rows), tasks)


def _plain(value: Any) -> Any:
    """Return a cell in a form that can be compared."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value


BESIDE = ("first batch", "topic ids")


def ends(checkpoint: Path) -> tuple[Any, ...]:
    """Return the offsets at the end of each batch, without what ours have beside them.

    That is where the first one began, and the ids of the topics.
    """
    files = sorted(
        (path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    found = [json.loads(path.read_text().splitlines()[2]) for path in files]
    return tuple({topic: row for topic, row in each.items() if topic not in BESIDE} for each in found)


# -- the topics that are read ----------------------------------------------------------------------------------------


def fill_plain(cluster: DevCluster, topic: str) -> None:
    """Fill three partitions with keys, values and headers, some empty, some null; the last one's records are gone."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    headers: list[Any] = [None, [], [("h", b"1"), ("h", None)], [("empty", b"")]]
    for number, count in enumerate((20, 5, 4)):
        for at in range(count):
            producer.produce(
                topic,
                partition=number,
                key=(None, b"", b"k%d" % at)[at % 3],
                value=(b"v%d" % at, None, b"")[at % 5 if at % 5 < 3 else 0],
                headers=headers[at % 4],
                timestamp=FIRST_MS + at * 1000,
            )
    assert producer.flush(PATIENCE_S) == 0
    cut(cluster, topic, 2, 4)


def cut(cluster: DevCluster, topic: str, number: int, before: int) -> None:
    """Delete the records before an offset."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, number): before})


def produce(cluster: DevCluster, topic: str, count: int, number: int = 0) -> None:
    """Append records to a partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for at in range(count):
        producer.produce(topic, partition=number, key=b"k%d" % at, value=b"v%d" % at)
    assert producer.flush(PATIENCE_S) == 0


def fill_transactional(cluster: DevCluster, topic: str) -> confluent_kafka.Producer:
    """Write committed and aborted transactions, and one that stays open; return the producer that has it."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": topic,
            "transaction.timeout.ms": 900_000,  # the open one stays so until the last test is done
        }
    )
    producer.init_transactions(PATIENCE_S)
    for number, count in enumerate((5, 6, 3)):
        producer.begin_transaction()
        for at in range(count):
            producer.produce(topic, b"%d-%d" % (number, at))
        (producer.abort_transaction if number == 1 else producer.commit_transaction)(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(PATIENCE_S)
    return producer
