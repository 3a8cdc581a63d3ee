"""``streamlet docs`` shows each page that is shipped, and errors name pages that it knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamlet.base.errors import BadInput
from streamlet.cli.docs import docs, pages
from streamlet.kafka.settings.foreign_names import PAGE
from tests.docs.pages import ROOT

SHIPPED = sorted(set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "README.md"})


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    docs.main(list(arguments), standalone_mode=False)
    return capsys.readouterr().out


def test_the_list_has_every_page_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    listed = re.findall(r"^  ([\w-]+) +(\S.*)$", shown(capsys), flags=re.MULTILINE)
    titles = {re.findall(r"^# (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)[0] for path in SHIPPED}
    assert {title for _, title in listed} == titles
    assert len(listed) == len(SHIPPED)
    assert listed[0][0] == "tutorial"


@pytest.mark.parametrize("name", list(pages()))
def test_a_page_is_shown_without_comments_and_with_links_that_lead_on(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, name)
    assert text.startswith("# ")
    assert "<!--" not in text and "<a id" not in text
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    for target in re.findall(r"\[[^\]]+\]\(([\w-]+(?:#[\w-]+)?)\)", prose):
        page, _, anchor = target.partition("#")
        if page != "README":
            assert not anchor or pages()[page].section(anchor), f"{name} links to {target}"


@pytest.mark.parametrize("asked", ["tutorial", "tutorial.md", "docs/guide/tutorial.md", "Tutorial"])
def test_a_page_is_found_by_its_name_and_its_file(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, asked).startswith("# Tutorial\n")


def test_an_anchor_shows_its_section_alone(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "reference#exit-statuses")
    assert text.startswith("## Exit statuses\n") and "| 130 |" in text
    assert "\n## " not in text


def test_a_sign_of_a_comment_in_code_is_no_heading(capsys: pytest.CaptureFixture[str]) -> None:
    """A section ends at the next heading, not at the next ``# ...`` of a program."""
    for page in pages().values():
        assert not [anchor for anchor in page.anchors() if page.section(anchor) is None]


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ("tutoral", "There is no page 'tutoral'. Did you mean 'tutorial'? `streamlet docs` lists them."),
        ("zzz", "There is no page 'zzz'. `streamlet docs` lists them."),
        ("dead", "There is no page 'dead'. Did you mean 'dead-letters'? `streamlet docs` lists them."),
        ("reference#exit-status", "'exit-statuses'"),
    ],
)
def test_an_unknown_page_or_section_is_refused_with_its_nearest_name(asked: str, remedy: str) -> None:
    with pytest.raises(BadInput, match=re.escape(remedy)):
        docs.main([asked], standalone_mode=False)


def test_in_a_terminal_it_is_formatted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the signs of Markdown are gone."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("LINES", "500")
    monkeypatch.setenv("TERM", "xterm")
    text = shown(capsys, "reference#exit-statuses")
    assert "\x1b[" in text and "Exit statuses" in text
    assert "##" not in text and "`" not in text


def test_pages_that_errors_and_docstrings_name_are_there() -> None:
    sources = [path.read_text(encoding="utf-8") for path in [*Path(ROOT / "streamlet").rglob("*.py")]]
    named = {name for text in sources for name in re.findall(r"streamlet docs ([a-z][\w-]+)`", text)}
    assert {"counts-that-survive", "security"} <= named
    assert named | {PAGE} <= set(pages())
    assert not [text for text in sources if re.search(r"\bdocs/(?:guide|reference)/[\w-]+\.md", text)]
