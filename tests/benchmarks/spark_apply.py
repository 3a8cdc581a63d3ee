"""A topology's bolts on DataFrames against jobs written by hand, interleaved: stateless, keyed, and keyed in a stream.

    python -m tests.benchmarks.spark_apply [--rounds 5] [--lines 300000] [--jobs words,counts,stream]

By hand are ``mapInArrow`` (lines to words), the same behind a repartition (counts of words), each on whole columns,
row by row in a loop, and with a function called for each row that comes and that leaves; and ``transformWithState``
(counts of words in a stream of files). By batch are the same bolts with ``process_batch``. A round runs each way to do
a job once, in alternating order. Prints of each way the input lines a second and the microseconds of processor a line,
of Spark and its workers together; and of ours both as ratios to each way by hand in the same round, above 1 where ours
does better: medians, smallest and largest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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

COLUMNS, ROWS, CALLS = "by hand, columns", "by hand, rows", "by hand, calls"


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


def split_rows(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        words = []
        for line in batch.column(0).to_pylist():
            for word in line.split():
                words.append(word)  # noqa: PERF402 - row by row, as the bolt does
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(words, pyarrow.string())], names=["word"])


def count_rows(batches: Iterator[Any]) -> Iterator[Any]:
    counts: Counter[str] = Counter()
    for batch in batches:
        words, numbers = [], []
        for word in batch.column(0).to_pylist():
            counts[word] += 1
            words.append(word)
            numbers.append(counts[word])
        yield counted(words, numbers)


def split_calls(batches: Iterator[Any]) -> Iterator[Any]:
    def process(values: list[Any]) -> None:
        for word in values[0].split():
            emit([word])

    def emit(values: list[Any]) -> None:
        words.append(values[0])

    for batch in batches:
        words: list[str] = []
        for line in batch.column(0).to_pylist():
            process([line])
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(words, pyarrow.string())], names=["word"])


def count_calls(batches: Iterator[Any]) -> Iterator[Any]:
    counts: Counter[str] = Counter()

    def process(values: list[Any]) -> None:
        word = values[0]
        counts[word] += 1
        emit([word, counts[word]])

    def emit(values: list[Any]) -> None:
        words.append(values[0])
        numbers.append(values[1])

    for batch in batches:
        words: list[str] = []
        numbers: list[int] = []
        for word in batch.column(0).to_pylist():
            process([word])
        yield counted(words, numbers)


def count(batches: Iterator[Any]) -> Iterator[Any]:
    counts: Counter[str] = Counter()
    for batch in batches:
        words, numbers = batch.column(0).to_pylist(), []
        for word in words:
            counts[word] += 1
            numbers.append(counts[word])
        yield counted(words, numbers)


def counted(words: list[str], numbers: list[int]) -> Any:
    columns = [pyarrow.array(words, pyarrow.string()), pyarrow.array(numbers, pyarrow.int64())]
    return pyarrow.RecordBatch.from_arrays(columns, names=["word", "n"])


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
    arguments.add_argument("--jobs", default="words,counts,stream")
    given = arguments.parse_args()
    spark = session()
    folder = Path(tempfile.mkdtemp())
    try:
        for job in jobs(spark, folder, given.lines):
            if job.name in given.jobs.split(","):
                measure(job, given.rounds)
    finally:
        stop(spark)
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Job:
    """A job, and the ways to do it: with ``apply``, and by hand."""

    name: str
    lines: int
    run: Callable[[Any], None]
    ours: dict[str, Any]
    by_hand: dict[str, Any]


def ours(frame: Any, name: str, topology: type[Topology] = Counted) -> Any:
    return apply(topology, {"lines": frame}, schemas=SCHEMAS, outputs=[name])[name]


def ours_both(frame: Any, name: str) -> dict[str, Any]:
    return {"by tuple": ours(frame, name), "by batch": ours(frame, name, CountedByBatch)}


def jobs(spark: Any, folder: Path, lines: int) -> list[Job]:
    few = random_lines(lines // 10)
    for part in range(BATCHES):
        (folder / f"{part}.txt").write_text("\n".join(few[part::BATCHES]) + "\n")
    frame = spark.createDataFrame([(line,) for line in few], "line string").repartition(2)
    frame = frame.crossJoin(spark.range(10)).select("line").cache()
    frame.count()
    streamed = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder)).withColumnRenamed("value", "line")

    split_ways = {COLUMNS: split, ROWS: split_rows, CALLS: split_calls}
    count_ways = {COLUMNS: count, ROWS: count_rows, CALLS: count_calls}
    words = {way: frame.mapInArrow(made, "word string") for way, made in split_ways.items()}
    counts = {
        way: words[way].repartition("word").mapInArrow(made, "word string, n long") for way, made in count_ways.items()
    }
    grouped = streamed.mapInArrow(split, "word string").groupBy("word")
    stateful = grouped.transformWithState(CountByHand(), "word string, n long", "Append", "None")
    return [
        Job("words", lines, run, ours_both(frame, "words"), words),
        Job("counts", lines, run, ours_both(frame, "count"), counts),
        Job("stream", len(few), stream, {"by tuple": ours(streamed, "count")}, {ROWS: stateful}),
    ]


def measure(job: Job, rounds: int) -> None:
    ways = {**job.ours, **job.by_hand}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    costs: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in [*ways][:: 1 if number % 2 else -1]:
            began, spent = time.perf_counter(), processor_s()
            job.run(ways[way])
            if number:  # the first one warms up
                rates[way].append(job.lines / (time.perf_counter() - began))
                costs[way].append((processor_s() - spent) / job.lines * 1e6)
    for way in ways:
        rate, cost = spread(rates[way], ",.0f"), spread(costs[way], ".2f")
        print(f"{job.name:7} {way:17} {rate} lines/s   {cost} us", flush=True)
    for way in job.ours:
        for other in job.by_hand:
            rate = spread([one / two for one, two in zip(rates[way], rates[other], strict=True)], ".2f")
            cost = spread([two / one for one, two in zip(costs[way], costs[other], strict=True)], ".2f")
            print(f"{job.name:7} {way} : {other:17} lines/s {rate}   processor {cost}", flush=True)


def processor_s() -> float:
    """Return the processor time of all processes below this one, with those of them that have ended."""
    below: dict[int, list[tuple[int, int]]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        below.setdefault(int(fields[1]), []).append((int(file.parent.name), sum(map(int, fields[11:15]))))

    def ticks(parent: int) -> int:
        return sum(own + ticks(child) for child, own in below.get(parent, ()))

    return ticks(os.getpid()) / os.sysconf("SC_CLK_TCK")


def spread(found: list[float], form: str) -> str:
    return f"{statistics.median(found):{form}} ({min(found):{form}} to {max(found):{form}})"


if __name__ == "__main__":
    main()
