"""DescribeConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    ApiKey,
    Array,
    Request,
    message,
    request,
    wire,
)

TOPIC = 2
BROKER = 4


@message
class DescribeConfigsSynonym:
    """Another source of the setting; the strongest comes first."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)
    source: int = wire(INT8)


@message
class DescribeConfigsResourceResult:
    """One setting; ``value`` is None where it is secret."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOL)
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(Array(DescribeConfigsSynonym), default=())


@message
class DescribeConfigsResult:
    """One topic's or broker's settings, or an error."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(Array(DescribeConfigsResourceResult))


@message
class DescribeConfigsResponse:
    throttle_time_ms: int = wire(INT32)
    results: tuple[DescribeConfigsResult, ...] = wire(Array(DescribeConfigsResult))


@message
class DescribeConfigsResource:
    """One topic or broker; ``configuration_keys`` None: all settings."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: tuple[str, ...] | None = wire(Array(STRING), nullable_since=0)


@request(ApiKey.DESCRIBE_CONFIGS, versions=(2,), flexible_since=4)
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Topics: to any broker. A broker's own: to that broker."""

    resources: tuple[DescribeConfigsResource, ...] = wire(Array(DescribeConfigsResource))
    include_synonyms: bool = wire(BOOL, default=False)


@message
class AlterConfigsResourceResponse:
    """One topic's or broker's outcome; with an error nothing was changed."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message
class IncrementalAlterConfigsResponse:
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
    """The changes of one topic or broker: made together, or none is."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[AlterableConfig, ...] = wire(Array(AlterableConfig))


@request(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0,), flexible_since=1)
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    """Topics: to any broker. A broker's own: to that broker."""

    resources: tuple[AlterConfigsResource, ...] = wire(Array(AlterConfigsResource))
    validate_only: bool = wire(BOOL)

    def least_broker(self) -> str:
        return "2.3"
