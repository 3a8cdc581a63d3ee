"""When the rows that wait become a file. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RollRule:
    """The bounds of a file: the first that is reached ends it."""

    max_rows: int
    max_bytes: int
    max_age_s: float
    """Seconds from its first row."""
    idle_s: float
    """Seconds from its latest row."""

    def due(self, rows: int, size: int, first_s: float, latest_s: float, now: float) -> bool:
        """Tell whether these rows are to be a file now."""
        if not rows:
            return False
        # Rule: idle_s, beside the age. The tuples of a file are open until it is there, so once all is open that may
        # be, none comes before the file is written.
        return (
            rows >= self.max_rows
            or size >= self.max_bytes
            or now - first_s >= self.max_age_s
            or now - latest_s >= self.idle_s
        )


FIRST_REST_S, LONGEST_REST_S = 1.0, 30.0
"""Seconds without new tuples after a file that could not be written, doubled each time."""


def rest_s(failures: int) -> float:
    """Return how long to take no tuples after failures in a row."""
    return min(FIRST_REST_S * 2.0 ** (failures - 1), LONGEST_REST_S)
