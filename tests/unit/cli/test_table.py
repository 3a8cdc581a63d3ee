"""The live table: what fits into a terminal, and what one may be sent."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from streamlet.backends.contract import ComponentStatus, RunRequest
from streamlet.base.log_line import LogLine
from streamlet.cli import show
from streamlet.cli.table import MOST_PARTITIONS, MOST_PLACES, TableView, fitting, shortened
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


NAMES = {
    "short": ("a", "t"),
    "long": ("a_very_long_name_of_a_component_indeed", "eu-west-1.production.commerce.order-events.enriched.v2"),
    "wide": ("受信データ処理コンポーネント一覧", "トピックの名前がとても長い"),
}


def assert_whole(lines: list[str], table: list[tuple[str, ...]], width: int) -> None:
    """Check that a drawn table has whole cells of some columns, below their whole heads."""
    assert len(lines) == len(table) and all(cell_len(line) <= width for line in lines), lines
    kept = [at for at, head in enumerate(table[0]) if at and head in lines[0]]
    assert kept, lines
    for line, row in zip(lines, table, strict=True):
        cells = " ".join(row[at] for at in kept)
        assert " ".join(line.split()).endswith(" ".join(cells.split())), (line, cells)


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES.keys())
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_at_no_width_a_number_is_cut(names: tuple[str, str], encoding: str) -> None:
    """Half of 123,456,789 was a lag, too; and a character may take two cells."""
    component, topic = names
    rows = tuple(
        ComponentStatus(name, "spout", 4, emitted=123456789, acked=123456700, failed=1234, given_up=12345, lost=54321)
        for name in (component, "b")
    )
    made = tuple(
        {"component": "s", "topic": topic, "partition": n, "position": 123456789012, "committed": 123456789000}
        | {"lag": 123456789, "behind_s": 3.2, "waits_at": component if wide else None}
        for n, wide in ((12, False), (13, True))
    )
    for given in (status(), status(partitions=made[:1]), status(partitions=made)):
        shown = dataclasses.replace(given, components=rows)
        for width in range(20, 141, 1 if encoding == "utf-8" else 9):
            out = io.TextIOWrapper(io.BytesIO(), encoding, errors="strict")
            view = TableView(Console(file=out, width=width, force_terminal=False, highlight=False))
            for drawing in (view._components(shown), *view._partitions(shown)):
                view._console.print(drawing)
            out.seek(0)
            lines = [line.rstrip() for line in out.read().splitlines() if line.strip()]
            assert_whole(lines[:3], show.component_table(shown, {}), width)
            if shown.partitions:
                assert_whole(lines[3:], show.partition_table(shown.partitions, False), width)
                assert all(f"/{row['partition']} " in line for row, line in zip(made, lines[4:], strict=False))


def test_a_name_is_shortened_by_cells_and_keeps_the_number_of_its_partition() -> None:
    assert shortened("トピック/12", 11) == "トピック/12" and shortened("ab", 4) == "ab  "
    assert shortened("トピック/12", 10) == "トピッ…/12" and shortened("トピック/12", 9) == "トピ…/12 "
    assert shortened("a.long.topic/12", 8) == "a.lo…/12" and shortened("component", 5) == "comp…"
    assert shortened("topic/123", 4) == "…   ", "no piece of a number"


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
    view.killed(137, None)
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
