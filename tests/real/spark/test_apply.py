"""A topology's bolts on DataFrames, on executors: the counts are those of the resident topology, and of pandas."""

from __future__ import annotations

import importlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from streamlet.base.errors import BadInput
from streamlet.spark import apply
from streamlet.spark.applying.apply import ROCKSDB, STATE_STORE
from streamlet.testing import TopologyTester
from tests.command_line import ROOT
from tests.patience import PATIENCE_S
from tests.real.word_counts import random_lines
from tests.topologies.counted_words import CountedWords
from tests.topologies.nulls_within import NullsWithin
from tests.topologies.total_lines import TotalLines

pytestmark = pytest.mark.spark

SCHEMAS = {
    "lower": "word string",
    "count": "word string, n long",
    "window": "n long, word string",
    "split[lengths]": "line string, words int",
}
LINES = random_lines(34_000)
"""Of six words each: 204 000 of them."""
STREAMED = LINES[:6_000]

N = StructField("n", LongType(), False)

Pair = tuple[str, int]


@pytest.fixture
def spark(spark: Any) -> Iterator[Any]:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    for name in ("spark.sql.shuffle.partitions", STATE_STORE):
        spark.conf.unset(name)


def counts(lines: list[str]) -> Counter[str]:
    """What pandas says."""
    words = pandas.Series(" ".join(lines).split(" "))
    return Counter({str(word): int(count) for word, count in words.value_counts().items()})


def pairs(frame: Any) -> list[Pair]:
    return sorted((row.word, row.n) for row in frame.select("word", "n").collect())


def each_once(frame: Any) -> Counter[str]:
    """How often `count` saw each word; it emits each number up to that once."""
    numbers = frame.groupBy("word").agg(
        functions.count("n").alias("all"),
        functions.count_distinct("n").alias("different"),
        functions.max("n").alias("n"),
    )
    rows = numbers.collect()
    assert all(row["all"] == row.different == row.n for row in rows)
    return Counter({row.word: row.n for row in rows})


def test_a_batch_has_the_counts_of_the_resident_topology_and_of_pandas(spark: Any) -> None:
    frame = spark.createDataFrame(pandas.DataFrame({"line": LINES, "more": 1}))
    applied = apply(CountedWords, {"lines": frame}, schemas=SCHEMAS)
    assert sorted(applied) == ["count", "split[lengths]", "window"]
    assert each_once(applied["count"]) == counts(LINES)
    assert pairs(applied["window"]) == sorted(counts(LINES).items())
    assert applied["split[lengths]"].groupBy("words").count().collect() == [(6, len(LINES))]
    few = LINES[:500]
    with TopologyTester(CountedWords, {"lines": few}) as resident:
        resident.run()
        resident.advance(1)
        emitted = {name: sorted(map(tuple, resident.emitted(name))) for name in ("count", "window")}
    again = apply(CountedWords, {"lines": frame.limit(500).coalesce(1)}, schemas=SCHEMAS, outputs=["count"])
    assert list(again) == ["count"]
    assert (pairs(again["count"]), len(emitted["window"])) == (emitted["count"], len(dict(emitted["count"])))


def test_a_stream_goes_on_from_its_checkpoint_and_each_count_comes_once(spark: Any, tmp_path: Path) -> None:
    spark.conf.set(STATE_STORE, ROCKSDB)
    counted, window, truth = tmp_path / "count", tmp_path / "window", counts(STREAMED)
    lines = {"lines": streamed(spark, tmp_path / "lines")}
    applied = apply(CountedWords, lines, schemas=SCHEMAS)
    alone = apply(CountedWords, lines, schemas=SCHEMAS, outputs=["count"])  # the words are packed where they are made
    written = writing(alone["count"], counted)
    query = written.start()
    windows = writing(applied["window"], window).start()
    until(lambda: query.lastProgress and query.lastProgress["batchId"] >= 0, query)
    query.stop()
    assert 0 < spark.read.parquet(str(counted / "out")).count() < truth.total()
    query = written.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S) and query.exception() is None
    assert each_once(spark.read.parquet(str(counted / "out"))) == truth

    # Ticks come on while a bolt remembers something; the windows of all words then add up, and no key is left.
    def over() -> bool:
        return sums(spark, window) == truth and windows.lastProgress["stateOperators"][0]["numRowsTotal"] == 0

    until(over, windows)
    windows.stop()


