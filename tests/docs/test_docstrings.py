"""Examples in docstrings are true, and a check that is silenced says why."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
from collections.abc import Callable, Iterator

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
def unexplained() -> Callable[[str], Iterator[tuple[int, str]]]:
    """The check of bin/check_docstrings.py for silenced checks without a reason."""
    spec = importlib.util.spec_from_file_location("check_docstrings", ROOT / "bin" / "check_docstrings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    check: Callable[[str], Iterator[tuple[int, str]]] = module.unexplained
    return check


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
