"""How many tuples a slow bolt is given in one batch, by what its calls took. Pure."""

from __future__ import annotations

from math import inf

CALL_SHARE = 0.25
"""Share of the time that tuples may wait which one call of ``process_batch`` should take at most."""

APART = 1.5
"""Two sizes tell what a tuple costs if one is so many times the other."""


CHANGED = 4.0
"""A batch that takes so many times as long as a larger one tells that the bolt has changed."""


class BatchBound:
    """The most tuples of a bolt's next batch: ``most``, fewer where each of them takes its time.

    A call costs something by itself, and something for each tuple; two calls of different sizes tell the one from the
    other. Only the cost of tuples makes batches smaller.
    """

    __slots__ = ("_latest", "_least", "_most", "_other", "call_s", "each_s", "size")

    def __init__(self, most: int, target_s: float) -> None:
        """Begin with ``most``; tuples should wait ``target_s`` at most."""
        self._most = self.size = most
        self.call_s = CALL_SHARE * target_s
        """Seconds that a call should take at most."""
        self.each_s = inf
        """Seconds that one more tuple costs, as calls of two sizes tell; inf: not known."""
        self._latest: tuple[int, float] | None = None
        self._other: tuple[int, float] | None = None
        """The last call of another size than the latest."""
        self._least: tuple[int, float] | None = None
        """The smallest call that no larger one has been quicker than."""

    def took(self, tuples: int, seconds: float) -> int:
        """Take note of a call; return the most tuples of the next."""
        if seconds * self._most <= self.call_s * tuples:  # the usual case: the largest would not take too long
            self.size, self.each_s = self._most, inf
            return self.size
        if self._latest is not None and _apart(self._latest[0], tuples):
            self._other = self._latest
        self._latest = tuples, seconds
        if self._least is None or tuples <= self._least[0] or seconds <= self._least[1]:
            self._least = self._latest
        # Rule: forget a larger batch that was quicker by far. Fewer tuples cannot cost more while each costs the same,
        # and the two would tell that tuples cost nothing. By less it is a hiccup.
        if self._other is not None and tuples < self._other[0] and seconds > CHANGED * self._other[1]:
            self._other = None
        self.size = max(1, min(int(self._bound(tuples, seconds)), self._most))
        return self.size

    def _bound(self, tuples: int, seconds: float) -> float:
        even = self.call_s * tuples / seconds  # if a call by itself costs nothing
        twice = 2.0 * tuples
        told = [
            (seconds - took_s) / (tuples - other)
            for other, took_s in filter(None, (self._other, self._least))
            if _apart(other, tuples)
        ]
        if not told:
            # Rule: try a batch twice as large while only one size is known. One request for a whole batch looks like a
            # slow tuple then, and kept small it would be a request for each tuple.
            self.each_s = inf
            return twice if tuples == 1 or not _apart(even, tuples) else even
        # Rule: the dearest of what two calls before tell. By the last of another size alone batches would grow step by
        # step without bound, where times scatter: each a little quicker a tuple than the one before it.
        each_s = self.each_s = min(max(*told, 0.0), seconds / tuples)
        if not each_s:
            return max(even, twice)
        # Rule: no fewer than cost as much as the call does by itself. Where that alone takes longer than it should,
        # small batches would take no shorter, and less would be done.
        by_itself_s = max(seconds - each_s * tuples, 0.0)
        bound = max(self.call_s - by_itself_s, by_itself_s) / each_s
        # Times scatter: a wrong guess costs a call of twice the size, and that one corrects it.
        return min(bound, max(even, twice))


def _apart(one: float, other: float) -> bool:
    return max(one, other) >= APART * min(one, other)
