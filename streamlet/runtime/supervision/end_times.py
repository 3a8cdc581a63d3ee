"""Decides how long the end of a run may take: draining, then closing. Pure.

Times are seconds of the clock that its caller keeps; ``work_left_s`` is what the queues are measured to take.
"""

from __future__ import annotations

import math

DRAIN_S = 4.0
"""Seconds that a drain may take at least, unless a setting says otherwise."""

DRAIN_FACTOR, DRAIN_MORE_S = 1.5, 1.0
"""A drain may take so many times what the queues are estimated to take, and these seconds more."""

LONGER, LONGER_S = 1.5, 2.0
"""Factor on the announced length of a drain, and seconds beyond it: past both the user reads of it again."""

IDLE_DRAIN_S = 30.0
"""Seconds without a processed tuple that end the drain of a run that has caught up, unless a setting says otherwise."""

CLOSE_S = 30.0
"""Seconds that workers may take to close when a run ends by itself, unless a setting says otherwise."""

INTERRUPT_S = 5.0
"""Seconds for draining and closing together after Ctrl-C, unless a setting says otherwise."""


def drain_needed_s(wait_s: float, timeout_s: float) -> float:
    """Return the seconds that a drain may take, for ``wait_s`` of work."""
    # Rule: as long as what waits takes. The window lets tuples wait for a share of the message time-out; a shorter
    # drain would leave open trees at each end of a slow topology, though nothing is wrong with it.
    return float(math.ceil(max(DRAIN_S, min(_with_margin(wait_s), timeout_s))))


def _with_margin(wait_s: float) -> float:
    return DRAIN_FACTOR * wait_s + DRAIN_MORE_S


class EndTimes:
    """The deadline of one end: of its drain, then of its close.

    ``drain_s``, ``stop_s``: what a user has set; None: as long as is needed. ``timeout_s``: the longest time-out of
    messages.
    """

    def __init__(self, drain_s: float | None, stop_s: float | None, timeout_s: float) -> None:
        self._set_drain_s, self._set_stop_s, self._timeout_s = drain_s, stop_s, timeout_s
        self.reason: str | None = None
        """Why the run ends: "time", "caught_up", "interrupted" or "failed"."""
        self.deadline = 0.0
        self._began = self._close_began = 0.0
        self.closing = False
        """Whether the workers were asked to close."""
        self._drain_s = DRAIN_S
        """Seconds that the present drain may take."""
        self._told_s = 0.0
        """Seconds of the present drain that the user has read of, or need not read of."""
        self._processed = 0
        """Tuples that all workers had processed when the deadline was last looked at."""

    def drain_if_asked_now_s(self, work_left_s: float) -> float:
        """Return the seconds that a drain may take that begins now."""
        if self._set_drain_s is not None:
            return self._set_drain_s
        return drain_needed_s(work_left_s, self._timeout_s)

    def begin(self, reason: str, now: float, work_left_s: float, processed: int) -> str:
        """Begin the drain; return what to tell of its length, empty for nothing."""
        self.reason, self._began, self._processed = reason, now, processed
        self.deadline = self._drained_by(now, work_left_s)
        # After Ctrl-C the answer to it says so; and a user who has set the time knows it.
        if reason != "time" or self._set_drain_s is not None or self._drain_s <= DRAIN_S:
            return ""
        return f"Draining, for about {self._drain_s:g} s: so much work is under way."

    def interrupt(self, now: float, work_left_s: float) -> None:
        """Shorten a run's own end after Ctrl-C: no more time than after any Ctrl-C."""
        self.reason, self._began = "interrupted", now
        drained_by = self._drained_by(now, work_left_s)
        self.deadline = min(self.deadline, self._closed_by(now) if self.closing else drained_by)

    def _drained_by(self, now: float, work_left_s: float) -> float:
        """Choose how long a drain may take from now on; return when it is over."""
        patient = self.reason == "caught_up" and self._set_drain_s is None
        self._drain_s = IDLE_DRAIN_S if patient else self.drain_if_asked_now_s(work_left_s)
        return now + self._drain_s

    def progressed(self, now: float) -> None:
        """Let a run that has caught up go on draining: a tuple was processed."""
        if self.reason == "caught_up" and not self.closing and self._set_drain_s is None:
            self.deadline = now + IDLE_DRAIN_S

    def found_work(self, now: float, work_left_s: float, processed: int, *, untracked: bool = False) -> str:
        """Make the drain longer by the work that was found; return what to tell.

        ``untracked``: tuples wait that nobody sends again.
        """
        # Rule: a drain at the end of a run's time is made longer by what is found to wait in it. What was emitted just
        # before the end is in no worker's news yet. After Ctrl-C the time is kept, which was told to the user; but not
        # at the cost of untracked tuples. It was measured where they waited, and they had bolts behind that to go to.
        lengthens = self.reason in ("time", "failed") or (self.reason == "interrupted" and untracked)
        if not lengthens or self.closing or self._set_drain_s is not None:
            return ""
        # Only while tuples are processed: a bolt that stands still would keep the run up to the message time-out.
        before, self._processed = self._processed, processed
        if processed == before:
            return ""
        most = self._began + self._timeout_s
        self.deadline = max(self.deadline, min(now + _with_margin(work_left_s), most))
        length_s, told_s = math.ceil(self.deadline - self._began), max(self._told_s, self._drain_s)
        if length_s <= max(LONGER * told_s, told_s + LONGER_S):
            return ""
        self._told_s = length_s
        return f"Draining for longer, for about {length_s} s in all: more work was found to be under way."

    def found_call(self, call_s: float) -> str:
        """Make a drain after Ctrl-C as long as a call under way; return what to tell."""
        # Rule: the time that was told to the user is kept, but for a call that is under way and longer. Nothing ends it
        # but a kill, and what the worker has still to close would go with it.
        if self.reason != "interrupted" or self.closing or self._set_drain_s is not None:
            return ""
        deadline = self._began + drain_needed_s(call_s, self._timeout_s)
        if deadline <= self.deadline:
            return ""
        before_s, self._drain_s = self._drain_s, deadline - self._began
        self.deadline = deadline
        if self._drain_s <= before_s + LONGER_S:
            return ""
        return f"Draining for longer, for {self._drain_s:g} s at most: one call that is under way takes so long."

    def drained_s(self) -> float:
        """Return the seconds that the drain had when its time was over."""
        return round(self.deadline - self._began, 1)

    def close(self, now: float) -> None:
        """Begin the close."""
        # Rule: it has a deadline of its own, whatever the run was given before. A cleanup that hangs, or a worker that
        # never came up, must not keep the run from ending.
        self.closing = True
        self._close_began, self.deadline = now, self._closed_by(now)

    def _closed_by(self, now: float) -> float:
        if self._set_stop_s is not None:
            return now + self._set_stop_s
        if self.reason == "interrupted":
            if max(self._drain_s, now - self._began) >= INTERRUPT_S:  # the drain was longer in any case
                return now + INTERRUPT_S
            return max(self._began + INTERRUPT_S, now + 1.0)
        return now + CLOSE_S

    def closing_s(self, now: float) -> float:
        """Return the seconds since the close began."""
        return now - self._close_began

    def is_over(self, now: float) -> bool:
        """Tell whether the deadline has passed."""
        return now >= self.deadline
