"""A consumer belongs to one thread at a time."""

from __future__ import annotations

import threading

from streamlet.kafka.consumer.errors import ConcurrentUse


class OneThread:
    """Held for the length of a call; a second thread is told instead of made to wait. Calls nest."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUse(
                f"Thread {threading.current_thread().name!r} called a consumer that another thread is in. A consumer "
                "belongs to one thread at a time: give each thread its own, or hand records over a queue. Only "
                "wakeup() may be called from another."
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()
