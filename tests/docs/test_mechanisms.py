"""The page of mechanisms against the code, the tests and the pages of each."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_pages import anchors

IDS = [
    f"{letter}{number}"
    for letter, last in (("P", 12), ("E", 5), ("C", 12), ("M", 7), ("K", 13))
    for number in range(1, last + 1)
]
DOCS = ROOT / "docs" / "evidence"
ITEM = re.compile(
    r"- \*\*\[([A-Z]\d+)\]\(([^)]+)\)\*\* (?P<what>.+?)\. "
    r"Code: (?P<code>.+?)\. Tests: (?P<tests>\d+)(?:, (?P<real>\d+) of them on real brokers)?\."
)


@dataclass(frozen=True)
class Row:
    """What the page says of one id."""

    id: str
    page: str
    code: list[str]
    tests: int
    real: int

    def __str__(self) -> str:
        return self.id


def read() -> list[Row]:
    """Every item of the page. One that is not in form fails as a missing id does."""
    text = (DOCS / "mechanisms.md").read_text(encoding="utf-8")
    items = [re.sub(r"\s+", " ", item) for item in re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)]
    found = [match for item in items if (match := ITEM.fullmatch(item))]
    return [Row(m[1], m[2], re.findall(r"`([\w.]+)`", m["code"]), int(m["tests"]), int(m["real"] or 0)) for m in found]


ROWS = read()


def test_every_id_stands_there_once() -> None:
    """With code, tests and a page: an item without one of them is not read."""
    assert sorted(row.id for row in ROWS) == sorted(IDS)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_code_of_an_id_exists(row: Row) -> None:
    assert row.code
    for name in row.code:
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


@functools.cache
def all_tests() -> dict[tuple[Path, str], bool]:
    """File and name of every test function, and whether it runs on real parts."""
    return {
        (path, name): name in real
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for real in [real_tests(path)]
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_as_many_tests_hold_the_id_as_the_page_says(row: Row) -> None:
    """One at least; of what the client does, one at least on a real broker; of the seven questions of K9, one each."""
    mine = {test: real for test, real in all_tests().items() if re.search(rf"_{row.id.lower()}(_|$)", test[1])}
    real = sum(mine.values())
    assert row.tests > 0
    assert row.real > 0 or row.id[0] == "K"
    assert len(mine) >= row.tests and real >= row.real, (
        f"{row.id} has {len(mine)} tests, {real} real, and mechanisms.md says {row.tests} and {row.real}: a test is "
        "lost, or two became one; then write the new number there"
    )
    if row.id == "K9":
        assert {question for _, name in mine for question in re.findall(r"_k9_(\d)", name)} == set("1234567")


def real_tests(path: Path) -> set[str]:
    """The functions of a module whose tests carry the mark ``real``: by their place, or because they say so.

    Each test in ``conformance/kafka`` runs on real brokers too.
    """
    module = ast.parse(path.read_text(encoding="utf-8"))
    places = (ROOT / "tests" / "real", ROOT / "tests" / "conformance" / "kafka")
    all_of_them = any(map(path.is_relative_to, places)) or any(
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
        tests / "conformance" / "kafka" / "test_consumer.py"
    )
    assert "test_close_of_a_consumer_ends_soon" in real_tests(tests / "real" / "kafka" / "test_nothing_hangs.py")
    assert "test_c4_c5_a_killed_leader_and_coordinator_cost_no_record_and_no_order" in real_tests(
        tests / "faults" / "kafka" / "consumer" / "test_failover.py"
    )
    assert not real_tests(tests / "faults" / "test_bad_frames.py")
    assert not real_tests(tests / "scripted" / "kafka" / "test_nothing_hangs.py")
    assert not real_tests(tests / "scripted" / "kafka" / "consumer" / "test_consumer.py")


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_page_has_the_anchor(row: Row) -> None:
    file, _, anchor = row.page.partition("#")
    assert anchor == row.id.lower()
    assert anchor in anchors(DOCS / file)
