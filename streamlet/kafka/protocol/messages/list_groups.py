"""ListGroups: the groups that one broker coordinates.

Version 2 (broker 2.0), 4 (their state, from 2.6) and 5 (their type, from 3.8).
"""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, STRING, Array, message, wire


@message
class ListedGroup:
    """One group; "" where the broker is too old to say."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, since=4, default="", ignorable=True)
    group_type: str = wire(STRING, since=5, default="", ignorable=True)


@message
class ListGroupsResponse:
    """All groups of this coordinator that the caller may see."""

    throttle_time_ms: int = wire(INT32, default=0, since=1, ignorable=True)
    error_code: int = wire(INT16)
    groups: tuple[ListedGroup, ...] = wire(Array(ListedGroup))


@message
class ListGroupsRequest(Request[ListGroupsResponse]):
    """To every broker in turn. Filters are ours to apply: an older broker has none."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_GROUPS
    versions: ClassVar[tuple[int, ...]] = (2, 4, 5)
    flexible_since: ClassVar[int] = 3
    response_type: ClassVar[type[ListGroupsResponse]] = ListGroupsResponse

    states_filter: tuple[str, ...] = wire(Array(STRING), since=4, default=())
    types_filter: tuple[str, ...] = wire(Array(STRING), since=5, default=())
