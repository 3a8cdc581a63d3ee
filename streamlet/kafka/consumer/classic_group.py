"""Requests and answers of a classic membership: JoinGroup, SyncGroup, Heartbeat, LeaveGroup; sharing out as the leader.

In Java these are parts of ``AbstractCoordinator`` and ``ConsumerCoordinator``. What to send is decided by
:class:`Membership`. Everything runs on the group's thread (``group_thread.py``).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar, assert_never

from streamlet.base.clock import Clock
from streamlet.kafka.broker_errors import error_class
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import SEARCH_LIMIT_S, find_coordinator
from streamlet.kafka.consumer.assignors import PartitionAssignor
from streamlet.kafka.consumer.assignors.base import PROTOCOL_TYPE, Subscription, decode_subscription
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.group_thread import GroupThread
from streamlet.kafka.consumer.membership import (
    JOIN_GRACE_S,
    Action,
    Disconnect,
    FindCoordinator,
    Generation,
    Heartbeat,
    Join,
    Leave,
    Membership,
    Share,
    Sync,
)
from streamlet.kafka.errors import KafkaError, MalformedFrame
from streamlet.kafka.future import RequestFuture, supervised
from streamlet.kafka.metadata.cluster import Broker, Cluster, TopicPartition
from streamlet.kafka.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

_log = logging.getLogger(__name__)

JOIN_TOLD_S = 5.0
"""Seconds that a join may take before the log says what it waits for. The first one of an empty group takes 3."""

_METADATA_PATIENCE_S = 10.0
"""Seconds that the leader waits for metadata of all topics before it shares out."""


_Answer = TypeVar("_Answer", JoinGroupResponse, SyncGroupResponse, HeartbeatResponse)


def _error_of(done: RequestFuture[_Answer], what: str) -> KafkaError | None:
    """Return the error of a request or of its answer, or None."""
    if done.exception is not None:
        return done.exception
    fault = error_class(done.value.error_code)
    return None if fault is None else fault(what)


Protocols = tuple[tuple[str, bytes], ...]
"""What a classic member joins with: its subscription, once for each assignor it offers."""


def classic_thread(
    config: ConsumerConfig,
    membership: Membership,
    assignors: Mapping[str, PartitionAssignor],
    wake_consumer: Callable[[], None],
    clock: Clock,
    *,
    join_told_s: float = JOIN_TOLD_S,
) -> GroupThread[Protocols]:
    """Return the thread of a classic membership, not started.

    ``join_told_s``: seconds after which the log says what a join waits for; infinity: never.
    """
    return GroupThread(config, ClassicGroup(config, membership, assignors, clock, join_told_s), wake_consumer, clock)


class ClassicGroup:
    """A classic membership's requests, and its client."""

    # Long: a request and an answer for each action of `Membership`, and the leader's sharing out.

    def __init__(
        self,
        config: ConsumerConfig,
        membership: Membership,
        assignors: Mapping[str, PartitionAssignor],
        clock: Clock,
        join_told_s: float = JOIN_TOLD_S,
    ) -> None:
        self._config = config
        self.membership = membership
        self._assignors = assignors
        self._clock = clock
        self.client = KafkaClient(config, clock, allow_auto_topic_creation=config.allow_auto_create_topics)
        self.listener_error: Exception | None = None
        # Join and sync are answered when all members have joined, which the slowest may put off for its poll interval.
        rebalance_s = config.max_poll_interval_ms / 1000 + JOIN_GRACE_S
        self._rebalance_limit_s = max(rebalance_s, config.request_timeout_ms / 1000)
        self._coordinator: Broker | None = None
        self._search_limit_s = min(SEARCH_LIMIT_S, config.session_timeout_ms / 3000, config.request_timeout_ms / 1000)
        self._leaving: RequestFuture[LeaveGroupResponse] | None = None
        self._share: Share | None = None
        self._joins, self._share_by_s = 0, 0.0
        """Number of the last join, and the latest time to share out."""
        self._beats = 0
        """Number of the last heartbeat."""
        self._join_told_s = join_told_s
        self._tell_join_s = math.inf
        """When to say that the join takes long: once for each. Infinity: never."""
        self._counts: dict[str, int] = {}
        """Partitions by topic as they were last shared out; for the leader to notice a change."""
        self._racks: dict[TopicPartition, frozenset[str]] = {}
        """Their racks, where a member had told its own."""
        self.client.metadata.add_listener(self._metadata_changed)

    # -- as the thread drives it

    def turn(self) -> None:
        """Send all requests that are due."""
        now = self._clock.monotonic()
        while (action := self.membership.step(now)) is not None:
            self._do(action)
        self._try_share()
        if now >= self._tell_join_s:
            self._tell_join()

    def wait_s(self, now_s: float) -> float:
        """Return seconds until :meth:`turn` may act without an event."""
        wait = min(self.membership.next_wake_s(now_s), max(self._tell_join_s - now_s, 0.0))
        return wait if self._share is None else min(wait, max(self._share_by_s - now_s, 0.0))

    def leave(self) -> None:
        """Leave the group; a join under way makes no member any more."""
        self._joins += 1
        self._share, self._tell_join_s = None, math.inf
        self.membership.leave()

    @property
    def left(self) -> bool:
        """Whether nothing of the leaving is to be sent or waited for."""
        answered = self._leaving is None or self._leaving.done
        return answered and self.membership.next_wake_s(0.0) > 0

    # -- inside

    def _do(self, action: Action) -> None:
        match action:
            case FindCoordinator():
                search = find_coordinator(self.client, self.membership.settings.group_id, self._search_limit_s)
                search.add_listener(supervised(self._found, self._note_error))
            case Disconnect():
                self._disconnect()
            case Join():
                self._send_join(action)
            case Share():
                self._begin_share(action)
            case Sync():
                self._send_sync(action)
            case Heartbeat():
                self._send_beat(action)
            case Leave():
                self._send_leave(action)
            case _:
                assert_never(action)

    def _note_error(self, error: Exception) -> None:
        """Note an error of a listener: this turn of the loop raises it, and the thread ends."""
        self.listener_error = error

    def _found(self, done: RequestFuture[Broker]) -> None:
        now = self._clock.monotonic()
        if done.exception is not None:
            self.membership.coordinator_not_found(done.exception, now)
        else:
            found = done.value.dedicated("group")
            if found != self._coordinator:
                self._disconnect()  # what it has not answered, the other one is asked for
            self._coordinator = found
            self.membership.coordinator_found(now)

    def _disconnect(self) -> None:
        if self._coordinator is not None:
            self.client.disconnect(self._coordinator)

    def _send_join(self, action: Join) -> None:
        config = self._config
        request = JoinGroupRequest(
            group_id=self.membership.settings.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=action.member_id,
            group_instance_id=self.membership.settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(JoinGroupProtocol(name=name, metadata=data) for name, data in action.protocols),
        )
        self._joins += 1
        self._share = None  # of a generation that nobody waits for any more
        self._tell_join_s = self._clock.monotonic() + self._join_told_s
        answered = supervised(partial(self._join_answered, self._joins), self._note_error)
        self.client.send(request, self._coordinator, self._rebalance_limit_s).add_listener(answered)

    def _tell_join(self) -> None:
        # A warning, for a program that configures no logging shows no less, and its user looks at a silent consumer.
        self._tell_join_s = math.inf
        _log.warning(
            "group %r: joining it has taken %g s, and no new partitions come meanwhile. The coordinator waits for the "
            "other members: for one that died without leaving until its session ends (session_timeout_ms, %g s in this "
            "consumer), for one that works on records until its next poll (max_poll_interval_ms, %g s).",
            self._config.group_id,
            self._join_told_s,
            self._config.session_timeout_ms / 1000,
            self._config.max_poll_interval_ms / 1000,
        )

    def _join_answered(self, number: int, done: RequestFuture[JoinGroupResponse]) -> None:
        if number != self._joins:
            # We left while the join was under way. If it made a member all the same, nobody would send its heartbeats,
            # and the group would wait for it until its session ends: so that member leaves at once.
            if done.succeeded and done.value.error_code == 0:
                self._send_leave(Leave(done.value.member_id))
            return
        self._tell_join_s = math.inf
        now, error = self._clock.monotonic(), _error_of(done, f"Joining group {self.membership.settings.group_id!r}")
        if error is not None:
            self.membership.join_failed(error, done.value.member_id if done.succeeded else "", now)
            return
        answer = done.value
        generation = Generation(answer.generation_id, answer.member_id, answer.protocol_name or "")
        members = {row.member_id: (row.group_instance_id, row.metadata) for row in answer.members}
        # A static leader that comes back has a new member id. Only from version 9 on the answer names it as the leader
        # by that id (and ``skip_assignment``): with an older one it would take itself for a follower.
        leads = answer.leader == answer.member_id
        self.membership.joined(generation, leads, members, now, skip=answer.skip_assignment)

    def _send_sync(self, action: Sync) -> None:
        self.membership.sync_sent(self._clock.monotonic())
        request = SyncGroupRequest(
            group_id=self.membership.settings.group_id,
            generation_id=action.generation.generation_id,
            member_id=action.generation.member_id,
            group_instance_id=self.membership.settings.group_instance_id,
            assignments=tuple(
                SyncGroupAssignment(member_id=member, assignment=data) for member, data in action.assignments.items()
            ),
        )
        future = self.client.send(request, self._coordinator, self._rebalance_limit_s)
        future.add_listener(supervised(partial(self._sync_answered, action.generation), self._note_error))

    def _sync_answered(self, generation: Generation, done: RequestFuture[SyncGroupResponse]) -> None:
        if generation != self.membership.generation:
            return
        now = self._clock.monotonic()
        error = _error_of(done, f"Taking a share of group {self.membership.settings.group_id!r}")
        if error is not None:
            self.membership.sync_failed(error, now)
        else:
            self.membership.synced(done.value.assignment, now)
            self._metadata_changed(self.client.cluster)

    def _send_beat(self, action: Heartbeat) -> None:
        generation = action.generation
        request = HeartbeatRequest(
            group_id=self.membership.settings.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self.membership.settings.group_instance_id,
        )

        number = self._beats = self._beats + 1

        def answered(done: RequestFuture[HeartbeatResponse]) -> None:
            # Rule: only the newest is heard. One that was given up proves no place from when the newest was sent.
            if number != self._beats:
                return
            self.membership.beat_answered(_error_of(done, "A heartbeat"), generation, self._clock.monotonic())

        self.client.send(request, self._coordinator).add_listener(supervised(answered, self._note_error))

    def _send_leave(self, action: Leave) -> None:
        request = LeaveGroupRequest(group_id=self.membership.settings.group_id, member_id=action.member_id)
        assert self._coordinator is not None
        # Rule: over a connection of its own. A broker answers the requests of one connection in order, and a JoinGroup
        # may wait there for minutes.
        self._leaving = self.client.send(request, self._coordinator.dedicated("leave"))

    # -- sharing out, when this member leads

    def _begin_share(self, action: Share) -> None:
        self._share = action
        self._share_by_s = self._clock.monotonic() + _METADATA_PATIENCE_S
        wanted = {topic for row in self._subscriptions_of(action).values() for topic in row.topics}
        # Rule: forget topics of earlier rounds. A topic that nobody wants any more is in no share, so it would differ
        # from the last share each time metadata changes, and start rebalances without end.
        self.client.set_topics(wanted)

    def _try_share(self) -> None:
        share = self._share
        if share is None:
            return
        subscriptions = self._subscriptions_of(share)
        topics = {topic for row in subscriptions.values() for topic in row.topics}
        unknown = [topic for topic in topics if topic not in self.client.cluster.topics]
        if unknown and self._clock.monotonic() < self._share_by_s:
            return
        self._share, self._racks = None, {}
        self._counts = self._counts_of(topics)
        assignor = self._assignors.get(share.protocol)
        level = logging.DEBUG if assignor is not None and assignor.quiet else logging.INFO
        if share.skip:
            _log.log(level, "group %r is led from here again; what is shared out stays", self._config.group_id)
            self._hand_in({})
            return
        if assignor is None:
            raise KafkaError(f"The group chose the assignor {share.protocol!r}, which this member did not offer.")
        # By rack only where somebody tells one: the racks of all partitions are a look at each of them.
        told = any(row.rack_id for row in subscriptions.values())
        self._racks = self.client.cluster.partition_racks(topics) if told else {}
        if told:
            shares = assignor.assign_by_rack(self._counts, subscriptions, self._racks)
        else:
            shares = assignor.assign(self._counts, subscriptions)
        _log.log(level, "group %r is led from here; %s gives %s", self._config.group_id, share.protocol, shares)
        self._hand_in(assignor.encode(shares, subscriptions))

    def _hand_in(self, shares: Mapping[str, bytes]) -> None:
        self.membership.shared(shares)
        while (action := self.membership.step(self._clock.monotonic())) is not None:
            self._do(action)

    def _counts_of(self, topics: set[str] | frozenset[str]) -> dict[str, int]:
        cluster = self.client.cluster
        counts = {topic: cluster.partition_count(topic) for topic in topics}
        return {topic: count for topic, count in counts.items() if count is not None}

    @staticmethod
    def _subscriptions_of(share: Share) -> dict[str, Subscription]:
        found: dict[str, Subscription] = {}
        for member, (instance, data) in share.members.items():
            try:
                found[member] = decode_subscription(data, instance)
            except MalformedFrame as err:
                _log.warning("member %s sent a subscription that cannot be read: %s", member, err.message)
                found[member] = Subscription((), group_instance_id=instance)
        return found

    def _metadata_changed(self, cluster: Cluster) -> None:
        """Rejoin when the topics of the last share have other partitions now. Only the leader watches."""
        if self._share is not None:
            return
        if not self.membership.leads:
            self.client.set_topics(())  # another member watches them now
            return
        if not self._counts and not cluster.topics:
            return
        topics = self.client.metadata.topics
        now = self._counts_of(topics)
        before = {topic: count for topic, count in self._counts.items() if topic in topics}
        if now != before:
            changed = sorted(topic for topic in topics if now.get(topic) != before.get(topic))
            self.membership.rejoin(f"the partitions of {', '.join(changed)} changed")
        elif self._racks:
            self._racks_changed(cluster, topics)

    def _racks_changed(self, cluster: Cluster, topics: Iterable[str]) -> None:
        # Rule: a rack that came is a reason to share out again, one that is gone is none. A broker that is away for a
        # moment takes its rack out of the metadata, and each of its restarts would stop the group twice.
        found = cluster.partition_racks(topics)
        came = {tp.topic for tp, racks in found.items() if racks - self._racks.get(tp, racks)}
        if came:
            self.membership.rejoin(f"copies of {', '.join(sorted(came))} came to other racks")
