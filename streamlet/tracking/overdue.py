"""Find out which old trees have timed out, and which only wait in a queue. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from streamlet.tracking.census import CensusResult
from streamlet.tracking.roots import end_of, entry_of

ROUNDS = 2
"""Rounds in a row without any tuple of a tree before it counts as nobody's."""

LOOK_AGAIN = 0.25
"""Share of the time-out until a tree that was still queued is looked for again."""

MOST_ASKED = 100_000
"""Most trees that one round asks about: an answer must fit into a frame."""

NOBODY = 0
"""Stands for the task when no task has a tuple of a tree."""


class Overdue:
    """Old trees of one spout task: still queued, held by a bolt, or nobody's.

    A set of trees is looked for as one, under its entry in the ledger: it waits while any tuple of it does.

    The time-out is for tuples that user code was given and did not ack. A tree with a tuple in a queue has not timed
    out, however old it is: failed now, it would be queued a second time, and a slow bolt would work for ever with
    nothing acked.
    """

    __slots__ = ("_doubtful", "_later", "_timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._doubtful: dict[int, tuple[int, int]] = {}
        """Root -> value in the ledger when it was asked for, and rounds in a row without it."""
        self._later: list[tuple[float, list[int]]] = []

    def add(self, roots: Iterable[int]) -> None:
        """Take in trees that are as old as the time-out."""
        for root in roots:
            self._doubtful.setdefault(root, (0, 0))

    def asked(self, trees: Mapping[int, int], now: float) -> int:
        """Return the bound of the next round; 0 if there is nothing to ask.

        The round looks for trees below that root. ``trees`` are the open ones with their values.
        """
        while self._later and self._later[0][0] <= now:
            self.add(heapq.heappop(self._later)[1])
        self._doubtful = {
            root: (trees[root], 0) if rounds == 0 else (value, rounds)
            for root, (value, rounds) in self._doubtful.items()
            if root in trees
        }
        if len(self._doubtful) > MOST_ASKED:
            return end_of(heapq.nsmallest(MOST_ASKED, self._doubtful)[-1])
        return end_of(max(self._doubtful)) if self._doubtful else 0

    def judge(self, found: CensusResult, bound: int, trees: Mapping[int, int], now: float) -> dict[int, int]:
        """Return the trees that timed out, each with its holder.

        That is the task that holds a tuple of it, or NOBODY. ``bound`` is what ``asked`` gave for this round.
        """
        expired: dict[int, int] = {}
        queued: list[int] = []
        soon: list[int] = []
        soonest_s = self._timeout_s
        held: dict[int, tuple[int, float]] = {}
        for root, (task, seconds) in found.held.items():
            if held.get(entry_of(root), (0, -1.0))[1] < seconds:
                held[entry_of(root)] = task, seconds
        for root, (value, rounds) in list(self._doubtful.items()):
            if root >= bound:
                continue
            if root not in trees:
                del self._doubtful[root]
            elif root in found.waiting:
                del self._doubtful[root]
                queued.append(root)
            # The time-out counts from when user code was given the tuple, not from when the tree was opened.
            elif root in held:
                del self._doubtful[root]
                task, seconds = held[root]
                if seconds >= self._timeout_s:
                    expired[root] = task
                else:
                    soon.append(root)
                    soonest_s = min(soonest_s, self._timeout_s - seconds)
            # Nobody has named it. One round is not enough: a tuple may leave a worker that has not answered yet for one
            # that has. A tuple that moves leaves a delta, and a frame that was sent and not received may carry it.
            elif trees[root] != value:
                self._doubtful[root] = (0, 0)
            elif rounds + 1 >= ROUNDS and found.settled:
                del self._doubtful[root]
                expired[root] = NOBODY
            else:
                self._doubtful[root] = (value, rounds + 1)
        least_s = self._timeout_s * LOOK_AGAIN
        self._look_later(queued, now + least_s)
        self._look_later(soon, now + max(soonest_s, least_s / 4))
        return expired

    def _look_later(self, roots: list[int], when: float) -> None:
        if roots:
            heapq.heappush(self._later, (when, roots))

    @property
    def in_doubt(self) -> bool:
        """Whether another round may end what this one has begun."""
        return any(rounds for _, rounds in self._doubtful.values())
