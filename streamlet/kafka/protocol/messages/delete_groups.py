"""DeleteGroups: forget groups without members, and their offsets; to their coordinator. Version 1 (broker 2.0)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, STRING, Array, message, wire


@message
class DeletableGroupResult:
    """One group: 0, or why it is still there."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@message
class DeleteGroupsResponse:
    """One row for each group."""

    throttle_time_ms: int = wire(INT32)
    results: tuple[DeletableGroupResult, ...] = wire(Array(DeletableGroupResult))


@message
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """To the coordinator of all of these groups."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_GROUPS
    versions: ClassVar[tuple[int, ...]] = (1,)
    flexible_since: ClassVar[int] = 2
    response_type: ClassVar[type[DeleteGroupsResponse]] = DeleteGroupsResponse

    groups_names: tuple[str, ...] = wire(Array(STRING))
