"""Data that an administrator's calls take and return, frozen. Pure; any thread."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Final, Literal, TypeVar

from streamlet.base.errors import BadInput, WrongArgument
from streamlet.kafka.arguments import is_whole, mapping, several
from streamlet.kafka.metadata.cluster import Broker, PartitionInfo, TopicPartition

T = TypeVar("T")

BROKER_DEFAULT: Final = -1
"""Number of partitions or replicas that leaves the choice to the broker (Kafka 2.8 or later)."""

OffsetSpec = int | datetime | Literal["earliest", "latest", "max_timestamp", "earliest_local", "latest_tiered"]
"""A place in a partition: its start, its end, or the first record at or after a time.

A time is an aware ``datetime`` or milliseconds since 1970. (In ``alter_group_offsets`` a number is the
offset itself.) "max_timestamp": the record with the latest time (KIP-734, Kafka 3.0 or later); "earliest_local" and
"latest_tiered": the first record on the broker's own disk, the last in tiered storage (Kafka 3.9 or later).
"""


def _called_here(cls: type[T]) -> type[T]:
    """Answer another client's argument names with ours."""
    made = cls.__init__

    @functools.wraps(made)
    def init(self: T, *args: object, **kwargs: object) -> None:
        for theirs, ours in (("topic_configs", "configs"), ("replica_assignments", "assignment")):
            if theirs in kwargs:
                raise WrongArgument(f"{cls.__name__}: {theirs} is called {ours} here.")
        made(self, *args, **kwargs)

    cls.__init__ = init  # type: ignore[method-assign,assignment]  # the same arguments
    return cls


@_called_here
@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Raises BadInput when it contradicts itself.

    ``assignment``: partition -> broker ids, the preferred leader first, in place of both numbers.
    ``configs``: settings of the topic, as ``{"retention.ms": "60000"}``.
    """

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignment: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise BadInput(f"NewTopic: {self.name!r} is not a name of a topic: give a string that is not empty.")
        for what, number in (
            ("num_partitions", self.num_partitions),
            ("replication_factor", self.replication_factor),
        ):
            if not is_whole(number, 1) and not (is_whole(number, BROKER_DEFAULT) and number == BROKER_DEFAULT):
                raise BadInput(
                    f"NewTopic {self.name!r}: {what} = {number!r} must be a whole number of at least 1, or -1 for "
                    "the broker's default."
                )
        if self.assignment is not None:
            if self.num_partitions != BROKER_DEFAULT or self.replication_factor != BROKER_DEFAULT:
                raise BadInput(
                    f"NewTopic {self.name!r}: an assignment says already how many partitions and replicas there are; "
                    "leave num_partitions and replication_factor out."
                )
            rows = mapping(self.assignment, "0", "[1, 2]", f"NewTopic {self.name!r}: assignment")
            if not rows or set(rows) != set(range(len(rows))):
                raise BadInput(
                    f"NewTopic {self.name!r}: the assignment is of the partitions {list(rows)}; they must be numbered "
                    "from 0 without a gap."
                )
            for brokers in rows.values():
                _check_brokers(f"NewTopic {self.name!r}", brokers)
        checked_values(f"NewTopic {self.name!r}", self.configs)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic. A broker before 2.8 tells only the name: the rest is None.

    ``configs`` is empty where the caller may not read them.
    """

    name: str
    topic_id: str | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The number of partitions a topic should have.

    ``assignment``: broker ids of each new one.
    """

    total: int
    assignment: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        if not is_whole(self.total, 1):
            raise BadInput(f"NewPartitions: total = {self.total!r} must be a whole number of at least 1.")
        for brokers in several(self.assignment or (), "broker ids", "[[1, 2], ...]", "NewPartitions: assignment"):
            _check_brokers("NewPartitions", brokers)


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in a listing; ``topic_id`` is None before Kafka 2.8."""

    name: str
    topic_id: str | None
    num_partitions: int
    is_internal: bool


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic; ``partitions`` are in the order of their numbers."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster and its brokers; on KRaft the controller is any broker."""

    cluster_id: str | None
    controller: Broker | None
    brokers: Mapping[int, Broker]


# -- settings


class ResourceType(IntEnum):
    """Owners of settings; Kafka's numbers."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """The owner of settings: a topic, a broker, or all brokers.

    ``ConfigResource.topic("lines")``, ``ConfigResource.broker(1)``, ``ConfigResource.broker()``.
    """

    type: ResourceType
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.type, ResourceType):
            raise WrongArgument(
                f'ConfigResource: {self.type!r} is not a ResourceType: write ConfigResource.topic("lines"), '
                "ConfigResource.broker(1), or ConfigResource.broker() for all of them."
            )

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """Return the resource of a topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """Return a broker's resource; None: the defaults of all brokers together."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    def __str__(self) -> str:
        if self.type is ResourceType.TOPIC:
            return f"topic {self.name!r}"
        return f"broker {self.name}" if self.name else "all brokers"


class ConfigSource(IntEnum):
    """The source of a value; Kafka's numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting; ``value`` is None where it is secret (``is_sensitive``) or unset.

    ``synonyms``: (name, value, source) of everything that could give the value, the strongest first.
    """

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class ConfigOp(IntEnum):
    """Changes of a setting (KIP-339); Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """One change of a setting.

    DELETE goes back to the default; APPEND and SUBTRACT are for settings that are lists.
    """

    op: ConfigOp
    value: str | None = None


# -- groups


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a listing; an old broker leaves ``state`` and ``type`` empty."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: Broker


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member; topics and partitions are empty but for the protocol "consumer"."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group: its state (Stable, Empty, ...), agreed assignor and members."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Broker
    members: tuple[MemberDescription, ...]


def checked_values(where: str, values: Mapping[str, str | None]) -> None:
    """Raise BadInput unless all names and values of settings are text."""
    # Kafka takes every setting as text. A number is refused and not converted: Python writes some values (True, 1e3) in
    # another way than Kafka.
    for name, value in mapping(values, "'retention.ms'", "'60000'", f"{where}: settings").items():
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise BadInput(
                f"{where}: the setting {name!r} = {value!r} must be text, as Kafka takes it: write {str(value)!r}."
            )


def _check_brokers(where: str, brokers: Iterable[int]) -> None:
    ids = list(several(brokers, "broker ids", "[1, 2]", f"{where}: assignment"))
    if not ids or not all(is_whole(one, 0) for one in ids):
        raise BadInput(f"{where}: {brokers!r} in the assignment are not broker ids: write them as numbers, as [1, 2].")
