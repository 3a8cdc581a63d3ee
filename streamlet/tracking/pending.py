"""The message of each open tree of a spout, and its age."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from streamlet.tracking.roots import STEP, end_of, entry_of, first_root, place_in_set, roots_of_set

LEAST_STEP_S = 1.0
"""Seconds between two marks of time at least.

The loop asks for expired trees once a second. Noted more often, marks would pile up, and with a time-out of one second
each tree would live longer than the one before.
"""


class TreeSet:
    """The messages of trees that were opened together."""

    __slots__ = ("failed", "ids")

    def __init__(self, ids: Sequence[Hashable]) -> None:
        self.ids = ids
        self.failed: set[int] = set()
        """Places of messages whose trees have failed. The set lives on until the tuples of all trees are done."""

    def left(self) -> Sequence[Hashable]:
        """Return the messages that have not failed: those given, as they were given, if none has."""
        if not self.failed:
            return self.ids
        return [tup_id for place, tup_id in enumerate(self.ids) if place not in self.failed]


class PendingSet:
    """Root -> message id of a spout task's open trees, with ages.

    ``ids`` has the trees of their own, ``sets`` those of a set, by the ledger's entry. A tree of a set that has failed
    is open no more, though its set may be.

    Roots grow with time, so age needs no entry for each root: now and then the next root is noted with the time, and
    all below it are as old as that or older. A tree is found old between ``timeout_s`` and 1.25 times that (or a second
    or two more, if that is longer) after it was opened (Storm's rotating map: between one and two times).
    """

    __slots__ = ("_marks", "_old", "_step_s", "ids", "in_sets", "next_root", "sets", "timeout_s")

    def __init__(self, task_id: int, epoch: int, timeout_s: float) -> None:
        self.ids: dict[int, Hashable] = {}
        self.sets: dict[int, TreeSet] = {}
        self.in_sets = 0
        """Open trees in sets."""
        self.next_root = first_root(task_id, epoch)
        self.timeout_s = timeout_s
        self._step_s = max(timeout_s / 4, LEAST_STEP_S)
        self._marks: deque[tuple[float, int]] = deque()
        self._old = 0
        """The root of the last mark that was older than the time-out."""

    def __len__(self) -> int:
        return len(self.ids) + self.in_sets

    def open_set(self, ids: Sequence[Hashable]) -> range:
        """Open a tree for each message, as one set; return the roots."""
        roots = roots_of_set(self.next_root, len(ids))
        self.next_root = end_of(roots.start)
        self.sets[roots.start] = TreeSet(ids)
        self.in_sets += len(ids)
        return roots

    def resolve(self, roots: Iterable[int]) -> list[Any]:
        """Forget trees of their own, each once; return their message ids."""
        pop = self.ids.pop
        return [pop(root) for root in roots]

    def close_set(self, entry: int) -> Sequence[Any]:
        """Forget a set; return the ids of its messages that have not failed."""
        left = self.sets.pop(entry).left()
        self.in_sets -= len(left)
        return left

    def fail_in_set(self, root: int) -> bool:
        """Note that a tree of a set has failed; False if it was open no more."""
        found, place = self.sets.get(entry_of(root)), place_in_set(root)
        if found is None or place in found.failed or place >= len(found.ids):
            return False
        found.failed.add(place)
        self.in_sets -= 1
        return True

    def open_in_set(self, entry: int) -> list[int]:
        """Return the roots of a set's trees that have not failed."""
        found = self.sets[entry]
        return [entry + place * STEP for place in range(len(found.ids)) if place not in found.failed]

    def message_of(self, root: int) -> Any:
        """Return a tree's message id, also after it failed in its set; None: unknown."""
        found = self.sets.get(entry_of(root))
        if found is None:
            return self.ids.get(root)
        place = place_in_set(root)
        return found.ids[place] if place < len(found.ids) else None

    def note_time(self, now: float) -> None:
        """Note the next root once a step: older ones were opened by ``now``. ``now`` is in seconds, monotonic."""
        marks = self._marks
        if (
            len(self)
            and (not marks or now - marks[-1][0] >= self._step_s)
            # A second mark at the same root would expire nothing.
            and (not marks or marks[-1][1] != self.next_root)
        ):
            marks.append((now, self.next_root))

    def old_bound(self, now: float) -> int | None:
        """Return a root if trees below it are older than the time-out.

        Once for each mark; None without one.
        """
        if not self._marks or now - self._marks[0][0] < self.timeout_s:
            return None
        self._old = self._marks.popleft()[1]
        return self._old

    def opened_before(self, time_s: float) -> int:
        """Return a root: trees below it were opened by then; 0: none is known."""
        found = self._old
        for at, root in self._marks:
            if at > time_s:
                break
            found = root
        return found
