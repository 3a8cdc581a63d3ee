"""Keeps the tuples that a bolt holds after ``process`` has returned.

Some wait in a batch for a tick, on some the bolt's threads are at work. How many it may hold bounds what it is given.
Pure, on the loop's thread but for ``begins``, ``ends``, ``leaves``, and what the watch of hanging calls asks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from sys import getrefcount
from typing import Any

from streamlet.components.batch import Batch
from streamlet.components.tuples import OPEN, Tuple

SWEEP_AT = 1024
"""Untracked tuples held: fewer are looked through after SWEEP_S, more when twice as many have come."""

LONG_S = 1.0
"""Seconds that all must stand, so that no tuple's time-out runs meanwhile."""

MOST_STOOD = 16
"""Such times that are kept, the latest."""

SWEEP_S = 1.0
"""Seconds between two looks for dropped tuples, where few are held."""


def _kept_here() -> int:
    # Counted, not assumed, in the shape of the question below: the number depends on the interpreter.
    given = {object(): 0.0}
    return next(getrefcount(kept) for kept in [*given])


KEPT_HERE = _kept_here()
"""References to a tuple that only ``given`` holds, asked for as ``forget_unreachable`` does."""


def _kept_in_batch() -> int:
    for kept in [object()]:
        return getrefcount(kept)
    return 0


KEPT_IN_BATCH = _kept_in_batch()
"""References to a tuple that only its batch holds, asked for as ``add_open`` does."""


def _within_s(times: Iterable[tuple[float, float]], since: float, now: float) -> float:
    """Return the seconds of a time that lie in any of these."""
    seconds = 0.0
    for began, ended in sorted(times):
        if min(ended, now) > since:
            seconds += max(0.0, min(ended, now) - max(began, since))
            since = min(ended, now)
    return seconds


class UnderWay:
    """A call for a tuple outside of the worker's loop.

    Made on the thread of the call, and over when that says so.
    """

    __slots__ = ("since", "stood_s", "thread", "waited_s", "waits", "waits_since")

    def __init__(self, since: float) -> None:
        self.thread = threading.get_native_id()
        self.began(since)
        self.waits = 0
        """Emits of it that wait for room now."""

    def began(self, now: float) -> None:
        """Count its time from now on."""
        self.since = self.waits_since = now
        """When it began, or could go on again; since when an emit of it waits for room."""
        self.stood_s = self.waited_s = 0.0
        """Seconds since then while the process stood still, and while its emits waited for room."""

    def at_work_since(self, now: float) -> float:
        """Return since when it would be at work, had it never stood."""
        # Rule: the time in which an emit waits for room is no time of its call, which asks nobody but streamlet then.
        # A pool behind another bolt that hangs was named as the one that does.
        return now if self.waits else min(now, self.since + self.stood_s + self.waited_s)


