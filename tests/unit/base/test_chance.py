"""The generator of the module ``random`` is the user's."""

from __future__ import annotations

import ast
import os
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
    assert drawn <= {"Random"}


def test_numbers_are_drawn_without_a_trace() -> None:
    before = random.getstate()
    assert all(0 <= chance.uniform() < 1 for _ in range(100))
    assert random.getstate() == before


def test_a_draw_asks_the_system_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a call releases the interpreter, and drawing threads hold locks."""

    def refuse(_size: int) -> bytes:
        raise AssertionError("the system was asked")

    monkeypatch.setattr(random, "_urandom", refuse)
    assert len({chance.uniform() for _ in range(100)}) == 100


def test_a_forked_child_draws_numbers_of_its_own() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr(chance.uniform()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    drawn = float(os.read(reading, 100))
    os.close(reading)
    os.close(writing)
    assert drawn != chance.uniform()
