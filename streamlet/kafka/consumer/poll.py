"""One poll of a consumer, step by step (Java: ``KafkaConsumer.poll``).

1. The group: news of the membership, listeners, commits that are due (``rebalance.py``).
2. Positions: resets and checks that are due are sent, errors found meanwhile are raised (``positions.py``).
3. Records that have arrived are taken, deserialized and returned (``fetcher.py``, ``delivery.py``). The fetches after
   them are sent before they are unpacked, so that the brokers work while this process and its user do.
4. With nothing to return: send fetches, wait for the next thing that is due, begin again; {} when the time is up.

Nothing waits but step 4, and it waits for all connections at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from streamlet.base.notices import Notices
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.consumer.delivery import Deserializers, HandedOut
from streamlet.kafka.consumer.errors import (
    ConsumerClosed,
    ConsumerWakeup,
    IllegalSubscription,
    RecordDeserializationFailed,
)
from streamlet.kafka.consumer.fetcher import Fetcher
from streamlet.kafka.consumer.metrics import ConsumerMetrics
from streamlet.kafka.consumer.positions import Positions
from streamlet.kafka.consumer.rebalance import Rebalancer
from streamlet.kafka.consumer.records import DecodedChunk
from streamlet.kafka.consumer.subscription_state import (
    AssignedPartition,
    FetchState,
    Position,
    SubscriptionState,
    SubscriptionType,
)
from streamlet.kafka.errors import ClientTimeout, copy_of
from streamlet.kafka.metadata.cluster import TopicPartition

_log = logging.getLogger(__name__)

T = TypeVar("T")
_LONGEST_WAIT_S = 60.0
"""Seconds of the longest wait for answers when nothing is due."""

TOLD_AFTER_S = 3.0
"""Seconds without any broker's answer before a warning says so."""
TOLD_AGAIN_S = 30.0
"""Seconds between two such warnings."""
LOOKED_AGAIN_S = 0.5
"""Seconds between two looks for missing topics: some poll thousands of times a second."""


@dataclass(slots=True)
class Poller:
    """Driver of a consumer's parts. User's thread."""

    _client: KafkaClient
    _subscriptions: SubscriptionState
    _rebalancer: Rebalancer
    _positions: Positions
    _fetcher: Fetcher
    _deserializers: Deserializers
    _handed_out: HandedOut
    _now_s: Callable[[], float]
    _idle_reasons: IdleReasons
    _metrics: ConsumerMetrics
    on_partition_end: Callable[[TopicPartition, int], None] | None = None
    _failures: list[RecordDeserializationFailed] = field(default_factory=list)
    _woken: bool = False

    def poll(
        self,
        timeout_ms: int,
        limit: int,
        build: Callable[[list[DecodedChunk]], T],
        only: Collection[TopicPartition] | None = None,
    ) -> T | None:
        """Return ``build`` of at most ``limit`` records as soon as any arrive.

        ``only``: of these partitions. None when the time is up. Called inside ``Taking``, which moves the positions
        back when an interrupt ends the poll.
        """
        if self._subscriptions.kind is SubscriptionType.NONE:
            raise IllegalSubscription("Nothing is subscribed or assigned: call subscribe() or assign() first.")
        # Rule: before anything is begun. A group's thread has a client of its own: it would make a member of the fork,
        # whose partitions nobody reads.
        self._client.refuse_forks()
        self._raise_failure(only)
        self._metrics.polls += 1
        deadline = self._now_s() + timeout_ms / 1000
        polled = False
        while True:
            self._raise_if_stopped()
            self._rebalancer.poll()
            self._find_positions()
            self._tell_ends()
            # Rule: only of partitions that may be taken from. An interrupt drops what an iteration left of those noted,
            # and the position of another stands behind that.
            self._handed_out.note_positions(
                row for row in self._subscriptions.fetchable() if only is None or row.topic_partition in only
            )
            parts = self._take(limit, only)
            if parts:
                self._metrics.records += sum(len(part.values) for part in parts)
                return build(parts)
            # Positions that move from here on, by a reset or a listener's seek, are the user's own.
            self._handed_out.note_positions(())
            self._fetcher.send_fetches(only)
            now = self._now_s()
            # At least one look at the network, also with a time-out of 0: else such a caller would never get records.
            if polled and now >= deadline:
                self._idle_reasons.warn_if_idle(now)
                self._metrics.empty_polls += 1
                return None
            self._client.poll(max(min(deadline - now, self._next_wake_s(now)), 0.0))
            self._metrics.poll_wait_s += self._now_s() - now
            polled = True

    def until_position(self, tp: TopicPartition, timeout_s: float) -> AssignedPartition:
        """Wait until the partition has a valid position. Raises ClientTimeout."""
        deadline = self._now_s() + timeout_s
        while True:
            row = self._subscriptions.require(tp)
            if row.state is FetchState.FETCHING and row.position is not None:
                return row
            left = deadline - self._now_s()
            if left <= 0:
                raise ClientTimeout(f"The position of {tp} is not known after {timeout_s:.3g} s ({row.state.value}).")
            self._raise_if_stopped()
            # Not the group's whole step: the user may be at work on records, so nothing is committed here by itself and
            # no partition changes hands.
            self._rebalancer.first_positions.ask(tp)
            self._find_positions()
            self._client.poll(min(left, self._next_wake_s(self._now_s()), 0.1))

    def wakeup(self) -> None:
        """Make the waiting call, or else the next one, raise ConsumerWakeup. Any thread."""
        self._woken = True
        self._client.wakeup()

    def _raise_if_stopped(self) -> None:
        if self._client.closed:  # by a signal's handler, in the middle of this poll
            raise ConsumerClosed("This consumer was closed.")
        if self._woken:
            self._woken = False
            raise ConsumerWakeup("wakeup() was called.")
        refusal = self._client.hopeless()
        if refusal is not None:
            raise copy_of(refusal)

    def _find_positions(self) -> None:
        self._positions.raise_told()
        self._positions.send_due()

    def _tell_ends(self) -> None:
        tell = self.on_partition_end
        # The records that an iteration left come first: they stand before the partition's end.
        if tell is None or self._handed_out.undelivered:
            return
        for tp, end in self._subscriptions.untold_ends():
            tell(tp, end)

    def _next_wake_s(self, now_s: float) -> float:
        parts = (self._rebalancer, self._positions, self._fetcher)
        return min(_LONGEST_WAIT_S, *(part.next_wake_s(now_s) for part in parts))

    def _take(self, limit: int, only: Collection[TopicPartition] | None) -> list[DecodedChunk]:
        """Return the records that have arrived, deserialized.

        Raises a record's error when nothing stands before it.
        """
        chunks = self._fetcher.collect(limit, only)
        if not chunks:
            return []
        parts, failures = self._deserializers.apply(chunks)
        for failure in failures:
            row = self._subscriptions.get(failure.topic_partition)
            if row is not None and row.position is not None:
                row.position = Position(failure.offset, row.position.offset_epoch, row.position.leader_epoch)
                # Rule: an error that waits after records is kept for a later poll. A busy partition always has
                # records to give: forgotten, the error would never be raised, and its partition would stand still.
                self._failures.append(failure)
        if not parts:
            self._raise_failure(only)
        return parts

    def _raise_failure(self, only: Collection[TopicPartition] | None) -> None:
        """Raise the first kept error whose record is still the next one."""
        waiting, self._failures = self._failures, []
        for index, failure in enumerate(waiting):
            if only is not None and failure.topic_partition not in only:
                self._failures.append(failure)
                continue
            row = self._subscriptions.get(failure.topic_partition)
            if row is not None and row.position is not None and row.position.offset == failure.offset:
                self._failures += waiting[index + 1 :]
                raise failure


