"""LeaveGroup: this member goes, and its partitions are given to others at once. Version 2 (broker 2.1)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, STRING, message, wire


@message
class LeaveGroupResponse:
    """0, or why the member was not there to leave."""

    throttle_time_ms: int = wire(INT32, default=0, since=1, ignorable=True)
    error_code: int = wire(INT16)


@message
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """To the group's coordinator."""

    api_key: ClassVar[ApiKey] = ApiKey.LEAVE_GROUP
    versions: ClassVar[tuple[int, ...]] = (2,)
    flexible_since: ClassVar[int] = 4
    response_type: ClassVar[type[LeaveGroupResponse]] = LeaveGroupResponse

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