def test_failed_tuples_stop_the_job_or_are_skipped_and_counted_or_become_dead_letters(spark: Any) -> None:
    frame = spark.createDataFrame([("a B",), ("b bad",), ("c",)], "line string").coalesce(1)
    stopped = apply(CountedWords, {"lines": frame}, schemas=SCHEMAS)
    with pytest.raises(
        PythonException, match=r"The bolt split failed on the tuple \['b bad'\] from lines: Val"
    ) as told:
        stopped["count"].collect()
    assert "Traceback" not in str(told.value)
    skipped = apply(CountedWords, {"lines": frame}, schemas=SCHEMAS, on_failed="skip")
    assert pairs(skipped["count"]) == [("a", 1), ("b", 1), ("c", 1)]
    assert skipped.skipped == {"split": 1}
    kept = apply(CountedWords, {"lines": frame}, schemas=SCHEMAS, on_failed="dead-letter", persist=True)
    assert pairs(kept["count"]) == [("a", 1), ("b", 1), ("c", 1)]
    (letter,) = kept.dead_letters.collect()
    assert (letter.bolt, letter.source, letter.tuple) == ("split", "lines", '{"line": "b bad"}')
    assert "a bad word in 'b bad'" in letter.reason
    kept.unpersist()


def test_a_value_of_another_type_than_the_schema_says_is_named(spark: Any) -> None:
    frame = spark.createDataFrame([("a",)], "line string")
    wrong = apply(CountedWords, {"lines": frame}, schemas={**SCHEMAS, "count": "word long, n long"})
    told = r"count emitted 'a' \(str\) as field 'word' of its stream 'default', and schemas= says that it is long"
    with pytest.raises(PythonException, match=told):
        wrong["count"].collect()
    wrong = apply(CountedWords, {"lines": frame}, schemas={**SCHEMAS, "count": "word string, n boolean"})
    with pytest.raises(
        PythonException, match=r"emitted 1 \(int\) as .* says that it is boolean\. Name .* that type\.$"
    ):
        wrong["count"].collect()


def test_a_none_within_a_value_stays_though_schemas_says_not_null(spark: Any) -> None:
    frame = spark.createDataFrame([("a",)], "line string")
    schema = StructType([StructField("numbers", ArrayType(LongType(), False)), StructField("row", StructType([N]))])
    found = apply(NullsWithin, {"lines": frame}, schemas={"nulls": schema})["nulls"].collect()
    assert found == [([1, None, 3], (None,))]


def test_wrong_arguments_are_refused_all_at_once_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a",)], "text string")
    with pytest.raises(BadInput, match=r'"lower": "word TYPE".*"count": "word TYPE, n TYPE"'):
        apply(CountedWords, {"lines": frame.withColumnRenamed("text", "line")})
    with pytest.raises(BadInput, match="The DataFrame for lines has no column 'line': it has text, and lines declares"):
        apply(CountedWords, {"lines": frame}, schemas=SCHEMAS)
    wrong = {"cuont": "word string", "count": "word string", "lower": "word decimal(3,1)", "window": "nothing at all"}
    with pytest.raises(BadInput) as caught:
        apply(CountedWords, {"lines": frame}, schemas=wrong, outputs=["count", "window"])
    told = caught.value.message
    assert "schemas= names 'cuont', and no component gives a stream of that name. Did you mean 'count'?" in told
    assert "schemas= says that count has word, and the bolt declares word, n." in told
    assert "of type decimal(3,1), which no tuple can hold" in told and "schemas= of window is 'nothing at all'" in told
    (tmp_path / "lines").mkdir()
    stream = spark.readStream.text(str(tmp_path / "lines")).withColumnRenamed("value", "line")
    with pytest.raises(BadInput, match=r"needs RocksDB; this session has .*HDFSBacked.*spark\.conf\.set"):
        apply(CountedWords, {"lines": stream}, schemas=SCHEMAS)


def test_the_program_of_the_page_applies_a_topology_as_it_stands(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "guide" / "bolts-on-dataframes.md").read_text(encoding="utf-8")
    program = page.split("```python\n", 1)[1].split("```", 1)[0]
    rows = [(1, "Cork", 1.0), (2, "Delft", 2.0), (3, "Cork", 2.0)]
    frame = spark.createDataFrame(rows, "number int, station string, celsius double")
    frame.write.parquet(str(tmp_path / "readings.parquet"))
    monkeypatch.syspath_prepend(str(ROOT / "topologies"))
    names: dict[str, Any] = {"spark": spark}
    exec(program.replace('"readings.parquet"', repr(str(tmp_path / "readings.parquet"))), names)
    found = sorted(map(tuple, names["applied"]["average"].collect()))
    assert [row for row in found if row[0] == "Delft" or row[1] == 2] == [("Cork", 2, 1.5), ("Delft", 1, 2.0)]


def streamed(spark: Any, folder: Path) -> Any:
    """The lines as a stream, a file a batch."""
    folder.mkdir()
    for part in range(3):
        (folder / f"{part}.txt").write_text("\n".join(STREAMED[part::3]) + "\n")
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder)).withColumnRenamed("value", "line")


def writing(frame: Any, folder: Path) -> Any:
    written = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return written.option("path", str(folder / "out"))


