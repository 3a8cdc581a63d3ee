"""The words for untracked tuples that a run has lost or left. Pure."""

from __future__ import annotations

from collections.abc import Mapping

NO_FAILURES_HEARD = "Their spout has no fail, so it hears of no failures and nobody sends them again."
"""The sentence behind a number of tuple trees of such a spout."""

NOBODY_SENDS_OF_SPOUT = (
    "Nobody sends them again: they are not tracked, or their spout has no fail and hears of no failures."
)

NOBODY_SENDS = "They are not tracked, so no spout hears of them and nobody sends them again."


def untracked_text(waiting: Mapping[str, int]) -> str:
    """Return ``3,551 untracked tuples for slow and 1 for store``."""
    first, *more = waiting.items()
    tuples = f"{first[1]:,} untracked tuple{'' if first[1] == 1 else 's'} for {first[0]}"
    return " and ".join([tuples, *(f"{count:,} for {bolt}" for bolt, count in more)])
