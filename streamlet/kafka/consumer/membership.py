"""A member's life in a classic group, decided purely (Java: ``AbstractCoordinator`` and ``Heartbeat``).

Events come in by methods; requests to send come out of :meth:`Membership.step`; news for the consumer gather in
:attr:`Membership.news`. The owner gives the time: there is no socket, thread or clock in here. One owner, the group's
thread, calls everything, but for ``polled_s`` (written by the user's thread) and ``without_us`` (any thread).

States::

    UNJOINED --join()--> PREPARING_REBALANCE --JoinGroup answered--> COMPLETING_REBALANCE --SyncGroup answered--> STABLE
        ^                     ^                                            |                                   |
        |                     +-------- rebalance, error in SyncGroup -----+                                   |
        |                     +-------- join() again, after RejoinNeeded --------------------------------------+
        +-- from any state: forgotten by the coordinator, fatal error, leave(), user does not poll

Rules:

- The coordinator decides whether we are a member, never our own clock. A clock of missed heartbeats cannot know why the
  process was asleep, and would give up memberships that the coordinator still has. After a session time-out without an
  answer the member only looks for the coordinator again.
- The coordinator counts a member's silence from when it took a heartbeat, which is about when we sent it. So do we
  (``_taken_s``): by the time of the answer, a member that slept in between would call itself silent for 0 s.
- One clock of our own counts: a user who does not poll for ``max_poll_interval_s`` makes the member leave.
- Nothing is given back here, and no partition is named: what a share holds is bytes to this module.
- A rebalance is told once (``RejoinNeeded``) and waits for the consumer, which has to commit and give back first.

Not in here: sending out (``group_thread.py``), shares (``assignors/``), commits and listeners (``rebalance.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupAuthorizationFailed,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from streamlet.kafka.consumer.errors import MembershipFenced
from streamlet.kafka.errors import Disconnected, KafkaError


@dataclass(frozen=True, slots=True)
class Generation:
    """Identity of a member in one generation of its group; commits are made under it."""

    generation_id: int = -1
    member_id: str = ""
    protocol: str = ""


NO_GENERATION = Generation()


# -- requests to send


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Ask any broker which broker coordinates the group."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection to the coordinator, which is silent: what it owes fails."""


@dataclass(frozen=True, slots=True)
class Join:
    """Send JoinGroup with these protocols (name, subscription); answered when all have joined."""

    member_id: str
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Share:
    """Share partitions out as the leader, then call ``shared``.

    ``members``: id -> (instance id, subscription). ``skip``: this member led before, and the shares stay as they are
    (KIP-814): only watch their topics, and call ``shared({})``.
    """

    protocol: str
    members: Mapping[str, tuple[str | None, bytes]]
    skip: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """Send SyncGroup; only the leader gives ``assignments``."""

    generation: Generation
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Send a heartbeat."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class Leave:
    """Send LeaveGroup; only a close waits for its answer."""

    member_id: str


Action = FindCoordinator | Disconnect | Join | Share | Sync | Heartbeat | Leave

# -- news for the consumer


@dataclass(frozen=True, slots=True)
class Joined:
    """A new generation, and this member's share of it."""

    generation: Generation
    assignment: bytes
    leads: bool


PartitionsById = Mapping[str, frozenset[int]]
"""Numbers of partitions by the id of their topic."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """A share in the newer protocol: all partitions to read from now on."""

    identity: Generation
    partitions: PartitionsById


@dataclass(frozen=True, slots=True)
class RejoinNeeded:
    """The group rebalances: commit, give partitions back, join again."""

    reason: str


@dataclass(frozen=True, slots=True)
class MembershipLost:
    """End of the membership: others may own the partitions already."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fatal:
    """An error that joining again would not fix."""

    error: KafkaError


@dataclass(frozen=True, slots=True)
class TopicsRefused:
    """An error to raise; the membership goes on with what it has."""

    error: KafkaError


News = Joined | Assigned | RejoinNeeded | MembershipLost | TopicsRefused | Fatal


TAKES_LONG = "If one round of work takes long, raise max_poll_interval_ms or lower max_poll_records."
"""Advice of a reason that has none of its own."""
NEVER_S = -float("inf")
"""Seconds of a moment before all others."""
JOIN_GRACE_S = 5.0
"""Seconds to wait for a JoinGroup answer beyond the rebalance time-out."""


