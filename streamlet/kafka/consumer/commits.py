"""Commits: sync, async, automatic (C7).

What is committed is the *next* offset to read, with the leader epoch of the record before it, under the generation that
gave us the partition. Callbacks run in the user's thread, in the order in which their commits were made.
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
from streamlet.kafka.client.group_requests import OUTSIDER, GroupMember, GroupOffsets, OffsetAndMetadata
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.errors import CommitFailed, MembershipFenced, RebalanceUnderWay
from streamlet.kafka.consumer.membership import NO_GENERATION, Generation
from streamlet.kafka.errors import BrokerError, ClientTimeout, KafkaError
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import TopicPartition

_log = logging.getLogger(__name__)

T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OffsetCommitCallback = Callable[[Offsets, KafkaError | None], None]

COMMIT_BEFORE_JOIN_S = 5.0
"""An automatic commit may hold a rebalance up for so long."""
STORED_AGAIN_S = 3600.0
"""How often an unchanged offset is committed all the same: those of a consumer without members expire by their age."""


def worth_another_try(error: KafkaError) -> bool:
    """Whether the same commit may succeed a moment later; one that a rebalance refused needs a poll first."""
    return error.retriable and not isinstance(error, (RebalanceUnderWay, UnknownTopicOrPartition))


NOT_JOINED = "it has not joined yet"


class Commits:
    """One consumer's commits. One thread."""

    def __init__(self, client: KafkaClient, config: ConsumerConfig, now_s: Callable[[], float]) -> None:
        assert config.group_id is not None
        self._client = client
        self._config = config
        self._now_s = now_s
        self._offsets = GroupOffsets(client, config.group_id, "group")
        self._retry = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._order: deque[tuple[RequestFuture[None], Offsets, OffsetCommitCallback | None]] = deque()
        self.generation: Generation = NO_GENERATION
        """Of the assignment we have; no other may be committed under."""
        self.lost_reason: str | None = NOT_JOINED
        """Why there is no generation any more, for the message of a commit that comes too late."""
        self.refused: tuple[Generation, type[KafkaError]] | None = None
        """The generation under which the coordinator took no commit: we are no member of it any more."""
        self.in_group = False
        """Whether partitions come from the group; else commits are those of an outsider."""
        self.rejoining: Callable[[Iterable[TopicPartition]], bool] = lambda tps: False
        """Whether the group is being joined again while these partitions stay ours, as under cooperative assignors."""
        self.joined_since: Callable[[], Generation | None] = lambda: None
        """The generation of a join that is through, and that no poll has heard of yet."""
        self._interval_s = config.auto_commit_interval_ms / 1000
        self._auto = config.enable_auto_commit
        self._next_auto_s = now_s() + self._interval_s
        self._auto_running: RequestFuture[None] | None = None
        self._auto_failures = 0
        self._stored: dict[TopicPartition, tuple[OffsetAndMetadata, float]] = {}
        """What this consumer's last commit of each partition was, and when."""

    # -- requests

    def send(self, offsets: Offsets) -> RequestFuture[None]:
        """One commit, tried once. Fails with CommitFailed, RebalanceUnderWay, MembershipFenced or a broker's error."""
        member, generation = OUTSIDER, self.generation
        if self.in_group:
            if generation is NO_GENERATION:
                future: RequestFuture[None] = RequestFuture()
                future.fail(self._too_late(None))
                return future
            if self.rejoining(offsets):  # the last generation is over before its successor is heard of
                generation = self.joined_since() or generation
            member = GroupMember(generation.generation_id, generation.member_id, self._config.group_instance_id)
        sent = dict(offsets)

        def judge(rows: Mapping[TopicPartition, type[BrokerError] | None]) -> None:
            self._judge(rows, generation)
            self._stored.update((tp, (offset, self._now_s())) for tp, offset in sent.items())

        return self._offsets.commit(sent, member).then(judge)

    def _judge(self, rows: Mapping[TopicPartition, type[BrokerError] | None], generation: Generation) -> None:
        for tp, error in rows.items():
            if error is None:
                continue
            if error is IllegalGeneration and self.rejoining(()):
                error = RebalanceInProgress
            if error in (UnknownMemberId, IllegalGeneration, StaleMemberEpoch):
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
        why = self.lost_reason or (
            "it was silent for longer than session_timeout_ms, or did not poll for max_poll_interval_ms"
        )
        return CommitFailed(
            f"The offsets were not committed: group {config.group_id!r} has gone on without this member{name}, and its "
            f"partitions may belong to others, which read on from the last commit. Why: {why.rstrip('.')}. If one "
            f"round of work takes long, raise max_poll_interval_ms (now {config.max_poll_interval_ms}) or lower "
            f"max_poll_records (now {config.max_poll_records}). Poll to join again."
        )

    def commit_sync(self, offsets: Offsets, timeout_s: float) -> None:
        """Commit and wait, trying again what may succeed later; then earlier async commits are waited for, too."""
        deadline = self._now_s() + timeout_s
        if offsets:
            self._retrying(lambda: self.send(offsets), timeout_s, "commit", offsets)
        self.wait_for_async(deadline - self._now_s())

    def commit_async(self, offsets: Offsets, callback: OffsetCommitCallback | None) -> RequestFuture[None]:
        """Commit without waiting, and without another try: a later commit might have come first."""
        if not offsets:
            future: RequestFuture[None] = RequestFuture()
            future.complete(None)
        else:
            future = self.send(offsets)
        self._order.append((future, offsets, callback))
        return future

    def run_callbacks(self) -> None:
        """Of the commits that have ended, in the order they were made: one that is open holds those after it back."""
        while self._order and self._order[0][0].done:
            future, offsets, callback = self._order.popleft()
            if callback is not None:
                callback(offsets, future.exception)
            elif future.exception is not None:
                _log.warning("an asynchronous commit failed: %s", future.exception.message)

    def wait_for_async(self, timeout_s: float) -> None:
        """Wait for all that were made, and run their callbacks."""
        deadline = self._now_s() + timeout_s
        while self._order:
            self.run_callbacks()
            left = deadline - self._now_s()
            if not self._order or left <= 0:
                return
            self._client.poll(min(left, 0.1))

    @property
    def waits_for_async(self) -> bool:
        """Whether asynchronous commits are open, or their callbacks have not run."""
        return bool(self._order)

    def fetch(self, tps: Iterable[TopicPartition]) -> RequestFuture[dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets, once; those of open transactions are waited for by the caller's next try."""
        return self._offsets.fetch(tps, require_stable=True)

    def committed(self, tps: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets, waited for."""
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
        """A rebalance that the group's thread gets through without a poll, after which they can be committed."""
        return isinstance(error, RebalanceUnderWay) and self.rejoining(committed)

    # -- automatic commits

    @property
    def automatic(self) -> bool:
        """Whether positions are committed by themselves."""
        return self._auto

    def maybe_auto_commit(self, consumed: Callable[[], Offsets]) -> None:
        """Begin a commit when the interval is over and the last one has ended. Called in poll alone (C7)."""
        if not self._auto or self._auto_running is not None or self._now_s() < self._next_auto_s:
            return
        offsets = self._changed(consumed())
        if not offsets:
            self._next_auto_s = self._now_s() + self._interval_s
            return
        self._auto_running = self.commit_async(offsets, self._auto_ended)
        self.run_callbacks()

    def _changed(self, offsets: Offsets) -> Offsets:
        now = self._now_s()
        stored = {tp: offset for tp, (offset, at_s) in self._stored.items() if now - at_s < STORED_AGAIN_S}
        return {tp: offset for tp, offset in offsets.items() if stored.get(tp) != offset}

    def _auto_ended(self, offsets: Offsets, error: KafkaError | None) -> None:
        self._auto_running = None
        self._next_auto_s = self._now_s() + self._interval_s
        if error is None:
            self._auto_failures = 0
            return
        if error.retriable:
            self._auto_failures += 1
            self._next_auto_s = self._now_s() + self._retry.delay(self._auto_failures)
        # Once, and not for every try while the coordinator is away.
        level = logging.DEBUG if self._auto_failures > 1 else logging.WARNING
        _log.log(level, "an automatic commit failed: %s", error.message)

    def restart_timer(self) -> None:
        """A new assignment: the interval begins anew, and what others have committed meanwhile is not known."""
        self._stored.clear()
        self._next_auto_s = self._now_s() + self._interval_s

    def next_wake_s(self, now_s: float) -> float:
        """Seconds until an automatic commit is due; infinity without any."""
        if not self._auto or self._auto_running is not None:
            return float("inf")
        return max(self._next_auto_s - now_s, 0.0)


class CommitBeforeJoin:
    """The automatic commit before a rebalance: it may hold that up for a while, and is tried again meanwhile.

    What it does not get through is read twice, by whoever gets the partitions. One thread.
    """

    def __init__(self, commits: Commits, consumed: Callable[[], Offsets], retry: Backoff, now_s: float) -> None:
        """Sends what is ``consumed`` at once; with each further try, what is then."""
        self._commits = commits
        self._consumed = consumed
        self._retry = retry
        self._deadline_s = now_s + COMMIT_BEFORE_JOIN_S
        self._failures = 0
        self._again_s: float | None = None
        """When the next try is due; None while one is under way, or its end was not looked at."""
        self._future = commits.send(consumed())

    def next_wake_s(self, now_s: float) -> float:
        """Seconds until :meth:`over` has something to do without an event."""
        again_s = self._again_s
        if again_s is None:
            again_s = now_s if self._future.done else self._deadline_s
        return min(again_s, self._deadline_s) - now_s

    def over(self, now_s: float) -> bool:
        """Whether the group may be joined now: it is committed, or not to be waited for any longer, which is told."""
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
            self._again_s, self._future = None, self._commits.send(self._consumed())
        return False
