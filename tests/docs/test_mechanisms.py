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
    r"Code: (?P<code>.+?)\.(?: Tests: (?P<tests>`[^.]+`)\.)?(?: On real brokers: (?P<real>`[^.]+`)\.)?"
)


@dataclass(frozen=True)
class Row:
    """What the page says of one id."""

    id: str
    page: str
    code: list[str]
    tests: list[str]
    real: list[str]

    def __str__(self) -> str:
        return self.id


def read() -> list[Row]:
    """Every item of the page. One that is not in form fails as a missing id does."""
    text = (DOCS / "mechanisms.md").read_text(encoding="utf-8")
    items = [re.sub(r"\s+", " ", item) for item in re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)]
    found = [match for item in items if (match := ITEM.fullmatch(item))]
    return [Row(m[1], m[2], named(m["code"]), named(m["tests"]), named(m["real"])) for m in found]


def named(text: str | None) -> list[str]:
    """Return the names in backquotes."""
    return re.findall(r"`([\w.]+)`", text or "")


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


@dataclass(frozen=True)
class Place:
    """A test function: its file, its body, and whether it runs on real parts."""

    file: Path
    body: ast.FunctionDef
    real: bool


@functools.cache
def all_tests() -> dict[str, list[Place]]:
    """Each test function that a whole run collects, by its name: a rung may repeat another's."""
    found: dict[str, list[Place]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        real = real_tests(path)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.setdefault(node.name, []).append(Place(path, node, node.name in real))
    return found


def checks_something(test: ast.FunctionDef) -> bool:
    """Whether a test has a statement that can fail: an assertion, a ``with``, or a call."""
    return any(isinstance(node, ast.Assert | ast.With | ast.Call) for line in test.body for node in ast.walk(line))


def is_skipped(test: ast.FunctionDef) -> bool:
    """Whether a mark keeps the test from running, or lets it fail."""
    return any("skip" in mark or "xfail" in mark for mark in map(ast.unparse, test.decorator_list))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_tests_of_an_id_are_there_and_run(row: Row) -> None:
    """One at least that has the id; of the client's, one at least on a real broker; of K9's questions, one each."""
    assert len(set(row.tests)) == len(row.tests) and len(set(row.real)) == len(row.real)
    for names, real in ((row.tests, False), (row.real, True)):
        for name in names:
            places = [place for place in all_tests().get(name, ()) if place.real is real]
            kind = "real parts" if real else "no real parts"
            assert places, f"{row.id}: no test called {name} runs on {kind}: was it renamed? Then the page is to follow"
            for place in places:
                assert checks_something(place.body), f"{place.file}: {name} checks nothing"
                assert not is_skipped(place.body), f"{place.file}: {name} may be skipped, and shows nothing then"
    assert row.real or row.id[0] == "K"
    assert [name for name in (*row.tests, *row.real) if re.search(rf"_{row.id.lower()}(_|$)", name)]
    if row.id == "K9":
        said = " ".join((*row.tests, *row.real))
        assert set(re.findall(r"_k9_(\d)", said)) == set("1234567")


def test_a_test_that_is_empty_or_skipped_is_found() -> None:
    def one(text: str) -> ast.FunctionDef:
        (test,) = ast.parse(text).body
        assert isinstance(test, ast.FunctionDef)
        return test

    assert not checks_something(one('def test_a():\n    """Says."""\n    x = 1\n'))
    assert checks_something(one("def test_a():\n    assert x\n")) and checks_something(one("def test_a():\n    go()\n"))
    assert is_skipped(one("@pytest.mark.skipif(True, reason='')\ndef test_a(): pass\n"))
    assert is_skipped(one("@pytest.mark.xfail\ndef test_a(): pass\n"))
    assert not is_skipped(one("@pytest.mark.parametrize('n', [1])\ndef test_a(n): pass\n"))


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
