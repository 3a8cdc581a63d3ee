"""DeleteTopics: to the controller. Version 3 (broker 2.1) and version 5 (says why not, from 2.7)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, STRING, Array, message, wire


@message
class DeletableTopicResult:
    """One topic: 0, or why it is still there."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=5, default=None, nullable_since=5, ignorable=True)


@message
class DeleteTopicsResponse:
    """One row for each topic."""

    throttle_time_ms: int = wire(INT32, default=0, since=1, ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = wire(Array(DeletableTopicResult))


@message
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """The controller answers when every topic is gone, or ``timeout_ms`` is over."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS
    versions: ClassVar[tuple[int, ...]] = (3, 5)
    flexible_since: ClassVar[int] = 4
    response_type: ClassVar[type[DeleteTopicsResponse]] = DeleteTopicsResponse

    topic_names: tuple[str, ...] = wire(Array(STRING), until=5, default=())
    timeout_ms: int = wire(INT32)
