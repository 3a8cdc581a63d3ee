"""Lost and missing links: when the user hears of them, when they end the run.

A link that is cut whenever it stands fails all open trees each time, and the run would go on for ever. So the budget of
restarts holds for the links of a pair, too, as long as nothing is done in between: a network that fails each second
ends no run that comes on. But a link is lost a moment before the worker behind it is known to be dead, and then only
the death counts: a loss waits SETTLES_S before it is reported and counted, and is forgotten if one of the two workers
dies meanwhile.

Pure: the time is a number of seconds, and instructions come back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from streamlet.runtime.links.links import ENDED_ELSEWHERE
from streamlet.runtime.supervision.instructions import GiveUp, Instruction, TellUser

End = tuple[int, int]
"""A worker and its epoch."""

SETTLES_S = 1.0
"""Seconds before a loss counts: until then it may be the first sign of a death."""

AGAIN_S = 10.0
"""Seconds before the same pair is reported again, with the number in between."""


@dataclass
class _Pair:
    waiting: list[str] = field(default_factory=list)
    """Sentences about losses that nobody has read yet."""
    count: int = 0
    """How many of those are to be counted."""
    due_s: float = 0.0
    lost: deque[float] = field(default_factory=deque)
    """When those were, between which nothing was done."""

    def forget_waiting(self) -> None:
        self.waiting, self.count = [], 0


class LinkWatch:
    """Losses and failed dials of one run's links. ``most``: losses of one pair within ``window_s`` that are allowed."""

    def __init__(self, most: int, window_s: float) -> None:
        self._most = max(1, most)
        self._window_s = window_s
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._refused: dict[tuple[int, int], str] = {}

    def lost_at_other_end(self, end: End, other: End, why: str) -> None:
        """Take the other end's report of a known loss: its reason may be better."""
        pair = self._pairs.get((min(end, other)[0], max(end, other)[0]))
        if pair is not None and pair.waiting and why not in ENDED_ELSEWHERE:
            pair.waiting[-1] = _sentence(end, other, why)

    def lost(self, end: End, other: End, why: str, now: float) -> None:
        """Note the loss of a link between two living workers."""
        pair = self._pairs.setdefault((min(end, other)[0], max(end, other)[0]), _Pair())
        if not pair.waiting:
            pair.due_s = max(now + SETTLES_S, pair.due_s)
        pair.waiting.append(_sentence(end, other, why))
        pair.count += 1

    def something_was_done(self) -> None:
        """Note that the run came on since the losses so far; they no longer count."""
        # Rule: only losses in a row, between which nothing is done, end a run. A network may cut a link each
        # second for hours: the user reads of it, and it costs replays, but all comes to its end.
        for pair in self._pairs.values():
            pair.count = 0
            pair.lost.clear()

    def refused(self, worker: int, peer: int, why: str) -> None:
        """Note that a worker dials another without success."""
        self._refused[worker, peer] = why

    def linked(self, worker: int) -> None:
        """Forget the failed dials of a worker that has all its links."""
        for pair in [pair for pair in self._refused if pair[0] == worker]:
            del self._refused[pair]

    def gone(self, worker: int) -> None:
        """Forget the losses and failed dials of a dead worker: its death is reported instead."""
        for ends, pair in self._pairs.items():
            if worker in ends:
                pair.forget_waiting()
        for ends in [ends for ends in self._refused if worker in ends]:
            del self._refused[ends]

    def tick(self, now: float) -> list[Instruction]:
        """Tell and count the losses that have settled."""
        out: list[Instruction] = []
        for (one, other), pair in self._pairs.items():
            # Not at once: the loss may be the first sign of a death, which `gone` then counts in its place.
            if not pair.waiting or now < pair.due_s:
                continue
            pair.lost.extend([now] * pair.count)
            while pair.lost and now - pair.lost[0] > self._window_s:
                pair.lost.popleft()
            # Not base.notices: what was left out is told late, not only counted, and is forgotten if a worker dies.
            often = f" ({len(pair.waiting)} times since the last report)" if len(pair.waiting) > 1 else ""
            text = pair.waiting[-1] + often
            pair.forget_waiting()
            pair.due_s = now + AGAIN_S
            out.append(TellUser("warning", f"{text}. What was open has failed and is replayed over a new one."))
            if len(pair.lost) > self._most:
                out.append(
                    GiveUp(
                        f"The link between worker {one} and worker {other} was lost {len(pair.lost)} times within "
                        f"{self._window_s:.0f} s, and nothing was done in between; the last time, {text}. Connecting "
                        "again would not help: look at the network between their machines and at what the two "
                        "exchange, or raise streamlet.worker.restarts.max."
                    )
                )
        return out

    def unlinked(self, workers: set[int], include_unexplained: bool) -> list[str]:
        """Return one sentence for each pair that cannot connect, with the reason.

        ``workers`` wait for links. ``include_unexplained`` adds those of them whose reason is unknown.
        """
        known = [(pair, why) for pair, why in self._refused.items() if pair[0] in workers]
        said = [f"worker {dialler} cannot reach worker {peer} ({why})" for (dialler, peer), why in known]
        silent = workers - {end for pair, _ in known for end in pair} if include_unexplained else set()
        return said + [f"worker {index} is not linked with every other" for index in sorted(silent)]


def _sentence(end: End, other: End, why: str) -> str:
    one, two = (f"worker {index} (epoch {epoch})" for index, epoch in (end, other))
    return f"{one} lost its link to {two}: {why}"
