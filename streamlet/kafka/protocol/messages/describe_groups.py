"""DescribeGroups: state and members of groups of the classic protocol; to their coordinator.

Version 2 (broker 2.0), 4 (static members, from 2.4) and 6 (a group that is not there is an error, from 4.0).
"""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, Array, message, wire

_NO_OPERATIONS = -(1 << 31)


@message
class DescribedGroupMember:
    """One member; subscription and assignment are bytes of the group's own protocol."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=4, default=None, nullable_since=4, ignorable=True)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    member_metadata: bytes = wire(BYTES)
    member_assignment: bytes = wire(BYTES)


@message
class DescribedGroup:
    """One group; before version 6 one that is not there is in the state "Dead"."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=6, default=None, nullable_since=6, ignorable=True)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)
    members: tuple[DescribedGroupMember, ...] = wire(Array(DescribedGroupMember))
    authorized_operations: int = wire(INT32, since=3, default=_NO_OPERATIONS, ignorable=True)


@message
class DescribeGroupsResponse:
    """One row for each group."""

    throttle_time_ms: int = wire(INT32, default=0, since=1, ignorable=True)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))


@message
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    """To the coordinator of all of these groups."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_GROUPS
    versions: ClassVar[tuple[int, ...]] = (2, 4, 6)
    flexible_since: ClassVar[int] = 5
    response_type: ClassVar[type[DescribeGroupsResponse]] = DescribeGroupsResponse

    groups: tuple[str, ...] = wire(Array(STRING))
    include_authorized_operations: bool = wire(BOOL, since=3, default=False)
