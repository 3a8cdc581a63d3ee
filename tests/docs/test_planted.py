"""The planted bugs fit the code of today: each has its place, once, and is another program."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_internals import known_tests
from tests.planted.bugs import BUGS, Bug
from tests.planted.plant import planted


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_has_its_place_and_is_a_program(bug: Bug) -> None:
    text = (ROOT / "streamlet" / bug.file).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(planted(text, bug))) != ast.dump(ast.parse(text))
    for path in bug.tests:
        assert (ROOT / path).exists(), path


def test_there_are_forty_of_different_names() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 40


def test_the_page_has_a_row_of_each_with_a_test_that_is_there() -> None:
    """And says how many there are."""
    text = (ROOT / "docs" / "evidence" / "reliability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| `(\w+)` \|$", text, re.MULTILINE)
    assert [name for name, _ in rows] == [bug.name for bug in BUGS]
    assert [test for _, test in rows if test.startswith("test_") and test not in known_tests()] == []
    assert f"{len(BUGS)} known bugs" in text and f"all {len(BUGS)} were caught" in text
