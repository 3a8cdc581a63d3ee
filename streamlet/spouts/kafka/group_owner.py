"""The right to emit, in group mode: a membership of the spout's consumer group, kept by a thread of its own.

Each task is a member. While its run has the topic (``newest_run.py``) and its lease holds, it may emit. The *lease*:
the coordinator gives a member's place to nobody else for a session time-out after it took a heartbeat, so neither do we
stop earlier, nor emit later. It counts from when the answered request was *sent*, by the monotonic clock, which goes on
while a process stands still. A process that slept finds its lease over when it wakes.

A rebalance is a question: may others have your place? The next generation begins once every member has joined again, or
has been silent for a session time-out. So a task stops emitting, commits finished records (``FLUSH_S`` at most), and
only then joins again. A new generation begins after everybody of the old one has stopped.

    not a member --granted--> checking --our claim stands--> open --rebalance--> closing --flushed--> not a member
                                  |                            |
                                  +--- another run has it ----+--> deposed: the error is raised, the run stops

Two threads: the loop, which alone opens and closes, and the group's thread, which hears. While the gate is not open the
group's thread joins again by itself, so a task that has not begun (its worker still starts others) holds nobody up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from streamlet.base.backoff import Backoff
from streamlet.base.chance import uniform
from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.kafka.broker_errors import FencedInstanceId, InconsistentGroupProtocol, InvalidSessionTimeout
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata
from streamlet.kafka.consumer.assignors.base import Subscription, decode_told_assignment
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.errors import MembershipFenced
from streamlet.kafka.consumer.group_thread import GroupThread
from streamlet.kafka.consumer.membership import (
    Fatal,
    Generation,
    GroupSettings,
    Joined,
    Membership,
    MembershipLost,
    RejoinNeeded,
)
from streamlet.kafka.errors import KafkaError, UnsupportedVersion
from streamlet.spouts.kafka.activity import Activity, NextPoll, Steps
from streamlet.spouts.kafka.errors import ForeignMembers, RunDeposed, SessionRefused, TaskReplaced
from streamlet.spouts.kafka.newest_run import NEWCOMER, Claim, NewestRunAssignor, decode_verdict

log = logging.getLogger(__name__)

LEASE_SHARE = 0.9
"""Share of the session time-out that a lease lasts; the rest is for a turn that began within it."""

BEAT_SHARE = 0.1
"""Share of the session time-out between two heartbeats: how late a rebalance is heard of."""

QUICK_BEAT_S = 0.1
"""Seconds between two heartbeats while tasks of the run are still joining: each of them waits for one of ours."""

QUICK_S = 10.0
"""Seconds after the first share until heartbeats are quick no more."""

FLUSH_S = 1.0
"""Seconds that the commit before a rebalance may take."""

LEAVE_S = 1.0
"""Seconds that the end waits for the group to hear of it."""

RETRY = Backoff(initial=0.05, maximum=1.0)


def nothing() -> Steps[None]:
    """Do nothing, as an activity."""
    yield from ()


class GroupOwner:
    """One task's membership, and its right to emit. ``wake`` is called on the group's thread."""

    def __init__(
        self, config: ConsumerConfig, topic: str, claim: Claim, wake: Callable[[], None], clock: Clock
    ) -> None:
        assert config.group_id is not None
        self.group_id = config.group_id
        self.session_timeout_s = config.session_timeout_ms / 1e3
        self.check: Callable[[], Steps[None]] = nothing
        """Reads the store before emitting begins again. Raises Deposed when another owner was there meanwhile."""
        self.flush: Callable[[], Steps[None]] = nothing
        """Commits finished records before a rebalance."""
        self._topic = topic
        self._claim = claim
        self._wake = wake
        self._clock = clock
        self._beat_s = config.heartbeat_interval_ms / 1e3
        settings = GroupSettings(
            config.group_id,
            config.group_instance_id,
            self.session_timeout_s,
            QUICK_BEAT_S,
            float("inf"),  # the loop may be in a bolt for as long as it takes; what hangs is the supervision's matter
            RETRY,
            static_leaves=True,
        )
        self._membership = Membership(settings, uniform)
        self._lease_s = LEASE_SHARE * self.session_timeout_s
        self._lock = threading.Lock()
        """Guards opening and closing of the gate, and news of a rebalance. Nothing waits under it."""
        self._granted: Generation | None = None
        """The generation that gave our run the topic; None while joining."""
        self._error: StreamletError | None = None
        self._rejoin = False
        self._open = False
        """Whether emitting has begun: changed by the loop alone."""
        self._step: Activity[None] | None = None
        """The check before the gate opens, or the commit after it was closed."""
        self._closing_by_s: float | None = None
        self._checked: Generation | None = None
        self._quick_until_s = float("inf")
        self._paused = False
        """Whether it was said that the lease is over."""
        self._thread = GroupThread(
            config, self._membership, {NewestRunAssignor.name: NewestRunAssignor()}, self._heard, clock
        )
        self._thread.start()
        self._join()

    # -- the loop's side ------------------------------------------------------------------------------------

    def may_emit(self, now_s: float) -> bool:
        """Return whether tuples may be emitted now: once a turn."""
        return self._open and now_s < self._membership.granted_s + self._lease_s

    @property
    def member(self) -> ConsumerGroupMetadata | None:
        """The membership under which offsets are committed; None while joining."""
        granted = self._granted
        if granted is None:
            return None
        instance = self._membership.settings.group_instance_id
        return ConsumerGroupMetadata(self.group_id, granted.generation_id, granted.member_id, instance)

    def granted(self) -> Steps[ConsumerGroupMetadata]:
        """Wait until our run has the topic. Raises RunDeposed and errors of the group."""
        again = NextPoll()
        while (member := self.member) is None:
            self.raise_error()
            yield again
        return member

    def raise_error(self) -> None:
        """Raise what ended the membership."""
        if self._error is not None:
            raise self._error

    def waiting_for(self) -> str:
        """Say why a start may wait to become a member."""
        return (
            f" It is not a member of consumer group {self.group_id!r} yet. A run whose processes were all killed keeps "
            f"its place for session_timeout_ms={self.session_timeout_s * 1e3:.0f}, a spout that waits for a long call "
            "of a bolt is waited for as long, and a broker delays the first member of a group by its "
            "group.initial.rebalance.delay.ms (3 s unless set)."
        )

    def fenced(self) -> None:
        """Note that a commit was refused because another process has our place."""
        self._fail(self._replaced())

    def poll(self, now_s: float) -> None:
        """Open and close the gate. Raises RunDeposed, Deposed, and errors of the group."""
        self.raise_error()
        if self._closing_by_s is not None:
            self._close_further(now_s)
        elif not self._open:
            self._open_when_checked()
        elif not self._rejoin:
            self._tell_of_the_lease(now_s)
        else:
            # Nothing is emitted from here on: the loop that emits is the one that is here.
            with self._lock:
                self._open, self._closing_by_s = False, now_s + FLUSH_S
            self._step = Activity(self.flush())
            self._close_further(now_s)

    def _tell_of_the_lease(self, now_s: float) -> None:
        over_s = now_s - self._membership.granted_s - self._lease_s
        if over_s < 0 and self._paused:
            log.info("topic %s: the coordinator of group %r answers, emitting again", self._topic, self.group_id)
        elif 0 <= over_s < float("inf") and not self._paused:
            log.warning(
                "topic %s: nothing is emitted. The coordinator of group %r has not answered for %.1f s, so another run "
                "may have this topic by now",
                self._topic,
                self.group_id,
                over_s + self._lease_s,
            )
        self._paused = over_s >= 0

    def _close_further(self, now_s: float) -> None:
        assert self._closing_by_s is not None and self._step is not None
        # A membership that is lost already commits nothing more.
        if self._granted is not None and now_s < self._closing_by_s and not self._step.poll():
            return
        ended, self._step = self._step, None
        self._join()
        if ended.poll():
            ended.take()
        else:
            ended.cancel()

    def _open_when_checked(self) -> None:
        granted = self._granted
        if granted is None:
            self._step = None
            return
        if self._step is None or self._checked is not granted:
            self._checked, self._step = granted, Activity(self.check())
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
            self._open = self._granted is granted and not self._rejoin
        if self._open:
            log.debug("group %r, generation %d: emitting", self.group_id, granted.generation_id)

    def close(self) -> None:
        """Leave the group, so that the next run need not wait; takes ``LEAVE_S`` and a second at most."""
        with self._lock:
            self._open = False
        self._thread.stop(LEAVE_S)

    # -- the group's thread --------------------------------------------------------------------------------

    def _join(self) -> None:
        with self._lock:
            self._rejoin, self._granted, self._closing_by_s = False, None, None
            claim = self._claim
        row = Subscription((self._topic,), claim.encode())
        self._thread.join(((NewestRunAssignor.name, row.encode()),))

    def _heard(self) -> None:
        """Take in the news of the membership. Group's thread."""
        while (news := self._thread.next_news()) is not None:
            match news:
                case Joined():
                    self._joined(news)
                case RejoinNeeded():
                    self._asked_to_join()
                case MembershipLost():
                    with self._lock:
                        self._granted = None
                    self._asked_to_join()
                case Fatal():
                    if not self._as_dynamic_member(news.error):
                        self._fail(self._explained(news.error))
                        break
        self._wake()

    def _asked_to_join(self) -> None:
        with self._lock:
            self._rejoin = True
            # While tuples may be emitted, joining waits for the loop: it ends the turn, and commits.
            waits = self._open or self._closing_by_s is not None
        if not waits:
            self._join()

    def _joined(self, news: Joined) -> None:
        verdict = decode_verdict(decode_told_assignment(news.assignment)[1])
        if verdict is None or verdict.run != self._claim.run:
            other = None if verdict is None else (verdict.run, verdict.topology)
            self._fail(RunDeposed(self._topic, self.group_id, self._claim.run, other))
            return
        now = self._clock.monotonic()
        since = news.generation.generation_id if verdict.since == NEWCOMER else verdict.since
        self._quick_until_s = min(self._quick_until_s, now + QUICK_S)
        if verdict.members >= self._claim.count:
            self._quick_until_s = now
        beat_s = QUICK_BEAT_S if now < self._quick_until_s else self._beat_s
        settings = self._membership.settings
        self._membership.settings = replace(settings, heartbeat_interval_s=min(beat_s, self._beat_s))
        with self._lock:
            self._claim = replace(self._claim, since=since)
            self._granted = news.generation

    def _as_dynamic_member(self, error: KafkaError) -> bool:
        """Join without an instance id where the broker knows none (before 2.3); return whether that is so."""
        settings = self._membership.settings
        if not isinstance(error, UnsupportedVersion) or settings.group_instance_id is None:
            return False
        self._membership.settings = replace(settings, group_instance_id=None)
        self._join()
        return True

    def _fail(self, error: StreamletError) -> None:
        with self._lock:
            self._error = self._error or error
            self._granted = None
        self._membership.granted_s = -float("inf")

    def _replaced(self) -> TaskReplaced:
        return TaskReplaced(self._topic, self.group_id, self._membership.settings.group_instance_id or "")

    def _explained(self, error: KafkaError) -> StreamletError:
        if isinstance(error, (MembershipFenced, FencedInstanceId)):
            return self._replaced()
        if isinstance(error, InconsistentGroupProtocol):
            return ForeignMembers(self._topic, self.group_id)
        if isinstance(error, InvalidSessionTimeout):
            return SessionRefused(self._topic, self.group_id, int(self.session_timeout_s * 1e3))
        return error
