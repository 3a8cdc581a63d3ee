"""The table of faults against the tests that it names."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

ROWS = {
    cells[0]: cells
    for line in (ROOT / "docs" / "evidence" / "reliability.md").read_text(encoding="utf-8").splitlines()
    if len(cells := [cell.strip() for cell in line.split("|")[1:-1]]) == 5 and re.fullmatch(r"C\d+", cells[0])
}


def test_every_fault_has_a_row() -> None:
    """C1 to C27."""
    assert list(ROWS) == [f"C{number}" for number in range(1, 28)]


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_the_tests_it_names_exist(row: list[str]) -> None:
    """Each fault is shown by a client's test; a name that speaks of a fault speaks of this one."""
    named = [re.findall(r"`([\w/]+\.py)::(test_\w+)`", cell) for cell in row[3:]]
    assert named[0]
    for file, name in (one for cell in named for one in cell):
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{file} has no {name}"
        numbers = {int(number) for number in re.findall(r"(?<=_c)\d+(?=_)", name)} if "_fault_" in name else set()
        assert not numbers or int(row[0][1:]) in numbers, name
