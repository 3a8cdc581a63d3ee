"""How many tuples a slow bolt is given in one batch, by what its calls took. Pure."""

from __future__ import annotations

from math import inf, log2

CALL_SHARE = 0.25
"""Share of the time that tuples may wait which one call of ``process_batch`` should take at most."""

APART = 1.5
"""Two sizes tell what a tuple costs if one is so many times the other."""

CHANGED = 4.0
"""A batch that takes so many times as long as a larger one tells that the bolt has changed."""

PAYS = 0.85
"""Twice as many tuples in one call pay where each costs at most this share of what it did."""

TRY_AFTER, TRY_AFTER_MOST = 8, 64
"""Calls between two tries of a larger batch; twice as many after each that did not pay."""


class BatchBound:
    """The most tuples of a bolt's next batch: ``most``, fewer where each of them takes its time.

    A call costs something by itself, and something for each tuple; two calls of different sizes tell the one from the
    other. Only the cost of tuples makes batches smaller. Of a bolt that does something for each key of a batch a tuple
    costs less the more there are: so a larger batch is tried now and then, and kept where it pays.
    """

    __slots__ = ("_cost", "_most", "_tries", "call_s", "size")

    def __init__(self, most: int, target_s: float) -> None:
        """Begin with ``most``; tuples should wait ``target_s`` at most."""
        self._most = self.size = most
        self.call_s = CALL_SHARE * target_s
        """Seconds that a call should take at most."""
        self._cost = _Cost(self.call_s)
        self._tries = _Tries(self.call_s)

    @property
    def each_s(self) -> float:
        """Seconds that one more tuple costs, as calls of two sizes tell; inf: not known."""
        return self._cost.each_s

    def took(self, tuples: int, seconds: float) -> int:
        """Take note of a call; return the most tuples of the next."""
        if seconds * self._most <= self.call_s * tuples:  # the usual case: the largest would not take too long
            self._cost.note_quick()
            self._tries.begin_again()
            self.size = self._most
            return self.size
        self._cost.note(tuples, seconds)
        bound = self._tries.size(tuples, seconds / tuples, self._cost.bound(tuples, seconds), self.size)
        self.size = max(1, min(int(bound), self._most))
        return self.size


class _Cost:
    """Estimates what one more tuple costs.

    A few calls of different sizes tell that from what a call costs by itself.
    """

    __slots__ = ("_call_s", "_largest", "_latest", "_least", "_other", "each_s")

    def __init__(self, call_s: float) -> None:
        self._call_s = call_s
        self.each_s = inf
        """Seconds that one more tuple costs; inf: not known."""
        self._latest: tuple[int, float] | None = None
        self._other: tuple[int, float] | None = None
        """The last call of another size than the latest."""
        self._least: tuple[int, float] | None = None
        """The smallest call that no larger one has been quicker than."""
        self._largest: tuple[int, float] | None = None
        """The largest call, since a smaller one took longer than that."""

    def note_quick(self) -> None:
        """Note a call so quick that the largest batch is allowed."""
        self.each_s, self._largest = inf, None

    def note(self, tuples: int, seconds: float) -> None:
        """Note a slow call."""
        if self._latest is not None and _apart(self._latest[0], tuples):
            self._other = self._latest
        self._latest = tuples, seconds
        if self._least is None or tuples <= self._least[0] or seconds <= self._least[1]:
            self._least = self._latest
        # Rule: forget a larger batch that was quicker by far. Fewer tuples cannot cost more while each costs the same,
        # and the two would tell that tuples cost nothing. By less it is a hiccup.
        if self._other is not None and tuples < self._other[0] and seconds > CHANGED * self._other[1]:
            self._other = None
        if self._largest is None or tuples >= self._largest[0]:
            self._largest = self._latest
        elif seconds > APART * self._largest[1]:
            self._largest = None

    def bound(self, tuples: int, seconds: float) -> float:
        """Return the most tuples of the next batch, after a noted call."""
        even = self._call_s * tuples / seconds  # if a call by itself costs nothing
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
        # Rule: take the dearest of what two earlier calls tell. By the last of another size alone batches would grow
        # step by step without bound, where times scatter: each a little quicker a tuple than the one before it.
        each_s = self.each_s = min(max(*told, 0.0), seconds / tuples)
        # Rule: a small call takes back nothing of a larger one that took no longer. After a lull the batches of a bolt
        # with one request for each would else begin at two tuples again.
        if self._largest is not None and self._largest[1] <= APART * seconds:
            twice = max(twice, self._largest[0])
        if not each_s:
            return max(even, twice)
        # Rule: no fewer than cost as much as the call does by itself. Where that alone takes longer than it should,
        # small batches would take no shorter, and less would be done.
        by_itself_s = max(seconds - each_s * tuples, 0.0)
        bound = max(self._call_s - by_itself_s, by_itself_s) / each_s
        # Times scatter: a wrong guess costs a call of twice the size, and that one corrects it.
        return min(bound, max(even, twice))


