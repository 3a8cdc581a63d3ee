"""What a member of a group asks to be sent, and what it tells the consumer, as data (see :class:`Membership`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlet.kafka.errors import KafkaError


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
