"""DescribeAcls, CreateAcls and DeleteAcls: who may do what."""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
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


@message
class AclDescription:
    """One rule of a resource."""

    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class DescribeAclsResource:
    """A resource, or a prefix of names, and its rules."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8)
    acls: tuple[AclDescription, ...] = wire(Array(AclDescription))


@message
class DescribeAclsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    resources: tuple[DescribeAclsResource, ...] = wire(Array(DescribeAclsResource), default=())


@request(ApiKey.DESCRIBE_ACLS, versions=(1,), flexible_since=2)
class DescribeAclsRequest(Request[DescribeAclsResponse]):
    """To any broker; None and 1 (any) match everything."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable_since=0)
    pattern_type_filter: int = wire(INT8)
    principal_filter: str | None = wire(STRING, nullable_since=0)
    host_filter: str | None = wire(STRING, nullable_since=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class AclCreationResult:
    """The outcome of the creation at the same place of the request."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)


@message
class CreateAclsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[AclCreationResult, ...] = wire(Array(AclCreationResult))


@message
class AclCreation:
    """One rule to make."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    resource_pattern_type: int = wire(INT8)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@request(ApiKey.CREATE_ACLS, versions=(1,), flexible_since=2)
class CreateAclsRequest(Request[CreateAclsResponse]):
    """To any broker."""

    creations: tuple[AclCreation, ...] = wire(Array(AclCreation))


@message
class DeleteAclsMatchingAcl:
    """One rule that a filter met: deleted, or the error that kept it."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class DeleteAclsFilterResult:
    """The outcome of the filter at the same place of the request."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = wire(Array(DeleteAclsMatchingAcl), default=())


@message
class DeleteAclsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    filter_results: tuple[DeleteAclsFilterResult, ...] = wire(Array(DeleteAclsFilterResult))


@message
class DeleteAclsFilter:
    """All rules that fit; None and 1 (any) match everything."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable_since=0)
    pattern_type_filter: int = wire(INT8)
    principal_filter: str | None = wire(STRING, nullable_since=0)
    host_filter: str | None = wire(STRING, nullable_since=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@request(ApiKey.DELETE_ACLS, versions=(1,), flexible_since=2)
class DeleteAclsRequest(Request[DeleteAclsResponse]):
    """To any broker."""

    filters: tuple[DeleteAclsFilter, ...] = wire(Array(DeleteAclsFilter))