class IdleReasons:
    """Warnings about polls that bring nothing. User's thread.

    An empty poll looks the same for a quiet topic, a missing topic and a wrong port; only the log can tell them apart.
    """

    def __init__(self, client: KafkaClient, subscriptions: SubscriptionState, now_s: float) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._began_s = now_s
        self._silences: Notices[None] = Notices(TOLD_AGAIN_S)
        self._told: dict[str, str] = {}
        """Warnings that hold, by topic, partition or pattern: each is logged once.

        No ``Notices``: one that no longer holds is forgotten, and is news when it holds again.
        """
        self._look_s = now_s

    def warn_if_idle(self, now_s: float) -> None:
        """Warn when no broker answers, now and then; of a missing topic or partition once."""
        # No error: brokers may start later, and the client goes on trying.
        if not self._client.metadata.update_version:
            if now_s - self._began_s >= TOLD_AFTER_S and self._silences.due(None, now_s) is not None:
                _log.warning(
                    "no Kafka broker has answered for %.0f s at bootstrap_servers, so nothing can be read. %s Check "
                    "that the broker runs, and host and port; this client goes on trying.",
                    now_s - self._began_s,
                    self._client.connections(),
                )
            return
        if now_s < self._look_s:
            return
        self._look_s = now_s + LOOKED_AGAIN_S
        found = dict(self._missing())
        for name, text in found.items():
            if self._told.get(name) != text:
                _log.warning("%s", text)
        self._told = found

    def _missing(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each missing thing, and the warning."""
        cluster, metadata, pattern = self._client.cluster, self._client.metadata, self._subscriptions.pattern
        known_all = metadata.all_topics and not metadata.update_requested
        if pattern is not None and known_all and not self._subscriptions.topics:
            yield (
                "the pattern",
                f"The pattern {pattern.pattern!r} matches none of the {len(cluster.topics)} topics that may be read: "
                "it must match the whole name, so write 'lines.*' for all that begin so. This client goes on looking.",
            )
        assigned = self._subscriptions.assigned
        for topic in {*self._subscriptions.topics, *(tp.topic for tp in assigned)}:
            info = cluster.topics.get(topic)
            if info is not None and info.error is not None:
                problem = info.error(
                    f"Topic {topic!r} cannot be read", "Create it, or correct its name; this client goes on looking."
                )
                yield topic, problem.message
        for tp in assigned:
            count = cluster.partition_count(tp.topic)
            if count is not None and tp.partition >= count:
                yield (
                    str(tp),
                    f"Partition {tp.partition} of topic {tp.topic!r} cannot be read: the topic has {count} partitions, "
                    "numbered from 0. This client goes on looking.",
                )
