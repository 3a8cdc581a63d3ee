"""Pauses after failures, one for each broker or partition. Pure: the caller brings the time."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from streamlet.base.backoff import Backoff

K = TypeVar("K", bound=Hashable)


class Pauses(Generic[K]):
    """Exponential back-off by key. One thread.

    Each failure in a row doubles the key's pause; one success ends it. A key without a failure costs nothing.
    """

    __slots__ = ("_backoff", "_failures", "_until_s")

    def __init__(self, backoff: Backoff) -> None:
        """Take pauses from ``backoff``, in seconds."""
        self._backoff = backoff
        self._failures: dict[K, int] = {}
        self._until_s: dict[K, float] = {}

    def failed(self, key: K, now_s: float) -> int:
        """Pause ``key`` and return its number of failures in a row."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._until_s[key] = now_s + self._backoff.delay(failures)
        return failures

    def hold(self, key: K, now_s: float) -> None:
        """Pause ``key`` for the shortest time without counting a failure."""
        self._until_s[key] = now_s + self._backoff.initial

    def ended(self, key: K) -> None:
        """End the pause of ``key`` and forget its failures: it answered, or nobody asks it any more."""
        self._failures.pop(key, None)
        self._until_s.pop(key, None)

    def active(self, now_s: float) -> set[K]:
        """Return the keys that must not be asked yet."""
        return {key for key, until in self._until_s.items() if until > now_s}

    def next_end_s(self, now_s: float) -> float | None:
        """Return when the next active pause ends, on the clock of ``now_s``; None without one."""
        return min((until for until in self._until_s.values() if until > now_s), default=None)
