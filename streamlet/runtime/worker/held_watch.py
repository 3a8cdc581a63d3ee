"""Finds calls of bolts outside of the loop that take too long. From any thread: the loop may be in a call itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from streamlet.components.tuples import Tuple
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.in_hand import shortened
from streamlet.runtime.worker.hang_watch import frames_text
from streamlet.runtime.worker.standstill import Standstill

LOOKS = 4
"""Looks within the time after which a tuple is named."""

TellOfTask = Callable[[str, str, str, int], None]
"""Takes level, text, component and task."""


class HeldWatch:
    """Names each bolt's oldest call outside of the loop.

    Once, after ``limit_s``. Any thread looks. For bolts that answer for what they hold, tracked or not: another may
    hold tuples for as long as it likes.
    """

    def __init__(
        self, bolts: Sequence[BoltTask], limit_s: float, tell: TellOfTask, standstill: Standstill | None = None
    ) -> None:
        """Begin. ``standstill`` knows when the process stood still, and tells what the bolts hold."""
        self._bolts = {bolt.task_id: bolt for bolt in bolts}
        self._limit_s = limit_s
        self._tell = tell
        self._noted: tuple[int, Tuple, float] | None = None
        self._looks = threading.Lock()
        self._looked = float("-inf")
        self._standstill = standstill or Standstill()
        self._told: dict[int, tuple[Tuple, float]] = {}
        """By task, the tuple that was named, and since when it is at work. Replaced, never changed: threads read it."""
        self.stuck: tuple[int, Tuple, float] | None = None
        """Task of a bolt whose calls all take too long while others wait, its oldest tuple, since when. Any thread."""

    def look_if_due(self, now: float, tell: TellOfTask | None = None) -> None:
        """Look, unless somebody does so, or has just done so."""
        # Rule: not the loop alone looks. While it is in one bolt's call, a call of another bolt's thread may hang.
        if not self._looks.acquire(blocking=False):
            return
        try:
            if now - self._looked >= self._limit_s / LOOKS / 2:
                self.look(now, tell)
        finally:
            self._looks.release()

    def look(self, now: float, tell: TellOfTask | None = None) -> None:
        """Name calls that take too long; tell when they are done. ``tell``: in place of the watch's own."""
        stuck = None
        self._looked = now
        self._standstill.look(now)
        for task_id, bolt in self._bolts.items():
            say = partial(self._say, tell or self._tell, bolt)
            told = self._told.get(task_id)
            if told is not None and told[0] not in bolt.held.calls:
                self._told = {task: named for task, named in self._told.items() if task != task_id}
                say(f"{self._name(bolt)} went on after more than {now - told[1]:.0f} s.")
            oldest = self._at_fault(bolt, now)
            if oldest is not None and now - oldest[1] >= self._limit_s and task_id not in self._told:
                self._told = {**self._told, task_id: oldest}
                say(self._hang_text(bolt, *oldest, now))
            if oldest is not None and self._none_goes_on(bolt, oldest[0], now):
                stuck = task_id, *oldest
        self.stuck = stuck

    def note_stuck(self) -> None:
        """Note on the page what a stuck bolt hangs on. On the loop's thread."""
        if (stuck := self.stuck) is not None:
            self._bolts[stuck[0]].note_at_fault(stuck[1])
        self._noted = stuck

    def noted_stuck(self) -> tuple[int, Tuple, float] | None:
        """Return ``stuck``, once its tuple stands on the page. Any thread."""
        # Rule: nobody is replaced for a tuple before the loop has noted its message: no try of it would be counted.
        stuck, noted = self.stuck, self._noted
        return stuck if stuck is not None and noted is not None and stuck[1] is noted[1] else None

    def _at_fault(self, bolt: BoltTask, now: float) -> tuple[Tuple, float] | None:
        """Return the tuple that holds up all others, or the oldest.

        And since when; None without any at work.
        """
        oldest = min(bolt.held.at_work(now), key=itemgetter(1), default=None)
        asks = oldest is not None and now - oldest[1] >= self._limit_s / LOOKS
        blocker = bolt.bolt.blocks_held() if asks else None
        bolt.held.note_blocker(blocker, now)
        at_fault = [(tup, since) for tup, since in bolt.held.at_work(now) if tup is blocker]
        return at_fault[0] if at_fault else oldest

    def _none_goes_on(self, bolt: BoltTask, oldest: Tuple, now: float) -> bool:
        """Tell whether all calls take too long while tuples wait."""
        blocked = bolt.held.is_blocked_by(oldest)  # then the others wait for it
        began = [since for tup, since in bolt.held.at_work(now) if tup is oldest or not blocked]
        return bolt.held.others_wait() and all(now - since >= self._limit_s for since in began)

    def rows(self, now: float) -> list[dict[str, Any]]:
        """Return a heartbeat's row for each tuple that was named. Any thread."""
        return [
            {"task": task, "call": "process", "seconds": now - since, "tuple": shortened(tup.values)}
            for task, (tup, since) in self._told.items()
            if tup in self._bolts[task].held.calls
        ]

    def _hang_text(self, bolt: BoltTask, tup: Tuple, since: float, now: float) -> str:
        began = [since for _, since in bolt.held.at_work(now)]
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

    @staticmethod
    def _say(tell: TellOfTask, bolt: BoltTask, text: str) -> None:
        tell("warning", text, bolt.emitter.component, bolt.task_id)
