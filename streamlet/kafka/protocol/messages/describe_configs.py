"""DescribeConfigs: settings of topics (any broker) and of a broker (that one). Version 2 (broker 2.0)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Array, message, wire

TOPIC = 2
BROKER = 4


@message
class DescribeConfigsSynonym:
    """Where else the setting could come from, the strongest source first."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)
    source: int = wire(INT8)


@message
class DescribeConfigsResourceResult:
    """One setting; ``value`` is None where it is secret."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, since=1, default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL)
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(
        Array(DescribeConfigsSynonym), since=1, default=(), ignorable=True
    )


@message
class DescribeConfigsResult:
    """One topic's or broker's settings, or why they are not told."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(Array(DescribeConfigsResourceResult))


@message
class DescribeConfigsResponse:
    """One row for each resource."""

    throttle_time_ms: int = wire(INT32)
    results: tuple[DescribeConfigsResult, ...] = wire(Array(DescribeConfigsResult))


@message
class DescribeConfigsResource:
    """``configuration_keys`` None: all."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: tuple[str, ...] | None = wire(Array(STRING), nullable_since=0)


@message
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """What is set, and from where."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS
    versions: ClassVar[tuple[int, ...]] = (2,)
    flexible_since: ClassVar[int] = 4
    response_type: ClassVar[type[DescribeConfigsResponse]] = DescribeConfigsResponse

    resources: tuple[DescribeConfigsResource, ...] = wire(Array(DescribeConfigsResource))
    include_synonyms: bool = wire(BOOL, since=1, default=False)
