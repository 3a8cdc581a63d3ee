"""DataFrameSink: what is acked is in a file, what cannot be written fails with the reason, no file is half there."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from streamlet import BadInput, Bolt, ReliableSpout, SettingError, StreamletError, Topology, TopologyContext, Tuple
from streamlet.bolts.dataframe import DataFrameSink, sink
from streamlet.model.spec import ComponentSpec
from streamlet.testing import BoltTester

FIELDS = {"readings": ("station", "celsius")}


def made(path: Path, **more: Any) -> ComponentSpec:
    return DataFrameSink.spec(name="out", path=str(path), schema="station string, celsius double", **more)


def test_a_value_that_arrow_would_change_fails_its_tuple(tmp_path: Path) -> None:
    schema = "n bigint, mean float, at timestamp, all array<int>"
    spec = DataFrameSink.spec(name="out", path=str(tmp_path), schema=schema)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    bad = [[20.7, 1.0, at, [1]], [1, True, at, [1]], [1, 1.0, 1732000000000, [1]], [1, 1.0, at, [1, 2.5]]]
    bad.append([1, 1e300, at, [1]])
    sources = {"readings": ("n", "mean", "at", "all")}
    with BoltTester(spec, sources=sources, raise_errors=False) as tester:
        tester.give(*bad, [1, 2, at, [1, None]])
        assert tester.failed == bad
        assert "its field 'n' is 20.7, and the column is bigint" in str(tester.errors[0].error)
    assert parquet.read_table(tmp_path).to_pylist() == [{"n": 1, "mean": 2.0, "at": at, "all": [1, None]}]


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def rows(folder: Path) -> list[list[Any]]:
    found = parquet.read_table(folder).to_pylist()
    return [[row["station"], row["celsius"]] for row in found]


def test_a_tuple_is_acked_when_its_file_is_there_and_not_before(tmp_path: Path) -> None:
    with BoltTester(made(tmp_path), sources=FIELDS) as tester:
        tester.give(["a", 1.5], ["b", None])
        assert not files(tmp_path) and not tester.acked
        tester.advance(0.5)
        tester.give(["c", -1.0])
        tester.advance(0.8)
        assert not files(tmp_path), "it is idle for 0.8 s only"
        tester.advance(0.4)
        assert rows(tmp_path) == [["a", 1.5], ["b", None], ["c", -1.0]] == tester.acked
        assert tester.metrics["files_written"] == 1 and tester.metrics["rows_written"] == 3


def test_a_file_ends_by_rows_and_by_age(tmp_path: Path) -> None:
    with BoltTester(made(tmp_path, max_rows=2, max_age_s=2.0), sources=FIELDS) as tester:
        tester.give(["a", 1.0], ["b", 2.0])
        assert len(tester.acked) == 2
        assert len(files(tmp_path)) == 1
    with BoltTester(made(tmp_path, max_age_s=2.0), sources=FIELDS) as tester:
        for row in (["c", 3.0], ["d", 4.0], ["e", 5.0]):
            assert not tester.acked
            tester.give(row)
            tester.advance(0.8)
        assert len(tester.acked) == 3, "none waits longer for those that come after it"
    assert len(rows(tmp_path)) == 5


def test_a_tuple_that_does_not_fit_fails_alone_and_says_why(tmp_path: Path) -> None:
    with BoltTester(made(tmp_path), sources=FIELDS, raise_errors=False) as tester:
        tester.give(["a", 1.0], [7, 2.0], ["c", "warm"], ["d", 4])
        assert tester.failed == [[7, 2.0], ["c", "warm"]]
        told = [str(raised.error) for raised in tester.errors]
        assert "its field 'station' is 7, and the column is string" in told[0]
        assert "its field 'celsius' is 'warm'" in told[1]
        tester.give([8, 8.0])
        tester.advance(1.2)
        assert rows(tmp_path) == [["a", 1.0], ["d", 4.0]] == tester.acked
        assert len(tester.failed) == 3


def full(path: Path, write: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def give_while_full(tester: Any, monkeypatch: pytest.MonkeyPatch, *given: list[Any], seconds: float) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sink, "write_new", full)
        tester.give(*given)
        tester.advance(seconds)


def test_while_a_disk_is_full_rows_are_kept_and_no_tuple_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BoltTester(made(tmp_path, max_rows=2), sources=FIELDS, raise_errors=False) as tester:
        tester.give(["a", 1.0])
        give_while_full(tester, monkeypatch, ["b", 2.0], seconds=0.0)
        give_while_full(tester, monkeypatch, ["c", 3.0], ["d", 4.0], seconds=10.0)
        assert not tester.acked and not tester.failed
        assert tester.metrics["rows_waiting"] == 2, "it rests"
        (raised,) = tester.errors
        assert "out could not write a file of 2 rows" in str(raised.error)
        assert "No space left on device. Nothing of it is left there. Its rows are kept" in str(raised.error)
        tester.advance(10.0)
        assert rows(tmp_path) == [["a", 1.0], ["b", 2.0], ["c", 3.0], ["d", 4.0]] == tester.acked
        assert len(tester.errors) == 1


def test_when_a_disk_stays_full_tuples_fail_before_they_time_out_and_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BoltTester(made(tmp_path, max_rows=2), sources=FIELDS, raise_errors=False) as tester:
        give_while_full(tester, monkeypatch, ["a", 1.0], ["b", 2.0], seconds=24.0)
        assert tester.failed == [["a", 1.0], ["b", 2.0]] and not tester.acked
        assert "Its tuples have failed, and come again from their spouts" in str(tester.errors[-1].error)
        tester.give(["a", 1.0], ["b", 2.0])
        tester.advance(30.0)
        assert rows(tmp_path) == [["a", 1.0], ["b", 2.0]] == tester.acked
        assert len(tester.errors) == 2


def test_a_stop_that_cannot_write_the_rest_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = BoltTester(made(tmp_path), sources=FIELDS)
    tester.give(["a", 1.0])
    monkeypatch.setattr(sink, "write_new", full)
    with pytest.raises(StreamletError, match=r"could not write a file of 1 rows .* come again in the next one"):
        tester.close()


def test_a_stop_writes_the_rest(tmp_path: Path) -> None:
    tester = BoltTester(made(tmp_path), sources=FIELDS)
    tester.give(["a", 1.0])
    tester.close()
    assert rows(tmp_path) == [["a", 1.0]]


class Day(ReliableSpout):
    outputs = ["station", "celsius"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.left = [conf["day"]]

    def next_tuple(self) -> None:
        if self.left:
            self.emit([self.left[-1], 1.0], self.left.pop())

    def caught_up(self) -> bool:
        return not self.left and not self.has_unfinished()


def test_no_run_writes_over_the_files_of_another_with_its_seed(tmp_path: Path) -> None:
    class Daily(Topology):
        config = {"streamlet.seed": 7, "day": ""}
        days = Day.spec()
        out = DataFrameSink.spec(inputs=[days], path=str(tmp_path), schema="station string, celsius double", idle_s=0.1)

    for day in ("monday", "tuesday"):
        assert Daily.run(backend="inline", settings={"day": day}, seconds=60).drained
    assert sorted(rows(tmp_path)) == [["monday", 1.0], ["tuesday", 1.0]]


def test_a_file_that_has_the_name_stays_and_the_rows_get_another(tmp_path: Path) -> None:
    with BoltTester(made(tmp_path), sources=FIELDS, raise_errors=False) as tester:
        there = tmp_path / f"{tester.bolt._name}-000000.parquet"
        parquet.write_table(pyarrow.table({"station": ["acked"], "celsius": [0.0]}), there)
        tester.give(["a", 1.0])
        tester.advance(5.0)
        assert tester.acked == [["a", 1.0]] and rows(tmp_path) == [["acked", 0.0], ["a", 1.0]]
        assert "-000000.parquet is there already, and is not replaced" in str(tester.errors[0].error)
        assert len(tester.errors) == 1 and tester.metrics["files_written"] == 1


def test_times_and_lists_are_what_they_were(tmp_path: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    spec = DataFrameSink.spec(path=str(tmp_path), schema="at timestamp, parts array<bigint>, raw binary")
    with BoltTester(spec, sources={"source": ("raw", "parts", "at")}) as tester:
        tester.give([b"x", [1, 2], at])
    (row,) = parquet.read_table(tmp_path).to_pylist()
    assert row == {"at": at, "parts": [1, 2], "raw": b"x"}


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """On another machine its rows would be seen by nobody."""
    with pytest.raises(BadInput, match=r"there is no such folder\. Make it first, where all workers reach it"):
        BoltTester(made(tmp_path / "away"), sources=FIELDS)
    assert not files(tmp_path)


class Passes(Bolt):
    outputs = ["station", "celsius"]

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values)


@pytest.mark.parametrize(
    ("quick", "live", "settings", "said"),
    [
        (3, None, {}, "10, and topology.message.timeout.secs of quick, whose tuples reach it, is 3: they are open"),
        (None, 3, {}, "10, and topology.message.timeout.secs of live, whose tuples reach it, is 3: they are open"),
        (
            40,
            60,
            {"out.max_age_s": "21"},
            "21, and topology.message.timeout.secs of quick, whose tuples reach it, is 40",
        ),
        (20, None, {"topology.message.timeout.secs": 12}, "10, and topology.message.timeout.secs of live"),
    ],
)
def test_tuples_may_not_be_open_for_longer_than_the_spout_that_gives_up_first(
    tmp_path: Path, quick: int | None, live: int | None, settings: dict[str, Any], said: str
) -> None:
    """Every row would be there twice or more; a longer time-out of another spout hides nothing."""

    class TwoSpouts(Topology):
        config = {"day": "monday"}
        quick_ = Day.spec(name="quick", config={} if quick is None else {"topology.message.timeout.secs": quick})
        live_ = Day.spec(name="live", config={} if live is None else {"topology.message.timeout.secs": live})
        passes = Passes.spec(inputs=[quick_])
        out = DataFrameSink.spec(inputs=[live_, passes], path=str(tmp_path), schema="station string")

    with pytest.raises(BadInput) as refused:
        TwoSpouts.run(backend="inline", settings=settings, seconds=60)
    assert f"out: max_age_s is {said}" in str(refused.value)
    assert "Let the time-out be twice max_age_s at least." in str(refused.value)


def test_a_spout_that_does_not_reach_the_sink_may_time_out_as_it_likes(tmp_path: Path) -> None:
    class Apart(Topology):
        config = {"day": "monday"}
        days = Day.spec()
        quick = Day.spec(config={"topology.message.timeout.secs": 3})
        untracked = Day.spec(config={"topology.message.timeout.secs": 3, "topology.acker.executors": 0})
        passes = Passes.spec(inputs=[quick])
        out = DataFrameSink.spec(inputs=[days, untracked], path=str(tmp_path), schema="station string", idle_s=0.1)

    assert Apart.run(backend="inline", seconds=60).drained
    assert [*parquet.read_table(tmp_path).column("station").to_pylist()] == ["monday"] * 2


def test_rows_are_kept_no_longer_than_the_spout_that_gives_up_first_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Short(Topology):
        config = {"day": "monday"}
        days = Day.spec(config={"topology.message.timeout.secs": 5})
        out = DataFrameSink.spec(inputs=[days], path=str(tmp_path), schema="station string", max_age_s=2, idle_s=0.1)

    write, tries = sink.write_new, [full]
    monkeypatch.setattr(sink, "write_new", lambda *given: (tries.pop() if tries else write)(*given))
    with caplog.at_level(logging.INFO):
        assert Short.run(backend="inline", seconds=60).drained
    assert "Its rows are kept, and tried again for up to 4 s" in caplog.text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": None}, "path is None"),
        ({"path": "s3a://bucket/out"}, "Stores behind a URL"),
        ({"schema": None}, "schema is None: it must be a string"),
        ({"schema": "n decimal"}, "has the type 'decimal'"),
        ({"format": "csv"}, "format is 'csv'"),
        ({"max_rows": 0}, "max_rows is 0: give a number above 0"),
        ({"idle_s": "soon"}, "idle_s is 'soon'"),
        ({"outputs": ["n"]}, "this bolt emits nothing"),
    ],
)
def test_wrong_arguments_of_a_sink_are_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        DataFrameSink.spec(**{"path": "/out", "schema": "n bigint", **given})
    assert said in str(refused.value)


def test_bounds_and_folder_may_be_given_for_a_run() -> None:
    kwargs = made(Path("/out")).kwargs
    changed = DataFrameSink.with_overrides(kwargs, {"path": "/elsewhere", "max_rows": "10", "idle_s": "0.5"})
    assert (changed["path"], changed["max_rows"], changed["idle_s"]) == ("/elsewhere", 10, 0.5)
    with pytest.raises(SettingError, match="max_rows is 'ten'"):
        DataFrameSink.with_overrides(kwargs, {"max_rows": "ten"})
