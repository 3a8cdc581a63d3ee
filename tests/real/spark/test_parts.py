"""A DataFrame through a resident topology on executors, and back: ``write_parts``, DataFrameSpout, DataFrameSink."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.functions import col, concat, lit

import streamlet.spark
from streamlet.backends import SparkBackend
from streamlet.base.errors import BadInput, StreamletError
from streamlet.spark import parts
from streamlet.spouts.dataframe.parts import MANIFEST, manifest_rows
from tests.patience import PATIENCE_S
from tests.stations_run import run_stations, written

pytestmark = pytest.mark.spark

ROWS, PARTS = 20_000, 8


def readings(spark: Any) -> Any:
    number = col("id")
    return spark.range(0, ROWS, 1, PARTS).select(
        number.alias("number"), concat(lit("station "), number % 7).alias("station"), (number / 8).alias("celsius")
    )


def test_a_dataframe_goes_through_the_bolts_of_a_topology_and_a_dead_worker_loses_nothing(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    assert streamlet.spark.write_parts(readings(spark), str(tmp_path / "readings")) == str(tmp_path / "readings")
    result = run_stations(SparkBackend(spark), tmp_path, deadly=ROWS // 2, pending=4000)
    assert result.reason == "caught_up" and (tmp_path / "killed").exists()
    assert sorted(worker["epoch"] for worker in result.status.workers) == [1, 2]

    found = spark.read.parquet(str(tmp_path / "out"))
    once = found.dropDuplicates(["number"])
    assert {tuple(row) for row in once.collect()} == {written(number) for number in range(ROWS)}
    # As a table, files that come later too.
    spark.sql(f"CREATE TABLE fahrenheits USING parquet LOCATION '{tmp_path / 'out'}'")
    try:
        assert spark.table("fahrenheits").count() == found.count()
        one = next((tmp_path / "out").iterdir())
        more = spark.read.parquet(str(one)).count()
        shutil.copy(one, one.with_name("part-of-another-run.parquet"))
        spark.sql("REFRESH TABLE fahrenheits")
        assert spark.table("fahrenheits").count() == found.count() + more
    finally:
        spark.sql("DROP TABLE fahrenheits")


def test_each_partition_is_a_part_also_an_empty_one(spark: Any, tmp_path: Path) -> None:
    streamlet.spark.write_parts(readings(spark), str(tmp_path / "readings"))
    rows = manifest_rows((tmp_path / "readings" / MANIFEST).read_text())
    assert sorted(rows.values()) == [ROWS // PARTS] * PARTS
    streamlet.spark.write_parts(readings(spark).where("number < 0"), str(tmp_path / "none"))
    assert sum(manifest_rows((tmp_path / "none" / MANIFEST).read_text()).values()) == 0
    with pytest.raises(BadInput, match="is not empty"):
        streamlet.spark.write_parts(readings(spark), str(tmp_path / "none"))


@pytest.mark.parametrize("name", ["a blank", "100%", "a%20b", "für", "#1", "a:b", "{a,b}*?[c]"])
def test_a_folder_of_any_name_has_the_parts(spark: Any, tmp_path: Path, name: str) -> None:
    streamlet.spark.write_parts(spark.range(3).coalesce(1), str(tmp_path / name))
    assert [*manifest_rows((tmp_path / name / MANIFEST).read_text()).values()] == [3]
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_types_that_no_tuple_can_hold_are_refused_before_anything_is_written(spark: Any, tmp_path: Path) -> None:
    wrong = spark.sql("SELECT 1.5 AS price, DATE'2026-01-02' AS day, map('a', 1) AS more, 1 AS n")
    with pytest.raises(BadInput) as refused:
        streamlet.spark.write_parts(wrong, str(tmp_path / "readings"))
    for name in ("price", "day", "more"):
        assert f"has the column {name!r}" in str(refused.value)
    assert not (tmp_path / "readings").exists()
    with pytest.raises(BadInput, match="no hdfs client is used"):
        streamlet.spark.write_parts(wrong, "hdfs://node1/readings")


def test_a_stream_is_refused_and_its_batches_are_written_as_the_refusal_says(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "0.txt").write_text("a\nb\n")
    stream = spark.readStream.text(str(tmp_path / "lines"))
    with pytest.raises(BadInput, match=r"write_parts writes a batch, and this DataFrame is a stream: .*foreachBatch"):
        streamlet.spark.write_parts(stream, str(tmp_path / "parts"))
    assert not (tmp_path / "parts").exists()

    def write(rows: Any, number: int) -> None:
        streamlet.spark.write_parts(rows, str(tmp_path / f"parts-{number}"))

    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S) and query.exception() is None
    assert sum(manifest_rows((tmp_path / "parts-0" / MANIFEST).read_text()).values()) == 2


def test_a_folder_that_executors_do_not_share_with_the_driver_is_found_out(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here they do, so a file is taken away before the driver looks."""
    seen = parts._rows_seen

    def one_less(place: Path) -> dict[str, int]:
        next(place.glob("*.parquet")).unlink()
        return seen(place)

    monkeypatch.setattr(parts, "_rows_seen", one_less)
    with pytest.raises(StreamletError, match=f"wrote {ROWS} rows .* sees {ROWS - ROWS // PARTS} of them"):
        streamlet.spark.write_parts(readings(spark), str(tmp_path / "readings"))
    assert not (tmp_path / "readings" / MANIFEST).exists()
