"""Where a partition without a position begins: at the group's committed offset, or where the policy says (C2, C7; Java:
``ConsumerCoordinator.initWithCommittedOffsetsIfNeeded``).
"""

from __future__ import annotations

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.kafka.client.group_requests import OffsetAndMetadata
from streamlet.kafka.consumer.commits import Commits
from streamlet.kafka.consumer.positions import Positions
from streamlet.kafka.consumer.subscription_state import FetchState, SubscriptionState
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import TopicPartition


class FirstPositions:
    """One question at a time, for all partitions that need one. The user's thread."""

    def __init__(
        self,
        subscriptions: SubscriptionState,
        positions: Positions,
        commits: Commits | None,
        retry: Backoff,
        clock: Clock,
    ) -> None:
        """Without ``commits`` there is no group: the policy alone decides."""
        self._subscriptions = subscriptions
        self._positions = positions
        self._commits = commits
        self._retry = retry
        self._clock = clock
        self._asking = False
        self._not_before_s = 0.0

    def next_wake_s(self, now_s: float) -> float:
        """Seconds until a failed question may be asked again; infinity where none waits."""
        return self._not_before_s - now_s if self._not_before_s > now_s else float("inf")

    def ask(self) -> None:
        """Ask what is committed for partitions that have no position yet."""
        rows = [row for row in self._subscriptions.in_state(FetchState.INITIALIZING) if not row.pending_callback]
        if not rows or self._asking or self._clock.monotonic() < self._not_before_s:
            return
        tps = [row.topic_partition for row in rows]
        if self._commits is None:
            self._positions.reset_by_policy(tps)
            return
        self._asking = True
        assignment = self._subscriptions.assignment_id
        self._commits.fetch(tps).add_listener(lambda done: self._known(tps, assignment, done))

    def _known(
        self, tps: list[TopicPartition], assignment: int, done: RequestFuture[dict[TopicPartition, OffsetAndMetadata]]
    ) -> None:
        self._asking = False
        if done.exception is not None:
            self._not_before_s = self._clock.monotonic() + self._retry.initial
            if not done.exception.retriable:
                self._positions.tell(done.exception)
            return
        if assignment != self._subscriptions.assignment_id:
            return  # partitions went and perhaps came back since: asked anew
        missing: list[TopicPartition] = []
        for tp in tps:
            row = self._subscriptions.get(tp)
            if row is None or row.state is not FetchState.INITIALIZING:
                continue  # sought by the user meanwhile
            stored = done.value.get(tp)
            if stored is None:
                missing.append(tp)
            else:
                self._positions.start_at(tp, stored.offset, stored.leader_epoch)
        try:
            self._positions.reset_by_policy(missing)
        except KafkaError as err:
            self._not_before_s = self._clock.monotonic() + self._retry.maximum
            self._positions.tell(err)
