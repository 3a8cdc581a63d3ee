"""The command line against real brokers: what the tests of this folder share."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Streamlet

LINES = 20_000


@pytest.fixture
def streamlet(tmp_path: Path) -> Iterator[Streamlet]:
    """The command line; what is still running at the end of the test is killed."""
    command = Streamlet(tmp_path)
    yield command
    for process in command.started:
        process.kill()
        process.communicate()


def random_lines(count: int = LINES) -> list[str]:
    """Lines of words, the same each time."""
    rng = random.Random(7)
    words = [f"w{rng.randrange(10**6)}" for _ in range(500)]
    return [" ".join(rng.choices(words, k=6)) for _ in range(count)]


def counted(folder: Path) -> Counter[str]:
    """What the topology's count tasks wrote."""
    total: Counter[str] = Counter()
    for path in folder.glob("counts.*.json"):
        total.update(json.loads(path.read_text()))
    return total


__all__ = ["ROOT", "Streamlet", "counted", "random_lines"]
