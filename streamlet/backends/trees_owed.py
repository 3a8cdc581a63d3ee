"""Counts the trees of dead workers that have not come again, by task of a spout. Pure.

A tree is *owed* while the task's replacement has emitted nothing: it is certain that it has not come. Afterwards it is
*in doubt*: a spout may begin at its first message, at the first that was not acked, or behind all that it had emitted,
and only the spout knows. The doubt is over when a life has emitted as many tuples as the longest before it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _OfTask:
    owed: int = 0
    doubt: int = 0
    longest: int = 0
    """The most that one life has emitted, as far as it told."""


class TreesOwed:
    """The trees of dead workers, by task of a spout. ``sent``: what the task's present life has emitted."""

    def __init__(self) -> None:
        self._tasks: dict[int, _OfTask] = {}

    def died(self, task_id: int, trees: int, sent: int) -> None:
        """Note a death, with the trees that were open."""
        of = self._tasks.setdefault(task_id, _OfTask())
        # Rule: a life that had trees open has emitted, whatever its heartbeats told. Of four lives shorter than one the
        # same four messages were owed four times.
        sent = max(sent, trees)
        if sent:
            of.doubt = self.in_doubt(task_id, sent)
            of.owed = 0
        of.owed += trees
        of.longest = max(of.longest, sent, trees)

    def settle(self, task_id: int) -> None:
        """Forget what earlier lives had open: the task has nothing to send again."""
        of = self._tasks.get(task_id)
        if of is not None:
            of.owed = of.doubt = 0

    def owed(self, task_id: int, sent: int) -> int:
        """Return the trees that have certainly not come again."""
        of = self._tasks.get(task_id)
        return 0 if of is None or sent else of.owed

    def in_doubt(self, task_id: int, sent: int) -> int:
        """Return the trees that may not have come again."""
        of = self._tasks.get(task_id)
        if of is None or (sent and sent >= of.longest):
            return 0
        return of.doubt + (of.owed if sent else 0)
