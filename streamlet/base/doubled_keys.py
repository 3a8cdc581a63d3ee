"""Finds keys that stand twice in JSON: a parser takes the last one, without a word."""

from __future__ import annotations

from typing import Any


class DoubledKey(ValueError):
    """A key stands twice in one object."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key!r} is given twice, and nothing says which of the two counts: leave one of them out")


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; the ``object_pairs_hook`` of a parser. Raises DoubledKey."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise DoubledKey(max(names, key=names.count))
    return found
