"""The list of faults against the tests that it names."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_internals import known_tests

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
