"""The thread that keeps a membership: joins, heartbeats, leaves.

It owns a client with connections of its own, and the :class:`Membership`. No lock is shared with poll, so that neither
can hold the other up: heartbeats go out while the user works, and a join needs no poll to go on.

Two queues connect it with the user's thread, both deques, whose ``append`` and ``popleft`` are atomic:

- ``_wishes``, functions that the thread runs (join, leave, end); each wakes the thread's client;
- ``_news``, what happened to the membership; each wakes the consumer's client. News carries the number of the *life* it
  belongs to: a ``leave`` begins a new life, and the reader drops news of earlier ones.

Beside them, single values that one side writes and the other reads: ``polled_s`` of the membership, ``_lives``,
``_died``. Rule: nothing here may lead to the consumer object. A dropped one would live as long as its thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar, assert_never

from streamlet.base.clock import Clock
from streamlet.kafka.broker_errors import error_class
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.closing import HASTE_S
from streamlet.kafka.client.group_requests import find_coordinator
from streamlet.kafka.consumer.assignors import PartitionAssignor
from streamlet.kafka.consumer.assignors.base import PROTOCOL_TYPE, Subscription, decode_subscription
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.errors import GroupThreadDied
from streamlet.kafka.consumer.membership import (
    JOIN_GRACE_S,
    Action,
    Fatal,
    FindCoordinator,
    Generation,
    Heartbeat,
    Join,
    Leave,
    Membership,
    MembershipLost,
    News,
    Share,
    Sync,
)
from streamlet.kafka.errors import KafkaError, MalformedFrame
from streamlet.kafka.future import RequestFuture, supervised
from streamlet.kafka.metadata.cluster import Broker, Cluster
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

_METADATA_PATIENCE_S = 10.0
"""Seconds that the leader waits for metadata of all topics before it shares out."""


_Answer = TypeVar("_Answer", JoinGroupResponse, SyncGroupResponse, HeartbeatResponse)


def _error_of(done: RequestFuture[_Answer], what: str) -> KafkaError | None:
    """Return the error of a request or of its answer, or None."""
    if done.exception is not None:
        return done.exception
    fault = error_class(done.value.error_code)
    return None if fault is None else fault(what)


class GroupThread:
    """A membership's thread, and the consumer's handle to it."""

    # Long: one thread's loop, and a request and an answer for each action of `Membership`, which decides. The user's
    # side is two short methods.

    def __init__(
        self,
        config: ConsumerConfig,
        membership: Membership,
        assignors: Mapping[str, PartitionAssignor],
        wake_consumer: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._config = config
        self._membership = membership
        self._assignors = assignors
        self._wake_consumer = wake_consumer
        self._clock = clock
        self._client = KafkaClient(config, clock, allow_auto_topic_creation=config.allow_auto_create_topics)
        self._wishes: deque[Callable[[], None]] = deque()
        self._news: deque[tuple[int, News]] = deque()
        self._lives = self._life = 0
        """How often the consumer left. ``_lives`` is the user's thread's count, ``_life`` the group thread's."""
        self._died: Fatal | None = None
        """The end of this thread by an error. Written by it, read by each poll."""
        self._listener_error: Exception | None = None
        """Error of a listener, raised by the loop."""
        self._thread = threading.Thread(target=self._run, name=f"streamlet-group-{config.group_id}", daemon=True)
        self._stop_by_s: float | None = None
        # Join and sync are answered when all members have joined, which the slowest may put off for its poll interval.
        rebalance_s = config.max_poll_interval_ms / 1000 + JOIN_GRACE_S
        self._rebalance_limit_s = max(rebalance_s, config.request_timeout_ms / 1000)
        self._coordinator: Broker | None = None
        self._leaving: RequestFuture[LeaveGroupResponse] | None = None
        self._share: Share | None = None
        self._joins, self._share_by_s = 0, 0.0
        """Number of the last join, and the latest time to share out."""
        self._counts: dict[str, int] = {}
        """Partitions by topic as they were last shared out; for the leader to notice a change."""
        self._client.metadata.add_listener(self._metadata_changed)

    # -- called by the user's thread

    def start(self) -> None:
        self._thread.start()

    def polled(self, now_s: float) -> None:
        """Note that the user polls."""
        self._membership.polled_s = now_s

    def join(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Wish to join the group, or to join again."""
        self._wish(lambda: self._membership.join(protocols, self._clock.monotonic()))

    def leave(self) -> None:
        """Wish to leave, and drop the news of this life; the thread can join again."""
        self._lives += 1
        life = self._lives

        def leave() -> None:
            self._life = life
            self._joins += 1
            self._membership.leave()

        self._wish(leave)

    def expelled(self, error: type[KafkaError]) -> str:
        """End the membership after a commit was refused as no member's; return the reason."""
        reason = self._membership.without_us(error, self._clock.monotonic())
        self.leave()
        return reason

    def next_news(self) -> News | None:
        """Remove and return the next news; None without any. A thread that died says so each time."""
        while self._news:
            life, news = self._news.popleft()
            if life == self._lives:
                return news
        return self._died

    def unheard(self) -> list[News]:
        """Return the news that :meth:`next_news` will give."""
        return [news for life, news in list(self._news) if life == self._lives]

    def stop(self, timeout_s: float) -> None:
        """Leave the group and end; wait for it no longer than ``timeout_s`` and a second."""
        if self._thread.ident is None:  # never started
            self._client.close()
            return
        self._end_within(timeout_s)
        self._thread.join(timeout_s + 1.0)

    def abandon(self) -> None:
        """Leave the group and end without being waited for; called by the finalizer, in any thread."""
        self._end_within(HASTE_S)

    def _end_within(self, timeout_s: float) -> None:
        def ask() -> None:
            self._stop_by_s = self._clock.monotonic() + timeout_s
            self._joins += 1  # a join under way must not make us a member
            self._membership.leave()

        self._wish(ask)

    def _wish(self, wish: Callable[[], None]) -> None:
        self._wishes.append(wish)
        self._client.wakeup()

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._over():
                while self._wishes:
                    self._wishes.popleft()()
                now = self._clock.monotonic()
                while (action := self._membership.step(now)) is not None:
                    self._do(action)
                self._try_share()
                self._pass_on()
                if self._wishes or self._over():
                    continue
                self._client.poll(self._wait_s())
                if self._listener_error is not None:
                    raise self._listener_error
        except Exception as err:  # noqa: BLE001 - any error that ends this thread must be raised by the next poll
            _log.exception("the thread of group %r ended", self._config.group_id)
            died = GroupThreadDied(
                f"The thread that keeps the membership in group {self._config.group_id!r} ended with "
                f"{type(err).__name__}: {err}. Close this consumer and make a new one."
            )
            self._died = Fatal(died)
            self._wake_consumer()
        finally:
            self._client.close()

    def _wait_s(self) -> float:
        now = self._clock.monotonic()
        wait = self._membership.next_wake_s(now)
        if self._share is not None:
            wait = min(wait, max(self._share_by_s - now, 0.0))
        if self._stop_by_s is not None:
            wait = min(wait, max(self._stop_by_s - now, 0.0))
        return min(wait, 3600.0)

    def _over(self) -> bool:
        if self._stop_by_s is None:
            return False
        # The end waits until LeaveGroup is sent (the membership has nothing to do at once) and answered: closing the
        # socket earlier might cost the request. Answers to other requests are not waited for.
        left = self._leaving is None or self._leaving.done
        return (left and self._membership.next_wake_s(0.0) > 0) or self._clock.monotonic() >= self._stop_by_s

    def _pass_on(self) -> None:
        if self._membership.news:
            for news in self._membership.news:
                # Logged from here: a user who does not poll would hear of it late, or never.
                if isinstance(news, MembershipLost):
                    _log.warning("group %r: %s", self._config.group_id, news.reason)
            self._news.extend((self._life, news) for news in self._membership.news)
            self._membership.news.clear()
            self._wake_consumer()

    def _do(self, action: Action) -> None:
        match action:
            case FindCoordinator():
                search = find_coordinator(self._client, self._membership.settings.group_id)
                search.add_listener(supervised(self._found, self._note_error))
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
        self._listener_error = error

    def _found(self, done: RequestFuture[Broker]) -> None:
        now = self._clock.monotonic()
        if done.exception is not None:
            self._membership.coordinator_not_found(done.exception, now)
        else:
            self._coordinator = done.value.dedicated("group")
            self._membership.coordinator_found(now)

    def _send_join(self, action: Join) -> None:
        config = self._config
        request = JoinGroupRequest(
            group_id=self._membership.settings.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=action.member_id,
            group_instance_id=self._membership.settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(JoinGroupProtocol(name=name, metadata=data) for name, data in action.protocols),
        )
        self._joins += 1
        answered = supervised(partial(self._join_answered, self._joins), self._note_error)
        self._client.send(request, self._coordinator, self._rebalance_limit_s).add_listener(answered)

    def _join_answered(self, number: int, done: RequestFuture[JoinGroupResponse]) -> None:
        if number != self._joins:
            # We left while the join was under way. If it made a member all the same, nobody would send its heartbeats,
            # and the group would wait for it until its session ends: so that member leaves at once.
            if done.succeeded and done.value.error_code == 0:
                self._send_leave(Leave(done.value.member_id))
            return
        now, error = self._clock.monotonic(), _error_of(done, f"Joining group {self._membership.settings.group_id!r}")
        if error is not None:
            self._membership.join_failed(error, done.value.member_id if done.succeeded else "", now)
            return
        answer = done.value
        generation = Generation(answer.generation_id, answer.member_id, answer.protocol_name or "")
        members = {row.member_id: (row.group_instance_id, row.metadata) for row in answer.members}
        # A static leader that comes back has a new member id. Only from version 9 on the answer names it as the leader
        # by that id (and ``skip_assignment``): with an older one it would take itself for a follower.
        leads = answer.leader == answer.member_id
        self._membership.joined(generation, leads, members, now, skip=answer.skip_assignment)

    def _send_sync(self, action: Sync) -> None:
        self._membership.sync_sent(self._clock.monotonic())
        request = SyncGroupRequest(
            group_id=self._membership.settings.group_id,
            generation_id=action.generation.generation_id,
            member_id=action.generation.member_id,
            group_instance_id=self._membership.settings.group_instance_id,
            assignments=tuple(
                SyncGroupAssignment(member_id=member, assignment=data) for member, data in action.assignments.items()
            ),
        )
        future = self._client.send(request, self._coordinator, self._rebalance_limit_s)
        future.add_listener(supervised(partial(self._sync_answered, action.generation), self._note_error))

    def _sync_answered(self, generation: Generation, done: RequestFuture[SyncGroupResponse]) -> None:
        if generation != self._membership.generation:
            return
        now = self._clock.monotonic()
        error = _error_of(done, f"Taking a share of group {self._membership.settings.group_id!r}")
        if error is not None:
            self._membership.sync_failed(error, now)
        else:
            self._membership.synced(done.value.assignment, now)
            self._metadata_changed(self._client.cluster)

    def _send_beat(self, action: Heartbeat) -> None:
        generation = action.generation
        request = HeartbeatRequest(
            group_id=self._membership.settings.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._membership.settings.group_instance_id,
        )

        def answered(done: RequestFuture[HeartbeatResponse]) -> None:
            self._membership.beat_answered(_error_of(done, "A heartbeat"), generation, self._clock.monotonic())

        self._client.send(request, self._coordinator).add_listener(supervised(answered, self._note_error))

    def _send_leave(self, action: Leave) -> None:
        request = LeaveGroupRequest(group_id=self._membership.settings.group_id, member_id=action.member_id)
        assert self._coordinator is not None
        # Rule: over a connection of its own. A broker answers the requests of one connection in order, and a JoinGroup
        # may wait there for minutes.
        self._leaving = self._client.send(request, self._coordinator.dedicated("leave"))

    # -- sharing out, when this member leads

    def _begin_share(self, action: Share) -> None:
        self._share = action
        self._share_by_s = self._clock.monotonic() + _METADATA_PATIENCE_S
        wanted = {topic for row in self._subscriptions_of(action).values() for topic in row.topics}
        # Rule: forget topics of earlier rounds. A topic that nobody wants any more is in no share, so it would differ
        # from the last share each time metadata changes, and start rebalances without end.
        for topic in self._client.metadata.topics - wanted:
            self._client.metadata.remove_topic(topic)
        for topic in wanted:
            self._client.add_topic(topic)

    def _try_share(self) -> None:
        share = self._share
        if share is None:
            return
        subscriptions = self._subscriptions_of(share)
        topics = {topic for row in subscriptions.values() for topic in row.topics}
        unknown = [topic for topic in topics if topic not in self._client.cluster.topics]
        if unknown and self._clock.monotonic() < self._share_by_s:
            return
        self._share = None
        self._counts = self._counts_of(topics)
        assignor = self._assignors.get(share.protocol)
        level = logging.DEBUG if assignor is not None and assignor.quiet else logging.INFO
        if share.skip:
            _log.log(level, "group %r is led from here again; what is shared out stays", self._config.group_id)
            self._hand_in({})
            return
        if assignor is None:
            raise KafkaError(f"The group chose the assignor {share.protocol!r}, which this member did not offer.")
        shares = assignor.assign(self._counts, subscriptions)
        _log.log(level, "group %r is led from here; %s gives %s", self._config.group_id, share.protocol, shares)
        self._hand_in(assignor.encode(shares, subscriptions))

    def _hand_in(self, shares: Mapping[str, bytes]) -> None:
        self._membership.shared(shares)
        while (action := self._membership.step(self._clock.monotonic())) is not None:
            self._do(action)

    def _counts_of(self, topics: set[str] | frozenset[str]) -> dict[str, int]:
        cluster = self._client.cluster
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
        if not self._membership.leads or self._share is not None or (not self._counts and not cluster.topics):
            return
        topics = self._client.metadata.topics
        now = self._counts_of(topics)
        before = {topic: count for topic, count in self._counts.items() if topic in topics}
        if now != before:
            changed = sorted(topic for topic in topics if now.get(topic) != before.get(topic))
            self._membership.rejoin(f"the partitions of {', '.join(changed)} changed")
