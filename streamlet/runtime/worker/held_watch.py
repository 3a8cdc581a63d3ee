"""Finds tuples that a bolt works on outside of the loop for too long. On the loop's thread, which goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from streamlet.components.tuples import Tuple
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.in_hand import shortened
from streamlet.runtime.worker.hang_watch import frames_text

LOOKS = 4
"""Looks within the time after which a tuple is named."""

TellOfTask = Callable[[str, str, str, int], None]
"""Takes level, text, component and task."""


class HeldWatch:
    """Names the oldest tuple of each bolt, once, after ``limit_s``.

    For bolts that answer for what they hold, tracked or not: another may hold tuples for as long as it likes.
    """

    def __init__(self, bolts: Sequence[BoltTask], limit_s: float, tell: TellOfTask) -> None:
        self._bolts = bolts
        self._limit_s = limit_s
        self._tell = tell
        self._told: dict[int, tuple[Tuple, float]] = {}
        """By task, the tuple that was named, and since when it was held. Replaced, never changed: threads read it."""
        self.stuck: tuple[int, Tuple, float] | None = None
        """Task of a bolt whose calls all take too long while others wait, its oldest tuple, since when. Any thread."""

    def look(self, now: float) -> None:
        """Name tuples held for too long; tell when they are done."""
        stuck = None
        for bolt in self._bolts:
            told = self._told.get(bolt.task_id)
            if told is not None and told[0] not in bolt.held.given:
                self._told = {task: named for task, named in self._told.items() if task != bolt.task_id}
                self._say(bolt, f"{self._name(bolt)} went on after more than {now - told[1]:.0f} s.")
            oldest = self._at_fault(bolt, now)
            if oldest is not None and now - oldest[1] >= self._limit_s and bolt.task_id not in self._told:
                self._told = {**self._told, bolt.task_id: oldest}
                self._say(bolt, self._hang_text(bolt, *oldest, now))
            if oldest is not None and self._none_goes_on(bolt, oldest[0], now):
                stuck = bolt.task_id, *oldest
                bolt.note_at_fault(oldest[0])
        self.stuck = stuck

    def _at_fault(self, bolt: BoltTask, now: float) -> tuple[Tuple, float] | None:
        """Return the tuple that holds up all others, or the oldest.

        And since when; None without any at work.
        """
        oldest = min(bolt.held.at_work(), key=itemgetter(1), default=None)
        asks = oldest is not None and now - oldest[1] >= self._limit_s / LOOKS
        blocker = bolt.bolt.blocks_held() if asks else None
        bolt.held.note_blocker(blocker, now)
        since = None if blocker is None else bolt.held.begun.get(blocker)
        return oldest if blocker is None or since is None else (blocker, since)

    def _none_goes_on(self, bolt: BoltTask, oldest: Tuple, now: float) -> bool:
        """Tell whether all calls take too long while tuples wait."""
        blocked = bolt.held.is_blocked_by(oldest)  # then the others wait for it
        began = [since for tup, since in bolt.held.at_work() if tup is oldest or not blocked]
        waits = len(bolt.held) > len(began) or bolt.held.room(1) < 1
        return waits and all(now - since >= self._limit_s for since in began)

    def rows(self, now: float) -> list[dict[str, Any]]:
        """Return a heartbeat's row for each tuple that was named. Any thread."""
        return [
            {"task": task, "call": "process", "seconds": now - since, "tuple": shortened(tup.values)}
            for task, (tup, since) in self._told.items()
        ]

    def _hang_text(self, bolt: BoltTask, tup: Tuple, since: float, now: float) -> str:
        began = [since for _, since in bolt.held.at_work()]
        late = sum(now - since >= self._limit_s for since in began)
        text = (
            f"{self._name(bolt)} has been at work for {now - since:.0f} s on a tuple from {tup.component}, "
            f"{shortened(tup.values)}, outside of the loop."
        )
        if bolt.held.is_blocked_by(tup):
            text += (
                " It holds up the bolt's asyncio loop, and all calls of it: await what waits, or asyncio.to_thread it."
            )
        text += f" Calls under way for so long: {late} of {len(began)}." if len(began) > 1 else ""
        frames = frames_text(bolt.bolt.where_held(tup))
        return f"{text}\n{frames}" if frames else text

    def _name(self, bolt: BoltTask) -> str:
        return f"{bolt.emitter.component} (task {bolt.task_id})"

    def _say(self, bolt: BoltTask, text: str) -> None:
        self._tell("warning", text, bolt.emitter.component, bolt.task_id)
