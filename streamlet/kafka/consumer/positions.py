"""Positions: first offsets, resets, checks with the leader's log, offsets by time.

A position goes through the states of ``FetchState`` (``subscription_state.py``):

1. INITIALIZING: the group is asked for its committed offset (:class:`FirstPositions`);
2. AWAIT_RESET: nothing is committed, or the position is not in the log: the leader is asked for an end of the log;
3. AWAIT_VALIDATION: the position is of an older leader epoch than the present one: the leader is asked whether its log
   still holds the records that were read (KIP-320; ``kafka/fetch/truncation.py`` compares);
4. FETCHING.

Nothing in :class:`Positions` waits: a poll sends the questions that are due, their answers change the subscription, and
errors for the user are raised by the next poll (:meth:`Positions.tell`). Only :class:`OffsetQueries` waits; its callers
ask for offsets of a log and change no position.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.kafka.arguments import by_partition, check_time, partitions_of
from streamlet.kafka.broker_errors import (
    LeaderNotAvailable,
    UnknownServerError,
    UnknownTopicOrPartition,
    may_pass,
)
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import OffsetAndMetadata
from streamlet.kafka.client.leader_requests import (
    EpochEnd,
    ListedOffset,
    list_offsets,
    offsets_for_leader_epoch,
)
from streamlet.kafka.consumer.commits import Commits
from streamlet.kafka.consumer.consumer_config import READ_COMMITTED, ConsumerConfig
from streamlet.kafka.consumer.errors import LogTruncated, NoOffsetForPartition, PositionOutOfRange
from streamlet.kafka.consumer.subscription_state import (
    AssignedPartition,
    FetchState,
    Position,
    ResetStrategy,
    SubscriptionState,
)
from streamlet.kafka.errors import BrokerError, ClientTimeout, KafkaError, NoLeader, copy_of
from streamlet.kafka.fetch.truncation import PositionVerdict, judge_position
from streamlet.kafka.fetch.unknown_errors import UNKNOWN_ERROR_S, UnknownErrors
from streamlet.kafka.future import RequestFuture, failed_future
from streamlet.kafka.metadata.cluster import Broker, Cluster, TopicPartition
from streamlet.kafka.protocol.messages.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from streamlet.kafka.protocol.messages.metadata import MetadataRequest

_log = logging.getLogger(__name__)

T = TypeVar("T")
BEHIND_S = 10.0
"""Seconds to wait for metadata as new as a position; after that its log is taken for gone."""
_TIMES = {ResetStrategy.EARLIEST: EARLIEST_TIMESTAMP, ResetStrategy.LATEST: LATEST_TIMESTAMP}


class Positions:
    """Resets and checks of positions. User's thread."""

    # Long: reset, look-up of offsets and check for truncation ask leaders and change positions in one order. Their
    # verdicts are pure, in `kafka/fetch`.

    def __init__(
        self, client: KafkaClient, subscriptions: SubscriptionState, config: ConsumerConfig, now_s: Callable[[], float]
    ) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._now_s = now_s
        self._read_committed = config.isolation_level == READ_COMMITTED
        self._retry = config.retry_backoff
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._metadata_seen: tuple[object, int] | None = None
        self._error: KafkaError | None = None
        self._behind: dict[TopicPartition, tuple[int, float]] = {}
        """Leader epochs of positions that metadata does not know yet, and since when each is awaited."""
        self._unknown_errors: UnknownErrors[TopicPartition] = UnknownErrors()
        self._left: dict[TopicPartition, int] = {}
        """Positions that were not in the log, until the reset that follows: for the warning about the gap."""
        self._without_place: dict[TopicPartition, PositionOutOfRange] = {}
        """Partitions of topics created again, without a reset policy: each poll raises this until a seek."""

    # -- errors found outside of a poll

    def tell(self, error: KafkaError) -> None:
        """Raise ``error`` in the next poll."""
        self._error = self._error or error

    def raise_told(self) -> None:
        """Raise the first error told since the last call."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    # -- polls

    def send_due(self) -> None:
        """Take in new metadata, then send due resets and checks."""
        cluster = self._client.cluster
        seen = (cluster, self._subscriptions.assignment_id)
        # New topic ids and leader epochs only come with new metadata, and new partitions only with an assignment: with
        # neither, a poll has nothing to compare.
        if self._metadata_seen != seen:
            self._metadata_seen = seen
            for row in self._subscriptions.rows():
                tp = row.topic_partition
                if self._subscriptions.topic_seen(tp, cluster.topic_id(tp.topic)):
                    self._topic_recreated(tp)
                self._subscriptions.leader_changed(tp, cluster.leader_epoch(tp))
            self._tell_refused_topics(cluster)
        for tp, error in list(self._without_place.items()):
            state = self._subscriptions.get(tp)
            # Raised by each poll until a seek: nothing else would say why this partition brings no records.
            if state is None or state.reset is not ResetStrategy.NONE:
                del self._without_place[tp]
            else:
                self.tell(copy_of(error))
        self._reset()
        self._validate()

    def _tell_refused_topics(self, cluster: Cluster) -> None:
        """Tell the errors of topics that cannot be read at all."""
        wanted = self._subscriptions.topics | {tp.topic for tp in self._subscriptions.assigned}
        for name in sorted(wanted):
            info = cluster.topics.get(name)
            # A topic that is not there may be created yet, so errors that time may fix are only logged (`IdleReasons`).
            if info is not None and info.error is not None and not may_pass(info.error):
                self.tell(info.error(f"Topic {name!r} cannot be read"))

    def next_wake_s(self, now_s: float) -> float:
        """Return seconds until a retry is due; infinity without one."""
        waits = [
            row.next_retry_s - now_s
            for row in self._subscriptions.rows()
            if row.state in (FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION)
        ]
        return max(min(waits, default=float("inf")), 0.0)

    def start_at(self, tp: TopicPartition, offset: int, epoch: int) -> None:
        """Begin at a committed or sought offset; it is checked when its epoch is known."""
        leader_epoch = self._client.cluster.leader_epoch(tp)
        self._subscriptions.seek_unvalidated(tp, Position(offset, epoch, leader_epoch))

    def reset_by_policy(self, tps: list[TopicPartition]) -> None:
        """Begin where ``auto_offset_reset`` says. Raises NoOffsetForPartition."""
        policy = self._subscriptions.default_reset
        if tps and policy is ResetStrategy.NONE:
            names = ", ".join(map(str, tps))
            raise NoOffsetForPartition(
                f"No offset is committed for {names}, and auto_offset_reset is 'none': nothing says where to read. "
                "seek() them, commit offsets, or set auto_offset_reset to 'earliest' or 'latest'.",
                tuple(tps),
            )
        for tp in tps:
            self._subscriptions.request_reset(tp, policy)

    def out_of_range(self, tp: TopicPartition) -> None:
        """Reset a position that the leader does not have. Raises PositionOutOfRange."""
        row = self._subscriptions.require(tp)
        assert row.position is not None
        offset, policy = row.position.offset, self._subscriptions.default_reset
        if policy is ResetStrategy.NONE:
            raise PositionOutOfRange(
                f"Offset {offset} is not in the log of topic {tp.topic!r}, partition {tp.partition} ({_ends(row)}), "
                "and auto_offset_reset is 'none'. Records there were deleted by retention, or the log was cut. seek() "
                "to the offset to go on at, or set auto_offset_reset.",
                {tp: offset},
            )
        _log.warning(
            "offset %d is not in the log of %s (%s): reading goes on at the %s offset, by auto_offset_reset",
            offset,
            tp,
            _ends(row),
            policy.value,
        )
        self._left[tp] = offset
        self._subscriptions.request_reset(tp, policy)

    def _topic_recreated(self, tp: TopicPartition) -> None:
        """Reset a position in a topic that was deleted and created again."""
        row, policy = self._subscriptions.require(tp), self._subscriptions.default_reset
        assert row.position is not None
        what = (
            f"Topic {tp.topic!r} was deleted and created again: the position in partition {tp.partition}, "
            f"{row.position.offset}, says nothing about the new log"
        )
        if policy is ResetStrategy.NONE:
            self._without_place[tp] = PositionOutOfRange(
                f"{what}, and auto_offset_reset is 'none'. seek() to the offset to begin at.",
                {tp: row.position.offset},
            )
        else:
            _log.warning("%s; reading goes on at the %s offset, by auto_offset_reset", what, policy.value)
        self._subscriptions.request_reset(tp, policy)

    def parted(self, tp: TopicPartition, epoch: int, end_offset: int) -> None:
        """Take in a fetch answer's diverging epoch. Raises LogTruncated without a reset policy."""
        row = self._subscriptions.require(tp)
        assert row.position is not None
        verdict = judge_position(row.position.offset, epoch_end=end_offset)
        if not verdict.holds:
            self._truncated(tp, row.position.offset, epoch, verdict)
        else:
            # Rule: the position stays. An end ahead of it only says that the leader never had our last epoch; that
            # proves no loss, and to go there would skip records. The epoch both know is used from here on.
            row.position = Position(row.position.offset, epoch, row.position.leader_epoch)

    def _truncated(self, tp: TopicPartition, offset: int, epoch: int, verdict: PositionVerdict) -> None:
        """Go back to where the leader's log parts from ours. Raises LogTruncated without a reset policy.

        ``epoch``: of the record before that place.
        """
        by_hand = self._subscriptions.default_reset is ResetStrategy.NONE
        end = verdict.resume_at
        which = f"below {offset}" if end is None else f"from offset {end} to {offset - 1}"
        lost = (
            f"Records of topic {tp.topic!r}, partition {tp.partition}, {which} were read and are no longer in the "
            "log: a new leader did not have them (unclean election, or acks below all)"
        )
        if end is None:
            if by_hand:
                raise LogTruncated(
                    f"{lost}. Where both logs part is not known; seek to the offset to go on at.", {}, tp
                )
            _log.warning("%s; where both logs part is not known: reset by auto_offset_reset from %d", lost, offset)
            self._subscriptions.request_reset(tp, self._subscriptions.default_reset)
        elif by_hand:
            raise LogTruncated(
                f"{lost}. auto_offset_reset is 'none', so the position stays at {offset}: undo what came of those "
                f"records, then seek to {end}.",
                {tp: end},
                tp,
            )
        else:
            _log.warning("%s; reading goes on at %d", lost, end)
            self._subscriptions.seek(tp, Position(end, epoch, self._client.cluster.leader_epoch(tp)))

    # -- inside

    def _by_leader(self, tps: list[TopicPartition]) -> dict[Broker, list[TopicPartition]]:
        found: dict[Broker, list[TopicPartition]] = {}
        cluster = self._client.cluster
        for tp in tps:
            leader = cluster.leader_for(tp)
            if leader is None:
                self._client.metadata.request_update(reset_equivalent=False)
                self._subscriptions.retry_at([tp], self._now_s() + self._retry.initial)
            else:
                found.setdefault(leader, []).append(tp)
        return found

    def _reset(self) -> None:
        now = self._now_s()
        due = self._subscriptions.in_state(FetchState.AWAIT_RESET, now)
        strategies = {row.topic_partition: row.reset for row in due if row.reset in _TIMES}
        for leader, tps in self._by_leader(list(strategies)).items():
            asked = {tp: strategies[tp] for tp in tps}
            # In-flight questions have no mark of their own: a retry due after their time-out keeps a second one away.
            self._subscriptions.retry_at(tps, now + self._request_timeout_s + 1)
            future = list_offsets(
                self._client,
                leader,
                {tp: _TIMES[strategy] for tp, strategy in asked.items()},
                read_committed=self._read_committed,
            )
            future.add_listener(partial(self._reset_answered, asked))

    def _reset_answered(
        self, asked: Mapping[TopicPartition, ResetStrategy], done: RequestFuture[dict[TopicPartition, ListedOffset]]
    ) -> None:
        if done.exception is not None:
            self._failed(list(asked), done.exception)
            return
        for tp, strategy in asked.items():
            row = done.value.get(tp)
            if row is None or row.error is not None:
                self._ask_again(
                    tp, None if row is None else row.error, f"Asking for the {strategy.value} offset of {tp}"
                )
            else:
                self._unknown_errors.ended(tp)
                position = Position(row.offset, row.leader_epoch, self._client.cluster.leader_epoch(tp))
                if self._subscriptions.maybe_reset_to(tp, strategy, position):
                    _log.info("%s is read from its %s offset, %d", tp, strategy.value, row.offset)
                    self._tell_passed_over(tp, row.offset)

    def _tell_passed_over(self, tp: TopicPartition, offset: int) -> None:
        left = self._left.pop(tp, offset)
        if left < offset:
            _log.warning(
                "records of %s from offset %d to %d were not read: they are no longer in the log, or passed over by "
                "auto_offset_reset",
                tp,
                left,
                offset - 1,
            )

    def _validate(self) -> None:
        now = self._now_s()
        due = self._subscriptions.in_state(FetchState.AWAIT_VALIDATION, now)
        rows = {row.topic_partition: row.position for row in due if row.position is not None}
        positions = {tp: position for tp, position in rows.items() if self._leader_known(tp, position, now)}
        for leader, tps in self._by_leader(list(positions)).items():
            asked = {tp: positions[tp] for tp in tps}
            self._subscriptions.retry_at(tps, now + self._request_timeout_s + 1)
            future = offsets_for_leader_epoch(
                self._client,
                leader,
                {tp: (position.offset_epoch, position.leader_epoch) for tp, position in asked.items()},
            )
            future.add_listener(partial(self._validate_answered, asked))

    def _leader_known(self, tp: TopicPartition, position: Position, now_s: float) -> bool:
        """Return whether metadata is as new as the position, or overdue."""
        # Rule: ask no older leader. A committed offset may be of a newer leader epoch than our metadata; the leader of
        # an older one would answer that this epoch never existed, and a whole log would be reported as cut.
        known, wanted = self._client.cluster.leader_epoch(tp), position.offset_epoch
        if wanted <= known:
            self._behind.pop(tp, None)
            return True
        epoch, since_s = self._behind.get(tp, (wanted, now_s))
        if epoch != wanted:
            since_s = now_s
        self._behind[tp] = wanted, since_s
        if now_s - since_s >= BEHIND_S:
            _log.warning(
                "the position of %s, %d, is of leader epoch %d, and no broker names a leader newer than epoch %d: its "
                "log is compared with that one's",
                tp,
                position.offset,
                wanted,
                known,
            )
            return True
        self._client.metadata.request_update(reset_equivalent=False)
        self._subscriptions.retry_at([tp], now_s + self._retry.initial)
        return False

    def _validate_answered(
        self, asked: Mapping[TopicPartition, Position], done: RequestFuture[dict[TopicPartition, EpochEnd]]
    ) -> None:
        if done.exception is not None:
            self._failed(list(asked), done.exception)
            return
        for tp, position in asked.items():
            row = self._subscriptions.get(tp)
            if row is None or row.position != position or row.state is not FetchState.AWAIT_VALIDATION:
                continue  # sought, reset or given away while the question was under way
            self._validate_one(tp, position, done.value.get(tp))

    def _validate_one(self, tp: TopicPartition, position: Position, end: EpochEnd | None) -> None:
        if end is None or end.error is not None:
            self._ask_again(tp, None if end is None else end.error, f"Checking the position of {tp} with its leader")
        else:
            self._unknown_errors.ended(tp)
            # Without a leader epoch in the answer the leader has no epoch in common with us, whatever the end says.
            verdict = judge_position(position.offset, epoch_end=-1 if end.leader_epoch < 0 else end.end_offset)
            if verdict.holds:
                self._subscriptions.validated(tp, position)
                self._subscriptions.retry_at([tp], 0.0)
                return
            try:
                self._truncated(tp, position.offset, end.leader_epoch, verdict)
            except KafkaError as err:
                self.tell(err)
                self._subscriptions.retry_at([tp], self._now_s() + self._retry.maximum)

    def _ask_again(self, tp: TopicPartition, error: type[BrokerError] | None, doing: str) -> None:
        """Ask again after a pause; tell an error that time does not mend.

        None: the answer left ``tp`` out.
        """
        passes = error is None or (
            self._unknown_error_passes(tp, error(doing)) if error is UnknownServerError else error.retriable
        )
        if error is not None and not passes:
            self.tell(error(doing))
        if error is not UnknownServerError:
            self._unknown_errors.ended(tp)
        pause_s = self._retry.initial if passes else self._retry.maximum
        self._subscriptions.retry_at([tp], self._now_s() + pause_s)

    def _unknown_error_passes(self, tp: TopicPartition, error: BrokerError) -> bool:
        """Note an unexpected error, warn of the first; return whether it may pass."""
        lasts_s = self._unknown_errors.failed(tp, self._now_s())
        if not lasts_s:
            _log.warning("%s has no position at the moment, trying again. %s", tp, error.message)
        return lasts_s < UNKNOWN_ERROR_S

    def _failed(self, tps: list[TopicPartition], error: KafkaError) -> None:
        self._subscriptions.retry_at(tps, self._now_s() + self._retry.initial)
        if not error.retriable:
            self.tell(error)


