"""The page of the format's options says what the code takes and refuses."""

from __future__ import annotations

from streamlet.spark.options import OPTIONS, REFUSED, Use
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "spark-options.md").read_text(encoding="utf-8")


def cells(part: str) -> list[list[str]]:
    rows = [line.strip("|").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def test_the_table_has_exactly_the_options_and_where_they_are_taken() -> None:
    taken = cells(PAGE.split("## Refused")[0])
    assert [row[0].strip("`") for row in taken] == list(OPTIONS)
    for row in taken:
        uses = OPTIONS[row[0].strip("`")]
        assert row[1] == ("all" if uses == tuple(Use) else ", ".join(use.value for use in uses)), row


def test_the_second_table_has_exactly_what_is_refused() -> None:
    names = [row[0].split("`")[1] for row in cells(PAGE.split("## Refused")[1])]
    assert names[: len(REFUSED)] == list(REFUSED)
