"""The thread that keeps a membership: joins, heartbeats, leaves (C6).

It owns a client, and the :class:`Membership`, whole: no lock is shared with poll, so that neither can hold the other
up. The consumer hands it wishes over a queue and wakes it; it hands news over another and wakes the consumer. A join
goes on while the user works, and heartbeats go out as soon as the group has answered, whether anybody polls or not.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from streamlet.base.clock import Clock
from streamlet.kafka.broker_errors import error_class
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.closing import HASTE_S
from streamlet.kafka.client.group_requests import find_coordinator
from streamlet.kafka.consumer.assignors import PartitionAssignor
from streamlet.kafka.consumer.assignors.base import (
    PROTOCOL_TYPE,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.errors import GroupThreadDied
from streamlet.kafka.consumer.membership import (
    JOIN_GRACE_S,
    Action,
    Beat,
    Fatal,
    FindCoordinator,
    Generation,
    Join,
    Leave,
    Membership,
    MembershipLost,
    News,
    Share,
    Sync,
)
from streamlet.kafka.errors import KafkaError, MalformedFrame
from streamlet.kafka.future import RequestFuture
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
_T = TypeVar("_T")

_METADATA_PATIENCE_S = 10.0
"""How long the leader waits to hear of the group's topics before it shares out what it knows."""


