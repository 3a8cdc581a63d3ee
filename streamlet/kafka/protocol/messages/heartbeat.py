"""Heartbeat: this member lives. Version 2 (broker 2.1), 3 (static members)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, STRING, message, wire


@message
class HeartbeatResponse:
    """0, or what became of the group or of this member."""

    throttle_time_ms: int = wire(INT32, default=0, since=1, ignorable=True)
    error_code: int = wire(INT16)


@message
class HeartbeatRequest(Request[HeartbeatResponse]):
    """To the group's coordinator."""

    api_key: ClassVar[ApiKey] = ApiKey.HEARTBEAT
    versions: ClassVar[tuple[int, ...]] = (2, 3)
    flexible_since: ClassVar[int] = 4
    response_type: ClassVar[type[HeartbeatResponse]] = HeartbeatResponse

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, default=None, since=3, nullable_since=3)
