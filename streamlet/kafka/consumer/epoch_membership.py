"""A member's life in a group of the newer protocol (KIP-848), decided purely (Java: ``ConsumerMembershipManager``).

The coordinator shares out. A member names in heartbeats its topics and the partitions it reads, and hears its epoch and
its share. Events come in by methods; requests to send come out of :meth:`EpochMembership.step`; news for the consumer
gather in :attr:`EpochMembership.news`. There is no socket, thread or clock in here. The group's thread calls
everything, but for ``polled_s`` (written by the user's thread), :attr:`identity` and ``without_us`` (any thread).

States, with Java's names::

    UNSUBSCRIBED --join()--> JOINING --answered--> STABLE <---------------------------------------+
         ^                      ^       |             | other partitions                          | all of it told
         |                      |       v             v                                           |
         |                      |    RECONCILING <-------- more has come ---------------- ACKNOWLEDGING
         |                      |       |                                                         ^
         |                      |       +------- reconciled(): the user's thread has taken them --+
         |                      |
         |                      +-- join() -- FENCED: epoch or member refused, all is lost
         |                      +-- join() -- STALE: the user did not poll; the member has left
         |                      +-- join() -- FATAL: an error that joining again at once would not mend
         +-- the leaving is sent -- LEAVING <-- leave(), from every state of a member

Java's PREPARE_LEAVING is missing: the user's thread has run the listener before it calls :meth:`EpochMembership.leave`.

Rules:

- One heartbeat at a time. The epoch moves in the coordinator when it takes one, so its answer must be heard first.
- Unchanged fields are left out, until an answer is missing: then the next heartbeat is full. The coordinator takes the
  epoch before its own only from a member that also says what it reads.
- A heartbeat that names partitions names all that the user's thread may be reading before its answer comes. The
  coordinator gives any other of ours away at once.
- A heartbeat goes out at once to join, to acknowledge and for another subscription, else at the broker's interval.
- A member whose epoch was refused waits for the user's thread, which drops its partitions, before it joins again.
  Otherwise a commit of the lost ones could carry the new epoch. It leaves first, for the coordinator still has it.
- A join that is refused is tried again after a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    NotCoordinator,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedVersionByBroker,
    error_class,
)
from streamlet.kafka.consumer.errors import MembershipFenced
from streamlet.kafka.consumer.membership import (
    NO_GENERATION,
    Assigned,
    Fatal,
    FindCoordinator,
    Generation,
    MembershipLost,
    News,
    PartitionsById,
    TopicsRefused,
)
from streamlet.kafka.errors import Disconnected, KafkaError, UnsupportedVersion, with_sentence
from streamlet.kafka.protocol.messages.groups import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
    MemberTopicPartitions,
)

PROTOCOL = "consumer"
NOTHING: PartitionsById = {}


class EpochState(Enum):
    """State of a member, by Java's names."""

    UNSUBSCRIBED = "not a member"
    JOINING = "joining"
    RECONCILING = "is to give up or take partitions"
    ACKNOWLEDGING = "has done so, and is to say it"
    STABLE = "a member with its share"
    FENCED = "refused, and has lost all"
    LEAVING = "leaving"
    FATAL = "ended by an error"
    STALE = "left, since its user did not poll"


_OUTSIDE = frozenset({EpochState.UNSUBSCRIBED, EpochState.FENCED, EpochState.FATAL, EpochState.STALE})
"""Nothing is sent in these (Java: ``isNotInGroup``), but for the leaving of a lost membership."""
_WITH_EPOCH = frozenset({EpochState.RECONCILING, EpochState.ACKNOWLEDGING, EpochState.STABLE})
"""A member that the coordinator knows, and that has a share."""
_BACK = frozenset({EpochState.JOINING, EpochState.UNSUBSCRIBED})
_ENDS = frozenset({EpochState.FENCED, EpochState.FATAL, EpochState.LEAVING})

_MOVES: Mapping[EpochState, frozenset[EpochState]] = {
    EpochState.UNSUBSCRIBED: frozenset({EpochState.JOINING}),
    EpochState.JOINING: _ENDS | {EpochState.RECONCILING, EpochState.STABLE},
    **dict.fromkeys(_WITH_EPOCH, _ENDS | _WITH_EPOCH | {EpochState.STALE}),
    **dict.fromkeys((EpochState.FENCED, EpochState.FATAL, EpochState.STALE), _BACK),
    EpochState.LEAVING: _BACK,
}


