"""How long reads have ended with an error that the broker did not expect. Pure: the caller brings the time."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

UNKNOWN_ERROR_S = 60.0
"""Seconds of such answers alone after which a reader gives up."""


class UnknownErrors(Generic[K]):
    """Times by key. One thread."""

    __slots__ = ("_times_s",)

    def __init__(self) -> None:
        self._times_s: dict[K, tuple[float, float]] = {}

    def failed(self, key: K, now_s: float) -> float:
        """Note an answer with the error; return the seconds since the first in a row."""
        # A reader that did not read for so long begins again: nobody knows what it would have been answered meanwhile.
        first_s, last_s = self._times_s.get(key, (now_s, now_s))
        first_s = first_s if now_s - last_s < UNKNOWN_ERROR_S else now_s
        self._times_s[key] = first_s, now_s
        return now_s - first_s

    def ended(self, key: K) -> None:
        """Note another answer."""
        self._times_s.pop(key, None)