class GroupThread:
    """Starts with :meth:`start`; everything but ``_run`` and what it calls belongs to the consumer's thread."""

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
        """How often the consumer left: news of an earlier life are not for it any more. ``_life``: the thread's."""
        self._died: Fatal | None = None
        self._mistake: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"streamlet-group-{config.group_id}", daemon=True)
        self._started = False
        self._stop_by_s: float | None = None
        self._coordinator: Broker | None = None
        self._leaving: RequestFuture[LeaveGroupResponse] | None = None
        self._share: Share | None = None
        self._joins, self._share_by_s = 0, 0.0
        self._counts: dict[str, int] = {}
        self._client.metadata.add_listener(self._metadata_changed)

    # -- the consumer's side

    def start(self) -> None:
        """Begin. May be called again."""
        if not self._started:
            self._started = True
            self._thread.start()

    def polled(self, now_s: float) -> None:
        """The user polls."""
        self._membership.polled_s = now_s

    def join(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Join the group, or join again."""
        self._wish(lambda: self._membership.join(protocols, self._clock.monotonic()))

    def leave(self) -> None:
        """Leave; the thread goes on and can join again. News of what was before are dropped."""
        self._lives += 1
        life = self._lives

        def leave() -> None:
            self._life = life
            self._joins += 1
            self._membership.leave()

        self._wish(leave)

    def expelled(self, error: type[KafkaError]) -> str:
        """A commit was refused as no member's: what the membership was is over, and the thread can join again. Why."""
        reason = self._membership.without_us(error, self._clock.monotonic())
        self.leave()
        return reason

    def next_news(self) -> News | None:
        """What happened next; None when nothing has. One by one: what is done about it may raise."""
        while self._news:
            life, news = self._news.popleft()
            if life == self._lives:
                return news
        return self._died

    def unheard(self) -> list[News]:
        """What :meth:`next_news` will give."""
        return [news for life, news in list(self._news) if life == self._lives]

    def stop(self, timeout_s: float) -> None:
        """Leave the group and end, in that time: later the thread is left to its end by itself."""
        if not self._started:
            self._client.close()
            return
        self._end_within(timeout_s)
        self._thread.join(timeout_s + 1.0)

    def abandon(self) -> None:
        """Leave the group and end by itself. For a consumer nobody holds any more: may run in any thread, this too."""
        self._end_within(HASTE_S)

    def _end_within(self, timeout_s: float) -> None:
        def ask() -> None:
            self._stop_by_s = self._clock.monotonic() + timeout_s
            self._joins += 1  # a join under way makes us a member no more
            self._membership.leave()

        self._wish(ask)

    def _wish(self, wish: Callable[[], None]) -> None:
        self._wishes.append(wish)
        self._client.wakeup()

    # -- the thread's side

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
                if self._mistake is not None:
                    raise self._mistake
        except Exception as err:  # noqa: BLE001 - whatever ends this thread must be heard in the next poll
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
        left = self._leaving is None or self._leaving.done
        return (left and self._membership.next_wake_s(0.0) > 0) or self._clock.monotonic() >= self._stop_by_s

    def _pass_on(self) -> None:
        if self._membership.told:
            for news in self._membership.told:
                if isinstance(news, MembershipLost):  # now: who does not poll would hear of it late, or never
                    _log.warning("group %r: %s", self._config.group_id, news.reason)
            self._news.extend((self._life, news) for news in self._membership.told)
            self._membership.told.clear()
            self._wake_consumer()

    def _do(self, action: Action) -> None:
        if isinstance(action, FindCoordinator):
            find_coordinator(self._client, self._membership.settings.group_id).add_listener(
                self._supervised(self._found)
            )
        elif isinstance(action, Join):
            self._send_join(action)
        elif isinstance(action, Share):
            self._begin_share(action)
        elif isinstance(action, Sync):
            self._send_sync(action)
        elif isinstance(action, Beat):
            self._send_beat(action)
        else:
            self._send_leave(action)

    def _supervised(self, listener: Callable[[RequestFuture[_T]], None]) -> Callable[[RequestFuture[_T]], None]:
        """A listener whose own mistake ends this thread: a future would log it, and the membership would wait on."""

        def call(done: RequestFuture[_T]) -> None:
            try:
                listener(done)
            except Exception as err:  # noqa: BLE001 - whatever it is, this turn of the loop raises it
                self._mistake = err

        return call

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
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(JoinGroupProtocol(name=name, metadata=data) for name, data in action.protocols),
        )
        limit = max(config.max_poll_interval_ms / 1000 + JOIN_GRACE_S, config.request_timeout_ms / 1000)
        self._joins += 1
        answered = self._supervised(partial(self._join_answered, self._joins))
        self._client.send(request, self._coordinator, limit).add_listener(answered)

    def _join_answered(self, number: int, done: RequestFuture[JoinGroupResponse]) -> None:
        if number != self._joins:
            # We left while it was under way: whom it made a member, nobody will speak for.
            if done.succeeded and done.value.error_code == 0:
                self._send_leave(Leave(done.value.member_id))
            return
        now, error, member_id = self._clock.monotonic(), done.exception, ""
        if error is None:
            member_id = done.value.member_id
            fault = error_class(done.value.error_code)
            error = None if fault is None else fault(f"Joining group {self._membership.settings.group_id!r}")
        if error is not None:
            self._membership.join_failed(error, member_id, now)
            return
        answer = done.value
        generation = Generation(answer.generation_id, answer.member_id, answer.protocol_name or "")
        members = {row.member_id: (row.group_instance_id, row.metadata) for row in answer.members}
        leads = answer.leader == answer.member_id
        self._membership.joined(generation, leads, members, now, skip=answer.skip_assignment)

    def _send_sync(self, action: Sync) -> None:
        request = SyncGroupRequest(
            group_id=self._membership.settings.group_id,
            generation_id=action.generation.generation_id,
            member_id=action.generation.member_id,
            group_instance_id=self._config.group_instance_id,
            assignments=tuple(
                SyncGroupAssignment(member_id=member, assignment=data) for member, data in action.assignments.items()
            ),
        )
        limit = max(self._config.max_poll_interval_ms / 1000 + JOIN_GRACE_S, self._config.request_timeout_ms / 1000)
        future = self._client.send(request, self._coordinator, limit)
        future.add_listener(self._supervised(partial(self._sync_answered, action.generation)))

    def _sync_answered(self, generation: Generation, done: RequestFuture[SyncGroupResponse]) -> None:
        if generation != self._membership.generation:
            return
        now, error = self._clock.monotonic(), done.exception
        if error is None:
            fault = error_class(done.value.error_code)
            error = None if fault is None else fault(f"Taking a share of group {self._membership.settings.group_id!r}")
        if error is not None:
            self._membership.sync_failed(error, now)
        else:
            self._membership.synced(done.value.assignment, now)
            self._metadata_changed(self._client.cluster)

    def _send_beat(self, action: Beat) -> None:
        generation = action.generation
        request = HeartbeatRequest(
            group_id=self._membership.settings.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._config.group_instance_id,
        )

        def answered(done: RequestFuture[HeartbeatResponse]) -> None:
            error: KafkaError | None = done.exception
            if error is None:
                fault = error_class(done.value.error_code)
                error = None if fault is None else fault("A heartbeat")
            self._membership.beat_answered(error, generation, self._clock.monotonic())

        self._client.send(request, self._coordinator).add_listener(self._supervised(answered))

    def _send_leave(self, action: Leave) -> None:
        request = LeaveGroupRequest(group_id=self._membership.settings.group_id, member_id=action.member_id)
        assert self._coordinator is not None
        # A broker answers one request of a connection after the other, and a join may wait there for minutes.
        self._leaving = self._client.send(request, self._coordinator.dedicated("leave"))

    # -- sharing out, when this member leads

    def _begin_share(self, action: Share) -> None:
        self._share = action
        self._share_by_s = self._clock.monotonic() + _METADATA_PATIENCE_S
        wanted = {topic for row in self._subscriptions_of(action).values() for topic in row.topics}
        for topic in self._client.metadata.topics - wanted:
            self._client.metadata.remove_topic(topic)  # or it would differ from what is shared out, for ever
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
        if share.skip:
            _log.info("group %r is led from here again; what is shared out stays", self._config.group_id)
            self._hand_in({})
            return
        assignor = self._assignors.get(share.protocol)
        if assignor is None:
            raise KafkaError(f"The group chose the assignor {share.protocol!r}, which this member did not offer.")
        shares = assignor.assign(self._counts, subscriptions)
        _log.info("group %r is led from here; %s gives %s", self._config.group_id, share.protocol, shares)
        self._hand_in({member: encode_assignment(partitions) for member, partitions in shares.items()})

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
        """The leader watches whether what it shared out still is all there is."""
        if not self._membership.leads or self._share is not None or (not self._counts and not cluster.topics):
            return
        topics = self._client.metadata.topics
        now = self._counts_of(topics)
        before = {topic: count for topic, count in self._counts.items() if topic in topics}
        if now != before:
            changed = sorted(topic for topic in topics if now.get(topic) != before.get(topic))
            self._membership.rejoin(f"the partitions of {', '.join(changed)} changed")