def _ends(row: AssignedPartition) -> str:
    """Return the known ends of a log in words; an "out of range" often comes without them."""
    known = [f"it begins at {row.log_start_offset}"] if row.log_start_offset >= 0 else []
    known += [f"its end was last seen at {row.high_watermark}"] if row.high_watermark >= 0 else []
    return ", and ".join(known) or "beginning_offsets() and end_offsets() tell where it begins and ends"


@dataclass(slots=True)
class FirstPositions:
    """Committed offsets for new partitions (Java: ``initWithCommittedOffsetsIfNeeded``). User's thread.

    One question at a time, for all partitions that have no position. Without ``commits`` the reset policy decides
    alone.
    """

    _subscriptions: SubscriptionState
    _positions: Positions
    _commits: Commits | None
    _retry: Backoff
    _clock: Clock
    _asking: bool = False
    _not_before_s: float = 0.0

    def next_wake_s(self, now_s: float) -> float:
        """Return seconds until a failed question may be asked again, or infinity."""
        return self._not_before_s - now_s if self._not_before_s > now_s else float("inf")

    def ask(self, awaited: TopicPartition | None = None) -> None:
        """Ask for committed offsets of partitions without a position.

        ``awaited``: one that a caller of ``position()`` waits for.
        """
        # Rule: a partition whose on_partitions_assigned has not returned is asked about only by a position() for it.
        # The listener may seek it, and a reset policy 'none' would raise before that. A position() is often called in
        # that listener itself: without its question it would wait for its whole time.
        rows = [
            row
            for row in self._subscriptions.in_state(FetchState.INITIALIZING)
            if not row.pending_callback or row.topic_partition == awaited
        ]
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
            # Partitions went and perhaps came back meanwhile, after others committed: ask again.
            return
        missing: list[TopicPartition] = []
        for tp in tps:
            row = self._subscriptions.get(tp)
            if row is None or row.state is not FetchState.INITIALIZING:
                continue  # the user has sought meanwhile
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


