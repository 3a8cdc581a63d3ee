"""A DataFrame's parts through worker processes, one of which dies: every row is in a file of the sink."""

from __future__ import annotations

from pathlib import Path

import pyarrow
from pyarrow import parquet

from streamlet.backends.processes import ProcessesBackend
from tests.stations_run import reading, run_stations, written

PARTS, ROWS = 8, 600


def test_a_worker_that_dies_loses_no_row_and_leaves_no_half_file(tmp_path: Path) -> None:
    """In the middle: some parts are done, some are open, others are to be read. What is open comes again."""
    (tmp_path / "out").mkdir()
    (tmp_path / "readings").mkdir()
    for part in range(PARTS):
        columns = [*zip(*(reading(part * ROWS + row) for row in range(ROWS)), strict=True)]
        table = pyarrow.table([[*column] for column in columns], names=["number", "station", "celsius"])
        parquet.write_table(table, tmp_path / "readings" / f"part-{part:05d}-x.parquet")
    # The last rows of the fifth part: the tasks have read two parts each, and some of them are done.
    result = run_stations(ProcessesBackend(), tmp_path, deadly=5 * ROWS - 10, pending=400)
    assert result.reason == "caught_up" and (tmp_path / "killed").exists()
    assert sorted(worker["epoch"] for worker in result.status.workers) == [1, 2]
    rows = [tuple(row.values()) for row in parquet.read_table(tmp_path / "out").to_pylist()]
    assert set(rows) == {written(number) for number in range(PARTS * ROWS)}
    # Parts that were done before the death are not among them.
    assert len(rows) - len(set(rows)) <= 3 * ROWS
    assert len([*(tmp_path / "progress" / "Stations.readings").iterdir()]) == PARTS
    assert not [path for path in (tmp_path / "out").iterdir() if path.suffix != ".parquet"]
