"""What a user may give to an administrator's calls, looked at before anything is sent. Pure; raises BadInput."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamlet.base.errors import BadInput
from streamlet.kafka import arguments
from streamlet.kafka.admin.model import ConfigResource, NewPartitions, NewTopic, ResourceType
from streamlet.kafka.client.group_requests import OffsetAndMetadata, offset_rows
from streamlet.kafka.metadata.cluster import TopicPartition


def several(names: str | Iterable[str], what: str = "topic") -> list[str]:
    """One name or many, each once."""
    found = [names] if isinstance(names, str) else list(arguments.several(names, f"{what}s", "['name', ...]"))
    for name in found:
        one_name(name, what)
    return list(dict.fromkeys(found))


def one_name(name: object, what: str = "topic") -> None:
    """A topic's or a group's name may be any str but an empty one; a broker knows the rest."""
    if not isinstance(name, str) or not name:
        raise BadInput(f"{name!r} is no name of a {what}: give a string that is not empty.")


def new_by_name(given: NewTopic | Iterable[NewTopic]) -> dict[str, NewTopic]:
    """Topics to be made, by name."""
    example = "[NewTopic('lines', num_partitions, replication_factor), ...]"
    rows = [given] if isinstance(given, NewTopic) else list(arguments.several(given, "NewTopic", example))
    found: dict[str, NewTopic] = {}
    for row in rows:
        if not isinstance(row, NewTopic):
            raise BadInput(f"{row!r} is no NewTopic: write {example}.")
        if row.name in found:
            raise BadInput(f"Topic {row.name!r} is to be made twice: leave one of the two NewTopic out.")
        found[row.name] = row
    return found


def totals_by_name(given: Mapping[str, int | NewPartitions]) -> dict[str, NewPartitions]:
    """How many partitions each topic is to have."""
    wanted = {}
    for name, row in arguments.mapping(given, "'lines'", "6").items():
        one_name(name)
        wanted[name] = row if isinstance(row, NewPartitions) else NewPartitions(row)
    return wanted


def resources_of(given: ConfigResource | Iterable[ConfigResource]) -> list[ConfigResource]:
    """Whose settings are asked for."""
    example = "[ConfigResource.topic('lines'), ...]"
    found = [given] if isinstance(given, ConfigResource) else list(arguments.several(given, "ConfigResource", example))
    for row in found:
        if not isinstance(row, ConfigResource):
            raise BadInput(f"{row!r} is no ConfigResource: write ConfigResource.topic('lines'), or .broker(1).")
        owner(row)
    return list(dict.fromkeys(found))


def owner(resource: ConfigResource) -> int | None:
    """The broker to ask; None: any."""
    if resource.type is ResourceType.TOPIC:
        one_name(resource.name)
        return None
    if not resource.name:
        return None
    if not resource.name.isdecimal():
        raise BadInput(f"{resource.name!r} is no broker: broker ids are numbers, as in ConfigResource.broker(1).")
    return int(resource.name)


def offset_of(tp: TopicPartition, spec: object, words: str) -> int:
    """A number that is an offset; ``words`` are what may stand in its place."""
    if isinstance(spec, bool) or not isinstance(spec, int) or not 0 <= spec < 1 << 63:
        raise BadInput(f"{tp}: {spec!r} is no offset: write a whole number from 0, or {words}.")
    return spec


def offset_to_store(tp: TopicPartition, spec: object) -> OffsetAndMetadata:
    """Where a group is to go on."""
    if isinstance(spec, OffsetAndMetadata):
        return offset_rows({tp: spec})[tp]
    return OffsetAndMetadata(offset_of(tp, spec, '"earliest", "latest" or an aware datetime'))
