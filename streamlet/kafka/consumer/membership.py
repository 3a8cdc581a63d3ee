"""A member's life in a classic group."""

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
    """Who we are in which generation of the group; what commits are made by."""

    generation_id: int = -1
    member_id: str = ""
    protocol: str = ""


NO_GENERATION = Generation()


# -- what to send


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Ask any broker who keeps the group."""


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup with these protocols (name, subscription), answered when all have joined."""

    member_id: str
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Share:
    """We lead: share out for these members (id -> instance id, subscription), then call ``shared``.

    ``skip``: we led before, and what is shared out stays (KIP-814): only watch its topics, and call ``shared({})``.
    """

    protocol: str
    members: Mapping[str, tuple[str | None, bytes]]
    skip: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup; ``assignments`` from the leader alone."""

    generation: Generation
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Beat:
    """Heartbeat."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup; no answer is waited for but at the end."""

    member_id: str


Action = FindCoordinator | Join | Share | Sync | Beat | Leave

# -- what the consumer hears


@dataclass(frozen=True, slots=True)
class Joined:
    """A new generation, and our share of it."""

    generation: Generation
    assignment: bytes
    leads: bool


@dataclass(frozen=True, slots=True)
class RejoinNeeded:
    """The group rebalances: give back what must be given back, and join again."""

    reason: str


