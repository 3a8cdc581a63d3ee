"""ACLs: what a rule is, requests, and how their answers are read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from streamlet.base.errors import BadInput
from streamlet.kafka.admin.errors import Answers, admin_error, item_error
from streamlet.kafka.arguments import one_or_several, several
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.protocol.messages import acls as wire

E = TypeVar("E", bound=IntEnum)

# -- data


class AclResourceType(IntEnum):
    """What a rule is about; Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule's name is meant; Kafka's numbers.

    LITERAL: this very name, or "*" for all. PREFIXED: every name that begins so. Only in filters: ANY, and MATCH for
    all rules that hold for the name, whichever way they are written.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What a rule allows or denies; Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    """Whether a rule allows or denies; Kafka's numbers. A DENY beats every ALLOW."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One rule.

    ``AclBinding(AclResourceType.TOPIC, "lines", "User:alice", AclOperation.READ)``. The cluster's name is
    "kafka-cluster", ``principal`` is "User:*" for everybody, ``host`` an IP address or "*".
    """

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission_type: AclPermissionType = AclPermissionType.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL

    def __post_init__(self) -> None:
        _check_kinds(self)

    def __str__(self) -> str:
        name = f"{self.resource_name}*" if self.pattern_type is PatternType.PREFIXED else self.resource_name
        may = f"{self.permission_type.name} {self.principal} {self.operation.name}"
        where = "" if self.host == "*" else f" from {self.host}"
        return f"{may} on {self.resource_type.name} {name}{where}"


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Which rules to find: those that fit in everything that is given. Raises BadInput.

    ``AclBindingFilter(principal="User:alice")``: every rule of hers. Without an argument: all rules.
    """

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def __post_init__(self) -> None:
        _check_kinds(self)
        for name in ("resource_name", "principal", "host"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise BadInput(f"AclBindingFilter: {name} = {value!r} must be a string, or None for any.")

    def __str__(self) -> str:
        given = ((name, getattr(self, name)) for name in AclBindingFilter.__slots__)
        told = [f"{name}={getattr(value, 'name', value)}" for name, value in given if value not in (None, 1)]
        return f"ACLs with {', '.join(told)}" if told else "all ACLs"


_KINDS: dict[str, type[IntEnum]] = {
    "resource_type": AclResourceType,
    "operation": AclOperation,
    "permission_type": AclPermissionType,
    "pattern_type": PatternType,
}
_ONLY_IN_FILTERS = {"UNKNOWN", "ANY", "MATCH"}


def _check_kinds(row: AclBinding | AclBindingFilter) -> None:
    for name, kind in _KINDS.items():
        value = getattr(row, name)
        choices = [f"{kind.__name__}.{one.name}" for one in kind if one.name not in _ONLY_IN_FILTERS]
        if not isinstance(value, kind):
            raise BadInput(f"{type(row).__name__}: {name} = {value!r} must be one of {', '.join(choices)}.")


# -- arguments


def bindings_of(given: AclBinding | Iterable[AclBinding]) -> list[AclBinding]:
    """Return the rules to make, each once. Raises BadInput."""
    example = '[AclBinding(AclResourceType.TOPIC, "lines", "User:alice", AclOperation.READ), ...]'
    found = list(dict.fromkeys(one_or_several(given, AclBinding, example)))
    for row in found:
        # Checked here and not where a rule is made: one that a broker tells of is taken as it is.
        for name in ("resource_name", "principal", "host"):
            value = getattr(row, name)
            if not isinstance(value, str) or not value:
                raise BadInput(f"AclBinding: {name} = {value!r} must be a string that is not empty.")
        if ":" not in row.principal:
            raise BadInput(f"AclBinding: principal = {row.principal!r} has no type: write 'User:{row.principal}'.")
        for name in _KINDS:
            if getattr(row, name).name in _ONLY_IN_FILTERS:
                raise BadInput(f"{row}: {name} = {getattr(row, name).name} is for filters: say which one it is to be.")
    return found


def filters_of(
    given: AclBindingFilter | AclBinding | Iterable[AclBindingFilter | AclBinding],
) -> list[AclBindingFilter]:
    """Return filters, each once; a rule is a filter for itself. Raises BadInput."""
    example = '[AclBindingFilter(principal="User:alice"), ...]'
    rows = [given] if isinstance(given, (AclBinding, AclBindingFilter)) else several(given, "filters of ACLs", example)
    found: dict[AclBindingFilter, None] = {}
    for row in rows:
        if isinstance(row, AclBinding):
            row = AclBindingFilter(
                row.resource_type,
                row.resource_name,
                row.principal,
                row.operation,
                row.permission_type,
                row.host,
                row.pattern_type,
            )
        if not isinstance(row, AclBindingFilter):
            raise BadInput(f"{row!r} is not a filter of ACLs: write {example}.")
        found[row] = None
    return list(found)


# -- requests and answers


def describe_request(wanted: AclBindingFilter) -> wire.DescribeAclsRequest:
    """Return a request for the rules that fit."""
    return wire.DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )


def read_described(response: wire.DescribeAclsResponse) -> tuple[list[AclBinding], KafkaError | None]:
    """Return the rules that fit, sorted, and the error of all."""
    found = [
        _binding(place.resource_type, place.resource_name, place.pattern_type, row)
        for place in response.resources
        for row in place.acls
    ]
    fault = item_error(response.error_code, "Describing ACLs", response.error_message, "DESCRIBE on the cluster")
    return sorted(found, key=str), fault


def create_request(bindings: Iterable[AclBinding]) -> wire.CreateAclsRequest:
    """Return one request for all of these rules."""
    return wire.CreateAclsRequest(
        creations=tuple(
            wire.AclCreation(
                resource_type=row.resource_type,
                resource_name=row.resource_name,
                resource_pattern_type=row.pattern_type,
                principal=row.principal,
                host=row.host,
                operation=row.operation,
                permission_type=row.permission_type,
            )
            for row in bindings
        )
    )


def read_created(bindings: Sequence[AclBinding], response: wire.CreateAclsResponse) -> Answers[AclBinding, None]:
    """Return the rules that are made, and the errors of the others; the answer is in the request's order."""
    answers: Answers[AclBinding, None] = Answers()
    for binding, row in zip(bindings, response.results, strict=False):
        fault = item_error(row.error_code, f"Creating {binding}", row.error_message, "ALTER on the cluster")
        answers.put(binding, None, fault)
    return answers


