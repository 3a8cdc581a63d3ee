"""What bolts said of the trees they failed, on its way to the spouts of these trees. Pure.

Only failures have one: a tuple that is acked costs nothing here.
"""

from __future__ import annotations

from collections.abc import Collection

from streamlet.base.errors import text_of
from streamlet.components.spout import FailureCause

MOST_TOLD = 1000
"""Failures of one turn that keep their text; further ones keep only the bolt's name and the kind of error.

So many different reasons for the dead letters keep theirs besides.
"""

NOT_KEPT = f"(the reason was not kept: more than {MOST_TOLD} different ones in one turn)"
"""The text of a further reason for the dead letters."""

MOST_TEXT = 500
"""Characters of an error's text that travel."""


def cause_of(component: str, reason: object, *, to_dead_letters: bool = False) -> FailureCause:
    """Make the cause of a failure: ``reason`` is an error, a text, or None for nothing said."""
    if isinstance(reason, BaseException):
        kind, text = type(reason).__name__, text_of(reason)
    else:
        kind, text = "", "" if reason is None else str(reason)
    return FailureCause(component, kind, text[:MOST_TEXT], to_dead_letters)


class FailureCauses:
    """The causes of one worker's failures in one turn, by root. On the loop's thread."""

    def __init__(self) -> None:
        self._by_root: dict[int, FailureCause] = {}
        self._told = 0
        self._reasons: dict[FailureCause, FailureCause] = {}
        """The causes for the dead letters."""

    def note(self, roots: Collection[int], cause: FailureCause) -> None:
        """Note why trees fail. The first cause of a tree counts, but one for the dead letters before all others."""
        if not roots:  # of untracked tuples, or a second time: nobody takes it, and it would use up others' texts
            return
        if cause.to_dead_letters:
            cause = self._kept(cause)
        else:
            self._told += 1
            if self._told > MOST_TOLD:
                cause = cause._replace(text="")
        known = self._by_root
        for root in roots:
            if root not in known or cause.to_dead_letters > known[root].to_dead_letters:
                known[root] = cause

    def _kept(self, cause: FailureCause) -> FailureCause:
        # Rule: a reason for the dead letters is kept, or says that it was not. The letter is the only place that has
        # it: the record does not fail again. Most have few reasons, so equal ones are one object.
        known = self._reasons.get(cause)
        if known is None:
            known = cause if len(self._reasons) < MOST_TOLD else cause._replace(text=NOT_KEPT)
            if len(self._reasons) < MOST_TOLD:
                self._reasons[cause] = cause
        return known

    def take(self) -> dict[int, FailureCause]:
        """Return all causes noted since the last call."""
        taken, self._by_root, self._told, self._reasons = self._by_root, {}, 0, {}
        return taken
