"""The message of each open tree of a spout, and its age."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any

ROOT_COUNTER_BITS = 36
EPOCH_BITS = 12

LEAST_STEP_S = 1.0
"""Seconds between two marks of time at least.

The loop asks for expired trees once a second. Noted more often, marks would pile up, and with a time-out of one second
each tree would live longer than the one before.
"""


def first_root(task_id: int, epoch: int) -> int:
    """Return the first root of a spout task in an epoch; its roots grow from here.

    They are unique, not random: only edges must be random. The task id stands in the high bits, so every worker that
    has a root knows whose ledger it belongs to.
    """
    # A replacement counts from a new epoch, so its roots never meet late news of the old one's.
    return ((task_id << EPOCH_BITS | epoch & (1 << EPOCH_BITS) - 1) << ROOT_COUNTER_BITS) + 1


def owner_task(root: int) -> int:
    """Return the spout task whose ledger tracks this root."""
    return root >> ROOT_COUNTER_BITS + EPOCH_BITS


class PendingSet:
    """Root -> message id of a spout task's open trees, with ages.

    Roots grow with time, so age needs no entry for each root: now and then the next root is noted with the time, and
    all below it are as old as that or older. A tree is found old between ``timeout_s`` and 1.25 times that (or a second
    or two more, if that is longer) after it was opened (Storm's rotating map: between one and two times).
    """

    __slots__ = ("_marks", "_step_s", "ids", "next_root", "timeout_s")

    def __init__(self, task_id: int, epoch: int, timeout_s: float) -> None:
        self.ids: dict[int, Hashable] = {}
        self.next_root = first_root(task_id, epoch)
        self.timeout_s = timeout_s
        self._step_s = max(timeout_s / 4, LEAST_STEP_S)
        self._marks: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self.ids)

    def resolve(self, roots: Iterable[int]) -> list[Any]:
        """Forget roots; return their message ids. A root may be resolved only once."""
        pop = self.ids.pop
        return [pop(root) for root in roots]

    def note_time(self, now: float) -> None:
        """Note the next root once a step: older ones were opened by ``now``. ``now`` is in seconds, monotonic."""
        marks = self._marks
        if (
            self.ids
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
        return self._marks.popleft()[1]
