"""A word count in Structured Streaming under live load: notes when the micro-batch of each line was done.

    live_structured.py JARS

JARS: Spark's Kafka connector, by commas. Environment: BENCHMARK_BOOTSTRAP, BENCHMARK_TOPIC, BENCHMARK_OUT,
BENCHMARK_SECONDS. A micro-batch is done when its counts are at the driver; the next one starts at once.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql


def main() -> None:
    """Count words until the time is over."""
    until = time.monotonic() + float(os.environ["BENCHMARK_SECONDS"])
    topic = os.environ["BENCHMARK_TOPIC"]
    builder = SparkSession.builder.master("local-cluster[1,1,1024]").config("spark.jars", sys.argv[1])
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", "100000")
    # Progress is kept for each micro-batch, also for those that come in less than the usual pause.
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    done_at: dict[int, float] = {}

    def keep(counts: Any, batch: int) -> None:
        counts.collect()
        done_at[batch] = time.time()

    lines = spark.readStream.format("kafka").option("kafka.bootstrap.servers", os.environ["BENCHMARK_BOOTSTRAP"])
    lines = lines.option("subscribe", topic).option("startingOffsets", "earliest").load()
    words = lines.select(sql.explode(sql.split(lines.value.cast("string"), " ")).alias("word"))
    with tempfile.TemporaryDirectory() as checkpoint:
        counted = words.groupBy("word").count().writeStream.outputMode("update").foreachBatch(keep)
        query = counted.option("checkpointLocation", checkpoint).start()
        while time.monotonic() < until:
            time.sleep(0.1)
            if (error := query.exception()) is not None:
                raise error
        query.stop()
    times = array("d")
    for progress in query.recentProgress:
        # JSON in JSON: of the first batch the start is null.
        start, end = (json.loads(progress["sources"][0][key] or "null") or {} for key in ("startOffset", "endOffset"))
        if (at := done_at.get(progress["batchId"])) is not None:
            for offset in range(start.get(topic, {}).get("0", 0), end[topic]["0"]):
                times.extend((offset, at))
    Path(os.environ["BENCHMARK_OUT"], "structured.bin").write_bytes(times.tobytes())
    spark.stop()


if __name__ == "__main__":
    main()
