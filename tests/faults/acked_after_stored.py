"""What ``topologies/acked_numbers.py`` noted, and what must hold of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ACKED_NUMBERS = Path(__file__).parents[1] / "topologies" / "acked_numbers.py"


def noted(out: Path) -> list[list[str]]:
    """Every whole line, as words."""
    # A line that crosses a page may be read before its second half is there.
    file = out / "noted"
    text = file.read_text() if file.exists() else ""
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


def stored(out: Path) -> int:
    """How many numbers have been stored."""
    return len({words[1] for words in noted(out) if words[0] == "stored"})


def end(out: Path) -> None:
    """Have the spout emit no more."""
    (out / "enough").touch()


def check_acks(out: Path) -> None:
    """Each number was stored before it was acked, was acked once, and no tree brought it twice."""
    done: set[str] = set()
    trees: Counter[tuple[str, str]] = Counter()
    acks: Counter[str] = Counter()
    for what, number, *root in noted(out):
        if what == "stored":
            done.add(number)
            trees[number, root[0]] += 1
        else:
            assert number in done, f"{number} was acked before it was stored: a false ack"
            acks[number] += 1
    assert sorted(map(int, acks)) == list(range(len(done))) and set(acks.values()) == {1}
    twice = [tree for tree, times in trees.items() if times > 1]
    assert not twice, f"came twice in one tree: {twice[:5]}"