class _Tries:
    """Tries a larger batch now and then, and keeps what pays."""

    __slots__ = ("_after", "_call_s", "_calls", "_from", "_kept")

    def __init__(self, call_s: float) -> None:
        self._call_s = call_s
        self.begin_again()

    def begin_again(self) -> None:
        """Forget all tries."""
        self._kept: tuple[int, float] | None = None
        """The largest batch that paid, and the seconds of a tuple in it above which it pays no more."""
        self._from: tuple[int, float] | None = None
        """What the larger batch that is tried now is compared to, as ``_kept``."""
        self._calls, self._after = 0, TRY_AFTER
        """Calls since the last try, and how many come between two."""

    def size(self, tuples: int, each_s: float, bound: float, allowed: int) -> float:
        """Return ``bound``, or more where a larger batch pays or is tried.

        ``each_s``: the seconds that a tuple cost in the latest call, ``allowed``: the tuples that it might have had.
        """
        # Rule: try a larger batch now and then. What few tuples cost in one call says nothing of many where a bolt asks
        # once for each key: kept small, each would be a request of its own for good.
        # Rule: fewer that took longer tell that the bolt has changed, and what paid before is void. It would be given a
        # batch of that size once more.
        if _took_longer(tuples, each_s, self._kept):
            self._kept = None
        if _took_longer(tuples, each_s, self._from):
            self._from = None
        if self._from is not None and _apart(self._from[0], tuples) and tuples > self._from[0]:
            most_s = PAYS ** log2(tuples / self._from[0]) * self._from[1]
            paid = each_s <= most_s
            self._calls, self._from = 0, None
            self._after = TRY_AFTER if paid else min(2 * self._after, TRY_AFTER_MOST)
            if paid:
                self._kept = tuples, most_s
                return max(bound, tuples, self._try(tuples, each_s, min(2.0 * tuples, 8 * self._call_s / each_s)))
        elif self._kept is not None and not _apart(self._kept[0], tuples) and each_s > self._kept[1]:
            self._kept = None
        self._calls += 1
        bound = max(bound, self._kept[0]) if self._kept is not None else bound
        # Within what tuples may wait, at first: most bolts take as long for each tuple of a larger batch.
        if self._calls >= self._after and self._from is None and not _apart(tuples, allowed):
            return max(bound, self._try(tuples, each_s, min(4.0 * tuples, 4 * self._call_s / each_s)))
        return bound if self._from is None else max(bound, allowed)

    def _try(self, tuples: int, each_s: float, larger: float) -> float:
        """Begin to try a larger batch; return its size, 0 if none is tried."""
        # Rule: try no batch that is not larger by far, and let the bound decide then. A bolt that has become slow would
        # be given another batch as large as the one by which that is known.
        self._calls = 0
        if larger < APART * tuples:
            return 0.0
        self._from = tuples, each_s
        return larger


def _took_longer(tuples: int, each_s: float, known: tuple[int, float] | None) -> bool:
    """Tell whether a call took longer than a known larger one."""
    if known is None or tuples >= APART * known[0]:
        return False
    return tuples * each_s > APART * known[0] * known[1]


def _apart(one: float, other: float) -> bool:
    return max(one, other) >= APART * min(one, other)
