"""The live table: what fits into a terminal, and what one may be sent."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from streamlet.backends.contract import RunRequest
from streamlet.base.log_line import LogLine
from streamlet.cli import show
from streamlet.cli.table import MOST_PARTITIONS, MOST_PLACES, TableView, fitting
from streamlet.model.topology import TopologySpec
from tests.unit.cli.statuses import drawn, partitions, status


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_live_table_fits_the_terminal(width: int) -> None:
    text = drawn(width, status(partitions=partitions(2)))
    assert "1,234,567" in text and "t/1" in text and "567 trees open" in text
    assert all(len(line) <= width for line in text.replace("\x1b[2K", "").splitlines() if "\x1b" not in line)


def test_k9_5_the_live_table_shows_the_partitions_that_lag_most() -> None:
    text = drawn(80, status(partitions=partitions(MOST_PARTITIONS + 5)))
    assert f"t/{MOST_PARTITIONS + 4} " in text and "t/0 " not in text and "and 5 more with less lag" in text


@pytest.mark.parametrize("width", [20, 30, 40, 50, 60, 80])
def test_a_narrow_terminal_has_fewer_columns_and_no_cut_number(width: int) -> None:
    """The least important go; what is left is whole."""
    rows = tuple({"topic": "t", "partition": n, "position": 7654321, "committed": 7654000, "lag": 321} for n in (0, 1))
    text = drawn(width, status(partitions=rows))
    lines = [line.rstrip() for line in text.replace("\x1b[2K", "").splitlines() if "\x1b" not in line]
    assert all(len(line) <= width for line in lines)
    heads = next(at for at, line in enumerate(lines) if "acked" in line)
    parts = next(at for at, line in enumerate(lines) if "lag" in line)
    whole = {*show.COLUMNS, *show.PARTITION_COLUMNS, "p50", "p99", "ms", "lines", "count", "t/0", "t/1", "1", "2", "0"}
    whole |= {"per", "s", "20,074", "114"}  # since the start: no status came before
    whole |= {"1,234,567", "1,234,000", "12", "7,000", "3.14", "27", "0.004", "-", "7,654,321", "7,654,000", "321"}
    for line in (*lines[heads : heads + 3], *lines[parts : parts + 3]):
        assert set(line.split()) <= whole, line
    assert "1,234,000" in text and "321" in text
    assert ("tasks" in lines[heads]) == (width > 50)


def test_the_less_important_columns_go_first() -> None:
    names = ("name", "a", "b", "c")
    widths = (4, 10, 10, 10)
    assert fitting(widths, 1, 37, ("b", "c"), names) == [0, 1, 2, 3]
    assert fitting(widths, 1, 36, ("b", "c"), names) == [0, 1, 3]
    assert fitting(widths, 1, 25, ("b", "c"), names) == [0, 1]
    assert fitting(widths, 1, 5, ("b", "c"), names) == [0, 1]


def test_a_notice_stands_below_the_table() -> None:
    assert "Draining" in drawn(80, status(), "Draining, for 4 s at most.")


def test_restarts_are_counted_where_the_eye_is() -> None:
    assert "2 worker restarts" in drawn(80, status(workers=({"worker": 0, "epoch": 3}, {"worker": 1, "epoch": 1})))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_a_terminal_is_written_only_what_it_can_show(encoding: str) -> None:
    """Its stream is strict; and what rich cannot write on its own thread would end the table."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding, errors="strict") as out:
        view = TableView(Console(file=out, width=120, force_terminal=True, highlight=False, color_system=None))
        view.start(RunRequest(TopologySpec("caf\udce9", (), {}), {}), "processes")
        view.on_status(status(partitions=({"topic": "\udce9", "partition": 0},)))
        view.on_event(LogLine("error", "cannot open caf\udce9 \u2026 \x1b[5A\x9b5A", 0.0))
        view.close()
        out.flush()
        seen = raw.getvalue().decode(encoding)
    assert "\\udce9 " in seen and "\\x1b[5A\\x9b5A" in seen
    assert "\x1b[5A" not in seen and "\x9b" not in seen


def test_a_killed_run_shows_the_cursor_again(capfd: pytest.CaptureFixture[str]) -> None:
    """rich hides it; nothing of rich runs when a process ends so."""
    view = TableView(Console(file=io.StringIO(), width=80))
    view.on_status(status())
    view.killed(137)
    assert "\x1b[?25hKilled" in capfd.readouterr().out


def test_workers_stand_below_their_executors() -> None:
    """In the order of the workers; those on this machine are nowhere else."""
    places = (("node2", "1"), ("node1", "0"), ("node2", "1"), ("node3", ""))
    rows = tuple({"worker": n, "host": host, "executor": number} for n, (host, number) in enumerate(places))
    said = ["executor 1 of node2: workers 0, 2", "executor 0 of node1: worker 1", "node3: worker 3"]
    assert show.place_lines(status(workers=rows)) == said
    text = drawn(80, status(workers=rows))
    assert all(line in text for line in said)
    here = status(workers=({"worker": 0, "host": None, "executor": None},))
    assert show.place_lines(here) == []


def test_of_many_executors_the_first_are_shown() -> None:
    rows = tuple({"worker": n, "host": "node", "executor": str(n)} for n in range(MOST_PLACES + 3))
    text = drawn(80, status(workers=rows))
    assert f"executor {MOST_PLACES - 1} of" in text and f"executor {MOST_PLACES} of" not in text
    assert "and 3 executors more" in text
