"""The generator of the module ``random`` is the user's."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

import streamlet
from streamlet.base import chance

SOURCES = sorted(Path(streamlet.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_module_draws_from_the_users_generator(path: Path) -> None:
    """A program that has seeded it would go another way as soon as a thread of ours draws."""
    drawn = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random"
    }
    assert drawn <= {"Random", "SystemRandom"}


def test_numbers_are_drawn_without_a_trace() -> None:
    before = random.getstate()
    assert all(0 <= chance.uniform() < 1 for _ in range(100))
    assert random.getstate() == before
