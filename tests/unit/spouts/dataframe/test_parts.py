"""Who reads which part, what may stand in their folder, and when a part is done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.spouts.dataframe.parts import (
    MANIFEST,
    Part,
    PartLedger,
    done_text,
    folder_problem,
    is_done,
    manifest_rows,
    manifest_text,
    owner,
    path_problem,
    shares,
)

SPARK = [f"part-{number:05d}-0a1b2c3d-c000.snappy.parquet" for number in range(8)]


@given(names=st.lists(st.text(min_size=1), unique=True), more=st.text(min_size=1), tasks=st.integers(1, 5))
def test_each_part_has_one_task_whatever_else_is_there(names: list[str], more: str, tasks: int) -> None:
    """A task that is started again and sees another file leaves no part to nobody."""
    before = {name: owner(name, tasks) for name in names}
    parts = [Part(name, 1, 1) for name in {*names, more}]
    for task in range(tasks):
        own = {part.name for part in shares(parts, task, tasks, {}).todo}
        assert own - {more} == {name for name, index in before.items() if index == task} - {more}


def test_the_files_of_spark_are_shared_evenly() -> None:
    assert [owner(name, 4) for name in SPARK] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_marker_speaks_of_one_file_only() -> None:
    part = Part("a.parquet", 10, 1)
    assert is_done(part, done_text(part, 3))
    assert not is_done(Part("a.parquet", 10, 2), done_text(part, 3)), "written again"
    assert not is_done(part, "") and not is_done(part, "[]") and not is_done(part, "{}")


@pytest.mark.parametrize(
    ("files", "folders", "listed", "said"),
    [
        (["a.parquet", "_SUCCESS", ".a.parquet.crc", MANIFEST], ["_temporary"], None, None),
        (["a.parquet"], [], {"a.parquet": 1}, None),
        (["_SUCCESS"], [], None, "no file"),
        (["a.parquet"], ["year=2024"], None, "without partitionBy"),
        (["a.parquet", "b.csv"], [], None, "b.csv"),
        (["a.parquet"], [], {"a.parquet": 1, "b.parquet": 2}, "1 of the 2 parts that were written are not seen"),
        (["a.parquet", "b.parquet"], [], {"a.parquet": 1}, "holds b.parquet"),
    ],
)
def test_what_cannot_be_read_as_parts_is_said(
    files: list[str], folders: list[str], listed: dict[str, int] | None, said: str | None
) -> None:
    problem = folder_problem(files, folders, listed)
    assert problem is None if said is None else problem is not None and said in problem


def test_the_list_of_parts_is_read_as_it_was_written() -> None:
    rows = {"b.parquet": 2, "a.parquet": 0}
    assert manifest_rows(manifest_text(rows)) == rows
    for broken in ("", "[]", "{}", '{"parts": [{"name": "a"}]}'):
        with pytest.raises(ValueError):
            manifest_rows(broken)


def test_a_part_is_done_when_it_is_read_out_and_all_its_rows_are_over() -> None:
    ledger = PartLedger([Part("b", 1, 1), Part("a", 1, 1)])
    assert ledger.begin().part.name == "a"
    ledger.emitted("a", 2)
    assert ledger.row_over("a") is None
    assert ledger.row_over("a") is None, "there may be more rows"
    over = ledger.read_out("a")
    assert over is not None and not over.given_up and ledger.done == 1 and not ledger.ended
    ledger.begin()
    ledger.emitted("b", 1)
    assert ledger.read_out("b") is None
    over = ledger.row_over("b", given_up=True)
    assert over is not None and over.given_up == 1
    assert (ledger.done, ledger.left, ledger.ended) == (1, 1, True)


def test_parts_that_are_done_are_not_read_again() -> None:
    parts = [Part(name, 1, 1) for name in SPARK]
    ledger = shares(parts, 1, 2, {SPARK[1]: done_text(parts[1], 3), SPARK[3]: "changed"})
    assert [part.name for part in reversed(ledger.todo)] == [SPARK[3], SPARK[5], SPARK[7]]
    assert ledger.done == 1


class Frame:
    rdd = sparkSession = None


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/shared/readings", None),
        ("readings", None),
        (Frame(), "no Spark session"),
        (7, "folder as a string"),
        ("", "empty"),
        ("hdfs://node1/readings", "hdfs client"),
        ("s3a://bucket/readings", "s3a client"),
        ("file:/readings", "file client"),
    ],
)
def test_what_is_no_folder_is_refused_by_name(path: object, said: str | None) -> None:
    problem = path_problem(path, "path")
    assert problem is None if said is None else problem is not None and said in problem
