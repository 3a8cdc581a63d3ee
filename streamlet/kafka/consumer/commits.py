"""Commits of one consumer: with and without waiting, automatic, and before a rebalance.

An offset is that of the *next* record to read, with the leader epoch of the record before it. It is sent under the
generation that gave us the partition: that lets the coordinator refuse a member that others have replaced. Callbacks
run in the user's thread, in the order of their commits.

The hard case is a rebalance under way. For the coordinator a generation is over as soon as the group is joined again,
before any member hears of its new share. An eager member owns nothing then. A cooperative one keeps its partitions and
commits them in between: its commit is refused as of an old generation, although nothing is lost. So:

- a refusal during a join is a rebalance under way (RebalanceUnderWay) and no lost membership;
- the commit is tried again, under the generation that the group's thread has joined meanwhile.

That exception covers only partitions that stay owned through the join (``rejoining``).

In the newer protocol (KIP-848) every heartbeat may move the member's epoch, and the coordinator takes commits of the
newest one only. A member is always ``rejoining`` there: a refusal as of a stale epoch is a rebalance under way, and the
commit is tried again under the epoch that the thread has heard meanwhile. Offsets are asked for under it, too.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import (
    FencedInstanceId,
    IllegalGeneration,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, GroupOffsetCalls, OffsetAndMetadata
from streamlet.kafka.consumer.consumer_config import CONSUMER_PROTOCOL, ConsumerConfig
from streamlet.kafka.consumer.errors import CommitFailed, MembershipFenced, RebalanceUnderWay
from streamlet.kafka.consumer.membership import NO_GENERATION, TAKES_LONG, Generation
from streamlet.kafka.consumer.metrics import ConsumerMetrics
from streamlet.kafka.consumer.subscription_state import SubscriptionState
from streamlet.kafka.errors import BrokerError, ClientTimeout, KafkaError
from streamlet.kafka.future import RequestFuture, failed_future
from streamlet.kafka.metadata.cluster import TopicPartition

_log = logging.getLogger(__name__)

T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OffsetCommitCallback = Callable[[Offsets, KafkaError | None], None]

COMMIT_BEFORE_JOIN_S = 5.0
"""Seconds that an automatic commit may hold a rebalance up."""
STORED_AGAIN_S = 3600.0
"""Seconds after which an unchanged offset is committed again: those of a group without members expire by age."""


def worth_another_try(error: KafkaError) -> bool:
    """Return whether the same commit may succeed a moment later.

    One that a rebalance refused needs a poll first.
    """
    return error.retriable and not isinstance(error, (RebalanceUnderWay, UnknownTopicOrPartition))


NOT_JOINED = "it has not joined yet"


class Commits:
    """Commits of one consumer. User's thread."""

    def __init__(
        self,
        client: KafkaClient,
        subscriptions: SubscriptionState,
        config: ConsumerConfig,
        now_s: Callable[[], float],
        rejoining: Callable[[Iterable[TopicPartition]], bool],
        joined_since: Callable[[], Generation | None],
        metrics: ConsumerMetrics,
    ) -> None:
        """Take two questions about the group, which the rebalancer answers.

        ``rejoining(partitions)``: is the group's thread joining again while these stay owned? ``joined_since()``: the
        generation that it has joined and no poll has heard of yet.
        """
        assert config.group_id is not None
        self._client = client
        self._metrics = metrics
        self._subscriptions = subscriptions
        self._config = config
        self._now_s = now_s
        self._group_id = config.group_id
        self._by_epoch = config.group_protocol == CONSUMER_PROTOCOL
        self._offsets = GroupOffsetCalls(client, config.group_id, "group", self._by_epoch)
        self._retry = config.retry_backoff
        self._order: deque[tuple[RequestFuture[None], Offsets, OffsetCommitCallback | None]] = deque()
        self.generation: Generation = NO_GENERATION
        """Generation of the present assignment. Written by the rebalancer."""
        self.lost_reason: str | None = NOT_JOINED
        """Why there is no generation, for the error of a commit that comes too late. Written by the rebalancer."""
        self.refused: tuple[Generation, type[KafkaError]] | None = None
        """Generation under which a commit was refused as no member's, and the error. Read by the rebalancer."""
        self.in_group = False
        """Whether partitions come from the group; else commits are those of an outsider."""
        self._rejoining = rejoining
        self._joined_since = joined_since
        self._interval_s = config.auto_commit_interval_ms / 1000
        self.automatic = config.enable_auto_commit
        """Whether positions are committed by a timer."""
        self._next_auto_s = now_s() + self._interval_s
        self._auto_running: RequestFuture[None] | None = None
        self._auto_failures = 0

    # -- requests

    def send(self, offsets: Offsets) -> RequestFuture[None]:
        """Send one commit, once.

        Fails with CommitFailed, RebalanceUnderWay, MembershipFenced or a broker's error.
        """
        member, generation = None, self.generation
        if self.in_group:
            if generation is NO_GENERATION:
                return failed_future(self._too_late(None))
            if self._rejoining(offsets):
                # Our generation is over for the coordinator, and its successor has not been heard of in a poll yet.
                generation = self._joined_since() or generation
            member = self._named(generation)
        sent = dict(offsets)

        def judge(rows: Mapping[TopicPartition, type[BrokerError] | None]) -> None:
            self._judge(rows, generation)
            self._subscriptions.note_committed(sent, self._now_s())

        future = self._offsets.commit(sent, member).then(judge)
        future.add_listener(self._count)
        return future

    def _named(self, generation: Generation) -> ConsumerGroupMetadata:
        instance = self._config.group_instance_id
        return ConsumerGroupMetadata(self._group_id, generation.generation_id, generation.member_id, instance)

    def _count(self, ended: RequestFuture[None]) -> None:
        if ended.exception is None:
            self._metrics.commits += 1
        else:
            self._metrics.failed_commits += 1

    def _judge(self, rows: Mapping[TopicPartition, type[BrokerError] | None], generation: Generation) -> None:
        for tp, error in rows.items():
            if error is None:
                continue
            if error in (IllegalGeneration, StaleMemberEpoch) and self._rejoining(()):
                error = RebalanceInProgress  # the coordinator says so of every member that is joining again
            if error in (UnknownMemberId, IllegalGeneration, StaleMemberEpoch):
                # Rule: tell only a consumer that subscribes to poll. One whose partitions were assigned by hand
                # never joins; its commit is refused while the group has members.
                if not self.in_group and self.lost_reason == NOT_JOINED:
                    raise CommitFailed(
                        f"The offsets were not committed: group {self._config.group_id!r} has living members, and "
                        "commits for it are theirs alone. This consumer has not subscribed (it reads what assign() "
                        "gave it), so it is not one of them, and no poll makes it one. Commit when they have ended, "
                        "take a group_id of its own, or subscribe()."
                    )
                if self.in_group:
                    self.refused = (generation, error)
                raise self._too_late(error)
            if error is RebalanceInProgress:
                raise RebalanceUnderWay(
                    f"Group {self._config.group_id!r} is rebalancing, so the offsets were not committed. Poll, which "
                    "takes part in the rebalance, then commit what is still assigned; what is not will be read again."
                )
            if error is FencedInstanceId:
                raise MembershipFenced(
                    f"Another member of group {self._config.group_id!r} has the group_instance_id "
                    f"{self._config.group_instance_id!r} and has taken this one's place: the offsets were not "
                    "committed."
                )
            raise error(f"Committing the offset of {tp} for group {self._config.group_id!r}")

    def _too_late(self, error: type[BrokerError] | None) -> CommitFailed:
        config = self._config
        if self.lost_reason == NOT_JOINED:
            return CommitFailed(
                f"The offsets were not committed: this consumer is not in group {config.group_id!r} yet, which the "
                "first poll joins. Poll until it has partitions, then commit what it was given."
            )
        name = f" ({error.__name__})" if error is not None else ""
        # Each reason brings its own advice; only where none is known the usual causes stand for it.
        session = "the broker's group.consumer.session.timeout.ms" if self._by_epoch else "session_timeout_ms"
        why = self.lost_reason or (
            f"it was silent for longer than {session}, or did not poll for max_poll_interval_ms. {TAKES_LONG}"
        )
        return CommitFailed(
            f"The offsets were not committed: group {config.group_id!r} has gone on without this member{name}, and its "
            f"partitions may belong to others, which read on from the last commit. Why: {why.rstrip('.')}. Poll to "
            "join again."
        )

    def commit_sync(self, offsets: Offsets, timeout_s: float) -> None:
        """Commit and wait, with retries, then wait for earlier async commits, too."""
        deadline = self._now_s() + timeout_s
        if offsets:
            self._retrying(lambda: self.send(offsets), timeout_s, "commit", offsets)
        self.wait_for_async(deadline - self._now_s())

    def commit_async(self, offsets: Offsets, callback: OffsetCommitCallback | None) -> RequestFuture[None]:
        """Commit without waiting."""
        # Rule: no second try. A later commit may have been stored meanwhile, and the old offset would replace it.
        if not offsets:
            future: RequestFuture[None] = RequestFuture()
            future.complete(None)
        else:
            future = self.send(offsets)
        self._order.append((future, offsets, callback))
        return future

    def run_callbacks(self) -> None:
        """Run the callbacks of ended commits, in order."""
        while self._order and self._order[0][0].done:
            future, offsets, callback = self._order.popleft()
            if callback is not None:
                callback(offsets, future.exception)
            elif future.exception is not None:
                _log.warning("an asynchronous commit failed: %s", future.exception.message)

    def wait_for_async(self, timeout_s: float) -> None:
        """Wait for all async commits, and run their callbacks."""
        deadline = self._now_s() + timeout_s
        while self._order:
            self.run_callbacks()
            left = deadline - self._now_s()
            if not self._order or left <= 0:
                return
            self._client.poll(min(left, 0.1))

    @property
    def waits_for_async(self) -> bool:
        """Whether an async commit is open or its callback has not run."""
        return bool(self._order)

    def fetch(self, tps: Iterable[TopicPartition]) -> RequestFuture[dict[TopicPartition, OffsetAndMetadata]]:
        """Ask once for committed offsets; open transactions fail it with a retriable error."""
        identity = self._joined_since() if self._by_epoch and self.in_group else None
        if identity is None or self.generation is NO_GENERATION:
            return self._offsets.fetch(tps, require_stable=True).then(self._fetched)
        member = self._named(identity)
        after: RequestFuture[dict[TopicPartition, OffsetAndMetadata]] = RequestFuture()

        def read(done: RequestFuture[dict[TopicPartition, OffsetAndMetadata]]) -> None:
            # Whether the membership is lost is for a heartbeat to say: until then the question is asked again.
            if isinstance(done.exception, (StaleMemberEpoch, UnknownMemberId)):
                raise RebalanceUnderWay(
                    f"Group {self._config.group_id!r} is rebalancing, so it did not tell its offsets. Ask again."
                )
            after.complete(self._fetched(done.value))

        self._offsets.fetch(tps, require_stable=True, member=member).settle(after, read)
        return after

    def _fetched(self, stored: dict[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        self._subscriptions.note_committed(stored)
        return stored

    def committed(self, tps: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, OffsetAndMetadata]:
        """Wait for committed offsets, with retries."""
        wanted = tuple(tps)
        return self._retrying(lambda: self.fetch(wanted), timeout_s, "answer about committed offsets")

    def _retrying(
        self,
        make: Callable[[], RequestFuture[T]],
        timeout_s: float,
        what: str,
        committed: Iterable[TopicPartition] = (),
    ) -> T:
        deadline, attempt = self._now_s() + timeout_s, 0
        while True:
            left = max(deadline - self._now_s(), 0.0)
            try:
                return self._client.wait(make(), left)
            except KafkaError as err:
                attempt += 1
                pause = self._retry.delay(attempt)
                if isinstance(err, ClientTimeout) or not (
                    worth_another_try(err) or self._ends_by_itself(err, committed)
                ):
                    raise
                if self._now_s() + pause >= deadline:
                    raise ClientTimeout(
                        f"No {what} of group {self._config.group_id!r} within {timeout_s:.3g} s; the last try ended "
                        f"with: {err.message}"
                    ) from err
            resume = self._now_s() + pause
            while self._now_s() < resume:
                self._client.poll(resume - self._now_s())

    def _ends_by_itself(self, error: KafkaError, committed: Iterable[TopicPartition]) -> bool:
        # The group's thread gets through this rebalance without a poll, and then the commit succeeds. A question for
        # offsets is answered to anybody, and only a member's epoch may be in its way.
        return isinstance(error, RebalanceUnderWay) and (not committed or self._rejoining(committed))

    # -- automatic commits

    def maybe_auto_commit(self, consumed: Callable[[], Offsets]) -> None:
        """Begin a commit when the interval and the last commit have ended.

        Called inside poll alone: that the user polls again says that the records before are worked on.
        """
        if not self.automatic or self._auto_running is not None or self._now_s() < self._next_auto_s:
            return
        offsets = self._changed(consumed())
        if not offsets:
            self._next_auto_s = self._now_s() + self._interval_s
            return
        self._auto_running = self.commit_async(offsets, self._auto_ended)
        self.run_callbacks()

    def _changed(self, offsets: Offsets) -> Offsets:
        # An idle consumer sends no commits, but for offsets that the broker would forget by their age.
        since_s = self._now_s() - STORED_AGAIN_S
        return {
            tp: offset for tp, offset in offsets.items() if not self._subscriptions.is_committed(tp, offset, since_s)
        }

    def _auto_ended(self, offsets: Offsets, error: KafkaError | None) -> None:
        self._auto_running = None
        self._next_auto_s = self._now_s() + self._interval_s
        if error is None:
            self._auto_failures = 0
            return
        if error.retriable:
            self._auto_failures += 1
            self._next_auto_s = self._now_s() + self._retry.delay(self._auto_failures)
        # One warning, and not one for every try while the coordinator is away.
        level = logging.DEBUG if self._auto_failures > 1 else logging.WARNING
        _log.log(level, "an automatic commit failed: %s", error.message)

    def restart_timer(self) -> None:
        """Begin the interval again after an assignment; forget earlier commits.

        Others may have committed those partitions meanwhile.
        """
        self._subscriptions.forget_commit_times()
        self._next_auto_s = self._now_s() + self._interval_s

    def next_wake_s(self, now_s: float) -> float:
        """Return seconds until an automatic commit is due; infinity without any."""
        if not self.automatic or self._auto_running is not None:
            return float("inf")
        return max(self._next_auto_s - now_s, 0.0)


class CommitBeforeJoin:
    """Automatic commit before a rebalance, which waits COMMIT_BEFORE_JOIN_S at most.

    It is tried again meanwhile. If it fails, the next owners read those records a second time.
    """

    def __init__(self, commits: Commits, consumed: Callable[[], Offsets], retry: Backoff, now_s: float) -> None:
        """Send the first commit; each further try sends the offsets ``consumed`` by then."""
        self._commits = commits
        self._consumed = consumed
        self._retry = retry
        self._deadline_s = now_s + COMMIT_BEFORE_JOIN_S
        self._failures = 0
        self._again_s: float | None = None
        """When the next try is due; None while one is under way, or before its end was looked at."""
        self._future = commits.send(consumed())

    def next_wake_s(self, now_s: float) -> float:
        """Return seconds until :meth:`over` has something to do without an event."""
        again_s = self._again_s
        if again_s is None:
            again_s = now_s if self._future.done else self._deadline_s
        return min(again_s, self._deadline_s) - now_s

    def over(self, now_s: float) -> bool:
        """Return whether to join now: it is committed, or given up with a warning."""
        done, error = self._future.done, self._future.exception
        if done and error is None:
            return True
        if now_s >= self._deadline_s or (error is not None and not worth_another_try(error)):
            why = "it took too long" if error is None else error.message
            _log.warning("the automatic commit before a rebalance failed: %s", why)
            return True
        if not done:
            return False
        if self._again_s is None:
            self._failures += 1
            self._again_s = now_s + self._retry.delay(self._failures)
        elif now_s >= self._again_s:
            # A cooperative member reads on meanwhile: the offsets are those consumed by now.
            self._again_s, self._future = None, self._commits.send(self._consumed())
        return False
