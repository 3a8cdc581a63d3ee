"""What a person hears of links that were lost or do not come up, and when a pair's links have been lost too often.

Pure: the time is a number of seconds, and what is to be said comes back as instructions.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from streamlet.runtime.links.links import COORDINATOR_SAID, PEER_CLOSED
from streamlet.runtime.supervision.instructions import GiveUp, Instruction, Tell

End = tuple[int, int]
"""A worker and its epoch."""

SETTLES_S = 1.0
"""A link is lost a moment before the worker behind it is known to be dead, and then it is the death that counts."""

AGAIN_S = 10.0
"""The same pair is told again after so long, with the number in between."""


@dataclass
class _Pair:
    waiting: list[str] = field(default_factory=list)
    due_s: float = 0.0
    lost: deque[float] = field(default_factory=deque)


class LinkWatch:
    """Losses and refusals of one run's links. ``most``: so many losses of one pair within ``window_s`` are borne."""

    def __init__(self, most: int, window_s: float) -> None:
        self._most = max(1, most)
        self._window_s = window_s
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._refused: dict[tuple[int, int], str] = {}

    def lost_too(self, end: End, other: End, why: str) -> None:
        """The other end's report of a loss that is known: the better reason of the two is told."""
        pair = self._pairs.get((min(end, other)[0], max(end, other)[0]))
        if pair is not None and pair.waiting and why not in (PEER_CLOSED, COORDINATOR_SAID):
            pair.waiting[-1] = _sentence(end, other, why)

    def lost(self, end: End, other: End, why: str, now: float) -> None:
        """Both live, as far as is known."""
        pair = self._pairs.setdefault((min(end, other)[0], max(end, other)[0]), _Pair())
        if not pair.waiting:
            pair.due_s = max(now + SETTLES_S, pair.due_s)
        pair.waiting.append(_sentence(end, other, why))

    def refused(self, worker: int, peer: int, why: str) -> None:
        """A worker dialled another, in vain."""
        self._refused[worker, peer] = why

    def linked(self, worker: int) -> None:
        """All links that this one has to dial stand."""
        for pair in [pair for pair in self._refused if pair[0] == worker]:
            del self._refused[pair]

    def gone(self, worker: int) -> None:
        """Its links are lost with it, and that is told as its death."""
        for ends, pair in self._pairs.items():
            if worker in ends:
                pair.waiting.clear()
        for ends in [ends for ends in self._refused if worker in ends]:
            del self._refused[ends]

    def tick(self, now: float) -> list[Instruction]:
        """What has settled: told, and counted."""
        out: list[Instruction] = []
        for (one, other), pair in self._pairs.items():
            if not pair.waiting or now < pair.due_s:
                continue
            pair.lost.extend([now] * len(pair.waiting))
            while now - pair.lost[0] > self._window_s:
                pair.lost.popleft()
            often = f" ({len(pair.waiting)} times since the last report)" if len(pair.waiting) > 1 else ""
            text = pair.waiting[-1] + often
            pair.waiting, pair.due_s = [], now + AGAIN_S
            out.append(Tell("warning", f"{text}. What was open has failed and is replayed over a new one."))
            if len(pair.lost) > self._most:
                out.append(
                    GiveUp(
                        f"The link between worker {one} and worker {other} was lost {len(pair.lost)} times within "
                        f"{self._window_s:.0f} s; the last time, {text}. Making it anew would not help: look at the "
                        "network between their machines and at what the two exchange, or raise "
                        "streamlet.worker.restarts.max."
                    )
                )
        return out

    def unlinked(self, workers: set[int], riddles: bool) -> list[str]:
        """Of workers that wait for links: which pairs cannot, and why; ``riddles``: also of whom that is not known."""
        known = [(pair, why) for pair, why in self._refused.items() if pair[0] in workers]
        said = [f"worker {dialler} cannot reach worker {peer} ({why})" for (dialler, peer), why in known]
        silent = workers - {end for pair, _ in known for end in pair} if riddles else set()
        return said + [f"worker {index} is not linked with every other" for index in sorted(silent)]


def _sentence(end: End, other: End, why: str) -> str:
    one, two = (f"worker {index} (epoch {epoch})" for index, epoch in (end, other))
    return f"{one} lost its link to {two}: {why}"
