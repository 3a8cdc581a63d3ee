"""Examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib

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
