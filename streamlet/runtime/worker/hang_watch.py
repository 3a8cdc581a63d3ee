"""Finds a call of a loop that takes too long, and where it stands. On another thread: the loop is what hangs.

The watch is pure: looks with their times in, verdicts out.
"""

from __future__ import annotations

import sys
import textwrap
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamlet.components.batch import Batch
from streamlet.components.tuples import Tuple
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.building import LiveTask
from streamlet.runtime.tasks.in_hand import BEGAN, CALL, CALLS, TASK, InHand, shortened
from streamlet.runtime.tasks.user_errors import of_users

MOST_FRAMES = 12
"""Frames of a stack that are shown, the innermost ones."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the loop: the task that is called (0: none), which method, since when, and on what."""

    task: int
    call: str
    began: float
    held: Any
    """The present batch, or the present tuple's own list of values.

    Compared by identity: a slice has one beginning for many tuples.
    """

    @property
    def held_text(self) -> str:
        """The values at work, shortened."""
        # Rule: what the loop's thread has in hand is read here, and nothing of it is made or changed: not the rows of a
        # batch, which its bolt may never ask for.
        return shortened(self.held.peek() if isinstance(self.held, Batch) else self.held)


@dataclass(frozen=True, slots=True)
class Hang:
    """A call that takes longer than it may. ``first``: it was not known before."""

    look: Look
    seconds: float
    first: bool


class HangWatch:
    """Finds hanging calls from one thread's looks. More than ``gap_s`` between two looks counts for nothing."""

    def __init__(self, limit_s: float, gap_s: float = float("inf")) -> None:
        self._limit_s = limit_s
        self._gap_s = gap_s
        self._last: Look | None = None
        self._since = self._looked = float("-inf")
        self._told: Hang | None = None
        self.over: Hang | None = None
        """The hang that ended between the last two looks, if one did."""

    def observe(self, look: Look, now: float) -> Hang | None:
        """Return the hang that this look shows, if it does."""
        last, looked = self._last, self._looked
        self._last, self._looked = look, now
        self.over = None
        if last is None or not _same(last, look):
            self.over = self._told
            # Of a tuple in the middle of a slice nobody knows the beginning: it counts from the first look. So does a
            # call that began while nobody could look: if it was the reason for that, its loop tells so itself.
            stood = last is not None and now - looked > self._gap_s
            self._since = look.began if look.began >= looked and not stood else now
            self._told = None
        elif now - looked > self._gap_s:  # the process was stopped, or nobody but this call could run: begin again
            self._since += now - looked
        seconds = now - self._since
        if not look.task or seconds < self._limit_s:
            return None
        hang = Hang(look, seconds, self._told is None)
        self._told = hang
        return hang


def _same(one: Look, other: Look) -> bool:
    return (one.task, one.call, one.began) == (other.task, other.call, other.began) and one.held is other.held


def present_call(in_hand: InHand, tasks: Mapping[int, LiveTask]) -> tuple[Look, Tuple | Batch | None]:
    """Return a loop's present call, and what it is about."""
    # The loop may go on while this is read: then nothing hangs, and the next look tells.
    words = in_hand.words
    task, call = words[TASK], CALLS[min(words[CALL], len(CALLS) - 1)]
    live = tasks.get(task)
    tup = live.task.present if live is not None and isinstance(live.task, BoltTask) and call == CALLS[0] else None
    held = tup.values if isinstance(tup, Tuple) else tup
    return Look(task, call, in_hand.times[BEGAN], held), tup


def call_text(hang: Hang, tup: Tuple | Batch | None, task_name: str) -> str:
    """Return call, task, time and tuple.

    As ``process of count (task 3) for 41 s on a tuple from lines, ['a']``.
    """
    what = f"a batch of {len(tup):,} tuples" if isinstance(tup, Batch) else "a tuple"
    on = "" if tup is None else f" on {what} from {tup.component}, {hang.look.held_text}"
    return f"{hang.look.call} of {task_name} for {hang.seconds:.0f} s{on}"


def stack_of(thread: int) -> str:
    """Return where a thread stands, the innermost frames, indented; from the user's first line on."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    return frames_text(traceback.extract_stack(frame))


def stack_in_call(thread: int, look: Look, in_hand: InHand, tasks: Mapping[int, LiveTask]) -> str:
    """Return where a loop's thread stands in this call.

    After a line's end. Empty: it is in that call no longer.
    """
    # Rule: a stack is shown only if the call was under way before it was taken and after. The loop may go on between
    # two lines of ours, above all one that held the interpreter's lock: the stack would be that of another bolt.
    stack = stack_of(thread)
    return f"\n{stack}" if stack and _same(present_call(in_hand, tasks)[0], look) else ""


def frames_text(frames: Sequence[traceback.FrameSummary]) -> str:
    """Return frames as text, the innermost ones, indented; from the user's first line on."""
    shown = of_users([*frames])[-MOST_FRAMES:]
    return textwrap.indent("".join(traceback.format_list(shown)).rstrip(), "  ")
