"""Finds out whether this process takes more memory than it did."""

from __future__ import annotations

import os

LOOK_S = 0.01
"""Seconds between two looks."""

SHARE_OF_MEMORY = 32
"""Parts of what a worker may hold: memory that is larger by one of them has grown."""

LEAST_BYTES, MOST_BYTES = 1 << 20, 8 << 20
"""Bounds of such a part."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
"""Bytes of a page, which the system counts memory in."""


class ResidentMemory:
    """Resident memory of this process."""

    def __init__(self) -> None:
        self._statm = -1

    def bytes(self) -> int:
        """Return it as it is; 0 where nobody can tell."""
        # Rule: the file stays open. It is read at each millisecond of a turn, and to open it takes three times as long
        # as to read it.
        # Rule: a process without a free descriptor goes on. It looks again soon, and until then the sample of rows
        # counts.
        if self._statm < 0:
            try:
                self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return 0
        return int(os.pread(self._statm, 100, 0).split()[1]) * _PAGE_BYTES

    def close(self) -> None:
        """Give the descriptor back."""
        statm, self._statm = self._statm, -1
        if statm >= 0:
            os.close(statm)


class MemoryGrowth:
    """Tells when resident memory is higher than ever before, by a step."""

    def __init__(self, memory_bytes: int) -> None:
        self.resident = ResidentMemory()
        self._step = min(max(memory_bytes // SHARE_OF_MEMORY, LEAST_BYTES), MOST_BYTES)
        self._grown_at = 0
        self.looks_at = 0.0
        """When to look again."""

    def look(self, now: float) -> bool:
        """Tell whether memory has grown since this was last so."""
        self.looks_at = now + LOOK_S
        resident = self.resident.bytes()
        if not resident or resident < self._grown_at:  # it was taken before, and nothing passed a bound by it
            return False
        self._grown_at = resident + self._step
        return True
