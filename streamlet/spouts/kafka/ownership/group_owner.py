"""The right to emit, in group mode: a membership of the spout's consumer group, kept by a thread of its own.

Each task is a member. While its run has the topic (``newest_run.py``) and its lease holds, it may emit: the gate
(``emit_gate.py``) is shut otherwise. The coordinator gives a member's place to nobody else for a session time-out after
it took a heartbeat, so neither do we stop earlier, nor emit later.

A rebalance is a question: may others have your place? The next generation begins once every member has joined again, or
has been silent for a session time-out. So a task stops emitting, commits finished records, and only then joins again. A
new generation begins after everybody of the old one has stopped. While the gate is shut the group's thread joins again
by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from streamlet.base.backoff import Backoff
from streamlet.base.chance import uniform
from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.kafka.broker_errors import FencedInstanceId, InconsistentGroupProtocol, InvalidSessionTimeout
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata
from streamlet.kafka.consumer.assignors.base import Subscription, decode_told_assignment
from streamlet.kafka.consumer.classic_group import classic_thread
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.errors import MembershipFenced
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
from streamlet.spouts.kafka.activity import Steps
from streamlet.spouts.kafka.chosen_topics import ChosenTopics
from streamlet.spouts.kafka.errors import ForeignMembers, RunDeposed, SessionRefused, TaskReplaced
from streamlet.spouts.kafka.ownership.emit_gate import EmitGate
from streamlet.spouts.kafka.ownership.newest_run import NEWCOMER, Claim, NewestRunAssignor, decode_verdict

QUICK_BEAT_S = 0.1
"""Seconds between two heartbeats while tasks of the run are still joining: each of them waits for one of ours."""

QUICK_S = 10.0
"""Seconds after the first share until heartbeats are quick no more."""

LEAVE_S = 1.0
"""Seconds that the end waits for the group to hear of it."""

RETRY = Backoff(initial=0.05, maximum=1.0)


class GroupOwner:
    """One task's membership, and its right to emit. ``wake`` is called on the group's thread."""

    def __init__(
        self, config: ConsumerConfig, choice: ChosenTopics, claim: Claim, wake: Callable[[], None], clock: Clock
    ) -> None:
        assert config.group_id is not None
        self.group_id = config.group_id
        self.session_timeout_s = config.session_timeout_ms / 1e3
        self.topics = choice.names
        """The topics to subscribe to at the next join. Set by the loop: those that match a pattern change."""
        self._reads = str(choice)
        self._where = f"consumer group {self.group_id!r}"
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
        server = f"the coordinator of group {self.group_id!r}"
        self.gate: EmitGate[Generation] = EmitGate(
            self._reads, server, self._membership, self.session_timeout_s, self._join
        )
        self._quick_until_s = float("inf")
        self._thread = classic_thread(
            config,
            self._membership,
            {NewestRunAssignor.name: NewestRunAssignor()},
            self._heard,
            clock,
            join_told_s=math.inf,  # the start itself says what it waits for
        )
        self._thread.start()
        self._join()

    # -- the loop's side ------------------------------------------------------------------------------------

    @property
    def member(self) -> ConsumerGroupMetadata | None:
        """The membership under which offsets are committed; None while joining."""
        granted = self.gate.grant
        return None if granted is None else self._member(granted)

    def _member(self, granted: Generation) -> ConsumerGroupMetadata:
        instance = self._membership.settings.group_instance_id
        return ConsumerGroupMetadata(self.group_id, granted.generation_id, granted.member_id, instance)

    def granted(self) -> Steps[ConsumerGroupMetadata]:
        """Wait until our run has the topic. Raises RunDeposed and errors of the group."""
        return self._member((yield from self.gate.granted()))

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
        self.gate.fail(self._replaced())

    def leave(self) -> None:
        """Emit no more and leave the group; returns at once."""
        self.gate.shut()
        self._thread.begin_stop(LEAVE_S)

    def close(self) -> None:
        """Leave, and wait for it; takes ``LEAVE_S`` and a second at most."""
        self.leave()
        self._thread.stop(LEAVE_S)

    # -- the group's thread --------------------------------------------------------------------------------

    def _join(self) -> None:
        row = Subscription(self.topics, self._claim.encode())
        self._thread.join(((NewestRunAssignor.name, row.encode()),))

    def _heard(self) -> None:
        """Take in the news of the membership. Group's thread."""
        while (news := self._thread.next_news()) is not None:
            match news:
                case Joined():
                    self._joined(news)
                case RejoinNeeded():
                    self.gate.ask_to_stop()
                case MembershipLost():
                    self.gate.withdraw()
                    self.gate.ask_to_stop()
                case Fatal():
                    if not self._as_dynamic_member(news.error):
                        self.gate.fail(self._explained(news.error))
                        break
        self._wake()

    def _joined(self, news: Joined) -> None:
        verdict = decode_verdict(decode_told_assignment(news.assignment)[1])
        if verdict is None or verdict.run != self._claim.run:
            other = None if verdict is None else (verdict.run, verdict.topology)
            self.gate.fail(RunDeposed(self._reads, self._where, self._claim.run, other))
            return
        now = self._clock.monotonic()
        since = news.generation.generation_id if verdict.since == NEWCOMER else verdict.since
        self._quick_until_s = min(self._quick_until_s, now + QUICK_S)
        if verdict.members >= self._claim.count:
            self._quick_until_s = now
        beat_s = QUICK_BEAT_S if now < self._quick_until_s else self._beat_s
        settings = self._membership.settings
        self._membership.settings = replace(settings, heartbeat_interval_s=min(beat_s, self._beat_s))
        self._claim = replace(self._claim, since=since)
        self.gate.give(news.generation)

    def _as_dynamic_member(self, error: KafkaError) -> bool:
        """Join without an instance id where the broker knows none (before 2.3); return whether that is so."""
        settings = self._membership.settings
        if not isinstance(error, UnsupportedVersion) or settings.group_instance_id is None:
            return False
        self._membership.settings = replace(settings, group_instance_id=None)
        self._join()
        return True

    def _replaced(self) -> TaskReplaced:
        return TaskReplaced(self._reads, self._where, self._membership.settings.group_instance_id or "")

    def _explained(self, error: KafkaError) -> StreamletError:
        if isinstance(error, (MembershipFenced, FencedInstanceId)):
            return self._replaced()
        if isinstance(error, InconsistentGroupProtocol):
            return ForeignMembers(self._reads, self.group_id)
        if isinstance(error, InvalidSessionTimeout):
            return SessionRefused(self._reads, self.group_id, int(self.session_timeout_s * 1e3))
        return error
