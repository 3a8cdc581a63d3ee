"""A topology's bolts on DataFrames against jobs written by hand, interleaved: stateless, keyed, and keyed in a stream.

    python -m tests.benchmarks.spark_apply [--rounds 5] [--lines 300000]

By hand are ``mapInArrow`` (lines to words), the same behind a repartition (counts of words), and
``transformWithState`` (counts of words in a stream of files). By batch are the same bolts with ``process_batch``. Every
round runs each job once either way, in alternating order; prints input lines a second and the ratio ours : by hand,
each with its median.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

from streamlet import Batch, Bolt, Grouping, Topology, TopologyContext, Tuple
from streamlet.spark import apply
from streamlet.spark.applying.apply import ROCKSDB, STATE_STORE
from tests.benchmarks.spark_source import stop
from tests.real.word_counts import random_lines
from tests.topologies.counted_words import Count, Lines

BATCHES = 4
"""Micro-batches of a stream."""


class Words(Bolt):
    """A line in, its words out."""

    outputs = ["word"]

    def process(self, tup: Tuple) -> None:
        for word in tup.values[0].split():
            self.emit([word])


class Counted(Topology):
    """lines -> words -> count."""

    config = {"counted.lines": ""}
    lines = Lines.spec()
    words = Words.spec(inputs=[lines])
    count = Count.spec(inputs={words: Grouping.fields("word")})


class WordsByBatch(Bolt):
    """Lines in, their words out."""

    outputs = ["word"]

    def process_batch(self, batch: Batch) -> None:
        self.emit_columns([word for line in batch.values("line") for word in line.split()])


class CountByBatch(Bolt):
    """The count of each word so far, at each word."""

    outputs = ["word", "n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def process_batch(self, batch: Batch) -> None:
        words, numbers, counts = batch.values("word"), [], self.counts
        for word in words:
            counts[word] += 1
            numbers.append(counts[word])
        self.emit_columns(words, numbers)


class CountedByBatch(Topology):
    """The same by the batch."""

    config = {"counted.lines": ""}
    lines = Lines.spec()
    words = WordsByBatch.spec(inputs=[lines])
    count = CountByBatch.spec(inputs={words: Grouping.fields("word")})


SCHEMAS = {"words": "word string", "count": "word string, n long"}


def split(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        words = [word for line in batch.column(0).to_pylist() for word in line.split()]
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(words, pyarrow.string())], names=["word"])


def count(batches: Iterator[Any]) -> Iterator[Any]:
    counts: Counter[str] = Counter()
    for batch in batches:
        words, numbers = batch.column(0).to_pylist(), []
        for word in words:
            counts[word] += 1
            numbers.append(counts[word])
        columns = [pyarrow.array(words, pyarrow.string()), pyarrow.array(numbers, pyarrow.int64())]
        yield pyarrow.RecordBatch.from_arrays(columns, names=["word", "n"])


class CountByHand(StatefulProcessor):
    """The count of each word so far, at each word."""

    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        found = self.state.get()
        number = 0 if found is None else found[0]
        for row in rows:
            number += 1
            yield Row(word=row.word, n=number)
        self.state.update((number,))

    def close(self) -> None: ...


def session() -> Any:
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    return builder.config("spark.sql.shuffle.partitions", "2").config(STATE_STORE, ROCKSDB).getOrCreate()


def run(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def stream(frame: Any) -> None:
    with tempfile.TemporaryDirectory() as checkpoint:
        written = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = written.trigger(availableNow=True).start()
        query.awaitTermination()


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark_apply")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--lines", type=int, default=300_000)
    given = arguments.parse_args()
    spark = session()
    folder = Path(tempfile.mkdtemp())
    try:
        measure(spark, folder, given.lines, given.rounds)
    finally:
        stop(spark)
        shutil.rmtree(folder)


def ours(frame: Any, name: str, topology: type[Topology] = Counted) -> Any:
    return apply(topology, {"lines": frame}, schemas=SCHEMAS, outputs=[name])[name]


def counted_by_hand(words: Any) -> Any:
    return words.groupBy("word").transformWithState(CountByHand(), "word string, n long", "Append", "None")


def measure(spark: Any, folder: Path, lines: int, rounds: int) -> None:
    few = random_lines(lines // 10)
    for part in range(BATCHES):
        (folder / f"{part}.txt").write_text("\n".join(few[part::BATCHES]) + "\n")
    frame = spark.createDataFrame([(line,) for line in few], "line string").repartition(2)
    frame = frame.crossJoin(spark.range(10)).select("line").cache()
    frame.count()
    streamed = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder)).withColumnRenamed("value", "line")
    by_hand = frame.mapInArrow(split, "word string")
    counted = by_hand.repartition("word").mapInArrow(count, "word string, n long")
    jobs: dict[str, tuple[int, Callable[[Any], None], Any, Any]] = {
        "stateless": (lines, run, ours(frame, "words"), by_hand),
        "by batch": (lines, run, ours(frame, "words", CountedByBatch), by_hand),
        "keyed": (lines, run, ours(frame, "count"), counted),
        "by batch ": (lines, run, ours(frame, "count", CountedByBatch), counted),
        "stream": (
            len(few),
            stream,
            ours(streamed, "count"),
            counted_by_hand(streamed.mapInArrow(split, "word string")),
        ),
    }
    for name, (rows, act, mine, theirs) in jobs.items():
        rates: dict[str, list[float]] = {"apply": [], "by hand": []}
        for number in range(rounds + 1):
            for kind, made in [("apply", mine), ("by hand", theirs)][:: 1 if number % 2 else -1]:
                began = time.perf_counter()
                act(made)
                if number:  # the first one warms up
                    rates[kind].append(rows / (time.perf_counter() - began))
        ratios = [one / other for one, other in zip(*rates.values(), strict=True)]
        shown = "  ".join(
            f"{kind} {statistics.median(found):9.0f}/s ({min(found):.0f} to {max(found):.0f})"
            for kind, found in rates.items()
        )
        print(
            f"{name:9} {shown}  ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
