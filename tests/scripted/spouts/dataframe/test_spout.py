"""DataFrameSpout in whole runs: rows, parts, markers, and what is refused. Parts are written by pyarrow here."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from streamlet import BadInput, Bolt, RunResult, SettingError, StreamletError, Topology
from streamlet.spouts.dataframe import DataFrameSpout
from streamlet.spouts.dataframe.part_folder import PartsUnreadable
from streamlet.spouts.dataframe.part_reader import PartReader
from streamlet.spouts.dataframe.parts import MANIFEST, manifest_text

ROWS = 3000
"""Rows of a part: more than are made into values at once."""


def write_part(folder: Path, number: int, rows: int = ROWS, **columns: Any) -> None:
    folder.mkdir(exist_ok=True)
    first = number * ROWS
    table = {"n": [*range(first, first + rows)], "unread": [0.5] * rows, **columns}
    parquet.write_table(pyarrow.table(table), folder / f"part-{number:05d}-x.parquet", row_group_size=1000)


class Fails(Bolt):
    """Fails the numbers that it is to fail, the first time or always."""

    seen: list[Any]

    def initialize(self, conf: Mapping[str, Any], context: Any) -> None:
        self.once, self.always = set(conf["once"]), set(conf["always"])
        self.seen = conf["seen"]

    def process(self, tup: Any) -> None:
        (number,) = tup.values
        if number in self.once or number in self.always:
            self.once.discard(number)
            raise ValueError("not now")
        self.seen.append(number)


class Patient(DataFrameSpout):
    max_fails = 1


def run(folder: Path, progress: Path | None = None, **conf: Any) -> tuple[list[Any], RunResult]:
    class Numbers(Topology):
        config = {"once": [], "always": [], "seen": [], **conf}
        numbers = Patient.spec(path=str(folder), outputs=["n"], progress=str(progress) if progress else None, par=2)
        fails = Fails.spec(inputs=[numbers])

    seen: list[Any] = []
    result = Numbers.run(backend="inline", settings={"seen": seen}, check=False, seconds=60)
    return seen, result


def markers(progress: Path) -> list[str]:
    return sorted(path.name for path in (progress / "Numbers.numbers").iterdir())


def test_every_row_is_a_tuple_and_the_run_ends_by_itself(tmp_path: Path) -> None:
    for number in range(3):
        write_part(tmp_path / "parts", number)
    write_part(tmp_path / "parts", 3, rows=0)
    seen, result = run(tmp_path / "parts")
    assert sorted(seen) == [*range(3 * ROWS)]
    assert result.reason == "caught_up" and result.drained and result.error is None
    assert result.components["numbers"].metrics == {"parts_to_read": 0, "parts_done": 4}


def test_a_row_that_fails_comes_again_alone(tmp_path: Path) -> None:
    write_part(tmp_path / "parts", 0)
    seen, result = run(tmp_path / "parts", tmp_path / "progress", once=[0, 7, ROWS - 1])
    assert sorted(seen) == [*range(ROWS)] and result.error is None
    assert markers(tmp_path / "progress") == ["part-00000-x.parquet.done"]


def test_a_part_that_is_done_is_not_read_by_the_next_run(tmp_path: Path) -> None:
    write_part(tmp_path / "parts", 0)
    run(tmp_path / "parts", tmp_path / "progress")
    write_part(tmp_path / "parts", 1)
    seen, result = run(tmp_path / "parts", tmp_path / "progress")
    assert sorted(seen) == [*range(ROWS, 2 * ROWS)] and result.reason == "caught_up"
    seen, _ = run(tmp_path / "parts")
    assert len(seen) == 2 * ROWS, "without progress= every start begins again"


def test_a_part_with_a_row_that_was_given_up_is_read_again(tmp_path: Path) -> None:
    """Its marker would hide the row from every later run."""
    for number in range(2):
        write_part(tmp_path / "parts", number)
    seen, result = run(tmp_path / "parts", tmp_path / "progress", always=[5])
    assert len(seen) == 2 * ROWS - 1 and result.error is not None
    assert markers(tmp_path / "progress") == ["part-00001-x.parquet.done"]
    seen, result = run(tmp_path / "parts", tmp_path / "progress")
    assert sorted(seen) == [*range(ROWS)] and result.error is None


def test_a_part_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    write_part(tmp_path / "parts", 0)
    run(tmp_path / "parts", tmp_path / "progress")
    write_part(tmp_path / "parts", 0, rows=10)
    assert len(run(tmp_path / "parts", tmp_path / "progress")[0]) == 10


def of_one_row(folder: Path, kind: Any, value: Any) -> None:
    folder.mkdir()
    table = pyarrow.table({"n": pyarrow.array([value], kind)})
    as_spark = "timestamp[ns]" in str(kind)  # INT96, and no schema of Arrow's
    parquet.write_table(
        table, folder / "a.parquet", use_deprecated_int96_timestamps=as_spark, store_schema=not as_spark
    )


TEXT, LONG = pyarrow.string(), pyarrow.int64()
NOON = datetime.datetime(2026, 1, 2, 12, 0, 0, 5, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (pyarrow.timestamp("us", tz="Europe/Berlin"), NOON, NOON),
        (pyarrow.timestamp("ns"), NOON.replace(tzinfo=None), NOON),  # INT96, as Spark writes times
        (pyarrow.list_(pyarrow.timestamp("ns")), [NOON.replace(tzinfo=None), None], [NOON, None]),
        (
            pyarrow.struct([("a.b", pyarrow.list_(pyarrow.struct([("t", pyarrow.timestamp("ns")), ("n", TEXT)])))]),
            {"a.b": [{"t": NOON.replace(tzinfo=None), "n": "x"}, None]},
            {"a.b": [{"t": NOON, "n": "x"}, None]},
        ),
        (pyarrow.list_(pyarrow.timestamp("us", tz="Europe/Berlin")), [NOON], [NOON]),
        (pyarrow.list_(pyarrow.int32()), [1, None], [1, None]),
        (pyarrow.struct([("a", pyarrow.string())]), {"a": "b"}, {"a": "b"}),
        (pyarrow.binary(), b"x", b"x"),
        (pyarrow.float32(), None, None),
    ],
)
def test_values_are_what_a_tuple_can_hold(tmp_path: Path, kind: Any, value: Any, read: Any) -> None:
    of_one_row(tmp_path / "parts", kind, value)
    seen: list[Any] = []

    class Keep(Bolt):
        def process(self, tup: Any) -> None:
            seen.append(tup.values)

    class Values(Topology):
        values = DataFrameSpout.spec(path=str(tmp_path / "parts"), outputs=["n"])
        keep = Keep.spec(inputs=[values])

    Values.run(backend="inline", seconds=60)
    assert seen == [[read]]


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (pyarrow.decimal128(5, 2), decimal.Decimal("1.50"), "decimal"),
        (pyarrow.date32(), NOON.date(), "date32"),
        (pyarrow.timestamp("us"), NOON.replace(tzinfo=None), "timestamp"),
        (pyarrow.map_(pyarrow.string(), pyarrow.int32()), [("a", 1)], "map"),
        (pyarrow.list_(pyarrow.date32()), [NOON.date()], "date32"),
        (pyarrow.list_(pyarrow.timestamp("us")), [NOON.replace(tzinfo=None)], "timestamp"),
    ],
)
def test_a_type_that_no_tuple_can_hold_is_named_with_its_column(
    tmp_path: Path, kind: Any, value: Any, said: str
) -> None:
    of_one_row(tmp_path / "parts", kind, value)
    error = run(tmp_path / "parts")[1].error
    assert error is not None
    assert f"declares the field 'n', and {tmp_path}" in str(error) and said in str(error) and "Cast it" in str(error)


MILLIS = pyarrow.timestamp("ms", tz="UTC")
NEVER = 2**63 - 1
"""As a millisecond: what Java programs store for a time that does not come."""


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (MILLIS, NEVER),
        (MILLIS, -(2**63)),
        (MILLIS, 2**61),  # its microseconds in 64 bits are 0: 1970
        (pyarrow.list_(MILLIS), [0, 2**61]),
        (pyarrow.large_list(MILLIS), [2**61]),
        (pyarrow.struct([("until", pyarrow.list_(MILLIS))]), {"until": [2**61]}),
    ],
)
def test_a_time_beyond_what_python_has_is_refused_and_becomes_no_other(tmp_path: Path, kind: Any, value: Any) -> None:
    of_one_row(tmp_path / "parts", kind, value)
    seen, result = run(tmp_path / "parts", seen=[])
    assert not seen and result.error is not None
    told = str(result.error)
    assert "cannot read rows 0 to 0 of " in told and "A time must be within the years 1 to 9999" in told


def test_nanoseconds_are_cut_to_microseconds(tmp_path: Path) -> None:
    of_one_row(tmp_path / "parts", pyarrow.list_(pyarrow.timestamp("ns", tz="UTC")), [1999, -1])
    reader = PartReader(tmp_path / "parts" / "a.parquet", ["n"], "spout")
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert reader.take(1) == [[[epoch.replace(microsecond=1), epoch]]]
    reader.close()


def test_the_times_of_each_column_are_judged_by_its_own_leaves(tmp_path: Path) -> None:
    """Leaves of columns before it, of maps too, which are not read, are counted."""
    naive = NOON.replace(tzinfo=None)
    table = pyarrow.table(
        {
            "before": pyarrow.array(
                [[("k", {"a": 1, "b": 2})]], pyarrow.map_(TEXT, pyarrow.struct([("a", LONG), ("b", LONG)]))
            ),
            "n.t": pyarrow.array([1], LONG),
            "n": pyarrow.array([{"x": "y", "t": naive}], pyarrow.struct([("x", TEXT), ("t", pyarrow.timestamp("ns"))])),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    reader = PartReader(tmp_path / "a.parquet", ["n"], "spout")
    assert reader.take(5) == [[{"x": "y", "t": NOON}]]
    reader.close()


def refused(folder: Path) -> str:
    error = run(folder)[1].error
    assert isinstance(error, StreamletError)
    return str(error)


def test_a_folder_that_cannot_be_read_as_parts_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert "No such file or directory. Every worker reads this folder" in refused(tmp_path / "away")
    (tmp_path / "empty").mkdir()
    assert "it holds no file *.parquet" in refused(tmp_path / "empty")
    write_part(tmp_path / "parts", 0)
    (tmp_path / "parts" / MANIFEST).write_text(manifest_text({"part-00000-x.parquet": ROWS, "part-00001-x.parquet": 1}))
    assert "1 of the 2 parts that were written are not seen there" in refused(tmp_path / "parts")
    (tmp_path / "parts" / MANIFEST).write_text(manifest_text({"part-00000-x.parquet": ROWS + 1}))
    assert f"has {ROWS} rows, and had {ROWS + 1} when it was written" in refused(tmp_path / "parts")
    (tmp_path / "parts" / MANIFEST).unlink()
    (tmp_path / "parts" / "part-00001-x.parquet").write_bytes(b"half")
    assert "part-00001-x.parquet: " in refused(tmp_path / "parts")


def test_a_field_without_a_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    parquet.write_table(pyarrow.table({"other": [1]}), tmp_path / "parts" / "a.parquet")
    assert "declares the field 'n'" in refused(tmp_path / "parts")
    assert "It has: other." in refused(tmp_path / "parts")


def test_a_marker_that_cannot_be_written_ends_the_run_and_says_that_nothing_is_lost(tmp_path: Path) -> None:
    write_part(tmp_path / "parts", 0)
    (tmp_path / "progress").write_text("no folder")
    error = run(tmp_path / "parts", tmp_path / "progress")[1].error
    assert error is not None and "Give progress= a folder that it may write" in str(error)


class Frame:
    """As much of a DataFrame as tells one."""

    rdd = sparkSession = None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": Frame()}, "DataFrameSpout: path is a DataFrame. Workers import the topology from its file"),
        ({"path": None}, "path is None: give a folder"),
        ({"path": "/parts", "progress": 7}, "progress is 7"),
        ({"path": "/parts", "outputs": None}, "outputs is None. It names the columns"),
        ({"path": "hdfs://node1/parts"}, "no hdfs client is used"),
    ],
)
def test_what_no_dataframe_spout_can_have_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as wrong:
        DataFrameSpout.spec(**{"outputs": ["n"], **given})
    assert said in str(wrong.value)


def test_a_run_may_name_its_folder_and_no_dataframe(tmp_path: Path) -> None:
    class Elsewhere(Topology):
        config = {"once": [], "always": [], "seen": []}
        numbers = DataFrameSpout.spec(path="/nowhere", outputs=["n"])
        fails = Fails.spec(inputs=[numbers])

    write_part(tmp_path / "parts", 0)
    seen: list[Any] = []
    Elsewhere.run(backend="inline", settings={"numbers.path": str(tmp_path / "parts"), "seen": seen}, seconds=60)
    assert sorted(seen) == [*range(ROWS)]
    with pytest.raises(BadInput, match="path is a DataFrame"):
        Elsewhere.run(backend="inline", settings={"numbers.path": Frame()})


@pytest.mark.parametrize(
    "values", [pyarrow.array([1 << 58], pyarrow.timestamp("us", "UTC")), pyarrow.array([b"\xff"]).view("string")]
)
def test_a_value_that_python_has_not_is_named_with_its_part(tmp_path: Path, values: Any) -> None:
    parquet.write_table(pyarrow.table({"n": values}), tmp_path / "part-00000-x.parquet")
    reader = PartReader(tmp_path / "part-00000-x.parquet", ["n"], "numbers")
    with pytest.raises(PartsUnreadable, match=r"numbers cannot read rows 0 to 0 of .*part-00000-x.*9999.*UTF-8"):
        reader.take(10)
