"""How much memory the unsent and unanswered batches may hold, and who is next when it is all taken (Java: BufferPool).

Pure: it counts. Batches are immutable bytes made for one request, never a buffer used again, so that what a socket
still sends cannot become another batch's bytes (KAFKA-19012); the count goes down only when the bytes can be freed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Waiter:
    """One who waits; served in order. ``got`` grows until it is ``wanted``."""

    wanted: int
    got: int = 0

    @property
    def served(self) -> bool:
        """Has all it wanted, which now belongs to it."""
        return self.got >= self.wanted


class BufferPool:
    """``total`` bytes. Whoever holds the producer's lock calls."""

    __slots__ = ("_waiters", "available", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.available = total
        self._waiters: deque[Waiter] = deque()

    @property
    def in_use(self) -> int:
        """Bytes held by batches, or set aside for those who wait."""
        return self.total - self.available

    @property
    def exhausted(self) -> bool:
        """Somebody waits."""
        return bool(self._waiters)

    def try_take(self, size: int) -> bool:
        """Take at once, or not at all; never past those who wait."""
        if self._waiters or size > self.available:
            return False
        self.available -= size
        return True

    def wait(self, size: int) -> Waiter:
        """Stand in line. A large want gathers what is freed, so that small ones cannot starve it."""
        waiter = Waiter(size)
        self._waiters.append(waiter)
        self._serve()
        return waiter

    def leave(self, waiter: Waiter) -> bool:
        """Wait no longer; what it had gathered goes to the others: True when that served somebody."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        self.available += waiter.got
        waiter.got = 0
        return self._serve()

    def free(self, size: int) -> bool:
        """Give back; True when that served somebody."""
        self.available += size
        if self.available > self.total:
            raise RuntimeError(f"memory was given back twice: {self.available} of {self.total} bytes are free")
        return self._serve()

    def _serve(self) -> bool:
        served = False
        while self._waiters and self.available:
            head = self._waiters[0]
            part = min(head.wanted - head.got, self.available)
            head.got += part
            self.available -= part
            if not head.served:
                break
            self._waiters.popleft()
            served = True
        return served
