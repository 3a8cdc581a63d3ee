"""When a failed record is tried again, and when it is given up."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

from streamlet.base.backoff import Backoff, no_jitter


class NextTry(NamedTuple):
    """How often a record was tried, and when it is tried again."""

    tries: int
    most: int
    """Tries that it gets; 0: without end."""
    due_s: float


class ExponentialBackoffMsgRetryManager:
    """The failed offsets of one partition; times are monotonic seconds.

    Waits ``initial * multiplier^(failures - 1)``, at most the maximum, before each retry. With ``retry_limit`` N a
    record gets N retries after its first try; 0 or less means no limit. Every operation is O(log n).
    """

    __slots__ = ("_backoff", "_due", "_failures", "_retry_limit", "_scheduled", "_uniform")

    def __init__(self, backoff: Backoff, retry_limit: int, uniform: Callable[[], float] = no_jitter) -> None:
        self._backoff = backoff
        self._retry_limit = retry_limit
        self._uniform = uniform
        # Counts live here and not in the message id (STORM-2413): an id that changes would make an ack miss its record.
        self._failures: dict[int, int] = {}
        self._scheduled: dict[int, float] = {}
        self._due: list[tuple[float, int]] = []  # heap; an entry is live while _scheduled agrees

    def failed(self, offset: int, now_s: float) -> bool:
        """Schedule a retry of a record that failed; False: its tries are used up."""
        failures = self._failures[offset] = self._failures.get(offset, 0) + 1
        if 0 < self._retry_limit < failures:
            self._scheduled.pop(offset, None)
            return False
        self._schedule(offset, now_s + self._backoff.delay(failures, self._uniform))
        return True

    def lost(self, offset: int, now_s: float) -> None:
        """Schedule a retry of a lost record, without counting a failure."""
        # With a pause, as after a first failure: the worker that was lost may need a moment to come back.
        self._schedule(offset, now_s + self._backoff.delay(1, self._uniform))

    def _schedule(self, offset: int, due_s: float) -> None:
        self._scheduled[offset] = due_s
        heapq.heappush(self._due, (due_s, offset))

    def next_failed_message_to_retry(self, now_s: float) -> int | None:
        """Return the failed offset that is due longest, or None."""
        due_s = self.next_due_s()
        return self._due[0][1] if due_s is not None and due_s <= now_s else None

    def retry_started(self, offset: int) -> None:
        """Note that the record is in flight again; its count of failures stays."""
        self._scheduled.pop(offset, None)

    def acked(self, offset: int) -> None:
        """Forget the record."""
        self._failures.pop(offset, None)
        self._scheduled.pop(offset, None)

    def is_last(self, offset: int) -> bool:
        """Tell whether a record is given up if it fails once more."""
        return 0 < self._retry_limit <= self._failures.get(offset, 0)

    def tries(self, offset: int) -> int:
        """Return how often the record has failed."""
        return self._failures.get(offset, 0)

    def next_try(self, offset: int) -> NextTry | None:
        """Return when a failed record is tried again; None: no retry waits."""
        due_s = self._scheduled.get(offset)
        most = self._retry_limit + 1 if self._retry_limit > 0 else 0
        return None if due_s is None else NextTry(self.tries(offset), most, due_s)

    def next_due_s(self) -> float | None:
        """Return when the next retry falls due; None: nothing waits."""
        while self._due and self._scheduled.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def has_failures(self) -> bool:
        """Return whether a record has failed and was not acked since."""
        return bool(self._failures)


FailedMsgRetryManager = ExponentialBackoffMsgRetryManager
"""storm-kafka's name for the port; there is one implementation."""