_ABSENT_S = 1.0
"""Seconds to ask again for an absent topic: a broker that has just started knows none."""


class OffsetAndTimestamp(NamedTuple):
    """Offset, timestamp and leader epoch of a record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


class OffsetQueries:
    """Users' questions about a log's offsets, with retries. User's thread."""

    def __init__(self, client: KafkaClient, config: ConsumerConfig, now_s: Callable[[], float]) -> None:
        self._client = client
        self._now_s = now_s
        self._read_committed = config.isolation_level == READ_COMMITTED

    def partitions(self, topic: str, timeout_s: float) -> frozenset[int] | None:
        """Return a topic's partition numbers, None when it does not exist."""
        start, quick = self._now_s(), min(timeout_s, _ABSENT_S)
        with self._asking_about({topic}):
            return self._partitions(topic, start, quick, timeout_s)

    @contextlib.contextmanager
    def _asking_about(self, topics: set[str]) -> Iterator[None]:
        """Keep metadata of topics during a question; forget those that are not read."""
        new = topics - self._client.metadata.topics
        try:
            yield
        finally:
            for topic in new:
                self._client.metadata.remove_topic(topic)

    def _partitions(self, topic: str, start: float, quick: float, timeout_s: float) -> frozenset[int] | None:
        try:
            try:
                self._client.wait_on_metadata(topic, quick)
            except (ClientTimeout, LeaderNotAvailable):  # no answer yet, or the topic is being created
                if quick == timeout_s:
                    raise
                self._client.wait_on_metadata(topic, max(start + timeout_s - self._now_s(), 0.0))
        except UnknownTopicOrPartition:
            return None
        return frozenset(info.partition for info in self._client.cluster.partitions_for(topic))

    def topics(self, timeout_s: float) -> frozenset[str]:
        """Return the names of all visible topics, without Kafka's own."""
        request = MetadataRequest(topics=None)
        response = self._client.wait_retrying(lambda: self._client.send(request), timeout_s)
        rows = [row for row in response.topics if not row.error_code and not row.is_internal]
        return frozenset(row.name for row in rows if row.name is not None)

    def bounds(
        self, strategy: ResetStrategy, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Return the first offsets (EARLIEST), or those after the last records (LATEST)."""
        rows = self._ask(dict.fromkeys(partitions_of(partitions), _TIMES[strategy]), timeout_s)
        return {tp: row.offset for tp, row in rows.items()}

    def by_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time, for each partition."""
        wanted = by_partition(timestamps, "milliseconds")
        for tp, when in wanted.items():
            check_time(tp, when)
        rows = self._ask(wanted, timeout_s)
        return {
            tp: None if row.offset < 0 else OffsetAndTimestamp(row.offset, row.timestamp, row.leader_epoch)
            for tp, row in rows.items()
        }

    def _ask(self, wanted: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, ListedOffset]:
        client, deadline = self._client, self._now_s() + timeout_s
        found: dict[TopicPartition, ListedOffset] = {}
        with self._asking_about({tp.topic for tp in wanted}):
            for tp in wanted:
                client.wait_on_metadata(tp.topic, max(deadline - self._now_s(), 0.0), tp.partition)
            if wanted:
                client.wait_retrying(lambda: self._round(wanted, found), max(deadline - self._now_s(), 0.0))
        return found

    def _round(
        self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, ListedOffset]
    ) -> RequestFuture[None]:
        """Ask the leaders for all offsets not found yet, in one round."""
        by_leader: dict[Broker, dict[TopicPartition, int]] = {}
        for tp, timestamp in wanted.items():
            if tp in found:
                continue
            leader = self._client.cluster.leader_for(tp)
            if leader is None:
                return failed_future(NoLeader(f"Partition {tp} has no leader at the moment."))
            by_leader.setdefault(leader, {})[tp] = timestamp
        result: RequestFuture[None] = RequestFuture()
        left = len(by_leader)
        errors: list[KafkaError] = []

        def answered(done: RequestFuture[dict[TopicPartition, ListedOffset]]) -> None:
            nonlocal left
            left -= 1
            if done.exception is not None:
                errors.append(done.exception)
            else:
                for tp, row in done.value.items():
                    if row.error is not None:
                        errors.append(row.error(f"Asking for an offset of {tp}"))
                    else:
                        found[tp] = row
            if left == 0:
                if errors:
                    result.fail(errors[0])
                else:
                    result.complete(None)

        for leader, rows in by_leader.items():
            asked = list_offsets(self._client, leader, rows, read_committed=self._read_committed)
            asked.settle(result, answered)
        return result
