"""What waits for a reader that may not read for a day. Pure.

What waits is bounded: of things that replace each other only the newest stands here, log lines have a budget of bytes,
and the rest are few.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

LINE_BYTES = 4 << 20
"""Most bytes of log lines that wait. Those that come later are counted."""


class Backlog(Generic[T]):
    """Items for one reader, in their order. One thread at a time."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, tuple[T, int, int]] = {}
        """Name -> the item; of a line its bytes, and how many lines it stands for."""
        self._line_bytes = 0
        self._number = 0
        self._left_out = 0

    def __bool__(self) -> bool:
        return bool(self._waiting or self._left_out)

    @property
    def lines(self) -> int:
        """How many lines wait or were left out."""
        return self._left_out + sum(lines for _, line_bytes, lines in self._waiting.values() if line_bytes)

    def put(self, item: T, replaces: Hashable = None, line_bytes: int = 0, lines: int = 1) -> None:
        """Add an item at the end.

        ``replaces`` is a name: an item of the same name that still waits is dropped. ``line_bytes`` is the size of a
        log line, which may find no room; it is left out as so many ``lines``.
        """
        if line_bytes:
            # The first lines stay, not the last: where something goes wrong, the cause comes before its consequences.
            if self._left_out or self._line_bytes + line_bytes > LINE_BYTES:
                self._left_out += lines
                return
            self._line_bytes += line_bytes
        self._number += 1
        name = self._number if replaces is None else replaces
        self._waiting.pop(name, None)
        self._waiting[name] = item, line_bytes, lines

    def take(self) -> T | None:
        """Return the next item; None without one."""
        if not self._waiting:
            return None
        item, line_bytes, _ = self._waiting.pop(next(iter(self._waiting)))
        self._line_bytes -= line_bytes
        return item

    def take_left_out(self, now: bool = False) -> int:
        """Return the number of lines left out, once nothing waits. ``now``: whatever waits."""
        if self._waiting and not now:
            return 0
        count, self._left_out = self._left_out, 0
        return count
