"""JoinGroup: become a member of a group, and hear of its generation.

Version 3 (broker 2.1), 5 (static members), 9 (broker 3.2: a static leader that comes back hears that it leads).
"""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, Array, message, wire


@message
class JoinGroupMember:
    """One member and what it subscribes to (the bytes of the consumer protocol); only the leader is told."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, default=None, since=5, nullable_since=5, ignorable=True)
    metadata: bytes = wire(BYTES)


@message
class JoinGroupResponse:
    """The new generation. ``members`` is empty for everyone but the leader.

    ``skip_assignment``: the leader was away, and what is shared out stays (KIP-814): it watches, without sharing out.
    """

    throttle_time_ms: int = wire(INT32, default=0, since=2, ignorable=True)
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, default=None, since=7, nullable_since=7, ignorable=True)
    protocol_name: str | None = wire(STRING, default="", nullable_since=7)
    leader: str = wire(STRING, default="")
    skip_assignment: bool = wire(BOOL, default=False, since=9)
    member_id: str = wire(STRING, default="")
    members: tuple[JoinGroupMember, ...] = wire(Array(JoinGroupMember), default=())


@message
class JoinGroupProtocol:
    """An assignor's name and this member's subscription in its terms."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@message
class JoinGroupRequest(Request[JoinGroupResponse]):
    """To the group's coordinator, which answers when all members have joined or the rebalance time-out is over."""

    api_key: ClassVar[ApiKey] = ApiKey.JOIN_GROUP
    versions: ClassVar[tuple[int, ...]] = (3, 5, 9)
    flexible_since: ClassVar[int] = 6
    response_type: ClassVar[type[JoinGroupResponse]] = JoinGroupResponse

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, default=-1, since=1, ignorable=True)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, default=None, since=5, nullable_since=5)
    protocol_type: str = wire(STRING)
    protocols: tuple[JoinGroupProtocol, ...] = wire(Array(JoinGroupProtocol))
    reason: str | None = wire(STRING, default=None, since=8, nullable_since=8, ignorable=True)

    def usable_versions(self) -> tuple[int, ...]:
        """A static member needs version 5 (broker 2.3)."""
        return (5, 9) if self.group_instance_id is not None else self.versions
