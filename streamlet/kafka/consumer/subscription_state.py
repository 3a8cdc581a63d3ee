"""The subscription, and the state of each partition (Java: ``SubscriptionState``). Pure.

Three kinds of subscription exclude one another: topics, a pattern, or partitions by name. Each partition goes through
the states of :class:`FetchState`; the allowed moves stand in a table, and any other move is a bug of ours.

The order of the partitions is the order of fetching: one that has delivered goes to the end, so that none starves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from streamlet.base.errors import WrongArgument
from streamlet.kafka.arguments import check_topic, several
from streamlet.kafka.client.group_requests import OffsetAndMetadata
from streamlet.kafka.consumer.errors import IllegalSubscription, NotAssigned
from streamlet.kafka.fetch.nearer_replica import NearerReplica
from streamlet.kafka.metadata.cluster import UNKNOWN_EPOCH, Cluster, TopicPartition


class SubscriptionType(Enum):
    """Source of the list of partitions that are read."""

    NONE = "nothing is subscribed"
    AUTO_TOPICS = "topics, shared out by the group"
    AUTO_PATTERN = "a pattern of topics, shared out by the group"
    USER_ASSIGNED = "partitions that the user named"


class FetchState(Enum):
    """State of a partition. Only FETCHING has a valid position."""

    INITIALIZING = "no position yet"
    FETCHING = "has a valid position"
    AWAIT_RESET = "waits for an offset by policy, time or end"
    AWAIT_VALIDATION = "waits to hear whether the log still holds its position"


class ResetStrategy(Enum):
    """Where to read without a position in the log."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


