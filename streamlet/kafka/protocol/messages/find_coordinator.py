"""FindCoordinator: which broker keeps a group's (or a transaction's) state. Version 2 (broker 2.1)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT8, INT16, INT32, STRING, message, wire

GROUP = 0
TRANSACTION = 1


@message
class FindCoordinatorResponse:
    """The coordinator's id and address; -1 and "" with an error."""

    throttle_time_ms: int = wire(INT32, default=0, since=1, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, since=1, nullable_since=1, ignorable=True)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)


@message
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """To any broker. ``key`` is the group id, or the transactional id with ``key_type`` TRANSACTION."""

    api_key: ClassVar[ApiKey] = ApiKey.FIND_COORDINATOR
    versions: ClassVar[tuple[int, ...]] = (2,)
    flexible_since: ClassVar[int] = 3
    response_type: ClassVar[type[FindCoordinatorResponse]] = FindCoordinatorResponse

    key: str = wire(STRING)
    key_type: int = wire(INT8, default=GROUP, since=1)
