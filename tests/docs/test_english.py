"""The pages keep to plain English: words and turns that a reader would have to translate do not occur."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "tests" / "README.md"]
TURNS = {
    r"\bwhoever\b": "name who it is",
    r"\bof which\b": "make two sentences",
    r"\bin vain\b": "say what did not happen",
    r"\blest\b": "so that ... not",
    r"\banew\b": "again",
    r"\bheed(?:s|ed)?\b": "take care of, follow",
    r"\bshall\b": "must, or is to",
    r"\bnews (?:are|were|have)\b": "news is one thing",
    r"\b(?:it|they|he|which|who) (?:is|are) told\b": "say who hears or sees what",
    r"\btold (?:so|in the log)\b": "the log says so",
    r"\bno more[,.]": "not any more",
    r"\b(?:nay|thereof|therein|whence|wherein|hither|ought)\b": "an archaic word",
}
LONGEST = 120


def prose(page: Path) -> str:
    """A page's text without programs, code, comments and names of tests."""
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "``", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_words(page: Path) -> None:
    found = [
        f"{turn[0]!r}: {remedy}"
        for form, remedy in TURNS.items()
        for turn in re.finditer(form, prose(page), re.IGNORECASE)
    ]
    assert not found, f"{page.name}: {'; '.join(found)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_prose_fit_an_editor(page: Path) -> None:
    """Tables and programs may be wider."""
    lines = enumerate(page.read_text(encoding="utf-8").split("\n"), 1)
    fenced = False
    for number, line in lines:
        assert not line.startswith(("<<<<<<< ", ">>>>>>> ")), f"{page.name}:{number}: a merge was left half done"
        fenced ^= line.startswith("```")
        assert fenced or line.startswith(("|", "```")) or len(line) <= LONGEST, f"{page.name}:{number} is too wide"


def test_words_in_code_are_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Say it `anew`.\n```sh\nlest\n```\n| of which |\nNot in vain.\n", encoding="utf-8")
    assert [form for form in TURNS if re.search(form, prose(page))] == [r"\bof which\b", r"\bin vain\b"]