_MOVES: dict[FetchState, frozenset[FetchState]] = {
    FetchState.INITIALIZING: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION}),
    FetchState.FETCHING: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION}),
    FetchState.AWAIT_RESET: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET}),
    FetchState.AWAIT_VALIDATION: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION}),
}


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read, with two leader epochs (KIP-320).

    ``offset_epoch`` is that of the record before it; ``leader_epoch`` that of the leader it was checked with.
    """

    offset: int
    offset_epoch: int = UNKNOWN_EPOCH
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(slots=True)
class AssignedPartition:
    """One assigned partition. States are changed by :class:`SubscriptionState` alone."""

    topic_partition: TopicPartition
    state: FetchState = FetchState.INITIALIZING
    position: Position | None = None
    committed: OffsetAndMetadata | None = None
    """What the group has stored, as far as this consumer has read or written it; None: nothing known."""
    committed_at_s: float = -inf
    """When this consumer wrote it; minus infinity where it did not."""
    paused: bool = False
    pending_revocation: bool = False
    pending_callback: bool = False
    """Its ``on_partitions_assigned`` has not returned; nothing is fetched before that."""
    reset: ResetStrategy | None = None
    next_retry_s: float = 0.0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    end_reached: int | None = None
    """Offset at which a fetch found the end; None: not there, or the position was sought."""
    end_told: int | None = None
    """The last ``end_reached`` that the user was told of."""
    nearer: NearerReplica = field(default_factory=NearerReplica)
    topic_id: str | None = None
    """Id of the topic that the position is in, where brokers tell it."""

    @property
    def fetchable(self) -> bool:
        """Whether its records may be asked for and handed out."""
        return (
            self.state is FetchState.FETCHING
            and not self.paused
            and not self.pending_revocation
            and not self.pending_callback
        )

    def move(self, to: FetchState) -> None:
        """Change the state. Raises RuntimeError for a move that is not in the table."""
        if to not in _MOVES[self.state]:
            raise RuntimeError(f"{self.topic_partition} cannot go from {self.state.name} to {to.name}")
        self.state = to


@dataclass(slots=True)
class SubscriptionState:
    """A subscription and its partitions, in fetching order. User's thread."""

    default_reset: ResetStrategy = ResetStrategy.LATEST
    kind: SubscriptionType = SubscriptionType.NONE
    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    assignment_id: int = 0
    """Grows with each change of the assignment: answers to earlier questions may be out of date."""
    _rows: dict[TopicPartition, AssignedPartition] = field(default_factory=dict)

    # -- topics

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Read these topics as a member of the group; return whether that is a change."""
        self._become(SubscriptionType.AUTO_TOPICS)
        wanted = frozenset(topics)
        changed, self.topics = wanted != self.topics, wanted
        return changed

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Read every topic whose whole name matches."""
        self._become(SubscriptionType.AUTO_PATTERN)
        self.pattern, self.topics = pattern, frozenset()

    def topics_matched(self, cluster: Cluster, exclude_internal: bool = True) -> bool:
        """Take the topics that match now; return whether they changed."""
        assert self.pattern is not None
        found = frozenset(
            name
            for name, info in cluster.topics.items()
            if self.pattern.fullmatch(name) and not (exclude_internal and info.is_internal)
        )
        changed, self.topics = found != self.topics, found
        return changed

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Read these partitions without a group; return whether that is a change."""
        self._become(SubscriptionType.USER_ASSIGNED)
        wanted = dict.fromkeys(partitions)
        if wanted.keys() == self._rows.keys():
            return False
        self._replace(wanted)
        return True

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition], added: Iterable[TopicPartition]) -> None:
        """Take over a share: partitions that stay keep their state, ``added`` wait for their callback."""
        self._replace(partitions)
        for tp in added:
            self._rows[tp].pending_callback = True

    def unsubscribe(self) -> None:
        """Read nothing."""
        self.kind, self.topics, self.pattern = SubscriptionType.NONE, frozenset(), None
        self._replace(())

    @property
    def uses_group(self) -> bool:
        """Whether the group shares the partitions out."""
        return self.kind in (SubscriptionType.AUTO_TOPICS, SubscriptionType.AUTO_PATTERN)

    def matches(self, topic: str) -> bool:
        """Return whether the subscription wants this topic; a late share may hold others."""
        if self.kind is SubscriptionType.AUTO_PATTERN:
            assert self.pattern is not None
            return self.pattern.fullmatch(topic) is not None
        return topic in self.topics

    # -- the partitions

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        """All partitions, in the order of the next fetch."""
        return tuple(self._rows)

    def __contains__(self, tp: object) -> bool:
        return tp in self._rows

    def rows(self) -> Iterator[AssignedPartition]:
        """Return an iterator over all partitions; the assignment may change meanwhile."""
        return iter(tuple(self._rows.values()))

    def get(self, tp: TopicPartition) -> AssignedPartition | None:
        """Return the state of a partition, None when it is not assigned."""
        return self._rows.get(tp)

    def require(self, tp: TopicPartition) -> AssignedPartition:
        """Return the state of a partition. Raises NotAssigned."""
        row = self._rows.get(tp)
        if row is None:
            ours = ", ".join(map(str, sorted(self._rows))) or "none"
            raise NotAssigned(
                f"Partition {tp} is not assigned to this consumer (assigned: {ours}). Positions belong to assigned "
                "partitions only: with a group, act on them from the rebalance listener or after a poll."
            )
        return row

    def fetchable(self) -> list[AssignedPartition]:
        """Return the partitions to ask for, in order."""
        return [row for row in self._rows.values() if row.fetchable]

    def in_state(self, state: FetchState, now_s: float = float("inf")) -> list[AssignedPartition]:
        """Return the partitions in a state whose retry is due."""
        return [row for row in self._rows.values() if row.state is state and row.next_retry_s <= now_s]

    def consumed(self) -> dict[TopicPartition, Position]:
        """Return the valid positions (Java: ``allConsumed``)."""
        # Not those that wait for a check or a reset: they may not be in the log, and a commit would keep them.
        return {
            tp: row.position
            for tp, row in self._rows.items()
            if row.state is FetchState.FETCHING and row.position is not None
        }

    def move_to_end(self, tp: TopicPartition) -> None:
        """Fetch the other partitions first next time."""
        # Else a partition that always has records would fill each answer, and those after it would bring none.
        row = self._rows.pop(tp, None)
        if row is not None:
            self._rows[tp] = row

    # -- committed offsets

    def note_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], at_s: float = -inf) -> None:
        """Take offsets that the group has stored; ``at_s``: when this consumer wrote them."""
        for tp, offset in offsets.items():
            row = self._rows.get(tp)
            if row is not None:
                row.committed, row.committed_at_s = offset, at_s

    def is_committed(self, tp: TopicPartition, offset: OffsetAndMetadata, since_s: float) -> bool:
        """Return whether this consumer wrote this very offset after ``since_s``."""
        row = self._rows.get(tp)
        return row is not None and row.committed == offset and row.committed_at_s > since_s

    def forget_commit_times(self) -> None:
        """Take every committed offset for one that another may have written since."""
        for row in self._rows.values():
            row.committed_at_s = -inf

    # -- positions

    def seek(self, tp: TopicPartition, position: Position) -> None:
        """Read on at a position that needs no check."""
        row = self.require(tp)
        row.move(FetchState.FETCHING)
        row.position, row.reset, row.next_retry_s = position, None, 0.0
        row.end_reached = row.end_told = None
        # The leader named that replica for the old position; it may not have the new one.
        row.nearer.forget()

    def seek_unvalidated(self, tp: TopicPartition, position: Position) -> None:
        """Read on at a position; check it first if its epochs are known."""
        row = self.require(tp)
        self.seek(tp, position)
        if position.offset_epoch != UNKNOWN_EPOCH and position.leader_epoch != UNKNOWN_EPOCH:
            row.move(FetchState.AWAIT_VALIDATION)

    def request_reset(self, tp: TopicPartition, strategy: ResetStrategy) -> None:
        """Read on where the strategy says; the leader must be asked for the offset."""
        row = self.require(tp)
        row.move(FetchState.AWAIT_RESET)
        row.reset, row.position, row.next_retry_s = strategy, None, 0.0
        row.nearer.forget()

    def maybe_reset_to(self, tp: TopicPartition, strategy: ResetStrategy, position: Position) -> bool:
        """Take in the leader's answer to a reset; return False when it is out of date."""
        row = self._rows.get(tp)
        # A seek, or a reset to the other end, may have been asked for while the question was under way: the later wish
        # counts.
        if row is None or row.state is not FetchState.AWAIT_RESET or row.reset is not strategy:
            return False
        self.seek(tp, position)
        return True

    def leader_changed(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Take in the leader epoch of new metadata: positions of older epochs must be checked."""
        row = self._rows.get(tp)
        if row is None or row.position is None or leader_epoch <= row.position.leader_epoch:
            return
        if row.state not in (FetchState.FETCHING, FetchState.AWAIT_VALIDATION):
            return
        # Without the epoch of the record before, there is nothing to compare: the position is believed.
        old = row.position
        row.position = Position(old.offset, old.offset_epoch, leader_epoch)
        row.next_retry_s = 0.0
        row.nearer.forget()
        if old.offset_epoch != UNKNOWN_EPOCH:
            row.move(FetchState.AWAIT_VALIDATION)

    def topic_seen(self, tp: TopicPartition, topic_id: str | None) -> bool:
        """Take in a topic id; return whether the topic was deleted and created again."""
        row = self._rows.get(tp)
        if row is None or topic_id is None or row.topic_id == topic_id:
            return False
        # The id is kept with the row, so an id that is first seen says nothing, and a missing one leaves the last.
        before, row.topic_id = row.topic_id, topic_id
        return before is not None and row.position is not None

    def validated(self, tp: TopicPartition, asked: Position) -> bool:
        """Take in that the leader's log holds a position; return False when it is out of date."""
        row = self._rows.get(tp)
        # An answer about another position, or by the leader before the present one, proves nothing about this one.
        if row is None or row.state is not FetchState.AWAIT_VALIDATION or row.position != asked:
            return False
        row.move(FetchState.FETCHING)
        return True

    def retry_at(self, tps: Iterable[TopicPartition], when_s: float) -> None:
        """Ask nothing about these partitions before ``when_s``."""
        for tp in tps:
            row = self._rows.get(tp)
            if row is not None:
                row.next_retry_s = when_s

    def untold_ends(self) -> list[tuple[TopicPartition, int]]:
        """Return the ends that were reached and not told of; each is returned once."""
        found: list[tuple[TopicPartition, int]] = []
        for row in self._rows.values():
            end = row.end_reached
            if end is None or end == row.end_told or not row.fetchable:
                continue
            if row.position is not None and row.position.offset == end:
                row.end_told = end
                found.append((row.topic_partition, end))
        return found

    # -- inside

    def _become(self, kind: SubscriptionType) -> None:
        if self.kind not in (SubscriptionType.NONE, kind):
            raise IllegalSubscription(
                f"This consumer reads by {self.kind.value}; it cannot also read by {kind.value}. subscribe(topics), "
                "subscribe(pattern=...) and assign(partitions) exclude one another: call unsubscribe() first."
            )
        self.kind = kind

    def _replace(self, partitions: Iterable[TopicPartition]) -> None:
        old = self._rows
        self._rows = {tp: old.get(tp) or AssignedPartition(tp) for tp in partitions}
        self.assignment_id += 1


# -- the arguments of subscribe()


def parse_subscription(
    topics: str | Iterable[str] | None, pattern: str | re.Pattern[str] | None, group_id: str | None
) -> list[str] | re.Pattern[str]:
    """Return topics by name, or a pattern for whole names.

    An empty list ends the subscription. Raises IllegalSubscription, InvalidTopic, WrongArgument.
    """
    if group_id is None:
        raise IllegalSubscription(
            "subscribe() shares topics out among a group, and this consumer has no group_id: give one, or read "
            "partitions by name with assign([TopicPartition(topic, 0)])."
        )
    if pattern is not None:
        if topics is not None and topics not in ((), []):
            raise IllegalSubscription("subscribe() takes topics or a pattern, not both.")
        return _compiled(pattern)
    if isinstance(topics, re.Pattern):
        raise WrongArgument(f"subscribe() takes a pattern by name: write subscribe(pattern={topics.pattern!r}).")
    if topics is None:
        raise WrongArgument("subscribe() was given nothing: name topics, subscribe(['lines']), or give a pattern.")
    names = [topics] if isinstance(topics, str) else list(several(topics, "topics", "subscribe(['lines', ...])"))
    for name in names:
        check_topic(name)
    return names


def _compiled(given: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        found = re.compile(given)
    except (re.error, TypeError) as error:
        raise IllegalSubscription(
            f"pattern = {given!r} is not a regular expression ({error}): correct it; re.escape() takes "
            "names as they are."
        ) from error
    if not isinstance(found.pattern, str) or not found.pattern:
        raise IllegalSubscription(f"pattern = {given!r} matches no topic: give a str that is not empty, as 'lines.*'.")
    return found
