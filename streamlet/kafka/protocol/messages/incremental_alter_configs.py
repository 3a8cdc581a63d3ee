"""IncrementalAlterConfigs: change some settings and leave the others alone (KIP-339). Version 0 (broker 2.3).

The older AlterConfigs replaces all settings of a topic at once, and so undoes what somebody else set
meanwhile; it is not used.
"""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Array, message, wire


@message
class AlterConfigsResourceResponse:
    """One topic or broker: 0, or why nothing was changed."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message
class IncrementalAlterConfigsResponse:
    """One row for each resource."""

    throttle_time_ms: int = wire(INT32)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(Array(AlterConfigsResourceResponse))


@message
class AlterableConfig:
    """One change: 0 set, 1 delete (back to the default), 2 append to a list, 3 subtract from it."""

    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    value: str | None = wire(STRING, nullable_since=0)


@message
class AlterConfigsResource:
    """The changes of one topic or broker, made together or not at all."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[AlterableConfig, ...] = wire(Array(AlterableConfig))


@message
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    """Topics: to any broker. A broker's own: to that broker."""

    api_key: ClassVar[ApiKey] = ApiKey.INCREMENTAL_ALTER_CONFIGS
    versions: ClassVar[tuple[int, ...]] = (0,)
    flexible_since: ClassVar[int] = 1
    response_type: ClassVar[type[IncrementalAlterConfigsResponse]] = IncrementalAlterConfigsResponse

    resources: tuple[AlterConfigsResource, ...] = wire(Array(AlterConfigsResource))
    validate_only: bool = wire(BOOL)

    def least_broker(self) -> str:
        """The API is as old as that."""
        return "2.3"
