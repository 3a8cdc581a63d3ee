"""How a shuffle divides its tuples among tasks: near while there is room here, by load when there is none. Pure.

Storm's LoadAwareShuffleGrouping with its locality, for workers as a whole: the tasks of a worker take turns on one
thread, so a worker has one load, and its tasks get equal parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Generic, TypeVar

T = TypeVar("T")

PARTS = 8
"""Parts of a shuffle's tuples for each task: the smallest change is one of them."""

BUSY = 0.8
"""Share of its time: a worker as busy as this gives parts to one with less to do."""

CALM = 0.6
"""Share of its time below which a worker takes all parts for its own tasks: nothing is packed, sent or waited for."""

APART = 0.1
"""Difference of two loads that is worth a change; less than that is chance."""


class Shuffle(Generic[T]):
    """The places, in several workers, of a task's shuffle, and their turns.

    ``places``: of each task, the worker and what stands for it; ``here``: the task's own worker. Begins even.
    """

    __slots__ = ("_here", "_parts", "_places", "order")

    def __init__(self, places: Sequence[tuple[int, T]], here: int) -> None:
        self._here = here
        self._places: dict[int, list[T]] = defaultdict(list)
        for worker, place in places:
            self._places[worker].append(place)
        self._parts = {worker: PARTS * len(own) for worker, own in self._places.items()}
        self.order: list[T] = self._in_turn()
        """The places in turn, each as often as it has parts. Changed in place, its length stays."""

    def measured(self, loads: Mapping[int, float]) -> None:
        """Move parts by the loads of workers: the shares of their time that they were busy, 0 to 1."""
        if not loads.keys() >= self._parts.keys():
            return  # one that has not said what it does may be the busiest
        changed = self._come_home() if loads[self._here] < CALM and self._here in self._parts else self._even(loads)
        if changed:
            self.order[:] = self._in_turn()

    def _come_home(self) -> bool:
        moved = 0
        for worker, parts in self._parts.items():
            if worker != self._here and parts:
                step = _step(parts)
                self._parts[worker] -= step
                moved += step
        self._parts[self._here] += moved
        return moved > 0

    def _even(self, loads: Mapping[int, float]) -> bool:
        busiest = max((worker for worker, parts in self._parts.items() if parts), key=loads.__getitem__)
        idlest = min(self._parts, key=loads.__getitem__)
        if loads[busiest] < BUSY or loads[busiest] - loads[idlest] < APART:
            return False
        step = _step(self._parts[busiest])
        self._parts[busiest] -= step
        self._parts[idlest] += step
        return True

    def _in_turn(self) -> list[T]:
        """Return the places as they take turns: those of each worker spread evenly over the whole."""
        return [place for _, place in sorted(self._turns(), key=lambda turn: turn[0])]

    def _turns(self) -> Iterator[tuple[float, T]]:
        for worker, parts in self._parts.items():
            places = cycle(self._places[worker])
            for turn in range(parts):
                yield (turn + 0.5) / parts, next(places)


def _step(parts: int) -> int:
    return -(-parts // 4)