@dataclass(frozen=True, slots=True)
class MembershipLost:
    """We are no member any more: what we had may belong to others already."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fatal:
    """Nothing that joining again would mend."""

    error: KafkaError


News = Joined | RejoinNeeded | MembershipLost | Fatal


JOIN_GRACE_S = 5.0
"""An answer to JoinGroup may take the whole rebalance time-out; so much longer is waited for it."""


class MemberState(Enum):
    """Java's names."""

    UNJOINED = "not a member"
    PREPARING_REBALANCE = "joining"
    COMPLETING_REBALANCE = "joined, waits for its share"
    STABLE = "a member with its share"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Times in seconds."""

    group_id: str
    group_instance_id: str | None
    session_timeout_s: float
    heartbeat_interval_s: float
    max_poll_interval_s: float
    retry: Backoff


_COORDINATOR_GONE = (CoordinatorNotAvailable, NotCoordinator, Disconnected)
_FATAL = (GroupAuthorizationFailed, GroupMaxSizeReached, InconsistentGroupProtocol, InvalidSessionTimeout)


@dataclass(slots=True)
class Membership:
    """One member. One owner calls everything, but ``polled_s``, which the consumer's thread sets."""

    settings: GroupSettings
    uniform: Callable[[], float]
    state: MemberState = MemberState.UNJOINED
    generation: Generation = NO_GENERATION
    told: list[News] = field(default_factory=list)
    polled_s: float = 0.0
    """When the user polled last."""
    coordinator_known: bool = False
    leads: bool = False
    _wants_join: bool = False
    _protocols: tuple[tuple[str, bytes], ...] = ()
    _waiting: bool = False
    """For the answer to Join or Sync, or for the leader's sharing out."""
    _searching: bool = False
    """Waits for the answer to FindCoordinator; a search outlives a membership that is lost meanwhile."""
    _to_do: list[Action] = field(default_factory=list)
    _beating: bool = False
    _rejoin_told: bool = False
    _not_before_s: float = 0.0
    _failures: int = 0
    _beat_sent_s: float = 0.0
    _heard_s: float = 0.0
    _taken_s: float = 0.0
    """When the last join or heartbeat was sent that the coordinator took: from then on it counts our silence."""

    # -- the consumer's wishes

    def join(self, protocols: tuple[tuple[str, bytes], ...], now_s: float) -> None:
        """Join, or join again."""
        self._protocols, self._wants_join, self._rejoin_told = protocols, True, False
        self.polled_s = max(self.polled_s, now_s)
        self.state = MemberState.PREPARING_REBALANCE

    def leave(self) -> None:
        """Go, so that others need not wait for the session time-out. A static member stays one: it may come back."""
        self._wants_join = False
        if self.coordinator_known and self.generation.member_id and self.settings.group_instance_id is None:
            self._to_do.append(Leave(self.generation.member_id))
        self._reset(keep_member_id=False)

    # -- what to do

    def step(self, now_s: float) -> Action | None:
        """The next thing to do now, if there is one; ask again until there is none."""
        if self._to_do:
            return self._to_do.pop(0)
        if self._slow_user(now_s):
            return self._to_do.pop(0) if self._to_do else None
        member = self.state in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
        if member and self.coordinator_known and now_s - self._heard_s >= self.settings.session_timeout_s:
            self.coordinator_known = False  # it may live elsewhere; if it forgot us, it will say so
            self._heard_s = now_s
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
        """Seconds until :meth:`step` may have something to do without an event; infinity for never."""
        if self._to_do:
            return 0.0
        wait = float("inf")
        member = self.state in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
        if (
            not (self._waiting or self._searching)
            and (self._wants_join or member)
            and (not self.coordinator_known or not member)
        ):
            wait = max(self._not_before_s - now_s, 0.0)
        if member:
            wait = min(wait, self._heard_s + self.settings.session_timeout_s - now_s)
            if not self._beating and self.coordinator_known:
                wait = min(wait, self._beat_due_s() - now_s)
        if self.state is MemberState.STABLE:
            wait = min(wait, self.polled_s + self.settings.max_poll_interval_s - now_s)
        return max(wait, 0.0)

    def _beat_due_s(self) -> float:
        return max(self._beat_sent_s + self.settings.heartbeat_interval_s, self._not_before_s)

    def _beat(self, now_s: float) -> Action | None:
        if self.state not in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE) or self._beating:
            return None
        if not self.coordinator_known or now_s < self._beat_due_s():
            return None
        self._beating, self._beat_sent_s = True, now_s
        return Beat(self.generation)

    def _slow_user(self, now_s: float) -> bool:
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
        """It is known now."""
        self._searching, self.coordinator_known, self._failures = False, True, 0
        self._heard_s = now_s

    def coordinator_not_found(self, error: KafkaError, now_s: float) -> None:
        """Nobody could say."""
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
        """All have joined: a new generation. Its leader shares out first, unless it is to ``skip`` that."""
        self.generation, self.leads = generation, leads
        self.state = MemberState.COMPLETING_REBALANCE
        self._heard_s = self._beat_sent_s = self._taken_s = now_s
        self._failures = 0
        self._to_do.append(Share(generation.protocol, members, skip) if leads else Sync(generation, {}))

    def shared(self, assignments: Mapping[str, bytes]) -> None:
        """The leader has shared out."""
        if self.state is MemberState.COMPLETING_REBALANCE:
            self._to_do.append(Sync(self.generation, assignments))

    def join_failed(self, error: KafkaError, member_id: str, now_s: float) -> None:
        """JoinGroup was answered with an error. ``member_id``: the one the answer gives us."""
        self._waiting = False
        if isinstance(error, MemberIdRequired):
            self.generation = Generation(-1, member_id)
        elif isinstance(error, UnknownMemberId):
            known = bool(self.generation.member_id)
            self._reset(keep_member_id=False)
            if known:
                self._lost("the coordinator does not know this member any more")
        else:
            self._failed(error, now_s)

    def synced(self, assignment: bytes, now_s: float) -> None:
        """Our share."""
        self._waiting, self._wants_join = False, False
        self.state = MemberState.STABLE
        self._heard_s = now_s
        self.polled_s = max(self.polled_s, now_s)
        self.told.append(Joined(self.generation, assignment, self.leads))

    def sync_failed(self, error: KafkaError, now_s: float) -> None:
        """SyncGroup was answered with an error: join once more."""
        self._waiting = False
        if isinstance(error, (UnknownMemberId, IllegalGeneration)):
            self._reset(keep_member_id=isinstance(error, IllegalGeneration))
            self._lost(f"the group went on without this member while it joined ({error.message})")
            return
        self.state = MemberState.PREPARING_REBALANCE
        if not isinstance(error, RebalanceInProgress):
            self._failed(error, now_s)

    def beat_answered(self, error: KafkaError | None, generation: Generation, now_s: float) -> None:
        """A heartbeat's answer; one of an older generation says nothing."""
        self._beating = False
        if generation != self.generation:
            return
        if error is None:
            self._heard_s, self._taken_s, self._failures = now_s, self._beat_sent_s, 0
        elif isinstance(error, RebalanceInProgress):
            self._heard_s, self._taken_s = now_s, self._beat_sent_s
            if self.state is MemberState.STABLE:
                self.rejoin("the group rebalances")
        elif isinstance(error, (UnknownMemberId, IllegalGeneration)):
            reason = self.without_us(type(error), now_s)
            self._reset(keep_member_id=isinstance(error, IllegalGeneration))
            self._lost(reason)
        else:
            self._failed(error, now_s)

    def without_us(self, error: type[KafkaError], now_s: float) -> str:
        """What it means that the coordinator knows us no more, and how long it had not heard of us. Any thread."""
        return (
            f"the coordinator of group {self.settings.group_id!r} has gone on without this member ({error.__name__}; "
            f"the last heartbeat it took was sent {now_s - self._taken_s:.1f} s ago, and session_timeout_ms is "
            f"{self.settings.session_timeout_s * 1000:.0f}). Its partitions may belong to others. If the process was "
            "paused or starved for that long, raise session_timeout_ms"
        )

    def rejoin(self, reason: str) -> None:
        """Something makes a rebalance necessary; told once until the consumer joins."""
        if not self._rejoin_told and self.state is MemberState.STABLE:
            self._rejoin_told = True
            self.told.append(RejoinNeeded(reason))

    # -- inside

    def _failed(self, error: KafkaError, now_s: float) -> None:
        if isinstance(error, FencedInstanceId):
            self._fatal(
                MembershipFenced(
                    f"Another member of group {self.settings.group_id!r} has the group_instance_id "
                    f"{self.settings.group_instance_id!r}, and has taken this one's place. Each static member needs an "
                    "id of its own: stop one of the two, or rename it."
                )
            )
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
        self.told.append(Fatal(error))

    def _lost(self, reason: str) -> None:
        self._wants_join = False
        self.told.append(MembershipLost(reason))

    def _reset(self, *, keep_member_id: bool) -> None:
        member_id = self.generation.member_id if keep_member_id else ""
        self.generation = Generation(-1, member_id) if member_id else NO_GENERATION
        self.state = MemberState.UNJOINED
        self.leads, self._rejoin_told = False, False
        self._waiting = False
