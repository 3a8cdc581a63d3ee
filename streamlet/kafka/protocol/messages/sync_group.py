"""SyncGroup: the leader gives all assignments, each member gets its own. Version 2 (broker 2.1), 3 (static members)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import BYTES, INT16, INT32, STRING, Array, message, wire


@message
class SyncGroupResponse:
    """This member's assignment, in bytes of the consumer protocol."""

    throttle_time_ms: int = wire(INT32, default=0, since=1, ignorable=True)
    error_code: int = wire(INT16)
    assignment: bytes = wire(BYTES, default=b"")


@message
class SyncGroupAssignment:
    """One member's assignment."""

    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@message
class SyncGroupRequest(Request[SyncGroupResponse]):
    """To the group's coordinator; ``assignments`` is empty for everyone but the leader."""

    api_key: ClassVar[ApiKey] = ApiKey.SYNC_GROUP
    versions: ClassVar[tuple[int, ...]] = (2, 3)
    flexible_since: ClassVar[int] = 4
    response_type: ClassVar[type[SyncGroupResponse]] = SyncGroupResponse

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, default=None, since=3, nullable_since=3)
    assignments: tuple[SyncGroupAssignment, ...] = wire(Array(SyncGroupAssignment), default=())
