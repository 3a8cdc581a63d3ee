"""Parts of spouts that somebody has paused: a spout, a topic that it reads, a partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class PausedPart(NamedTuple):
    """A spout; of it a topic, if one is named; of that a partition, if it is not negative."""

    spout: str
    topic: str = ""
    partition: int = -1

    def __str__(self) -> str:
        topic = f" {self.topic}" if self.topic else ""
        return f"{self.spout}{topic}{f'/{self.partition}' if self.partition >= 0 else ''}"

    def holds(self, topic: str, partition: int) -> bool:
        """Tell whether a partition of the spout is in this part."""
        return self.topic in ("", topic) and (self.partition in (-1, partition) if self.topic else True)

    def contains(self, other: PausedPart) -> bool:
        """Tell whether this part is the other, or more than it."""
        return self.spout == other.spout and self.holds(other.topic, other.partition)


def paused_with(paused: Iterable[PausedPart], part: PausedPart) -> list[PausedPart]:
    """Add a part to those that are paused; nothing is there twice."""
    kept = [one for one in paused if not part.contains(one)]
    return kept if any(one.contains(part) for one in kept) else [*kept, part]


def resumed(paused: Iterable[PausedPart], part: PausedPart) -> list[PausedPart]:
    """Take a part, with all that lies in it, away."""
    return [one for one in paused if not part.contains(one)]


def around(paused: Iterable[PausedPart], part: PausedPart) -> PausedPart | None:
    """Return the paused part that ``part`` is only a piece of: that piece cannot go on alone."""
    return next((one for one in paused if one.contains(part) and one != part), None)
