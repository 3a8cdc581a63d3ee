"""The group's side of a poll (Java: ``ConsumerCoordinator``): what each news of the membership leads to.

The membership lives in the group's thread (``group_thread.py``). Its news is acted on here, in the user's thread and
inside poll. When partitions change hands, ``owned_partitions.py`` has the user's side: the commit before, the listener,
and the records. There are six kinds of news:

- ``RejoinNeeded``: commit, give partitions back, and ask the thread to join again;
- ``Joined``: take over the share, tell the listener, fetch;
- ``Assigned``, in the newer protocol: the same once all names are known, and tell the thread;
- ``MembershipLost``: drop everything, for others may own it already; then join again;
- ``TopicsRefused``, in the newer protocol: raise, and keep everything;
- ``Fatal``: drop everything and raise.

An eager member gives everything back before it joins. A cooperative one (KIP-429) keeps reading through the rebalance
and gives back only what its new share lacks; others get that in a second round. So a cooperative member
may be given nothing in its first round, which is no final share.

A join goes on in the thread while the user works on records. ``_joining`` is True from :meth:`Rebalancer._prepare_join`
until the news of its end is taken.

In the newer protocol (KIP-848) there is no join to prepare: a member names its topics, and gives back all that its next
share lacks (:meth:`Rebalancer._reconcile`). The coordinator gives a partition away only once its owner has said that it
reads it no more, or is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, assert_never
from uuid import uuid4

from streamlet.base.chance import uniform
from streamlet.base.clock import Clock
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.consumer.assignors import PartitionAssignor, RebalanceProtocol, common_protocol, resolve_assignor
from streamlet.kafka.consumer.assignors.base import Subscription, decode_assignment
from streamlet.kafka.consumer.classic_group import classic_thread
from streamlet.kafka.consumer.commits import CommitBeforeJoin, Commits
from streamlet.kafka.consumer.consumer_config import CONSUMER_PROTOCOL, ConsumerConfig
from streamlet.kafka.consumer.delivery import HandedOut
from streamlet.kafka.consumer.epoch_group import EpochGroup
from streamlet.kafka.consumer.epoch_membership import EpochMembership, EpochSettings
from streamlet.kafka.consumer.errors import GroupThreadDied, MembershipFenced
from streamlet.kafka.consumer.fetcher import Fetcher
from streamlet.kafka.consumer.group_thread import GroupThread
from streamlet.kafka.consumer.membership import (
    NO_GENERATION,
    Assigned,
    Fatal,
    Generation,
    GroupSettings,
    Joined,
    Membership,
    MembershipLost,
    News,
    RejoinNeeded,
    TopicsRefused,
)
from streamlet.kafka.consumer.metrics import ConsumerMetrics
from streamlet.kafka.consumer.owned_partitions import ConsumerRebalanceListener, OwnedPartitions
from streamlet.kafka.consumer.positions import FirstPositions, Positions
from streamlet.kafka.consumer.reconciliation import Reconciliation
from streamlet.kafka.consumer.subscription_state import SubscriptionState, SubscriptionType
from streamlet.kafka.errors import KafkaError, MalformedFrame, copy_of
from streamlet.kafka.metadata.cluster import TopicPartition

_log = logging.getLogger(__name__)


class Rebalancer:
    """When this consumer joins, and what its share becomes. User's thread."""

    # Long: news, commits and joins have one order, and a listener may interrupt each step: the next poll takes it up.

    def __init__(
        self,
        client: KafkaClient,
        subscriptions: SubscriptionState,
        positions: Positions,
        fetcher: Fetcher,
        handed_out: HandedOut,
        config: ConsumerConfig,
        clock: Clock,
        metrics: ConsumerMetrics,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._subscriptions = subscriptions
        self._config = config
        self._clock = clock
        self._consumed = handed_out.consumed
        self._retry = config.retry_backoff
        assignors = [resolve_assignor(one) for one in config.partition_assignment_strategy]
        self._assignors: dict[str, PartitionAssignor] = {one.name: one for one in assignors}
        self.protocol = common_protocol(assignors)
        self.commits: Commits | None = None
        """None without a ``group_id``."""
        if config.group_id is not None:
            self.commits = Commits(
                client, subscriptions, config, clock.monotonic, self._rejoining, self._joined_since, metrics
            )
        self.first_positions = FirstPositions(subscriptions, positions, self.commits, self._retry, clock)
        self.owned = OwnedPartitions(client, subscriptions, fetcher, handed_out, self.commits, config.group_id)
        self._thread: GroupThread[Any] | None = None  # Any: what it joins with differs by protocol
        self._member: EpochMembership | None = None
        """The membership of the newer protocol, once there is one."""
        self._reconciliation = Reconciliation()
        self.threads: list[GroupThread[Any]] = []
        """The thread, once there is one: for the finalizer of a dropped consumer, which must not hold this object."""
        self._wants_join = True
        self._joining = False
        self._ended: KafkaError | None = None
        """Error that ended the membership for good: raised by every poll."""
        self._pre_join_commit: CommitBeforeJoin | None = None
        self._last_owned: tuple[TopicPartition, ...] = ()
        self._last_generation = -1
        self._last_joined = NO_GENERATION
        self._cluster_seen: object = None

    # -- poll

    def poll(self) -> None:
        """Do everything that is due in the group, waiting for nothing; users' callbacks run here."""
        commits = self.commits
        if commits is not None:
            commits.run_callbacks()
        if self._subscriptions.uses_group:
            self._poll_group()
        self.first_positions.ask()
        if commits is not None:
            commits.maybe_auto_commit(self._consumed)

    def _poll_group(self) -> None:
        thread = self._thread or self._start_thread()
        thread.polled(self._clock.monotonic())
        # Rule: one by one. A listener may raise in the middle, and later news must wait for the next poll: it
        # may say that the membership is lost.
        while (news := thread.next_news()) is not None:
            self._act_on(news)
        self._act_on_refused_commit(thread)
        if self._ended is not None:
            raise copy_of(self._ended)
        self._match_pattern()
        if self._wants_join and not self._joining:
            self._prepare_join(thread)
        if self._member is not None:
            self._reconcile(thread, self._member)

    def next_wake_s(self, now_s: float) -> float:
        """Return seconds until :meth:`poll` has something to do without an event."""
        wait = float("inf")
        if self.commits is not None:
            wait = self.commits.next_wake_s(now_s)
        if self._pre_join_commit is not None:
            wait = min(wait, self._pre_join_commit.next_wake_s(now_s))
        if self._subscriptions.uses_group:
            # Rule: a poll that waits says now and then that it polls. The group's thread leaves when it hears nothing.
            wait = min(wait, self._config.max_poll_interval_ms / 2000)
        return max(min(wait, self.first_positions.next_wake_s(now_s)), 0.0)

    def subscribed(self, listener: ConsumerRebalanceListener, *, changed: bool) -> None:
        """Take partitions from the group from now on; join (again) with the next poll if that ``changed``."""
        if changed:
            self._wants_join = True
            self._cluster_seen = None  # match a new pattern, although the cluster is the same
        assert self.commits is not None
        self.commits.in_group = True
        self.owned.listener = listener

    @property
    def last_generation(self) -> Generation:
        """Generation of the assignment this member has or had last; none for a reader of named partitions."""
        if self._subscriptions.kind is SubscriptionType.USER_ASSIGNED:
            return NO_GENERATION
        assert self.commits is not None
        # A lost member that has joined again must not be named by its new epoch before it has heard of the loss.
        lost = self.commits.generation is NO_GENERATION
        newer = self._joined_since() if self._member is not None and not lost else None
        return newer or self._last_joined

    def _rejoining(self, tps: Iterable[TopicPartition]) -> bool:
        """Return whether the thread is joining again while these partitions stay owned."""
        if self._member is not None:  # its epoch may move at any time, and partitions go only here
            return self._member.identity is not NO_GENERATION
        return self._joining and all(tp in self._subscriptions for tp in tps)

    def _joined_since(self) -> Generation | None:
        """Return a generation that the thread has joined, unknown to any poll."""
        if self._member is not None:
            identity = self._member.identity
            return None if identity is NO_GENERATION else identity
        news = self._thread.unheard() if self._thread is not None else []
        return news[-1].generation if news and isinstance(news[-1], Joined) else None

    def _start_thread(self) -> GroupThread[Any]:
        by_epoch = self._config.group_protocol == CONSUMER_PROTOCOL
        thread = self._epoch_thread() if by_epoch else self._classic_thread()
        # Rule: started before it is kept. One that the system refuses would be taken for running by each later poll,
        # which would return nothing, for ever.
        thread.start()
        self._thread = thread
        self.threads.append(thread)
        return thread

    def _epoch_thread(self) -> GroupThread[Any]:
        config = self._config
        assert config.group_id is not None
        settings = EpochSettings(
            config.group_id,
            str(uuid4()),
            config.group_instance_id,
            config.client_rack or None,
            config.group_remote_assignor,
            config.max_poll_interval_ms / 1000,
            self._retry,
        )
        self._member = EpochMembership(settings, uniform)
        group = EpochGroup(config, self._member, self._clock)
        return GroupThread(config, group, self._client.wakeup, self._clock)

    def _classic_thread(self) -> GroupThread[Any]:
        config = self._config
        assert config.group_id is not None
        settings = GroupSettings(
            config.group_id,
            config.group_instance_id,
            config.session_timeout_ms / 1000,
            config.heartbeat_interval_ms / 1000,
            config.max_poll_interval_ms / 1000,
            self._retry,
        )
        membership = Membership(settings, uniform)
        return classic_thread(config, membership, self._assignors, self._client.wakeup, self._clock)

    # -- news of the membership

    def _act_on(self, news: News) -> None:
        match news:
            case Joined():
                self._joining = False
                self._join_completed(news)
            case Assigned():
                self._begin_epoch(news)
            case MembershipLost():
                self._joining, self._wants_join = False, True
                self._drop_membership(news.reason)
            case TopicsRefused():
                raise copy_of(news.error)
            case Fatal():
                self._joining, self._wants_join = False, True
                if isinstance(news.error, (MembershipFenced, GroupThreadDied)):
                    self._ended = news.error
                self._drop_membership(news.error.message)
                raise copy_of(news.error)
            case RejoinNeeded():
                _log.info("group %r: joining again: %s", self._config.group_id, news.reason)
                self._wants_join = True
            case _:
                assert_never(news)

    def _act_on_refused_commit(self, thread: GroupThread[Any]) -> None:
        """Give the membership up when a commit was refused as no member's."""
        commits = self.commits
        assert commits is not None
        # Rule: now, before more is handed out. A heartbeat would say the same, but seconds later, and until then the
        # user would work on records that another member works on already.
        refused, commits.refused = commits.refused, None
        # A join under way, or one heard of just now, decides by itself whether we are a member.
        newest = self._joined_since() if self._member is not None else None
        if refused is None or self._joining or refused[0] is not (newest or commits.generation):
            return
        reason = thread.expelled(refused[1])
        self._wants_join = True
        _log.warning("group %r: %s", self._config.group_id, reason)
        self._drop_membership(reason)

    def _drop_membership(self, reason: str) -> None:
        assert self.commits is not None
        self.commits.generation, self.commits.lost_reason = NO_GENERATION, reason
        self._pre_join_commit = None
        self._last_owned = ()
        self._reconciliation.forget()
        self._metrics.memberships_lost += 1
        self.owned.lose()

    def _match_pattern(self) -> None:
        if self._subscriptions.kind is not SubscriptionType.AUTO_PATTERN:
            return
        cluster = self._client.cluster
        if cluster is self._cluster_seen:
            return
        self._cluster_seen = cluster
        if self._subscriptions.topics_matched(cluster, self._config.exclude_internal_topics):
            _log.info("the pattern now matches %s", sorted(self._subscriptions.topics) or "no topic")
            self._wants_join = True

    # -- joining

    def _prepare_join(self, thread: GroupThread[Any]) -> None:
        """Commit, give partitions back, and join; may take several polls."""
        if self._client.metadata.update_version == 0 and self._subscriptions.kind is SubscriptionType.AUTO_PATTERN:
            return  # the topics that match are not known yet
        if self._member is not None:
            self._wants_join = False
            self._name_topics(thread, self._member)
            return
        if not self._committed_before_join():
            return
        kept: tuple[TopicPartition, ...] = ()
        if self.protocol is not RebalanceProtocol.EAGER:
            kept = tuple(tp for tp in self._subscriptions.assigned if self._subscriptions.matches(tp.topic))
        self._wants_join, self._joining = False, True
        try:
            self.owned.keep(kept)
        finally:
            thread.join(self._protocols(kept))

    def _committed_before_join(self) -> bool:
        commits = self.commits
        assert commits is not None
        if not commits.automatic or commits.generation is NO_GENERATION:
            return True
        now = self._clock.monotonic()
        if self._pre_join_commit is None:
            if not self._consumed():
                return True
            self._pre_join_commit = CommitBeforeJoin(commits, self._consumed, self._retry, now)
            if self.protocol is RebalanceProtocol.EAGER:
                # Rule: hand out nothing while this commit is under way. Positions would run ahead of it, and the next
                # owner would read those records again.
                for row in self._subscriptions.rows():
                    row.pending_revocation = True
        if not self._pre_join_commit.over(now):
            return False
        self._pre_join_commit = None
        return True

    def _protocols(self, owned: tuple[TopicPartition, ...]) -> tuple[tuple[str, bytes], ...]:
        topics = tuple(sorted(self._subscriptions.topics))
        rack = self._config.client_rack or None
        rows: list[tuple[str, bytes]] = []
        for name, assignor in self._assignors.items():
            data = assignor.user_data(self._last_owned, self._last_generation)
            row = Subscription(topics, data, owned, self._last_generation, rack)
            rows.append((name, row.encode()))
        return tuple(rows)

    def _join_completed(self, news: Joined) -> None:
        assert self.commits is not None
        given = self._decode_share(news.assignment)
        wanted = tuple(tp for tp in given if self._subscriptions.matches(tp.topic))
        if len(wanted) < len(given):
            _log.warning("the share holds topics that are no longer subscribed; joining again")
            self._wants_join = True
        self._last_owned, self._last_generation = wanted, news.generation.generation_id
        # Rule: commits are made under the generation that gave us the partition. It changes here, where the share is
        # taken over, and not when the thread joins: so the coordinator can refuse a member that slept through that.
        # Partitions that stay owned through a cooperative rebalance are committed under the new one.
        self.commits.generation, self.commits.lost_reason = news.generation, None
        self._last_joined = news.generation
        self._metrics.rebalances += 1
        _log.info(
            "group %r, generation %d%s: assigned %s",
            self._config.group_id,
            news.generation.generation_id,
            " (leads)" if news.leads else "",
            ", ".join(map(str, sorted(wanted))) or "nothing",
        )
        if self.owned.missing_in(wanted):
            # Given back now, they are nobody's: another round gives them to their new owners.
            self._wants_join = True
        self.owned.take_over(wanted)

    def _decode_share(self, assignment: bytes) -> tuple[TopicPartition, ...]:
        try:
            return decode_assignment(assignment)
        except MalformedFrame as err:
            self._wants_join = True  # the leader's fault: tell the user, and ask for another share
            raise MalformedFrame(
                f"The share of group {self._config.group_id!r} that its leader gave this member cannot be read "
                f"({err.message}). The next poll joins again; if it stays, fix or stop the member that leads."
            ) from err

    # -- the newer protocol

    def _name_topics(self, thread: GroupThread[Any], member: EpochMembership) -> None:
        assert self.commits is not None
        topics = self._subscriptions.topics
        if self.commits.generation is NO_GENERATION:
            thread.join(topics)
        else:
            thread.wish(partial(member.subscribe, topics))

    def _begin_epoch(self, news: Assigned) -> None:
        """Take in another share; :meth:`_reconcile` acts on it."""
        assert self.commits is not None
        self._reconciliation.give(news.partitions)
        self.commits.generation, self.commits.lost_reason = news.identity, None
        self._last_joined = news.identity
        self._metrics.rebalances += 1

    def _reconcile(self, thread: GroupThread[Any], member: EpochMembership) -> None:
        """Give back and take partitions, then have the thread say so."""
        subscriptions, reconciliation = self._subscriptions, self._reconciliation
        share = reconciliation.due(self._client.cluster, subscriptions.topics, subscriptions.matches)
        if share is None:
            return
        if share.unnamed:
            # As after an error, ever more slowly: the topic may be gone, and its name never told.
            self._client.metadata.request_update(reset_equivalent=False)
        if reconciliation.nothing_named(share):
            return
        if reconciliation.is_taken(share):
            if reconciliation.unanswered:
                reconciliation.take(share)
                thread.wish(partial(member.reconciled, share.by_id, share.given))
            return
        _log.info(
            "group %r, epoch %d: assigned %s",
            self._config.group_id,
            self.last_generation.generation_id,
            ", ".join(map(str, share.partitions)) or "nothing",
        )
        try:
            self.owned.take_over(share.partitions)
        finally:
            # Rule: only now, when nothing of it is read any more. The coordinator gives it to the next owner.
            if reconciliation.take(share):
                thread.wish(partial(member.reconciled, share.by_id, share.given))

    # -- leaving

    def unsubscribe(self) -> None:
        """Give the partitions back and leave the group, as a member."""
        commits = self.commits
        if commits is None:
            return
        thread = self._thread if self._subscriptions.uses_group else None
        try:
            if thread is not None and commits.generation is not NO_GENERATION:
                self.owned.revoke(self._subscriptions.assigned)
        finally:
            if thread is not None:
                thread.leave()
                self._joining, self._wants_join = False, True
                self._pre_join_commit = None
                self._last_owned = ()
                self._reconciliation.forget()
                commits.generation, commits.lost_reason = NO_GENERATION, "unsubscribe() was called"
            commits.in_group = False

    def close(self, timeout_s: float) -> None:
        """Commit a last time, tell the listener, leave; all within ``timeout_s``."""
        deadline = self._clock.monotonic() + timeout_s
        commits = self.commits
        try:
            if commits is not None and (commits.automatic or commits.waits_for_async):
                self._last_commits(commits, deadline)
            if self._subscriptions.uses_group and commits is not None and commits.generation is not NO_GENERATION:
                self.owned.revoke(self._subscriptions.assigned)
        finally:
            if self._thread is not None:
                self._thread.stop(max(deadline - self._clock.monotonic(), 0.0))

    def _last_commits(self, commits: Commits, deadline: float) -> None:
        member = not commits.in_group or commits.generation is not NO_GENERATION
        offsets = self._consumed() if commits.automatic and member else {}
        try:
            commits.commit_sync(offsets, max(deadline - self._clock.monotonic(), 0.0))
        except KafkaError as err:
            _log.warning("the last automatic commit failed: %s", err.message)
            commits.wait_for_async(max(deadline - self._clock.monotonic(), 0.0))
