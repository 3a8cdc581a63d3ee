"""The gate before every emit: open while this run has the topic and its lease holds.

What gives the right differs: a membership of the consumer group (``group_owner.py``), or a node in ZooKeeper
(``zookeeper_owner.py``). Each has a thread of its own that hears, and tells the gate:

    no grant --granted--> checking --our claims stand--> open --asked to stop--> closing --flushed--> no grant

The *lease*: the server gives a task's place to nobody else for a session time-out after it took a sign of life. It
counts from when the answered request was *sent*, by a clock that goes on while the process stands still and while its
machine is suspended (``BootClock``). A process that slept finds its lease over when it wakes.

Two threads: the loop, which alone opens and closes, and the giver's, which hears. While the gate is not open nobody
waits for the loop, so a task that has not begun (its worker still starts others) holds nobody up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from streamlet.base.errors import StreamletError
from streamlet.spouts.kafka.activity import Activity, NextPoll, Steps

log = logging.getLogger(__name__)

LEASE_SHARE = 0.9
"""Share of the session time-out that a lease lasts; the rest is for a turn that began within it."""

BEAT_SHARE = 0.1
"""Share of the session time-out between two signs of life."""

FLUSH_S = 1.0
"""Seconds that the commit before the place is given back may take."""

Grant = TypeVar("Grant")


class Granted(Protocol):
    """What knows until when the place is ours."""

    granted_s: float
    """When the last request that was answered well was sent, by the gate's clock."""


def nothing() -> Steps[None]:
    """Do nothing, as an activity."""
    yield from ()


class EmitGate(Generic[Grant]):
    """Whether a task may emit. ``give_back`` is called once it has stopped, on the loop or on the giver's thread."""

    def __init__(
        self, topics: str, server: str, lease: Granted, session_s: float, give_back: Callable[[], None]
    ) -> None:
        self.check: Callable[[], Steps[None]] = nothing
        """Reads the store before emitting begins again. Raises Deposed when another owner was there meanwhile."""
        self.flush: Callable[[], Steps[None]] = nothing
        """Commits finished records before the place is given back."""
        self._topics = topics
        """What the task reads, in words."""
        self._server = server
        self._lease = lease
        self._lease_s = LEASE_SHARE * session_s
        self._give_back = give_back
        self._lock = threading.Lock()
        """Guards opening and closing of the gate, and news of the giver. Nothing waits under it."""
        self._grant: Grant | None = None
        self._error: Exception | None = None
        self._asked = False
        self._open = False
        """Whether emitting has begun: changed by the loop alone."""
        self._step: Activity[None] | None = None
        """The check before the gate opens, or the commit after it was closed."""
        self._closing_by_s: float | None = None
        self._checked: Grant | None = None
        self._paused = False
        """Whether it was said that the lease is over."""

    # -- the loop's side ------------------------------------------------------------------------------------

    def may_emit(self, now_s: float) -> bool:
        """Return whether tuples may be emitted now: once a turn."""
        return self._open and self._error is None and now_s < self._lease.granted_s + self._lease_s

    def poll(self, now_s: float) -> None:
        """Open and close the gate. Raises what ended the right to emit."""
        self.raise_error()
        if self._closing_by_s is not None:
            self._close_further(now_s)
        elif not self._open:
            self._open_when_checked()
        elif not self._asked:
            self._tell_of_the_lease(now_s)
        else:
            # Nothing is emitted from here on: the loop that emits is the one that is here.
            with self._lock:
                self._open, self._closing_by_s = False, now_s + FLUSH_S
            self._step = Activity(self.flush())
            self._close_further(now_s)

    def granted(self) -> Steps[Grant]:
        """Wait until our run has the topic. Raises what ended the right to emit."""
        again = NextPoll()
        while (grant := self._grant) is None:
            self.raise_error()
            yield again
        return grant

    def raise_error(self) -> None:
        """Raise what ended the right to emit."""
        if self._error is not None:
            raise self._error

    def shut(self) -> None:
        """Emit no more: the spout closes."""
        with self._lock:
            self._open = False

    def _tell_of_the_lease(self, now_s: float) -> None:
        over_s = now_s - self._lease.granted_s - self._lease_s
        if over_s < 0 and self._paused:
            log.info("%s: %s answers, emitting again", self._topics, self._server)
        elif 0 <= over_s < float("inf") and not self._paused:
            log.warning(
                "%s: nothing is emitted. %s has not answered for %.1f s, so another run may have its place by now",
                self._topics,
                self._server[0].upper() + self._server[1:],
                over_s + self._lease_s,
            )
        self._paused = over_s >= 0

    def _close_further(self, now_s: float) -> None:
        assert self._closing_by_s is not None and self._step is not None
        # Rule: no commit goes on once the place is given back: it would be sent beside the next owner's. A right that
        # is lost already commits nothing more.
        ended = self._grant is not None and self._step.poll()
        if self._grant is not None and not ended and now_s < self._closing_by_s:
            return
        step, self._step = self._step, None
        self._stopped()
        if ended:
            step.take()
        else:
            step.cancel()

    def _open_when_checked(self) -> None:
        grant = self._grant
        if grant is None:
            self._step = None
            return
        if self._step is None or self._checked is not grant:
            self._checked, self._step = grant, Activity(self.check())
        if not self._step.poll():
            return
        ended, self._step = self._step, None
        try:
            ended.take()
        except StreamletError as error:
            if not error.retriable:
                raise
            return  # asked again at the next poll
        with self._lock:
            self._open = self._grant is grant and not self._asked
        if self._open:
            log.debug("%s: emitting under %s", self._topics, grant)

    # -- the giver's side -----------------------------------------------------------------------------------

    @property
    def grant(self) -> Grant | None:
        """The right to emit; None while it is waited for."""
        return self._grant

    @property
    def stopping(self) -> bool:
        """Whether the place waits for the loop to stop emitting."""
        with self._lock:
            return self._asked or self._closing_by_s is not None

    def give(self, grant: Grant) -> None:
        """Grant the right to emit; the loop opens the gate once it has checked the store."""
        with self._lock:
            self._grant = grant

    def withdraw(self) -> None:
        """Take the right back: another may have it already, so nothing is committed any more."""
        with self._lock:
            self._grant = None

    def ask_to_stop(self) -> None:
        """Have the place given back as soon as nothing is emitted: at once while the gate is shut."""
        with self._lock:
            self._asked = True
            # While tuples may be emitted this waits for the loop: it ends the turn, and commits.
            waits = self._open or self._closing_by_s is not None
        if not waits:
            self._stopped()

    def _stopped(self) -> None:
        with self._lock:
            self._asked, self._grant, self._closing_by_s = False, None, None
        self._give_back()

    def fail(self, error: Exception) -> None:
        """End the right to emit for good; ``poll`` raises the first such error."""
        with self._lock:
            self._error = self._error or error
            self._grant = None
