"""Lines for the word count, and what it counted."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

LINES = 20_000


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
