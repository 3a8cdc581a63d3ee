"""One poll of a consumer, step by step (C3; Java: ``KafkaConsumer.poll``).

Group, then positions, then what has arrived; if nothing has, ask and wait, until the next thing that is due.
Before records are returned the next requests are on their way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.consumer.coordinator import ConsumerCoordinator
from streamlet.kafka.consumer.deserialization import Deserializers
from streamlet.kafka.consumer.errors import (
    ConsumerClosed,
    ConsumerWakeup,
    IllegalSubscription,
    RecordDeserializationFailed,
)
from streamlet.kafka.consumer.fetcher import Fetcher
from streamlet.kafka.consumer.handed_out import HandedOut
from streamlet.kafka.consumer.idle_reasons import IdleReasons
from streamlet.kafka.consumer.positions import Positions
from streamlet.kafka.consumer.records import DecodedChunk
from streamlet.kafka.consumer.subscription_state import (
    FetchState,
    PartitionState,
    Position,
    SubscriptionState,
    SubscriptionType,
)
from streamlet.kafka.errors import ClientTimeout, KafkaError, copy_of
from streamlet.kafka.metadata.cluster import TopicPartition

T = TypeVar("T")
_LONGEST_WAIT_S = 60.0


class Poller:
    """Drives the parts of a consumer. One thread, but for :meth:`wakeup`."""

    def __init__(
        self,
        client: KafkaClient,
        subscriptions: SubscriptionState,
        coordinator: ConsumerCoordinator,
        positions: Positions,
        fetcher: Fetcher,
        deserializers: Deserializers,
        handed_out: HandedOut,
        now_s: Callable[[], float],
    ) -> None:
        self._client = client
        self._handed_out = handed_out
        self._subscriptions = subscriptions
        self._coordinator = coordinator
        self._positions = positions
        self._fetcher = fetcher
        self._deserializers = deserializers
        self._now_s = now_s
        self._idle_reasons = IdleReasons(client, subscriptions, now_s())
        self._failures: list[RecordDeserializationFailed] = []
        self._woken = False

    def poll(self, timeout_ms: int, limit: int, build: Callable[[list[DecodedChunk]], T]) -> T | None:
        """What ``build`` makes of at most ``limit`` records, as soon as there are any; None when the time is up.

        Whatever interrupts the making (Ctrl-C, no memory), positions go back: nothing counts as handed out that was
        not, and a last commit does not cover it. Nor does one that is made meanwhile, in a signal's handler: what was
        made counts when the caller has emptied ``HandedOut.taking``.
        """
        if self._subscriptions.kind is SubscriptionType.NONE:
            raise IllegalSubscription("Nothing is subscribed or assigned: call subscribe() or assign() first.")
        self._raise_failure()
        deadline = self._now_s() + timeout_ms / 1000
        polled = False
        while True:
            self._raise_if_stopped()
            self._coordinator.poll()
            self._find_positions()
            before = [(row, row.position) for row in self._subscriptions.fetchable()]
            self._handed_out.began(before)
            try:
                parts = self._take(limit)
                if parts:
                    return build(parts)
            except BaseException as err:
                if not isinstance(err, KafkaError):
                    for row, position in before:
                        row.position = position
                self._handed_out.taking = {}
                raise
            self._handed_out.taking = {}
            self._fetcher.send_fetches()
            now = self._now_s()
            if polled and now >= deadline:
                self._idle_reasons.look(now)
                return None
            self._client.poll(max(min(deadline - now, self._next_wake_s(now)), 0.0))
            polled = True

    def _take(self, limit: int) -> list[DecodedChunk]:
        """What has arrived, deserialized. Raises a record's error when nothing stands before it."""
        chunks = self._fetcher.collect(limit)
        if not chunks:
            return []
        parts, failures = self._deserializers.apply(chunks)
        for failure in failures:
            self._failed_at(failure)
        if not parts:
            self._raise_failure()
        return parts

    def until_position(self, tp: TopicPartition, timeout_s: float) -> PartitionState:
        """Wait until the partition has a valid position. Raises ClientTimeout.

        No poll: its user may be at work on records, so nothing is committed and nothing changes hands.
        """
        deadline = self._now_s() + timeout_s
        while True:
            row = self._subscriptions.require(tp)
            if row.state is FetchState.FETCHING and row.position is not None:
                return row
            left = deadline - self._now_s()
            if left <= 0:
                raise ClientTimeout(f"The position of {tp} is not known after {timeout_s:.3g} s ({row.state.value}).")
            self._raise_if_stopped()
            self._coordinator.first_positions.ask()
            self._find_positions()
            self._client.poll(min(left, self._next_wake_s(self._now_s()), 0.1))

    def wakeup(self) -> None:
        """Any thread: the call that waits, or else the next, raises ConsumerWakeup."""
        self._woken = True
        self._client.wakeup()

    def _raise_if_stopped(self) -> None:
        """Whether something forbids to go on."""
        if self._client.closed:  # by a signal's handler, while we waited
            raise ConsumerClosed("This consumer was closed.")
        if self._woken:
            self._woken = False
            raise ConsumerWakeup("wakeup() was called.")
        refusal = self._client.hopeless()
        if refusal is not None:
            raise copy_of(refusal)

    def _find_positions(self) -> None:
        self._positions.raise_told()
        self._positions.look()

    def _next_wake_s(self, now_s: float) -> float:
        parts = (self._coordinator, self._positions, self._fetcher)
        return min(_LONGEST_WAIT_S, *(part.next_wake_s(now_s) for part in parts))

    def _failed_at(self, failure: RecordDeserializationFailed) -> None:
        """The position goes back to the record; its error is told when nothing stands before it."""
        row = self._subscriptions.get(failure.topic_partition)
        if row is not None and row.position is not None:
            row.position = Position(failure.offset, row.position.offset_epoch, row.position.leader_epoch)
            self._failures.append(failure)

    def _raise_failure(self) -> None:
        waiting, self._failures = self._failures, []
        for index, failure in enumerate(waiting):
            row = self._subscriptions.get(failure.topic_partition)
            if row is not None and row.position is not None and row.position.offset == failure.offset:
                self._failures = waiting[index + 1 :]
                raise failure
