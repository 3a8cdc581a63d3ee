"""The table of mechanisms against the code, the tests and the pages that it names."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_pages import LINK, anchors

IDS = [
    f"{letter}{number}"
    for letter, last in (("P", 12), ("E", 5), ("C", 12), ("M", 7), ("K", 13))
    for number in range(1, last + 1)
]
DOCS = ROOT / "docs" / "evidence"
ROWS = {
    cells[0]: cells
    for line in (DOCS / "mechanisms.md").read_text(encoding="utf-8").splitlines()
    if len(cells := [cell.strip() for cell in line.split("|")[1:-1]]) == 5 and re.fullmatch(r"[A-Z]\d+", cells[0])
}
THERE = [row for row in ROWS.values() if row[2] != "not yet"]


def test_every_id_has_one_row() -> None:
    assert sorted(ROWS) == sorted(IDS)


def test_no_row_is_missing_altogether() -> None:
    """Each has code, tests and a page."""
    assert [row[0] for row in ROWS.values() if row[2] == "not yet"] == []


@pytest.mark.parametrize("row", THERE, ids=lambda row: row[0])
def test_the_code_of_a_row_exists(row: list[str]) -> None:
    names = re.findall(r"`([\w.]+)`", row[2])
    assert names
    for name in names:
        assert found(f"streamlet.{name}") is not None


def found(name: str) -> Any:
    """The object of a dotted name: a module, and what follows in it."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            thing = getattr(thing, part)
        return thing
    raise AssertionError(name)


@pytest.mark.parametrize("row", THERE, ids=lambda row: row[0])
def test_tests_exist_and_hold_the_id(row: list[str]) -> None:
    """For the seven questions of K9, one each."""
    key = row[0].lower()
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row[3])
    assert named
    for file, name in named:
        assert re.search(rf"_{key}(_|$)", name), f"{name} does not hold {key}"
        assert re.search(rf"^def {name}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE), name
    if key == "k9":
        questions = [re.search(r"k9_(\d)", name) for _, name in named]
        assert [question[1] for question in questions if question] == list("1234567")


CLIENT = [row for row in THERE if row[0][0] in "PECM"]
"""The rows of the Kafka client. Those of the spout (K) stand on it: what only a spout can show is there."""


@pytest.mark.parametrize("row", CLIENT, ids=lambda row: row[0])
def test_a_real_broker_shows_it(row: list[str]) -> None:
    """One test at least runs on a real broker: it bears the mark ``real``, or its module does."""
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row[3])
    assert [name for file, name in named if name in real_tests(ROOT / "tests" / file)], named


def real_tests(path: Path) -> set[str]:
    """The functions of a module whose tests carry the mark ``real``: all below ``tests/real``, others that say so."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    all_of_them = path.is_relative_to(ROOT / "tests" / "real") or any(
        isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "pytestmark" and marks_real(line.value)
        for line in module.body
    )
    tests = [line for line in module.body if isinstance(line, ast.FunctionDef) and line.name.startswith("test_")]
    return {test.name for test in tests if all_of_them or any(map(marks_real, test.decorator_list))}


def marks_real(node: ast.expr) -> bool:
    """``pytest.mark.real``, alone or in a list."""
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    return any(ast.unparse(part) == "pytest.mark.real" for part in parts)


def test_the_mark_is_found_on_a_module_and_on_a_test() -> None:
    """And not where it is not."""
    tests = ROOT / "tests"
    assert "test_c3_the_next_records_arrive_while_the_user_works" in real_tests(
        tests / "real" / "kafka" / "consumer" / "test_consumer_rows.py"
    )
    assert "test_close_of_a_consumer_ends_soon" in real_tests(tests / "real" / "kafka" / "test_nothing_hangs.py")
    assert "test_c4_c5_a_killed_leader_and_coordinator_cost_no_record_and_no_order" in real_tests(
        tests / "faults" / "kafka" / "consumer" / "test_failover.py"
    )
    assert not real_tests(tests / "faults" / "test_bad_frames.py")
    assert not real_tests(tests / "scripted" / "kafka" / "test_nothing_hangs.py")
    assert not real_tests(tests / "scripted" / "kafka" / "consumer" / "test_consumer_faults.py")


@pytest.mark.parametrize("row", THERE, ids=lambda row: row[0])
def test_the_page_has_the_anchor(row: list[str]) -> None:
    targets = LINK.findall(row[4])
    assert targets
    for target in targets:
        file, _, anchor = target.partition("#")
        assert anchor == row[0].lower()
        assert anchor in anchors(DOCS / file)