def sums(spark: Any, folder: Path) -> Counter[str]:
    if not (folder / "out" / "_spark_metadata").exists():
        return Counter()
    rows = spark.read.schema("word string, n long").parquet(str(folder / "out")).groupBy("word").sum("n").collect()
    return Counter({row[0]: row[1] for row in rows})


def until(reached: Any, query: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert query.exception() is None and time.monotonic() < deadline, query.exception()
        time.sleep(0.1)


EDITED = """
from streamlet import Bolt, Spout, Topology

class Lines(Spout):
    outputs = ["line"]

    def next_tuple(self):
        pass

class Mark(Bolt):
    outputs = ["line"]

    def process(self, tup):
        self.emit([tup.values[0] + "{mark}"])

class Edited(Topology):
    lines = Lines.spec()
    mark = Mark.spec(inputs=[lines])
"""


def test_an_edited_topology_that_is_applied_again_runs_its_new_code(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python workers that have imported the old one; a DataFrame that was made before keeps its own."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    frame = spark.createDataFrame([("a",)], "line string").coalesce(1)
    file, made = tmp_path / "edited_topology.py", []
    for mark in ("1", "22", "1"):
        file.write_text(EDITED.format(mark=mark))
        importlib.invalidate_caches()
        known = sys.modules.get("edited_topology")
        module = importlib.import_module("edited_topology") if known is None else importlib.reload(known)
        made.append(apply(module.Edited, {"lines": frame}, schemas={"mark": "line string"})["mark"])
        assert made[-1].collect() == [("a" + mark,)]
    assert [each.collect()[0].line for each in made] == ["a1", "a22", "a1"]
    del sys.modules["edited_topology"]


COUNTS = """
from streamlet import Bolt, Grouping, Spout, Topology

class Lines(Spout):
    outputs = ["line"]

    def next_tuple(self):
        pass

class Counts(Bolt):
    outputs = ["line", "n"]

    def initialize(self, conf, context):
        self.n = 0

    def process(self, tup):
        self.n += 1
        self.emit([tup.values[0], self.n])

class Counted(Topology):
    lines = Lines.spec()
    counts = Counts.spec(inputs={lines: Grouping.fields("line")})
"""


def test_a_keyed_stream_starts_though_its_module_is_not_in_the_working_directory(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in PYTHONPATH: a process of Spark's on the driver unpickles the stage, and has those alone."""
    spark.conf.set(STATE_STORE, ROCKSDB)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "counted_elsewhere.py").write_text(COUNTS)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "code")])
    module = importlib.import_module("counted_elsewhere")
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "0.txt").write_text("a\nb\na\n")
    lines = spark.readStream.text(str(tmp_path / "lines")).withColumnRenamed("value", "line")
    applied = apply(module.Counted, {"lines": lines}, schemas={"counts": "line string, n long"})
    query = writing(applied["counts"], tmp_path / "counts").trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S) and query.exception() is None
    found = spark.read.parquet(str(tmp_path / "counts" / "out"))
    assert sorted(map(tuple, found.collect())) == [("a", 1), ("a", 2), ("b", 1)]
    del sys.modules["counted_elsewhere"]


EMPTY: dict[str, Callable[[Any], Any]] = {
    "a day without files": lambda days: days.where("day = 'sun'"),
    "no such line": lambda days: days.where("line = 'none'"),
    "limit": lambda days: days.limit(0),
    "never": lambda days: days.where("1 = 0"),
    "a contradiction": lambda days: days.where("line IS NULL AND line = 'a'"),
    "a join": lambda days: days.join(days.where("false").select("line"), "line"),
    "an aggregation": lambda days: days.where("line = 'none'").groupBy("line").count(),
}


def test_a_global_bolt_gives_its_result_whatever_makes_its_dataframe_empty(spark: Any, tmp_path: Path) -> None:
    """Spark's optimizer drops a frame that it knows to be empty, and with it the one partition of the bolt."""
    rows = spark.createDataFrame([("a", "mon"), ("b", "tue")], "line string, day string")
    rows.write.partitionBy("day").parquet(str(tmp_path / "days"))
    days = spark.read.parquet(str(tmp_path / "days"))
    found = {
        case: apply(TotalLines, {"lines": make(days)}, schemas={"total": "n long"})["total"].collect()
        for case, make in {"all": lambda days: days, **EMPTY}.items()
    }
    assert found == {"all": [(2,)], **{case: [(0,)] for case in EMPTY}}


def test_a_stream_with_an_array_as_its_key_is_refused_before_it_starts(spark: Any, tmp_path: Path) -> None:
    spark.conf.set(STATE_STORE, ROCKSDB)
    (tmp_path / "words").mkdir()
    stream = spark.readStream.schema("word array<long>").parquet(str(tmp_path / "words"))
    with pytest.raises(BadInput, match=r"^count reads lower grouped by 'word', which is array<bigint>: "):
        apply(CountedWords, {"lower": stream}, schemas={"count": "word array<long>, n long"}, outputs=["count"])
