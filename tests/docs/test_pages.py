"""Every block of the documentation does what its page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import OTHERS, PAGES, ROOT, RUNNABLE, Sandbox, blocks, first_missing, needs

KNOWN_NEEDS = {"kafka", "spark"}
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if not needs(page)], ids=name)
def test_every_block_runs(page: Path, sandbox: Sandbox) -> None:
    """In order, in one folder, with the output that is shown. Pages that need real parts: ``test_tutorial.py``."""
    sandbox.run_page(page)


@pytest.mark.parametrize("page", [page for page in PAGES if needs(page)], ids=name)
def test_a_cluster_is_up_a_block_before_a_topology_runs_on_it(page: Path) -> None:
    """Where a port is taken, the reader writes another one into the file in between; so does the sandbox."""
    for block in blocks(page):
        if "streamlet dev up" in block.text and "not run" not in block.says:
            assert "streamlet run" not in block.text, f"{block}: cut it behind `dev up`, and say what to write where"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_block_is_run_or_says_why_not(page: Path) -> None:
    """No language slips past the tests, and no reason is empty."""
    assert needs(page) <= KNOWN_NEEDS
    for block in blocks(page):
        assert block.language in RUNNABLE | OTHERS, f"{block}: is {block.language!r} run, or not?"
        if block.language not in RUNNABLE:
            assert "not run" not in block.says, f"{block}: nothing would run it anyway"
        assert len(block.says.get("not run", "a reason in words")) > 10, f"{block}: say why"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """Files exist, and anchors stand in them."""
    for target in LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        found = page if not file else (page.parent / file).resolve()
        assert found.exists(), f"{name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(found), f"{name(page)} links to {target}"


def anchors(page: Path) -> set[str]:
    """Those written by hand, and those a heading makes."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return made | set(ANCHOR.findall(text))


def test_what_is_shown_is_compared_loosely() -> None:
    """Numbers stand for any number, dots for nothing, order counts."""
    output = "begin\nlines   2,000 of 2,000\nnoise\nended after 2.4 s\n"
    assert first_missing("lines 7 of 7\n...\nended after 11.0 s\n", output) is None
    assert first_missing("ended after 1 s\nlines 1 of 1\n", output) == "lines 1 of 1"
    assert first_missing("lines seven of 7\n", output) == "lines seven of 7"


LONG_RUNS = re.findall(r"`python -m (tests\.[\w.]+)", (ROOT / "tests" / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", sorted(set(LONG_RUNS)))
def test_the_help_of_a_long_run_says_how_it_is_called(module: str) -> None:
    """As its README does: not by the name of a file, which cannot be run from anywhere."""
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(f"usage: python -m {module} [")