class HeldTuples:
    """What one bolt holds, since when, and how much it may.

    ``dropped`` takes each untracked tuple that the bolt kept, did not settle, and keeps no more. ``look_if_missed``
    finds, and notes here, whether the process has stood still until now.
    """

    def __init__(
        self, dropped: Callable[[Tuple], None] = lambda tup: None, look_if_missed: Callable[[], None] = lambda: None
    ) -> None:
        self._dropped = dropped
        self._look_if_missed = look_if_missed
        self.given: dict[Tuple, float] = {}
        """Each tuple, and when the bolt was given it. Changed by methods alone, and read by any thread."""
        self.untracked = 0
        """How many of ``given`` belong to no tree."""
        self._swept = 0
        """How many were untracked after those that nobody can settle were last forgotten."""
        self._swept_at = 0.0
        self.batches: dict[Batch, None] = {}
        """Batches kept by a bolt that ``answers_for_held``: their trees count as queued."""
        self.most = 0
        """Tuples that the bolt wants to hold: its ``max_unacked``; 0: any number."""
        self.allowed = 0
        """Tuples that the bolt may hold before it waits: ``most``, fewer under suspicion; 0: any number."""
        # Rule: a call is under way from the word of its own thread to the word of its own thread. The loop that takes
        # its result may be in another bolt's call for as long as it likes: a pool whose calls were long over was named
        # as one that hangs, and told to need more threads.
        self.calls: dict[Tuple, UnderWay] = {}
        """Calls under way. Changed by ``begins`` and ``ends`` alone, by any thread; gone through in one call."""
        self._knows_begun = False
        """Whether the bolt says when work on a tuple begins."""
        self._blocker: Tuple | None = None
        """The tuple whose call holds up all others of the bolt."""
        self._over: dict[Tuple, None] = {}
        """Tuples that no thread works on any more, though they are held. Any thread."""
        self.leaving: dict[Tuple, float] = {}
        """Tuples that another thread has settled, and when; the loop has not heard of it. Any thread."""
        self._waits_for_room = 0
        """Threads whose emits wait for room now, and since when one does. Changed under ``OtherThreads.lock``."""
        self._room_since = 0.0
        self._stood: deque[tuple[float, float]] = deque(maxlen=MOST_STOOD)
        """Times while the process stood still, or emits of the bolt waited for room. Any thread appends."""
        self._not_full: deque[tuple[float, float]] = deque(maxlen=MOST_STOOD)
        """Times when it was not full, however much it held. Any thread appends."""
        self.threads: set[int] = set()
        """Those that have made its calls, by their native ids."""
        self._full_since: float | None = None
        self._full_s = 0.0

    def __len__(self) -> int:
        return len(self.given)

    def bound(self, most: int) -> None:
        """Set how many tuples the bolt wants to hold, and may."""
        self.most = self.allowed = most

    def room(self, size: int) -> int:
        """Return how many of ``size`` tuples the bolt may be given."""
        return min(size, self.allowed - len(self.given)) if self.allowed else size

    def add(self, tup: Tuple, now: float) -> None:
        """Hold a tuple that the bolt has been given."""
        if not tup.root and tup not in self.given:
            self.untracked += 1
        self.given[tup] = now
        if len(self._over) > len(self.given):  # of calls that went on after their tuple was settled
            self._forget_over()

    def add_open(self, batch: Batch, now: float, kept: bool) -> None:
        """Hold the open tuples of a batch that somebody may settle. ``kept``: the bolt kept the batch."""
        for tup in batch.tuples:
            if tup.state == OPEN and (tup.root or kept or getrefcount(tup) > KEPT_IN_BATCH):
                self.add(tup, now)

    def forget_unreachable(self, now: float | None = None) -> None:
        """Forget the untracked tuples that nobody else keeps. ``now``: only where it is time."""
        # Rule: an untracked tuple is waited for as long as it can still be settled. A tracked one that is dropped times
        # out; this one would hold up the end of the run, and stay in memory, for ever.
        if not self.untracked or (now is not None and not self._is_time(now)):
            return
        for tup in [tup for tup in [*self.given] if not tup.root and getrefcount(tup) <= KEPT_HERE]:
            self.let_go(tup)
            self._dropped(tup)
        self._swept = self.untracked

    def _is_time(self, now: float) -> bool:
        """Tell whether to look for dropped tuples: among few each second, among many seldom."""
        if self.untracked < SWEEP_AT and now - self._swept_at >= SWEEP_S:
            self._swept_at = now
            return True
        return self.untracked >= 2 * self._swept + SWEEP_AT

    def let_go(self, tup: Tuple) -> float | None:
        """Forget a tuple that is held no longer; return since when it was, None if it was not."""
        self._over.pop(tup, None)
        left = self.leaving.pop(tup, None)
        if left is not None:
            self._was_full_until(left)
        since = self.given.pop(tup, None)
        if since is not None and not tup.root:
            self.untracked -= 1
        return since

    def let_batch_go(self, batch: Batch) -> None:
        """Forget a batch and the tuples that were made of it."""
        self.batches.pop(batch, None)
        for one in (self.given and batch.made) or ():
            self.let_go(one)

    def begins(self, tup: Tuple, now: float) -> None:
        """Note that work on a tuple begins. Any thread."""
        # Rule: a tuple times out by its call, not by the wait for a thread before it. Two calls that each take most of
        # the time-out would else time out though nobody is late. Noted beside `given`, which the loop alone changes:
        # a thread may begin before the loop has noted that the tuple is held, and the loop may be going through it.
        self._knows_begun = True
        self.calls[tup] = call = UnderWay(now)
        self.threads.add(call.thread)

    def ends(self, tup: Tuple) -> None:
        """Note that a held tuple is worked on no longer. Any thread."""
        # Rule: the thread of a call looks before it says that this is over. If the call held the interpreter's lock,
        # nobody has looked yet, and who does so first must find it under way.
        self._look_if_missed()
        self._over[tup] = None
        self.calls.pop(tup, None)

    def leaves(self, tup: Tuple, now: float) -> None:
        """Note that another thread settles a tuple.

        It is settled once the loop hears of it. Any thread but the loop's.
        """
        self.leaving.setdefault(tup, now)

    def _forget_over(self) -> None:
        for tup in [tup for tup in [*self._over] if tup not in self.given]:
            self._over.pop(tup, None)

    def queued(self) -> list[Tuple]:
        """Return the tuples that wait for a thread. Any thread.

        None where the bolt does not say when work begins.
        """
        if not self._knows_begun:
            return []
        at_work = self.calls if self._blocker is None else (self._blocker,)
        over, leaving = self._over, self.leaving
        return [tup for tup in [*self.given] if not (tup in at_work or tup in over or tup in leaving)]

    def waiting(self) -> list[Tuple]:
        """Return the tuples that wait for a thread or the loop."""
        # Rule: what waits in a pool is queued, as what waits before it. Behind calls that hang it would time out, and
        # be charged a try, though no user's code has seen it.
        self._forget_over()
        return [*self.queued(), *(tup for tup in [*self.leaving] if tup in self.given)]

    def others_wait(self) -> bool:
        """Tell whether tuples wait for the calls under way. Any thread."""
        return bool(self.queued()) or (not self.leaving and self.room(1) < 1)

    def is_blocked_by(self, tup: Tuple) -> bool:
        """Tell whether this tuple's call holds up all others."""
        return tup is self._blocker

    def note_blocker(self, blocker: Tuple | None, now: float) -> None:
        """Note which call holds up all others, if one does."""
        before, self._blocker = self._blocker, blocker
        if before is None or blocker is before:
            return
        # Rule: for those that a call has held up, work begins when it goes on again. They would time out at once.
        for tup, call in [*self.calls.items()]:
            if tup is not before and tup is not blocker:
                call.began(now)

    def note_stood(self, looked: float, now: float, by_own_call: bool = False) -> None:
        """Note that the process stood still since ``looked``: no call could go on.

        ``by_own_call``: one of the bolt's held the interpreter's lock. Any thread.
        """
        # Rule: a bolt is not full while the process stands still, for any holder of the interpreter's lock but itself:
        # it could do nothing. With that time a pool of quick calls was told to need more threads.
        self._stood.append((looked, now))
        if not by_own_call:
            self._not_full.append((looked, now))
        for call in [*self.calls.values()]:
            if not call.waits:  # else that time covers this
                call.stood_s += now - max(call.since, looked)

    def note_behind(self, began: float, now: float) -> None:
        """Note that the loop was in another task's call since ``began``."""
        # Rule: a bolt is not full while nobody takes what it emits because the loop is in another task's call.
        if self._waits_for_room:
            self._not_full.append((max(began, self._room_since), now))

    def waits_for_room(self, anchors: Sequence[Any], now: float) -> list[UnderWay]:
        """Note that an emit of this thread waits for room.

        Not two threads at once. Returns the calls that stand meanwhile: those of the thread itself, of an asyncio loop
        all, and those that ``anchors`` name.
        """
        if not self._waits_for_room:
            self._room_since = now
        self._waits_for_room += 1
        me, stand = threading.get_native_id(), {id(anchor) for anchor in anchors}
        calls = [call for tup, call in [*self.calls.items()] if call.thread == me or id(tup) in stand]
        for call in calls:
            if not call.waits:
                call.waits_since = now
            call.waits += 1
        return calls

    def has_room(self, calls: Sequence[UnderWay], now: float) -> None:
        """Note that these calls, and the emit, wait for room no longer."""
        self._waits_for_room -= 1
        if not self._waits_for_room and now - self._room_since >= LONG_S:
            self._stood.append((self._room_since, now))
        for call in calls:
            call.waited_s += now - max(call.since, call.waits_since) if call.waits == 1 else 0.0
            call.waits -= 1

    def _stood_s(self, since: float, now: float) -> float:
        """Return for how long nothing of the bolt could go on."""
        self._look_if_missed()
        stood = [*self._stood, (self._room_since, now)] if self._waits_for_room else [*self._stood]
        return _within_s(stood, since, now)

    def at_work_since(self, tup: Tuple, now: float) -> float:
        """Return when work on a held tuple began.

        When it was given, if that is unknown. Later by the time while nothing of the bolt could go on.
        """
        # Rule: no time-out runs while the process stands still, or emits of the bolt's threads wait for room. Behind
        # another bolt's hang all its tuples would time out, and be charged a try, once there is room again.
        call = self.calls.get(tup)
        since = self.given[tup] if call is None else call.since
        return since + self._stood_s(since, now)

    def at_work(self, now: float) -> list[tuple[Tuple, float]]:
        """Return the tuples of calls under way, and since when.

        A time while the process stood still, or emits waited for room, counts for nothing.
        """
        return [(tup, call.at_work_since(now)) for tup, call in [*self.calls.items()]]

    def is_full(self, now: float) -> bool:
        """Tell whether the bolt holds as many as it wants."""
        full = 0 < self.most <= len(self.given)
        if full and self.untracked:  # a place is not held by what nobody can settle any more
            self.forget_unreachable()
            full = self.most <= len(self.given)
        left = self._first_left() if full else now
        if left is not None:
            self._was_full_until(left)
        elif self._full_since is None:
            self._full_since = now
        return full

    def full_s(self, now: float) -> float:
        """Return the seconds that the bolt has been full. On the loop's thread."""
        if self._full_since is not None:
            left = self._first_left()
            self._was_full_until(now if left is None else left)
            self._full_since = now if left is None else None
        return self._full_s

    def _was_full_until(self, then: float) -> None:
        # Rule: a bolt is full until one of its tuples is settled on another thread, not until the loop hears of it.
        # With the time that the loop spends in another bolt's call a pool would be taken for a slow one.
        since, self._full_since = self._full_since, None
        if since is not None and then > since:
            self._look_if_missed()
            self._full_s += then - since - _within_s(self._not_full, since, then)

    def _first_left(self) -> float | None:
        return next((left for tup, left in [*self.leaving.items()] if tup in self.given), None)