class MemberState(Enum):
    """State of a member, by Java's names."""

    UNJOINED = "not a member"
    PREPARING_REBALANCE = "joining"
    COMPLETING_REBALANCE = "joined, waits for its share"
    STABLE = "a member with its share"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a membership, times in seconds."""

    group_id: str
    group_instance_id: str | None
    session_timeout_s: float
    heartbeat_interval_s: float
    max_poll_interval_s: float
    retry: Backoff
    static_leaves: bool = False
    """Whether a static member that leaves says so: others then need not wait for its session time-out."""


_COORDINATOR_GONE = (CoordinatorNotAvailable, NotCoordinator, Disconnected)
_FATAL = (GroupAuthorizationFailed, GroupMaxSizeReached, InconsistentGroupProtocol, InvalidSessionTimeout)


def _fenced(settings: GroupSettings) -> MembershipFenced:
    return MembershipFenced(
        f"Another member of group {settings.group_id!r} has the group_instance_id {settings.group_instance_id!r}, and "
        "has taken this one's place. Each static member needs an id of its own: stop one of the two, or rename it."
    )


@dataclass(slots=True)
class Membership:
    """One member of a group."""

    settings: GroupSettings
    uniform: Callable[[], float]
    state: MemberState = MemberState.UNJOINED
    generation: Generation = NO_GENERATION
    news: list[News] = field(default_factory=list)
    """News in order. Emptied by the owner."""
    polled_s: float = 0.0
    """When the user polled last. Written by the user's thread."""
    coordinator_known: bool = False
    leads: bool = False
    _wants_join: bool = False
    _protocols: tuple[tuple[str, bytes], ...] = ()
    _waiting: bool = False
    """Whether an answer to Join or Sync is awaited, or the leader's sharing out."""
    _searching: bool = False
    """Whether an answer to FindCoordinator is awaited. A search outlives a membership that is lost meanwhile."""
    _to_do: list[Action] = field(default_factory=list)
    _beating: bool = False
    _silent: bool = False
    """Whether the coordinator was silent, and no heartbeat has been answered since."""
    _rejoin_told: bool = False
    _not_before_s: float = 0.0
    _failures: int = 0
    _beat_sent_s: float = 0.0
    _heard_s: float = 0.0
    _taken_s: float = 0.0
    """When the last accepted join or heartbeat was sent: from then on the coordinator counts our silence."""

    granted_s: float = NEVER_S
    """When the request was sent whose good answer is the newest proof of our place in the group: SyncGroup or a
    heartbeat. The coordinator gives that place to nobody else for a session time-out from then on. Any thread reads."""
    _sync_sent_s: float = 0.0

    # -- wishes of the consumer

    def join(self, protocols: tuple[tuple[str, bytes], ...], now_s: float) -> None:
        """Join, or join again."""
        self._protocols, self._wants_join, self._rejoin_told = protocols, True, False
        self.polled_s = max(self.polled_s, now_s)
        self.state = MemberState.PREPARING_REBALANCE

    def leave(self) -> None:
        """Leave, so that others need not wait for the session time-out."""
        # Rule: a static member (KIP-345) sends no LeaveGroup: it keeps its share and may come back without a rebalance.
        # One that never comes back under this id says so (``static_leaves``).
        self._wants_join = False
        stays = self.settings.group_instance_id is not None and not self.settings.static_leaves
        if self.coordinator_known and self.generation.member_id and not stays:
            self._to_do.append(Leave(self.generation.member_id))
        self._reset(keep_member_id=False)

    # -- the next request

    def step(self, now_s: float) -> Action | None:
        """Return the next action, None without one; call again until then."""
        # In this order: requests that an answer has made necessary; the user's silence, which ends the membership; the
        # coordinator, without which nothing can be sent; a join; and only then a heartbeat.
        if self._to_do:
            return self._to_do.pop(0)
        if self._slow_user(now_s):
            return self._to_do.pop(0) if self._to_do else None
        member = self.state in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
        if member and self.coordinator_known and now_s - self._heard_s >= self._patience_s():
            # It may live elsewhere by now. If it has forgotten us, the next heartbeat's answer says so.
            self.coordinator_known = False
            self._heard_s = now_s
            # Rule: the heartbeat that it owes is given up, also one that has not left yet. One is under way at a time,
            # and until its own time-out, which may be far longer than the session, none would go to the coordinator of
            # now: it would expel us. The connection is kept while a share is awaited: a leader may take its time, and a
            # broker answers a connection's requests in order.
            self._beating, self._silent = False, True
            if self.state is MemberState.STABLE:
                return Disconnect()
        # Heartbeats go on while the answer to a sync is awaited: the session time-out does not stand still.
        if self._waiting or self._searching or now_s < self._not_before_s:
            return self._beat(now_s)
        if not self.coordinator_known:
            if self._wants_join or member:
                self._searching = True
                return FindCoordinator()
            return None
        if self._wants_join and self.state is MemberState.PREPARING_REBALANCE:
            self._waiting = True
            return Join(self.generation.member_id, self._protocols)
        return self._beat(now_s)

    def next_wake_s(self, now_s: float) -> float:
        """Return seconds until :meth:`step` may act without an event; infinity for never."""
        if self._to_do:
            return 0.0
        wait = float("inf")
        member = self.state in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
        asks = (self._wants_join or member) and not (self._waiting or self._searching)
        if asks and not (member and self.coordinator_known):
            wait = max(self._not_before_s - now_s, 0.0)
        # Rule: only what `step` acts on counts. A coordinator that is being looked for has no silence to be noticed:
        # counted, it would have the thread turn without a pause for as long as the brokers are gone.
        if member and self.coordinator_known:
            wait = min(wait, self._heard_s + self._patience_s() - now_s)
            if not self._beating:
                wait = min(wait, self._beat_due_s() - now_s)
        if self.state is MemberState.STABLE:
            wait = min(wait, self.polled_s + self.settings.max_poll_interval_s - now_s)
        return max(wait, 0.0)

    def _patience_s(self) -> float:
        # Brokers may name one that hangs for some time, until another is elected. That gives us one session's time.
        return self.settings.session_timeout_s / (3 if self._silent else 1)

    def _beat_due_s(self) -> float:
        return max(self._beat_sent_s + self.settings.heartbeat_interval_s, self._not_before_s)

    def _beat(self, now_s: float) -> Action | None:
        if self.state not in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE) or self._beating:
            return None
        if not self.coordinator_known or now_s < self._beat_due_s():
            return None
        self._beating, self._beat_sent_s = True, now_s
        return Heartbeat(self.generation)

    def _slow_user(self, now_s: float) -> bool:
        """Leave when the user polls no more; return whether that is so."""
        limit = self.settings.max_poll_interval_s
        late = now_s - self.polled_s
        if self.state is not MemberState.STABLE or late < limit:
            return False
        reason = (
            f"poll() was not called for {late:.1f} s, and max_poll_interval_ms is {limit * 1000:.0f}: this member left "
            f"group {self.settings.group_id!r} so that others go on with its partitions. Raise max_poll_interval_ms "
            "above the longest time between two polls, or lower max_poll_records so that one round takes less."
        )
        self.leave()
        self._lost(reason)
        return True

    # -- answers

    def coordinator_found(self, now_s: float) -> None:
        """Take in that the coordinator is known."""
        self._searching, self.coordinator_known, self._failures = False, True, 0
        self._heard_s = now_s

    def coordinator_not_found(self, error: KafkaError, now_s: float) -> None:
        """Take in that the search for the coordinator failed."""
        self._searching = False
        if error.retriable:
            self._put_off(now_s)
        else:
            self._fatal(error)

    def joined(
        self,
        generation: Generation,
        leads: bool,
        members: Mapping[str, tuple[str | None, bytes]],
        now_s: float,
        *,
        skip: bool = False,
    ) -> None:
        """Take in a JoinGroup answer: all have joined, and a new generation begins.

        Its leader shares out before it syncs; ``skip``: the shares stay (KIP-814).
        """
        # Rule: drop the answer to a join whose member was lost meanwhile, as Java does. The user hears of the loss and
        # joins again, under the same id.
        if self.state is not MemberState.PREPARING_REBALANCE:
            return
        self._waiting = True  # for the sync; a loss in between has ended the wait for the join
        self.generation, self.leads = generation, leads
        self.state = MemberState.COMPLETING_REBALANCE
        self._heard_s = self._beat_sent_s = self._taken_s = now_s
        self._silent = False
        self._failures = 0
        self._to_do.append(Share(generation.protocol, members, skip) if leads else Sync(generation, {}))

    def shared(self, assignments: Mapping[str, bytes]) -> None:
        """Take in the leader's shares."""
        if self.state is MemberState.COMPLETING_REBALANCE:
            self._to_do.append(Sync(self.generation, assignments))

    def sync_sent(self, now_s: float) -> None:
        """Note when SyncGroup goes out: a good answer proves our place from then on, not from its arrival."""
        self._sync_sent_s = now_s

    def join_failed(self, error: KafkaError, member_id: str, now_s: float) -> None:
        """Take in an error of JoinGroup; ``member_id`` is the one that the answer gives."""
        self._waiting = False
        if isinstance(error, MemberIdRequired):
            self.generation = Generation(-1, member_id)  # the broker wants a second try with this id (KIP-394)
        elif isinstance(error, UnknownMemberId):
            known = bool(self.generation.member_id)
            self._reset(keep_member_id=False)
            if known:
                self._lost(f"the coordinator does not know this member any more. {TAKES_LONG}")
            elif self._wants_join:  # nothing is lost, so nobody would ask for another join
                self.state = MemberState.PREPARING_REBALANCE
                self._put_off(now_s)
        else:
            self._failed(error, now_s)

    def synced(self, assignment: bytes, now_s: float) -> None:
        """Take in this member's share."""
        self._waiting, self._wants_join = False, False
        self.state = MemberState.STABLE
        self._heard_s = now_s
        self.granted_s = max(self.granted_s, self._sync_sent_s)
        # A join lasts as long as the slowest member takes. That time is not this user's silence, so it counts from now.
        self.polled_s = max(self.polled_s, now_s)
        self.news.append(Joined(self.generation, assignment, self.leads))

    def sync_failed(self, error: KafkaError, now_s: float) -> None:
        """Take in an error of SyncGroup: join once more, or hear that the group went on."""
        self._waiting = False
        if isinstance(error, (UnknownMemberId, IllegalGeneration)):
            self._reset(keep_member_id=isinstance(error, IllegalGeneration))
            self._lost(f"the group went on without this member while it joined ({error.message}). {TAKES_LONG}")
            return
        self.state = MemberState.PREPARING_REBALANCE
        # At once, without a pause: the others join now, and the coordinator goes on without a member that is late.
        if not isinstance(error, RebalanceInProgress):
            self._failed(error, now_s)

    def beat_answered(self, error: KafkaError | None, generation: Generation, now_s: float) -> None:
        """Take in a heartbeat's answer."""
        self._beating = False
        if generation != self.generation:
            return  # an older generation's answer says nothing about this one
        # Silence is counted from when the accepted heartbeat was sent, as the coordinator counts from when it came. A
        # member that slept in between reads the answer only when it wakes, and would report a silence of 0 s.
        if error is None:
            self._heard_s, self._taken_s, self._failures, self._silent = now_s, self._beat_sent_s, 0, False
            if self.state is MemberState.STABLE:
                self.granted_s = self._beat_sent_s
        elif isinstance(error, RebalanceInProgress):
            self._heard_s, self._taken_s, self._silent = now_s, self._beat_sent_s, False
            if self.state is MemberState.STABLE:
                self.rejoin("the group rebalances")
        elif isinstance(error, (UnknownMemberId, IllegalGeneration)):
            reason = self.without_us(type(error), now_s)
            self._reset(keep_member_id=isinstance(error, IllegalGeneration))
            self._lost(reason)
        else:
            self._failed(error, now_s)

    def without_us(self, error: type[KafkaError], now_s: float) -> str:
        """Return the text for a member that the coordinator has forgotten. Any thread."""
        return (
            f"the coordinator of group {self.settings.group_id!r} has gone on without this member ({error.__name__}; "
            f"the last heartbeat it took was sent {now_s - self._taken_s:.1f} s ago, and session_timeout_ms is "
            f"{self.settings.session_timeout_s * 1000:.0f}). Its partitions may belong to others. If the process was "
            "paused or starved for that long, raise session_timeout_ms"
        )

    def rejoin(self, reason: str) -> None:
        """Tell that a rebalance is necessary, once until the consumer joins."""
        if not self._rejoin_told and self.state is MemberState.STABLE:
            self._rejoin_told = True
            self.news.append(RejoinNeeded(reason))

    # -- inside

    def _failed(self, error: KafkaError, now_s: float) -> None:
        if isinstance(error, FencedInstanceId):
            self._fatal(_fenced(self.settings))
        elif isinstance(error, _FATAL):
            self._fatal(error)
        elif isinstance(error, _COORDINATOR_GONE):
            self.coordinator_known = False
            self._put_off(now_s)
        elif isinstance(error, CoordinatorLoadInProgress) or error.retriable or isinstance(error, RebalanceInProgress):
            self._put_off(now_s)
        else:
            self._fatal(error)

    def _put_off(self, now_s: float) -> None:
        self._failures += 1
        self._not_before_s = now_s + self.settings.retry.delay(self._failures, self.uniform)

    def _fatal(self, error: KafkaError) -> None:
        self._wants_join = False
        self._reset(keep_member_id=False)
        self.news.append(Fatal(error))

    def _lost(self, reason: str) -> None:
        self._wants_join = False
        self.news.append(MembershipLost(reason))

    def _reset(self, *, keep_member_id: bool) -> None:
        # A coordinator that calls the generation old still knows the member id, and it saves a round trip to join with
        # it. One that does not know the member would refuse the id again.
        member_id = self.generation.member_id if keep_member_id else ""
        self.generation = Generation(-1, member_id) if member_id else NO_GENERATION
        self.state = MemberState.UNJOINED
        self.leads, self._rejoin_told = False, False
        self._waiting = False
        self.granted_s = NEVER_S
