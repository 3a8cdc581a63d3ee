"""The table of traps in the documentation names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "kafka-spout.md"
TESTS = sorted((ROOT / "tests").glob("*/spouts/kafka/test_*.py"))


def test_every_trap_has_a_test_and_every_row_an_anchor() -> None:
    page = PAGE.read_text()
    defined = set(re.findall(r"^def (test_\w+)", "\n".join(file.read_text() for file in TESTS), re.M))
    traps = re.findall(r"^\| T(\d+) .*?\| (.*) \|$", page, re.M)
    assert [int(number) for number, _ in traps] == list(range(1, 15))
    for number, tests in traps:
        named = re.findall(r"`(test_\w+)`", tests)
        assert named and set(named) <= defined, number
        assert any(f"t{int(number):02}" in name for name in named), number
    for number in range(1, 14):
        assert f'<a id="k{number}"></a>' in page
        assert any(f"_k{number}_" in name for name in defined), number
