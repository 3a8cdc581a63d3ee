"""How much an object of ours holds: to see whether it grows with what happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]


def sizes(root: Any) -> dict[Path, int]:
    """The length of each list, dict, set and deque that is reachable over objects of streamlet's, by the way to it.

    What many ways lead to counts once; entries of a container have one way together.
    """
    found: dict[Path, int] = {}
    seen: set[int] = set()
    waiting: list[tuple[Path, Any]] = [((type(root).__name__,), root)]
    while waiting:
        path, one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, (list, tuple, set, frozenset, deque, Mapping)):
            found[path] = found.get(path, 0) + len(one)
            parts = one.values() if isinstance(one, Mapping) else one
            waiting += [((*path, "[]"), part) for part in parts]
        elif type(one).__module__.partition(".")[0] in ("streamlet", "tests"):
            waiting += [((*path, name), value) for name, value in _attributes(one)]
    return found


def _attributes(one: Any) -> Iterator[tuple[str, Any]]:
    yield from vars(one).items() if hasattr(one, "__dict__") else ()
    for cls in type(one).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if hasattr(one, name):
                yield name, getattr(one, name)


def grown(before: Mapping[Path, int], after: Mapping[Path, int], allowed: int) -> dict[str, tuple[int, int]]:
    """The ways whose containers have grown by more than ``allowed``."""
    return {
        ".".join(path): (before.get(path, 0), size)
        for path, size in after.items()
        if size > before.get(path, 0) + allowed
    }
