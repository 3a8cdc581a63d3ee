"""Exponential back-off with a cap and injected jitter (KIP-580's shape)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def no_jitter() -> float:
    """Return the middle of the jitter range, so that delays are exact. For tests."""
    return 0.5


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow exponentially, with jitter, up to ``maximum``.

    Without jitter they are ``initial * multiplier ** (attempt - 1)``. Units are the caller's: seconds in, seconds out.

    >>> backoff = Backoff(initial=0.1, maximum=1.0)
    >>> [backoff.delay(attempt) for attempt in (1, 2, 3, 4, 5)]
    [0.1, 0.2, 0.4, 0.8, 1.0]
    """

    initial: float
    maximum: float
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay(self, attempt: int, uniform: Callable[[], float] = no_jitter) -> float:
        """Delay before try number ``attempt + 1``; ``attempt`` counts from 1. ``uniform`` gives [0, 1)."""
        if attempt <= 0 or self.initial <= 0:
            return 0.0
        # The exponent is capped where the power would overflow; the cap on the delay is reached long before.
        base = min(self.initial * self.multiplier ** min(attempt - 1, 64), self.maximum)
        return min(base * (1 + self.jitter * (2 * uniform() - 1)), self.maximum)
