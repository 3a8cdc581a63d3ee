"""The list of faults against the tests that it names."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_internals import known_tests
from tests.docs.test_reference import rows

ITEM = re.compile(
    r"- \*\*(F\d+), (?P<fault>.+?)\*\*: (?P<holds>.+?)\. Clients: (?P<clients>.+?)\.(?: KafkaSpout: (?P<spout>.+?)\.)?"
)
TEXT = (ROOT / "docs" / "evidence" / "reliability.md").read_text(encoding="utf-8")
ROWS = [
    match
    for item in re.findall(r"^- .*(?:\n  .*)*", TEXT, re.MULTILINE)
    if (match := ITEM.fullmatch(re.sub(r"\s+", " ", item)))
]


def test_every_fault_stands_there() -> None:
    """All 27, in order."""
    assert [row[1] for row in ROWS] == [f"F{number}" for number in range(1, 28)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_the_tests_it_names_exist(row: re.Match[str]) -> None:
    """Each fault is shown by a client's test; a name that speaks of a fault speaks of this one."""
    clients = re.findall(r"`(test_\w+)`", row["clients"])
    assert clients
    for name in [*clients, *re.findall(r"`(test_\w+)`", row["spout"] or "")]:
        assert name in known_tests(), name
        numbers = {int(number) for number in re.findall(r"(?<=_f)\d+(?=_)", name)}
        assert not numbers or int(row[1][1:]) in numbers, name


def test_every_test_of_a_fault_is_on_the_page() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert {name for name in known_tests() if re.match(r"test_(fault_)?f\d+_", name)} <= named


LETTERED = re.compile(r"- \*\*(?P<id>[ABDG]\d+), .+?\*\*: .+? Tests: (?P<tests>.+?)\.")
LETTERED_ROWS = [
    match
    for item in re.findall(r"^- .*(?:\n  .*)*", TEXT, re.MULTILINE)
    if (match := LETTERED.fullmatch(re.sub(r"\s+", " ", item)))
]
COUNTS = {"A": 19, "B": 8, "D": 12, "G": 8}


@pytest.mark.parametrize(("letter", "count"), COUNTS.items())
def test_every_fault_of_a_letter_stands_there_with_tests(letter: str, count: int) -> None:
    """In order; each names tests that exist."""
    rows = [row for row in LETTERED_ROWS if row["id"].startswith(letter)]
    assert [row["id"] for row in rows] == [f"{letter}{number}" for number in range(1, count + 1)]
    for row in rows:
        names = re.findall(r"`(test_\w+)`", row["tests"])
        assert names
        assert [name for name in names if name not in known_tests()] == []


PROMISES = (ROOT / "docs" / "evidence" / "promises.md").read_text(encoding="utf-8")
PARTS = re.split(r"^## ", PROMISES, flags=re.MULTILINE)[1:]
WHOLE = (
    "conformance/test_accounts.py",
    "conformance/test_slow_bolts.py",
    "faults/test_busy_and_memory.py",
    "faults/test_coordinator_stalls.py",
    "faults/test_deadly_records.py",
    "faults/test_deadly_tuples.py",
    "faults/test_hangs.py",
    "faults/test_networks.py",
    "scripted/backends/test_first_failures.py",
    "scripted/backends/test_memory_bounds.py",
)
"""Files of which each test is for a line of the page of promises."""


@pytest.mark.parametrize("part", PARTS, ids=lambda part: str(part).partition("\n")[0])
def test_each_promise_of_a_run_names_tests_that_exist(part: str) -> None:
    table = rows(part)
    assert len(table) > 2 and all(len(cells) == 2 for cells in table)
    for promise, tests in table:
        names = re.findall(r"`(test_\w+)`", tests)
        assert names and [name for name in names if name not in known_tests()] == [], promise


@pytest.mark.parametrize("file", WHOLE)
def test_each_test_of_a_promise_is_on_its_page(file: str) -> None:
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    tests = re.findall(r"^def (test_\w+)", text, re.MULTILINE)
    pages = PROMISES + TEXT
    assert tests and [name for name in tests if f"`{name}`" not in pages] == []