def delete_request(filters: Iterable[AclBindingFilter]) -> wire.DeleteAclsRequest:
    """Return one request for all of these filters."""
    return wire.DeleteAclsRequest(
        filters=tuple(
            wire.DeleteAclsFilter(
                resource_type_filter=row.resource_type,
                resource_name_filter=row.resource_name,
                pattern_type_filter=row.pattern_type,
                principal_filter=row.principal,
                host_filter=row.host,
                operation=row.operation,
                permission_type=row.permission_type,
            )
            for row in filters
        )
    )


Deleted = dict[AclBindingFilter, set[AclBinding]]
"""What the tries of one call have deleted so far."""


def read_deleted(
    filters: Sequence[AclBindingFilter], response: wire.DeleteAclsResponse, deleted: Deleted
) -> Answers[AclBindingFilter, list[AclBinding]]:
    """Return what each filter has deleted, also in earlier tries.

    ``deleted`` has those of earlier tries, and gets those of this one. Where a rule stayed that fits a filter, its
    error is an AdminError with ``errors`` and ``results`` by rule.
    """
    answers: Answers[AclBindingFilter, list[AclBinding]] = Answers()
    needs = "ALTER on the cluster"
    for wanted, row in zip(filters, response.filter_results, strict=False):
        gone = deleted.setdefault(wanted, set())
        stayed: dict[AclBindingFilter | AclBinding, KafkaError] = {}
        fault = item_error(row.error_code, f"Deleting {wanted}", row.error_message, needs)
        if fault is not None:
            stayed[wanted] = fault
        for match in row.matching_acls:
            binding = _binding(match.resource_type, match.resource_name, match.pattern_type, match)
            kept = item_error(match.error_code, f"Deleting {binding}", match.error_message, needs)
            if kept is None:
                gone.add(binding)
            else:
                stayed[binding] = kept
        told = sorted(gone, key=str)
        # Rule: tell the deleted ones even where others stayed. They are gone, and nobody could name them any more.
        if stayed and (told or fault is None):
            fault = admin_error(stayed, dict.fromkeys(told))
        answers.put(wanted, told, fault)
    return answers


def _binding(kind: int, name: str, pattern: int, row: wire.AclDescription | wire.DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        _known(AclResourceType, kind),
        name,
        row.principal,
        _known(AclOperation, row.operation),
        _known(AclPermissionType, row.permission_type),
        row.host,
        _known(PatternType, pattern),
    )


def _known(kind: type[E], number: int) -> E:
    """Return a member by its number; one that is newer than this client is UNKNOWN."""
    return kind(number if number in set(kind) else 0)
