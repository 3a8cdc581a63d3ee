"""Examples in docstrings are true, and a check that is silenced says why."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from tests.docs.pages import ROOT

WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "streamlet").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_are_true(module: str) -> None:
    """And each example is run: none is marked to be left out."""
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert tried and not failed
    source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    assert "doctest: +SKIP" not in source


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    """The module bin/check_docstrings.py."""
    spec = importlib.util.spec_from_file_location("check_docstrings", ROOT / "bin" / "check_docstrings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def unexplained(checker: ModuleType) -> Callable[[str], Iterator[tuple[int, str]]]:
    """The check for silenced checks without a reason."""
    check: Callable[[str], Iterator[tuple[int, str]]] = checker.unexplained
    return check


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('def f(): "Return the sum."', None),
        ('def f(): "Whether it holds."', "begins with 'Whether'"),
        ('def f(): "``x`` as bytes."', "begins with '``x``'"),
        ('@property\ndef f(): "Whether it holds."', None),
        ('def f(): "Return one two three four five six seven eight nine ten eleven twelve."', "13 words, 12 at most"),
        ('def f(): "Return a: one two three four five six seven eight nine ten b c d e f g h i j."', "21 words, 20"),
        ('WAIT_S = 1\n"Seconds before it ends."', None),
        ('WAIT_S = 1\n"How long it waits."', "begin with 'Seconds'"),
        ('WAIT_MS = 1\n"Seconds before it ends."', "begin with 'Milliseconds'"),
    ],
)
def test_a_docstrings_beginning_is_held_to_its_rule(checker: ModuleType, source: str, fault: str | None) -> None:
    found = [said for _, *doc in checker.documented(ast.parse(source)) for said in checker.faults(*doc)]
    assert found == [] if fault is None else fault in found[0]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("WAIT_S = 1", ["WAIT_S"]),
        ("_WAIT_MS: int = 1\nMOST_BYTES = 2", ["_WAIT_MS", "MOST_BYTES"]),
        ('WAIT_S = 1\n"Seconds before it ends."\nMOST = 2', []),
        ("class Buffer:\n    MOST_BYTES = 2", ["MOST_BYTES"]),
        ("wait_s = 1\nSTEPS = 3", []),
    ],
)
def test_a_constant_of_seconds_or_bytes_needs_a_docstring(checker: ModuleType, source: str, names: list[str]) -> None:
    assert [fault.split(":")[0] for _line, fault in checker.unsaid(ast.parse(source))] == names


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("f(x)  # type: ignore[arg-type]\n", [1]),
        ("f(x)  # type: ignore[arg-type]  # x is checked above\n", []),
        ("# x is checked above\nf(x)  # type: ignore[arg-type,misc]\n", []),
        ("f(x)\nf(y)  # noqa: S108, E501\n", [2]),
        ("f(x)  # noqa: S108 - each has a folder of its own\n", []),
        ("f(x)  # type: ignore\n", [1]),
        ("f('# noqa')\n", []),
    ],
)
def test_a_silenced_check_without_a_reason_is_found(
    unexplained: Callable[[str], Iterator[tuple[int, str]]], source: str, lines: list[int]
) -> None:
    assert [line for line, _fault in unexplained(source)] == lines


def test_every_silenced_check_of_the_package_has_its_reason(
    unexplained: Callable[[str], Iterator[tuple[int, str]]],
) -> None:
    for path in sorted((ROOT / "streamlet").rglob("*.py")):
        assert list(unexplained(path.read_text(encoding="utf-8"))) == [], path
