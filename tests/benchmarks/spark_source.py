"""Kafka as a DataFrame against Spark's own connector: read and write, at 100 bytes and 1 KiB, interleaved.

    python -m tests.benchmarks.spark_source [--rounds 3] [--records 500000]

The connector's jar comes from the package registry by Maven or Ivy. For a Spark whose connector is not there the newest
older one is taken, and named. Without any, only our own figures are printed. Every round runs each job once with
either format, in alternating order; prints records a second and the ratio ours : theirs, each with its median.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import streamlet.spark
from streamlet.devcluster import DevCluster
from streamlet.devcluster.errors import JarsUnavailable
from tests.spark_connector import connector

OURS, THEIRS = "streamlet-kafka", "kafka"
PARTITIONS = 2
SIZES = (100, 1024)


def session(jars: list[Path]) -> Any:
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.jars", ",".join(map(str, jars))).config("spark.log.level", "ERROR")
    return builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()


def stop(spark: Any) -> None:
    """End the application, and remove what local-cluster writes beside pyspark whatever the settings say."""
    left = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(OSError):  # other applications have theirs there
        left.parent.rmdir()


def read(spark: Any, cluster: DevCluster, kind: str, topic: str) -> None:
    frame = spark.read.format(kind).option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    frame.option("subscribe", topic).load().write.format("noop").mode("overwrite").save()


def write(rows: Any, cluster: DevCluster, kind: str, topic: str) -> None:
    frame = rows.write.format(kind).option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    frame.option("topic", topic).mode("append").save()


def fill(cluster: DevCluster, topic: str, records: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, "batch.size": 200_000})
    value = bytes(size)
    for at in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=at % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark_source")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--records", type=int, default=500_000)
    given = arguments.parse_args()
    version, jars = "", []
    try:
        version, jars = connector()
    except JarsUnavailable as error:
        print(error)
    kinds = (OURS, THEIRS) if jars else (OURS,)
    with DevCluster("4") as cluster:
        spark = session(jars)
        print(f"Spark {spark.version}, connector {version or 'not to be had'}, {given.records} records")
        try:
            streamlet.spark.register(spark)
            for size in SIZES:
                measure(spark, cluster, size, given.records, given.rounds, kinds)
        finally:
            stop(spark)


def measure(spark: Any, cluster: DevCluster, size: int, records: int, rounds: int, kinds: tuple[str, ...]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    source, sink = f"source-{size}", f"sink-{size}"
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (source, sink)]).values():
        future.result()
    fill(cluster, source, records, size)
    rows = spark.range(0, records, 1, PARTITIONS).selectExpr(f"lpad(CAST(id AS STRING), {size}, 'x') AS value").cache()
    rows.count()
    jobs = {
        "read": lambda kind: read(spark, cluster, kind, source),
        "write": lambda kind: write(rows, cluster, kind, sink),
    }
    for job, run in jobs.items():
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        for kind in kinds:
            run(kind)  # warm: classes, Python workers, connections
        for number in range(rounds):
            for kind in kinds if number % 2 else kinds[::-1]:
                began = time.perf_counter()
                run(kind)
                rates[kind].append(records / (time.perf_counter() - began))
        line = f"{job:5} {size:5} B  " + "  ".join(
            f"{kind} {statistics.median(found):9.0f}/s ({min(found):.0f} to {max(found):.0f})"
            for kind, found in rates.items()
        )
        if len(kinds) == 2:
            ratios = [ours / theirs for ours, theirs in zip(rates[OURS], rates[THEIRS], strict=True)]
            line += f"  ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(line, flush=True)
    rows.unpersist()


if __name__ == "__main__":
    main()
