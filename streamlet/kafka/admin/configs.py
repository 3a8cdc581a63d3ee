"""Settings of topics and brokers: requests, and how their answers are read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamlet.base.errors import BadInput
from streamlet.kafka.admin.errors import Answers, item_error
from streamlet.kafka.admin.model import (
    AlterConfig,
    ConfigEntry,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    ResourceType,
    checked_values,
)
from streamlet.kafka.arguments import check_name, mapping, one_or_several
from streamlet.kafka.protocol.messages import configs as wire

Changes = Mapping[str, str | AlterConfig | None]
"""Name -> new value, None (back to the default), or an :class:`AlterConfig`."""


def resources_of(given: ConfigResource | Iterable[ConfigResource]) -> list[ConfigResource]:
    """Return one resource or several as a list without duplicates. Raises BadInput."""
    found = one_or_several(given, ConfigResource, "[ConfigResource.topic('lines'), ...], or .broker(1)")
    for row in found:
        owner(row)
    return list(dict.fromkeys(found))


def owner(resource: ConfigResource) -> int | None:
    """Return the id of the broker to ask, None for any. Raises BadInput."""
    if resource.type is ResourceType.TOPIC:
        check_name(resource.name)
        return None
    if not resource.name:
        return None
    if not resource.name.isdecimal():
        raise BadInput(f"{resource.name!r} is not a broker: broker ids are numbers, as in ConfigResource.broker(1).")
    return int(resource.name)


def describe_request(resources: Iterable[ConfigResource], names: Iterable[str] | None) -> wire.DescribeConfigsRequest:
    """Return a request for these settings; ``names`` None: all."""
    keys = None if names is None else tuple(names)
    return wire.DescribeConfigsRequest(
        resources=tuple(
            wire.DescribeConfigsResource(
                resource_type=resource.type, resource_name=resource.name, configuration_keys=keys
            )
            for resource in resources
        ),
        include_synonyms=True,
    )


def read_described(response: wire.DescribeConfigsResponse) -> Answers[ConfigResource, dict[str, ConfigEntry]]:
    """Return the settings of each resource, by name."""
    answers: Answers[ConfigResource, dict[str, ConfigEntry]] = Answers()
    for row in response.results:
        resource = _resource(row.resource_type, row.resource_name)
        if resource is None:
            continue
        what, needs = f"Reading the settings of {resource}", f"DESCRIBE_CONFIGS on the {_kind(resource)}"
        entries = {entry.name: _entry(entry) for entry in sorted(row.configs, key=lambda entry: entry.name)}
        answers.put(resource, entries, item_error(row.error_code, what, row.error_message, needs))
    return answers


def alter_request(
    changes: Mapping[ConfigResource, Changes], validate_only: bool
) -> wire.IncrementalAlterConfigsRequest:
    """Return a request that changes only the named settings. Raises BadInput."""
    # Not AlterConfigs: it replaces all settings of a resource, so that two administrators who change one setting each
    # would undo each other's change.
    return wire.IncrementalAlterConfigsRequest(
        resources=tuple(
            wire.AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=tuple(
                    wire.AlterableConfig(name=name, config_operation=change.op, value=change.value)
                    for name, change in _changes(resource, rows)
                ),
            )
            for resource, rows in changes.items()
        ),
        validate_only=validate_only,
    )


def read_altered(response: wire.IncrementalAlterConfigsResponse) -> Answers[ConfigResource, None]:
    """Return the resources that were changed, and the errors of the others."""
    answers: Answers[ConfigResource, None] = Answers()
    for row in response.responses:
        resource = _resource(row.resource_type, row.resource_name)
        if resource is not None:
            what, needs = f"Changing the settings of {resource}", f"ALTER_CONFIGS on the {_kind(resource)}"
            answers.put(resource, None, item_error(row.error_code, what, row.error_message, needs))
    return answers


def _changes(resource: ConfigResource, rows: Changes) -> list[tuple[str, AlterConfig]]:
    found = []
    for name, value in mapping(rows, "'retention.ms'", "'60000'", f"Changing the settings of {resource}").items():
        if not isinstance(value, AlterConfig):
            value = AlterConfig(ConfigOp.DELETE) if value is None else AlterConfig(ConfigOp.SET, value)
        if value.op is not ConfigOp.DELETE and value.value is None:
            raise BadInput(f"Changing the settings of {resource}: {value.op.name} of {name!r} needs a value.")
        checked_values(f"Changing the settings of {resource}", {name: value.value})
        found.append((name, value))
    return found


def _entry(row: wire.DescribeConfigsResourceResult) -> ConfigEntry:
    synonyms = tuple((other.name, other.value, _source(other.source)) for other in row.synonyms)
    return ConfigEntry(row.name, row.value, _source(row.config_source), row.read_only, row.is_sensitive, synonyms)


def _kind(resource: ConfigResource) -> str:
    return "topic" if resource.type is ResourceType.TOPIC else "cluster"


# Numbers that are newer than this client are no error: an unknown source is UNKNOWN, a resource of an unknown kind was
# not asked for and is left out.


def _resource(kind: int, name: str) -> ConfigResource | None:
    return ConfigResource(ResourceType(kind), name) if kind in set(ResourceType) else None


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in set(ConfigSource) else ConfigSource.UNKNOWN
