"""Messages that wait until the other end of a channel reads again. Pure.

Nobody knows how long that takes: a coordinator may be stopped for a day. So what waits is bounded. Of numbers that
replace each other only the newest stands here, log lines have a budget of bytes, and the rest are few.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from streamlet.runtime.worker.messages import Beat, Complaint, Event, Message, State, Unlinked

LINE_BYTES = 4 << 20
"""Most bytes of log lines that wait. Those that come later are counted."""

_ONE_OF: Mapping[type, Callable[[Any], Hashable]] = {
    Beat: lambda _: Beat,
    State: lambda _: State,
    Unlinked: lambda message: (Unlinked, message.worker),
}
"""Kind -> the name under which a newer message replaces an older one."""

_LINES = (Event, Complaint)


class UnsentMessages:
    """Packed messages in the order they leave. One thread at a time."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, tuple[bytes, bool]] = {}
        """Name -> packed message, and whether it is a line."""
        self._line_bytes = 0
        self._number = 0
        self.left_out = 0
        """Lines that found no room since the last call of ``take_left_out``."""

    def __bool__(self) -> bool:
        return bool(self._waiting or self.left_out)

    def put(self, message: Message, packed: bytes) -> None:
        """Add a message, at the end or in place of one."""
        name = _ONE_OF[type(message)](message) if type(message) in _ONE_OF else self._number
        self._number += 1
        is_line = isinstance(message, _LINES)
        if is_line:
            # The first lines stay, not the last: where something goes wrong, the cause comes before its consequences.
            if self.left_out or self._line_bytes + len(packed) > LINE_BYTES:
                self.left_out += 1
                return
            self._line_bytes += len(packed)
        self._waiting.pop(name, None)
        self._waiting[name] = packed, is_line

    def take(self) -> bytes | None:
        """Return the message that leaves next; None without one."""
        if not self._waiting:
            return None
        packed, is_line = self._waiting.pop(next(iter(self._waiting)))
        if is_line:
            self._line_bytes -= len(packed)
        return packed

    def take_left_out(self) -> int:
        """Return how many lines found no room, once all others have left."""
        if self._waiting:
            return 0
        count, self.left_out = self.left_out, 0
        return count
