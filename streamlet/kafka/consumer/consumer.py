"""The consumer as its users see it: arguments are checked here, and the parts that decide are put together.

Everything belongs to one thread at a time, the user's. The one other thread, the group's, is met in ``rebalance.py``
alone (docs/internals/group.md).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Unpack

from streamlet.base.clock import Clock, SystemClock
from streamlet.kafka import arguments
from streamlet.kafka.arguments import check_callable, check_topic, partitions_of, seconds
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.closing import HASTE_S, in_haste, telling
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata, offset_rows
from streamlet.kafka.consumer.commits import Commits, OffsetCommitCallback, Offsets
from streamlet.kafka.consumer.consumer_config import ConsumerConfig, ConsumerSettings
from streamlet.kafka.consumer.delivery import Deserializers, HandedOut, Taking
from streamlet.kafka.consumer.errors import ConcurrentUse, ConsumerClosed, IllegalSubscription
from streamlet.kafka.consumer.fetcher import Fetcher
from streamlet.kafka.consumer.group_thread import GroupThread
from streamlet.kafka.consumer.metrics import ConsumerMetrics
from streamlet.kafka.consumer.owned_partitions import ConsumerRebalanceListener, checked_listener
from streamlet.kafka.consumer.poll import IdleReasons, Poller
from streamlet.kafka.consumer.positions import OffsetAndTimestamp, OffsetQueries, Positions
from streamlet.kafka.consumer.rebalance import Rebalancer
from streamlet.kafka.consumer.records import ConsumerRecord, RecordColumns
from streamlet.kafka.consumer.subscription_state import (
    AssignedPartition,
    ResetStrategy,
    SubscriptionState,
    SubscriptionType,
    parse_subscription,
)
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.settings.foreign_names import answers_foreign_calls

_log = logging.getLogger(__name__)
_EVERYTHING = 1 << 62
_CLOSE_S = 30.0
"""Seconds that a close may take, unless its caller says otherwise."""


class OneThreadGuard:
    """Lock of one call: its own thread may re-enter, others get ConcurrentUse."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        # Reentrant for a signal's handler or a listener that calls the consumer inside its own poll.
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUse(
                f"Thread {threading.current_thread().name!r} called a consumer that another thread is in. A consumer "
                "belongs to one thread at a time: give each thread its own, or hand records over a queue. Only "
                "wakeup() may be called from another."
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _end_dropped(client: KafkaClient, threads: list[GroupThread[Any]], client_id: str, group_id: str | None) -> None:
    """End thread and connections of a consumer dropped without close()."""
    # Rule: this waits for nothing and takes no lock. It runs in whatever thread drops the last reference, perhaps in
    # the group's own, in the middle of anything.
    if os.getpid() != client.pid:  # in a fork's copy: the thread and the connections are its parent's
        return
    if threads or client.connected_brokers():
        left = f"; it leaves group {group_id!r}, and what it has not committed is read again" if threads else ""
        _log.warning("consumer %r was dropped without close()%s: close it, or use it in a with block.", client_id, left)
    for thread in threads:
        thread.abandon()
    client.close()


@answers_foreign_calls
class Consumer:
    """Reader of topics, as a member of a group or by partitions.

    ``Consumer("lines", bootstrap_servers="127.0.0.1:9092", group_id="g")``; the settings are those of
    :class:`ConsumerConfig`, and an unknown one is refused with the nearest right one. Making one connects to nothing.
    One thread at a time calls it (ConcurrentUse otherwise); only :meth:`wakeup` may come from another. An argument
    called ``timeout`` is in seconds.
    """

    # Long: the calls of a consumer, a few lines each, and their docstrings. Each takes the guard, checks its arguments,
    # and hands over to the part that knows.

    def __init__(self, *topics: str, clock: Clock | None = None, **settings: Unpack[ConsumerSettings]) -> None:
        arguments.constructor_topics(topics)
        self.config = ConsumerConfig.of(settings)
        self._clock = clock or SystemClock()
        now_s = self._clock.monotonic
        self._client = KafkaClient(
            self.config, self._clock, allow_auto_topic_creation=self.config.allow_auto_create_topics
        )
        self._subscriptions = SubscriptionState(ResetStrategy(self.config.auto_offset_reset))
        self._positions = Positions(self._client, self._subscriptions, self.config, now_s)
        self._metrics = ConsumerMetrics()
        self._fetcher = Fetcher(self._client, self._subscriptions, self._positions, self.config, now_s, self._metrics)
        self._handed_out = HandedOut(self._subscriptions)
        # Named here, too: an iteration asks both for each record.
        self._undelivered, self._in_hand = self._handed_out.undelivered, self._handed_out.in_hand
        self._rebalancer = Rebalancer(
            self._client,
            self._subscriptions,
            self._positions,
            self._fetcher,
            self._handed_out,
            self.config,
            self._clock,
            self._metrics,
        )
        self._queries = OffsetQueries(self._client, self.config, now_s)
        self._poller = Poller(
            self._client,
            self._subscriptions,
            self._rebalancer,
            self._positions,
            self._fetcher,
            Deserializers(self.config.key_deserializer, self.config.value_deserializer),
            self._handed_out,
            now_s,
            IdleReasons(self._client, self._subscriptions, now_s()),
            self._metrics,
        )
        self._guard = OneThreadGuard()
        self._closed = False
        self._default_timeout_s = self.config.default_api_timeout_ms / 1000
        # Rule: neither the client nor the group's thread may hold anything that leads back to this object, such as a
        # listener or a callback of its user. A running thread would keep a dropped consumer alive, and its partitions.
        parts = self._client, self._rebalancer.threads, self.config.client_id, self.config.group_id
        self._when_dropped = weakref.finalize(self, _end_dropped, *parts)
        self._when_dropped.atexit = False
        if topics:
            try:
                self.subscribe(topics)
            except Exception:
                self._client.close()  # the caller never gets this object and cannot close it
                raise

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The error may come from the work on the records given last: they are not committed, and are read again.
        self._handed_out.in_hand_counts = kind is None
        self.close(HASTE_S if in_haste(kind) else _CLOSE_S)

    def __repr__(self) -> str:
        what = ", ".join(map(str, sorted(self._subscriptions.assigned))) or "nothing assigned"
        state = "closed" if self._closed else what
        return f"<Consumer {self.config.client_id!r} in group {self.config.group_id!r}: {state}>"

    # -- subscription

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read topics as a member of the group.

        By name (one, or several), or all whose whole name matches ``pattern``. Replaces an earlier subscription; an
        empty list is :meth:`unsubscribe`, as in Java. The group is joined in the next poll. Raises IllegalSubscription
        without a ``group_id``, beside ``assign``, and for a bad pattern; InvalidTopic for a bad name.
        """
        with self._guarded():
            names = parse_subscription(topics, pattern, self.config.group_id)
            checked = checked_listener(listener)
            if not names:
                self.unsubscribe()
                return
            if isinstance(names, re.Pattern):
                self._subscriptions.subscribe_pattern(names)
                self._client.metadata.set_all_topics(True)
                self._rebalancer.subscribed(checked, changed=True)
            else:
                self._rebalancer.subscribed(checked, changed=self._subscriptions.subscribe(names))
                self._rebalancer.owned.ask_about_topics()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group shares them out. Replaces an earlier assignment."""
        with self._guarded():
            named = partitions_of(partitions)
            # Positions of partitions that go now are gone with them: a timed commit that is due is made first.
            if self._subscriptions.kind is SubscriptionType.USER_ASSIGNED and self._rebalancer.commits is not None:
                self._rebalancer.commits.maybe_auto_commit(self._handed_out.consumed)
            self._subscriptions.assign_from_user(named)
            self._rebalancer.owned.forget_unassigned()

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group."""
        with self._guarded():
            try:
                self._rebalancer.unsubscribe()
            finally:
                self._subscriptions.unsubscribe()
                self._client.metadata.set_all_topics(False)
                self._rebalancer.owned.forget_unassigned()

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to, or matched by the pattern."""
        with self._guarded():
            return self._subscriptions.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions read now."""
        with self._guarded():
            return frozenset(self._subscriptions.assigned)

    # -- records

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return records by partition as soon as there are any; {} when the time is up.

        ``max_records`` defaults to ``max_poll_records``. Positions move past the records returned. Rebalances, timed
        commits and their callbacks happen in here, so poll at least every ``max_poll_interval_ms``. Raises
        RecordDeserializationFailed, PositionOutOfRange, NoOffsetForPartition, LogTruncated, MembershipFenced,
        ConsumerWakeup, and whatever the broker refuses for good.
        """
        with self._taking():
            limit = arguments.poll_limits(timeout_ms, max_records) or self.config.max_poll_records
            self._in_hand.clear()
            if self._undelivered:
                return self._handed_out.take_undelivered(limit)
            return self._poller.poll(timeout_ms, limit, self._handed_out.records) or {}

    def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return records of these partitions only, else like :meth:`poll`; none named: of all.

        The others keep their fetched records and their positions. Raises NotAssigned for a partition that is not read.
        """
        with self._taking():
            limit = arguments.poll_limits(timeout_ms, max_records) or self.config.max_poll_records
            only = frozenset(TopicPartition.of(tp) for tp in partitions) or None
            for tp in only or ():
                self._subscriptions.require(tp)
            self._in_hand.clear()
            if self._undelivered.of(only):
                return self._handed_out.take_undelivered(limit, only)
            return self._poller.poll(timeout_ms, limit, self._handed_out.records, only) or {}

    def getone(self, *partitions: TopicPartition, timeout_ms: int = 0) -> ConsumerRecord | None:
        """Return the next record of these partitions; see :meth:`getmany`.

        None when the time is up.
        """
        for records in self.getmany(*partitions, timeout_ms=timeout_ms, max_records=1).values():
            return records[0]
        return None

    def poll_columns(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, RecordColumns]:
        """Return each partition's records as columns, without an object for each record.

        ``max_records`` None: everything that has arrived, in whole answers, which is fastest. Else like :meth:`poll`.
        """
        with self._taking():
            limit = arguments.poll_limits(timeout_ms, max_records) or _EVERYTHING
            if self._undelivered:
                raise IllegalSubscription(
                    "Records of an iteration that was broken off wait: take them with poll() before poll_columns()."
                )
            self._in_hand.clear()
            return self._poller.poll(timeout_ms, limit, self._handed_out.columns) or {}

    def __iter__(self) -> Consumer:
        """Return the iterator over records: itself.

        It ends when ``consumer_timeout_ms`` pass without a record, or with a close. A commit inside the loop covers the
        records given so far, not those that wait after them.
        """
        return self

    def __next__(self) -> ConsumerRecord:
        limit_ms = self.config.consumer_timeout_ms
        while not self._closed:
            record = self._undelivered.next()
            if record is not None:
                self._in_hand.record = record
                return record
            # A signal's handler may close the consumer in this very poll: that ends the iteration quietly.
            with self._taking(), contextlib.suppress(ConsumerClosed):
                self._in_hand.clear()
                wait_ms = 1000 if limit_ms is None else limit_ms
                self._poller.poll(wait_ms, self.config.max_poll_records, self._handed_out.iterate)
            if limit_ms is not None and not self._undelivered:
                break
        raise StopIteration

    # -- positions

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Read on at ``offset``.

        With the ``leader_epoch`` of the record before it, a log that was cut below it is noticed (KIP-320).
        """
        with self._guarded():
            tp = TopicPartition.of(partition)
            arguments.check_offset(tp, offset, leader_epoch)
            self._positions.start_at(tp, offset, leader_epoch)
            self._handed_out.moved(tp)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on at the log's first offset; no partition named: all that are assigned."""
        self._seek_to(ResetStrategy.EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on at the end (with read_committed: the last stable offset)."""
        self._seek_to(ResetStrategy.LATEST, partitions)

    def seek_to_committed(
        self, *partitions: TopicPartition, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Read on at the offsets that the group has stored; return them.

        No partition named: all that are assigned. One without a stored offset stays where it is, and is not in the
        answer. Raises NotAssigned, ClientTimeout.
        """
        with self._guarded():
            named = [TopicPartition.of(tp) for tp in partitions] or list(self._subscriptions.assigned)
            for tp in named:
                self._subscriptions.require(tp)
            stored = self._commits().committed(named, self._limit(timeout))
            for tp, row in stored.items():
                self._positions.start_at(tp, row.offset, row.leader_epoch)
                self._handed_out.moved(tp)
            return stored

    def _seek_to(self, strategy: ResetStrategy, partitions: tuple[TopicPartition, ...]) -> None:
        with self._guarded():
            for tp in partitions or self._subscriptions.assigned:
                self._subscriptions.request_reset(TopicPartition.of(tp), strategy)
                self._handed_out.moved(tp)

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record to be handed out. Raises ClientTimeout."""
        with self._guarded():
            tp = TopicPartition.of(partition)
            row = self._poller.until_position(tp, self._limit(timeout))
            assert row.position is not None
            first = self._undelivered.first(tp)
            return row.position.offset if first is None else first[0]

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until :meth:`resume`.

        They stay assigned. A new assignment forgets the pause.
        """
        with self._guarded():
            for tp in partitions:
                row = self._subscriptions.require(TopicPartition.of(tp))
                row.paused = True
                self._handed_out.put_back(row)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these partitions again."""
        with self._guarded():
            for tp in partitions:
                self._subscriptions.require(TopicPartition.of(tp)).paused = False

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        with self._guarded():
            return frozenset(row.topic_partition for row in self._subscriptions.rows() if row.paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """Return offsets between position and last seen end; None before a fetch."""
        with self._guarded():
            return self._lag_of(self._subscriptions.require(TopicPartition.of(partition)))

    def on_partition_end(self, callback: Callable[[TopicPartition, int], None] | None) -> None:
        """Call ``callback(partition, offset)`` at each end of a partition.

        It runs in a poll, in its thread, when all records before ``offset`` were handed out, which is the next one to
        come (with ``read_committed``: the last stable offset). Once for each arrival: again after more records, or a
        seek. None: tell nobody. An error that it raises leaves the poll; that end counts as told.
        """
        with self._guarded():
            check_callable("callback", callback)
            self._poller.on_partition_end = callback
            self._fetcher.notes_ends = callback is not None

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return a log's end as the last fetch saw it.

        None before a fetch.
        """
        with self._guarded():
            end = self._subscriptions.require(TopicPartition.of(partition)).high_watermark
            return None if end < 0 else end

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return where the first open transaction begins, by the last fetch.

        The end of the log where none is open; None before a fetch. With ``read_committed`` reading stops there.
        """
        with self._guarded():
            end = self._subscriptions.require(TopicPartition.of(partition)).last_stable_offset
            return None if end < 0 else end

    def metrics(self) -> dict[str, object]:
        """Return the counts of :class:`ConsumerMetrics`, and the greatest lag.

        ``lag_max``: of the partitions read now; None before a fetch. ``buffered_bytes``: fetched, and not handed out.
        """
        with self._guarded():
            found = self._metrics.snapshot()
            lags = [lag for row in self._subscriptions.rows() if (lag := self._lag_of(row)) is not None]
            found["lag_max"] = max(lags, default=None)
            found["buffered_bytes"] = self._fetcher.buffered_bytes
            return found

    def _lag_of(self, row: AssignedPartition) -> int | None:
        end = row.last_stable_offset if self._fetcher.settings.read_committed else row.high_watermark
        return None if row.position is None or end < 0 else max(end - row.position.offset, 0)

    # -- the log

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, assigned or not. Raises ClientTimeout."""
        with self._guarded():
            return self._queries.bounds(ResetStrategy.EARLIEST, partitions, self._limit(timeout))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end of each log; with read_committed the last stable offset."""
        with self._guarded():
            return self._queries.bounds(ResetStrategy.LATEST, partitions, self._limit(timeout))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first records at or after times in ms since 1970."""
        with self._guarded():
            return self._queries.by_times(timestamps, self._limit(timeout))

    def topics(self, timeout: float | None = None) -> frozenset[str]:
        """Return the names of all visible topics, without Kafka's own. Raises ClientTimeout."""
        with self._guarded():
            return self._queries.topics(self._limit(timeout))

    def partitions_for_topic(self, topic: str, timeout: float | None = None) -> frozenset[int] | None:
        """Return a topic's partition numbers, None when the topic does not exist.

        Raises ClientTimeout, or the error that the topic is refused with.
        """
        with self._guarded():
            check_topic(topic)
            return self._queries.partitions(topic, self._limit(timeout))

    # -- commits

    def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Store offsets and wait for it; by default those after all records handed out.

        An offset is the *next* to read. Raises CommitFailed when the group has gone on without this member,
        RebalanceUnderWay (poll, then commit again), MembershipFenced, ClientTimeout.
        """
        with self._guarded():
            rows, limit = None if offsets is None else offset_rows(offsets), self._limit(timeout)
            self._in_hand.committed(rows)
            self._commits().commit_sync(self._handed_out.consumed() if rows is None else rows, limit)

    def commit_async(self, offsets: Offsets | None = None, callback: OffsetCommitCallback | None = None) -> None:
        """Store offsets without waiting and without another try.

        ``callback(offsets, error)`` runs in a later poll, commit or close, in the order of the commits; without one a
        failure is logged.
        """
        with self._guarded():
            check_callable("callback", callback)
            rows = None if offsets is None else offset_rows(offsets)
            self._in_hand.committed(rows)
            self._commits().commit_async(self._handed_out.consumed() if rows is None else rows, callback)

    def committed(
        self, *partitions: TopicPartition, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that the group has stored; partitions without one are left out."""
        with self._guarded():
            named = [TopicPartition.of(tp) for tp in partitions] or self._subscriptions.assigned
            return self._commits().committed(named, self._limit(timeout))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member's identity, for ``Producer.send_offsets_to_transaction``.

        It changes with each rebalance: call this for each transaction.
        """
        with self._guarded():
            self._commits()
            assert self.config.group_id is not None
            # Rule: a lost member is named by its last generation and not by -1, which coordinators do not check: it
            # could overwrite the offsets of the new owner.
            generation = self._rebalancer.last_generation
            return ConsumerGroupMetadata(
                self.config.group_id, generation.generation_id, generation.member_id, self.config.group_instance_id
            )

    # -- the end

    def wakeup(self) -> None:
        """Make the waiting poll, or else the next, raise ConsumerWakeup.

        Any thread may call this; :meth:`position` is woken, too.
        """
        self._poller.wakeup()

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Commit, if commits are automatic, leave the group, close every connection.

        All within ``timeout``, whatever the brokers do; may be called twice. A ``with`` block that Ctrl-C or ``exit()``
        leaves waits at most 5 s. After 2 s the log says what it waits for.
        """
        seconds(timeout)
        with self._guarded(closed_too=True):
            if self._closed:
                return
            try:
                what = f"for the last commit, or to leave group {self.config.group_id!r}."
                with telling(_log, timeout, lambda: f"{what} {self._client.connections()}"):
                    self._rebalancer.close(timeout)
            finally:
                self._closed = True
                self._when_dropped.detach()
                self._client.close()

    # -- inside

    def _guarded(self, *, closed_too: bool = False) -> OneThreadGuard:
        if self._closed and not closed_too:
            raise ConsumerClosed("This consumer was closed.")
        return self._guard

    def _taking(self) -> Taking:
        return Taking(self._handed_out, self._guarded())

    def _limit(self, timeout: float | None) -> float:
        return self._default_timeout_s if timeout is None else seconds(timeout)

    def _commits(self) -> Commits:
        if self._rebalancer.commits is None:
            raise IllegalSubscription("This consumer has no group_id, so there is no place for offsets: give one.")
        return self._rebalancer.commits
