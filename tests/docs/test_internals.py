"""Functions and tests that the pages about the inside name are there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

INTERNALS = ROOT / "docs" / "internals"
TESTS = ROOT / "tests"
PAGES = [*sorted(INTERNALS.glob("*.md")), ROOT / "docs" / "design.md", ROOT / "CONTRIBUTING.md"]
SOURCES = [*sorted((ROOT / "streamlet").rglob("*.py")), *sorted((ROOT / "topologies").rglob("*.py"))]
FUNCTION = re.compile(r"`([\w/]+\.py):([A-Za-z_][\w.]*)(?:\(\))?`")
TEST = re.compile(r"`(?:[\w/]+\.py::)?(test_\w+)`")
TEST_FILE = re.compile(r"`(?:[\w/]+/)?(test_\w+\.py)`")
PLACE = re.compile(
    r"`((?:streamlet|tests|bin|topologies|docs)/[\w/.]*)`|\]\(((?:docs|tests|bin)/[\w/.-]+|CHANGELOG\.md)\)"
)
"""A file or folder by its path from the root, in backquotes or as a link."""


@functools.cache
def defined(path: Path) -> frozenset[str]:
    """The dotted names of a file's classes, functions, methods and constants."""
    names: set[str] = set()

    def look(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(prefix + node.name)
                look(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign):
                names.update(prefix + target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(prefix + node.target.id)

    look(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(names)


@functools.cache
def known_tests() -> frozenset[str]:
    """The name of every test function."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(
        name for text in texts for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.MULTILINE)
    )


def files(written: str) -> list[Path]:
    """The source file of a path below ``streamlet/``, or those that a path's last parts may mean."""
    written = written.removeprefix("streamlet/")
    if (exact := ROOT / "streamlet" / written) in SOURCES:
        return [exact]
    return [path for path in SOURCES if f"/{path.relative_to(ROOT)}".endswith(f"/{written}")]


def wrong(text: str) -> list[str]:
    """What a page names and the tree does not have."""
    missing = []
    for written, name in FUNCTION.findall(text):
        found = files(written)
        if len(found) != 1:
            missing.append(f"{written}: {len(found)} files are called so")
        elif name not in defined(found[0]):
            missing.append(f"{written} has no {name}")
    missing += [
        f"there is no {path}" for row in PLACE.findall(text) if not (ROOT / (path := row[0] or row[1])).exists()
    ]
    missing += [f"no file is called {name}" for name in TEST_FILE.findall(text) if not any(TESTS.rglob(name))]
    return missing + [f"no test is called {name}" for name in TEST.findall(text) if name not in known_tests()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_functions_and_tests_that_are_named_exist(page: Path) -> None:
    missing = wrong(page.read_text(encoding="utf-8"))
    assert not missing, f"{page.name}:\n" + "\n".join(missing)


def rules() -> list[str]:
    """The items of the page of rules."""
    text = (INTERNALS / "rules.md").read_text(encoding="utf-8")
    return [re.sub(r"\s+", " ", item) for item in re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)]


def test_every_rule_has_a_reason_a_function_and_a_test() -> None:
    """Or says why it has no test."""
    assert len(rules()) > 100
    for rule in rules():
        begin = re.match(r"- \*\*[A-Z].+?\.\*\* .*?[.)] `", rule)
        assert begin, f"not `- **Rule.** Reason. functions test: ...`: {rule}"
        assert FUNCTION.search(rule), f"no function: {rule}"
        assert TEST.search(rule) or re.search(r" no test: \w.{10}", rule), f"neither test nor reason: {rule}"


def test_no_heading_has_more_rules_than_one_reads_before_a_change() -> None:
    text = (INTERNALS / "rules.md").read_text(encoding="utf-8")
    rules_under = {
        part.splitlines()[0]: len(re.findall(r"(?m)^- \*\*", part)) for part in re.split(r"(?m)^#+ ", text)[1:]
    }
    assert {title: count for title, count in rules_under.items() if count > 30} == {}


def test_a_name_that_is_gone_is_found() -> None:
    text = "`base/clock.py:NoSuchClock`, `no/file.py:f`, `test_nobody_wrote_this`, `tests/x.py::test_nor_this`"
    text += ", `test_no_file_is_called_so.py`, `streamlet/gone.py`, [gone](docs/gone.md), `tests/conformance`"
    assert len(wrong(text)) == 7


THREADS_AND_LOCKS = {"Thread", "Timer", "Lock", "RLock", "Condition", "Semaphore", "ThreadPoolExecutor"}


def makes_threads_or_locks(text: str) -> bool:
    """Whether a source file makes a thread or a lock, or a class of threads."""
    for node in ast.walk(ast.parse(text)):
        called = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
        if any(ast.unparse(name).split(".")[-1] in THREADS_AND_LOCKS for name in called):
            return True
    return False


def test_every_file_that_makes_a_thread_or_a_lock_stands_on_the_page_of_threads() -> None:
    assert makes_threads_or_locks("import threading\nguard = threading.RLock()")
    page = (INTERNALS / "threads.md").read_text(encoding="utf-8")
    named = {path for written, _name in FUNCTION.findall(page) for path in files(written)}
    makers = [path for path in SOURCES if makes_threads_or_locks(path.read_text(encoding="utf-8"))]
    assert len(makers) > 15
    missing = [str(path.relative_to(ROOT)) for path in makers if path not in named]
    assert not missing, f"docs/internals/threads.md says nothing of the threads or locks in {missing}"


def test_paths_of_the_map_exist() -> None:
    """Every file and folder that design.md names: below ``streamlet/``, or by its last part."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    written = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    assert len(written) > 50
    root = ROOT / "streamlet"
    assert not [path for path in written if not (root / path).exists() and not any(root.rglob(path.rstrip("/")))]