@dataclass(frozen=True, slots=True)
class EpochSettings:
    """Settings of a membership, times in seconds."""

    group_id: str
    member_id: str
    """Made by the client, and kept for its life."""
    group_instance_id: str | None
    rack: str | None
    assignor: str | None
    """The coordinator's assignor; None: its default."""
    max_poll_interval_s: float
    retry: Backoff


@dataclass(frozen=True, slots=True)
class EpochBeat:
    """Send a heartbeat; its answer comes back beside it."""

    request: ConsumerGroupHeartbeatRequest
    number: int
    acknowledges: bool = False


@dataclass(frozen=True, slots=True)
class Farewell:
    """Send the last heartbeat, which leaves; only a close waits for its answer."""

    request: ConsumerGroupHeartbeatRequest


EpochAction = FindCoordinator | EpochBeat | Farewell


@dataclass(slots=True)
class EpochMembership:
    """One member of a group."""

    # Long: each event may move the state, the epoch and what is said next, and these are right only together.

    settings: EpochSettings
    uniform: Callable[[], float]
    state: EpochState = EpochState.UNSUBSCRIBED
    epoch: int = JOINING_EPOCH
    identity: Generation = NO_GENERATION
    """Under which a commit is made now; NO_GENERATION while this is no member. Replaced whole; any thread reads."""
    news: list[News] = field(default_factory=list)
    """News in order. Emptied by the owner."""
    polled_s: float = 0.0
    """When the user polled last. Written by the user's thread."""
    coordinator_known: bool = False
    _wanted: bool = False
    """Whether the consumer wants to be a member."""
    _searching: bool = False
    _topics: tuple[str, ...] = ()
    _target: PartitionsById = field(default_factory=dict)
    """What the coordinator gives this member."""
    _owned: PartitionsById = field(default_factory=dict)
    """What the user's thread has taken."""
    _shares: list[PartitionsById] = field(default_factory=list)
    """The share that the user's thread has answered last, and those given since: it may be taking any of them."""
    _told: tuple[str, ...] | None = None
    """Topics that the coordinator has heard of; None: the next heartbeat is full."""
    _told_before: tuple[str, ...] | None = None
    """The same without the heartbeat under way."""
    _number: int = 0
    """Of the last heartbeat."""
    _awaited: int | None = None
    """Number of the heartbeat whose answer is awaited."""
    _due_s: float = 0.0
    """When the next heartbeat is due that has nothing new to say."""
    _not_before_s: float = 0.0
    """When something may be sent again after a failure."""
    _failures: int = 0
    """Failures in a row."""
    _refused_s: float = float("-inf")
    """When the user was last given an error that ends nothing."""
    _refusals: int = 0
    """How often the topics were refused since they were taken last."""
    _topics_not_before_s: float = float("-inf")
    """When refused topics may be named again."""
    _to_leave: bool = False
    """Whether the coordinator still has this member, whose membership has ended."""
    _sent_s: float = 0.0
    """When the last heartbeat was sent."""
    _taken_s: float = 0.0
    """When the last heartbeat was sent that was taken: from then on the coordinator counts our silence."""

    # -- wishes of the consumer

    def join(self, topics: frozenset[str], now_s: float) -> None:
        """Join, once the user's thread reads nothing of an earlier membership."""
        self.subscribe(topics)
        self._wanted = True
        self.polled_s = max(self.polled_s, now_s)
        if self.state in _OUTSIDE:
            self._move(EpochState.JOINING)

    def subscribe(self, topics: frozenset[str]) -> None:
        """Name other topics from now on."""
        # Rule: this joins nothing. The membership may be lost while the user's thread, which subscribes, has not heard
        # of it: it still reads what is lost, and would commit that under the epoch of the next membership.
        wanted = tuple(sorted(topics))
        if wanted != self._topics:
            self._topics, self._topics_not_before_s = wanted, float("-inf")

    def reconciled(self, owned: PartitionsById, share: PartitionsById) -> None:
        """Take in what the user's thread reads now; the coordinator must hear of it.

        ``share``: the object of the news that it answers. ``owned`` lacks topics without a name yet, or unsubscribed.
        """
        if self.state not in _WITH_EPOCH or not any(one is share for one in self._shares):
            return  # that share is lost since
        while self._shares[0] is not share:
            del self._shares[0]
        if owned != self._owned or self.state is EpochState.RECONCILING:
            self._owned = owned
            self._move(EpochState.ACKNOWLEDGING)

    def leave(self) -> None:
        """Leave, so that others need not wait for the session's end."""
        self._wanted = False
        if self.state in _OUTSIDE:
            self._move(EpochState.UNSUBSCRIBED)
            return
        self._move(EpochState.LEAVING)
        self._forget()

    # -- the next request

    def step(self, now_s: float) -> EpochAction | None:
        """Return the next action, None without one; call again until then."""
        if self.state is EpochState.LEAVING:
            self._move(EpochState.JOINING if self._wanted else EpochState.UNSUBSCRIBED)
            self._to_leave = False
            # Without a coordinator there is nobody to tell: the session's end will.
            return self._farewell() if self.coordinator_known else None
        if self._may_leave():
            self._to_leave = False
            if self.coordinator_known:
                return self._farewell()
        if self.state in _OUTSIDE:
            return None
        if self._slow_user(now_s):
            return self._farewell() if self.coordinator_known else None
        if self._searching or now_s < self._not_before_s:
            return None
        if not self.coordinator_known:
            self._searching = True
            return FindCoordinator()
        if self._awaited is None and (self._at_once(now_s) or now_s >= self._due_s):
            return self._beat(now_s)
        return None

    def next_wake_s(self, now_s: float) -> float:
        """Return seconds until :meth:`step` may act without an event; infinity for never."""
        if self.state is EpochState.LEAVING or self._may_leave():
            return 0.0
        if self.state in _OUTSIDE:
            return float("inf")
        wait = float("inf")
        if not self._searching and (self._awaited is None or not self.coordinator_known):
            due_s = now_s if self._at_once(now_s) or not self.coordinator_known else self._due_s
            if self._told != self._topics:
                due_s = min(due_s, self._topics_not_before_s)
            wait = max(due_s, self._not_before_s) - now_s
        if self.epoch > JOINING_EPOCH:
            wait = min(wait, self.polled_s + self.settings.max_poll_interval_s - now_s)
        return max(wait, 0.0)

    def _may_leave(self) -> bool:
        """Return whether the leaving of a lost membership is due."""
        # One that is fenced waits for the user's thread, which drops the partitions; a join, for the coordinator.
        waits = self.state is EpochState.FENCED or (self.state is EpochState.JOINING and not self.coordinator_known)
        return self._to_leave and not waits

    def _at_once(self, now_s: float) -> bool:
        """Return whether the next heartbeat must not wait for its time."""
        return self._names_topics(now_s) or self.state is EpochState.ACKNOWLEDGING

    def _names_topics(self, now_s: float) -> bool:
        # Rule: refused topics are left out now and then. A broker refuses such a heartbeat before the coordinator sees
        # it, and to that one the member would be silent until its session ends.
        due = self.epoch == JOINING_EPOCH or now_s >= self._topics_not_before_s
        return due and self._told != self._topics

    def _beat(self, now_s: float) -> EpochBeat:
        settings, full = self.settings, self._told is None
        acknowledges, names = self.state is EpochState.ACKNOWLEDGING, self._names_topics(now_s)
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=settings.member_id,
            member_epoch=self.epoch,
            instance_id=settings.group_instance_id,
            rack_id=settings.rack if full else None,
            rebalance_timeout_ms=int(settings.max_poll_interval_s * 1000) if full else -1,
            subscribed_topic_names=self._topics if names else None,
            server_assignor=settings.assignor if full else None,
            topic_partitions=_as_rows(self._may_read()) if full or acknowledges else None,
        )
        self._told_before = self._told
        if names:
            self._told = self._topics
        self._number += 1
        self._awaited, self._sent_s = self._number, now_s
        if acknowledges:
            # A share that is not answered yet is to be acknowledged too, even where it leaves nothing to do.
            answered = len(self._shares) == 1
            self._move(EpochState.STABLE if answered and self._owned == self._target else EpochState.RECONCILING)
        return EpochBeat(request, self._number, acknowledges)

    def _may_read(self) -> PartitionsById:
        """Return all that the user's thread may read before the next answer."""
        # Rule: an acknowledgement, too, names shares that came after the one it answers, and what of this one has no
        # name yet. The coordinator may have another share ready that lacks them: it waits for a partition that is named
        # here, and gives one that is not to its next owner at once, while the listener runs for it.
        numbers: dict[str, frozenset[int]] = {}
        for share in (self._owned, *self._shares):
            for topic_id, some in share.items():
                numbers[topic_id] = numbers.get(topic_id, frozenset()) | some
        return numbers

    def _farewell(self) -> Farewell:
        settings = self.settings
        # Rule: a static member (KIP-345) goes for a time only: it keeps its share, and may come back for it.
        epoch = LEAVING_EPOCH if settings.group_instance_id is None else AWAY_EPOCH
        return Farewell(
            ConsumerGroupHeartbeatRequest(
                group_id=settings.group_id,
                member_id=settings.member_id,
                member_epoch=epoch,
                instance_id=settings.group_instance_id,
            )
        )

    def _slow_user(self, now_s: float) -> bool:
        """Leave when the user polls no more; return whether that is so."""
        limit, late = self.settings.max_poll_interval_s, now_s - self.polled_s
        if self.epoch <= JOINING_EPOCH or late < limit:
            return False
        self._lose(
            EpochState.STALE,
            f"poll() was not called for {late:.1f} s, and max_poll_interval_ms is {limit * 1000:.0f}: this member left "
            f"group {self.settings.group_id!r} so that others go on with its partitions. Raise max_poll_interval_ms "
            "above the longest time between two polls, or lower max_poll_records so that one round takes less.",
        )
        return True

    # -- answers

    def coordinator_found(self) -> None:
        """Take in that the coordinator is known."""
        self._searching, self.coordinator_known = False, True

    def coordinator_not_found(self, error: KafkaError, now_s: float) -> None:
        """Take in that the search for the coordinator failed."""
        self._searching = False
        if error.retriable:
            self._put_off(now_s)
        elif self.state not in _OUTSIDE:
            self._fatal(error)

    def beat_answered(self, beat: EpochBeat, answer: ConsumerGroupHeartbeatResponse, now_s: float) -> None:
        """Take in a heartbeat's answer."""
        fault = error_class(answer.error_code)
        if fault is not None:
            self.beat_failed(beat, fault(f"A heartbeat in group {self.settings.group_id!r}"), now_s, answer)
            return
        if beat.number != self._awaited:
            return  # of a membership that has ended since
        self._awaited, self._failures = None, 0
        if self._told == self._topics:
            self._refusals, self._topics_not_before_s = 0, float("-inf")
        self._taken_s = self._sent_s
        self.epoch = answer.member_epoch
        # Rule: the same object until the epoch moves. A refused commit ends the membership whose object it was made
        # under.
        if self.identity.generation_id != self.epoch:
            self.identity = Generation(self.epoch, self.settings.member_id, PROTOCOL)
        self._due_s = self._sent_s + answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self._given(_of_rows(answer.assignment))
        elif self.state is EpochState.JOINING:
            self._given(NOTHING)

    def beat_failed(
        self, beat: EpochBeat, error: KafkaError, now_s: float, answer: ConsumerGroupHeartbeatResponse | None = None
    ) -> None:
        """Take in an error of a heartbeat; ``answer`` where the coordinator gave it."""
        if beat.number != self._awaited:
            return
        self._awaited = self._told = None
        # Of a member, a group that is not known is one without it; of one that joins, one of the classic protocol.
        forgotten = isinstance(error, GroupIdNotFound) and self.epoch > JOINING_EPOCH
        if forgotten or isinstance(error, (FencedMemberEpoch, UnknownMemberId)):
            # Rule: a fenced member leaves before it joins again. The coordinator still has it, and before KAFKA-19233
            # it refuses the join of a member that it has.
            self._to_leave = isinstance(error, FencedMemberEpoch)
            if self.state is EpochState.JOINING:
                self._put_off(now_s)  # nothing is lost, and without a pause the next try would come at once
            else:
                self._lose(EpochState.FENCED, self.without_us(type(error), now_s))
        elif isinstance(error, (CoordinatorNotAvailable, NotCoordinator, Disconnected)):
            self.coordinator_known = False
            self._put_off(now_s)
        elif error.retriable:
            self._put_off(now_s)
        else:
            explained = self._explained(error, answer.error_message if answer is not None else None)
            if isinstance(error, TopicAuthorizationFailed):
                self._refuse(beat, explained, now_s)
            else:
                self._fatal(explained)

    def without_us(self, error: type[KafkaError], now_s: float) -> str:
        """Return the text for a member that the coordinator has forgotten. Any thread."""
        return (
            f"the coordinator of group {self.settings.group_id!r} has gone on without this member ({error.__name__}; "
            f"the last heartbeat it took was sent {now_s - self._taken_s:.1f} s ago). Its partitions may belong to "
            "others. If the process was paused or starved, raise the broker's group.consumer.session.timeout.ms; if "
            "its listener or its work between two polls takes long, raise max_poll_interval_ms"
        )

    # -- inside

    def _given(self, target: PartitionsById) -> None:
        joining, changed = self.state is EpochState.JOINING, target != self._target
        self._target = target
        if self.state is EpochState.ACKNOWLEDGING:
            pass  # what is read now is said first; the heartbeat that says it looks at the share again
        elif target != self._owned:
            self._move(EpochState.RECONCILING)
        elif joining:
            self._move(EpochState.STABLE)
        elif changed:
            # Rule: only the user's thread acknowledges, also a share that leaves it nothing to do. It may be taking
            # what was given before, and the coordinator gives that to another once it hears that it is not read.
            self._move(EpochState.RECONCILING)
        if joining or changed:
            self._shares.append(target)
            self.news.append(Assigned(self.identity, target))

    def _explained(self, error: KafkaError, detail: str | None) -> KafkaError:
        group, instance = self.settings.group_id, self.settings.group_instance_id
        if isinstance(error, FencedInstanceId):
            return MembershipFenced(
                f"Another member of group {group!r} has the group_instance_id {instance!r}, and has taken this one's "
                "place. Each static member needs an id of its own: stop one of the two, or rename it."
            )
        if isinstance(error, UnreleasedInstanceId):
            return UnreleasedInstanceId(
                f"Joining group {group!r} with the group_instance_id {instance!r}",
                "Each static member needs an id of its own: if both are to run, rename one of the two. If the other is "
                "closing, or was killed, poll again: the id is free once it has left, at the latest when its session "
                "is over (the broker's group.consumer.session.timeout.ms, 45 s unless set).",
            )
        if isinstance(error, (UnsupportedVersion, UnsupportedVersionByBroker)):
            why = (detail or error.message).rstrip(".")
            return UnsupportedVersion(
                f"Group {group!r} cannot be joined with group_protocol='consumer': its coordinator does not speak that "
                f"protocol ({why}). It needs brokers of Kafka 4.0 or later with the feature group.version 1 or higher. "
                "Upgrade the brokers, or set group_protocol='classic', which every broker "
                "speaks."
            )
        if isinstance(error, GroupIdNotFound):
            return with_sentence(
                error,
                "It has members of the classic protocol, and the broker's group.consumer.migration.policy does not let "
                "it change: allow the upgrade, or set group_protocol='classic'.",
            )
        if isinstance(error, TopicAuthorizationFailed):
            with_sentence(
                error,
                "The right to describe every subscribed topic is needed: grant it, or subscribe to others. The member "
                "keeps what it reads meanwhile, and asks again.",
            )
        return with_sentence(error, f"The coordinator says: {detail}") if detail else error

    def _put_off(self, now_s: float) -> None:
        self._failures += 1
        self._not_before_s = now_s + self.settings.retry.delay(self._failures, self.uniform)

    def _refuse(self, beat: EpochBeat, error: KafkaError, now_s: float) -> None:
        if self.epoch == JOINING_EPOCH:
            self._put_off(now_s)
        if beat.acknowledges:
            self._move(EpochState.ACKNOWLEDGING)  # at once, without the topics
        self._told = self._told_before
        self._refusals += 1
        self._topics_not_before_s = now_s + self.settings.retry.delay(self._refusals, self.uniform)
        # Rule: once a poll. The question is asked again and again, also while the user works, and each poll raises one.
        if self.polled_s > self._refused_s:
            self._refused_s = now_s
            self.news.append(TopicsRefused(error))

    def _fatal(self, error: KafkaError) -> None:
        # Another has the place of one whose instance id is fenced; of any other, the partitions would wait for the
        # session's end.
        self._to_leave = self.epoch > JOINING_EPOCH and not isinstance(error, MembershipFenced)
        self._move(EpochState.FATAL)
        self._forget()
        self.news.append(Fatal(error))

    def _lose(self, state: EpochState, reason: str) -> None:
        self._move(state)
        self._forget()
        self.news.append(MembershipLost(reason))

    def _move(self, to: EpochState) -> None:
        """Change the state. Raises RuntimeError for a move that is not in the table."""
        if to is not self.state and to not in _MOVES[self.state]:
            raise RuntimeError(f"a member of group {self.settings.group_id!r} cannot go from {self.state} to {to}")
        self.state = to

    def _forget(self) -> None:
        self.epoch, self.identity = JOINING_EPOCH, NO_GENERATION
        self._target, self._owned, self._shares = NOTHING, NOTHING, []
        self._told = self._awaited = None
        self._refusals, self._topics_not_before_s = 0, float("-inf")


def _as_rows(owned: PartitionsById) -> tuple[MemberTopicPartitions, ...]:
    return tuple(
        MemberTopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
        for topic_id, numbers in sorted(owned.items())
    )


def _of_rows(assignment: MemberAssignment) -> PartitionsById:
    return {
        row.topic_id: frozenset(row.partitions)
        for row in assignment.topic_partitions
        if row.topic_id is not None and row.partitions
    }
