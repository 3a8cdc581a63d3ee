"""CreateTopics: to the controller. Version 3 (broker 2.1) and version 7 (broker's defaults, topic ids; from 2.8)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, Array, message, wire

BROKER_DEFAULT = -1
"""As number of partitions or replication factor, from version 4 on; needed too where an assignment is given."""


@message
class CreatableTopicConfigs:
    """One setting that the new topic has."""

    name: str = wire(STRING, since=5, default="")
    value: str | None = wire(STRING, since=5, nullable_since=5, default=None)
    read_only: bool = wire(BOOL, since=5, default=False)
    config_source: int = wire(INT8, since=5, default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL, since=5, default=False)


@message
class CreatableTopicResult:
    """One topic: what it became, or why it was not made.

    ``configs`` is None where the caller may not read them.
    """

    name: str = wire(STRING)
    topic_id: str | None = wire(UUID, since=7, default=None, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=1, default=None, nullable_since=0, ignorable=True)
    num_partitions: int = wire(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = wire(INT16, since=5, default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        Array(CreatableTopicConfigs), since=5, default=None, nullable_since=5, ignorable=True
    )
    topic_config_error_code: int = wire(INT16, since=5, default=0, tag=0, ignorable=True)


@message
class CreateTopicsResponse:
    """One row for each topic."""

    throttle_time_ms: int = wire(INT32, default=0, since=2, ignorable=True)
    topics: tuple[CreatableTopicResult, ...] = wire(Array(CreatableTopicResult))


@message
class CreatableReplicaAssignment:
    """Which brokers keep one partition, its preferred leader first."""

    partition_index: int = wire(INT32)
    broker_ids: tuple[int, ...] = wire(Array(INT32))


@message
class CreatableTopicConfig:
    """One setting to give the topic."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)


@message
class CreatableTopic:
    """One topic to make; with ``assignments`` both numbers are BROKER_DEFAULT."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(Array(CreatableReplicaAssignment))
    configs: tuple[CreatableTopicConfig, ...] = wire(Array(CreatableTopicConfig))


@message
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """The controller answers when every topic is made, or ``timeout_ms`` is over."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS
    versions: ClassVar[tuple[int, ...]] = (3, 7)
    flexible_since: ClassVar[int] = 5
    response_type: ClassVar[type[CreateTopicsResponse]] = CreateTopicsResponse

    topics: tuple[CreatableTopic, ...] = wire(Array(CreatableTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL, since=1, default=False)

    def usable_versions(self) -> tuple[int, ...]:
        """A broker before 2.4 has no defaults to give."""
        return (7,) if self._wants_defaults() else (3, 7)

    def least_broker(self) -> str:
        """Defaults come with the first version that we write and that has them."""
        return "2.8" if self._wants_defaults() else "2.1"

    def _wants_defaults(self) -> bool:
        return any(
            not row.assignments and BROKER_DEFAULT in (row.num_partitions, row.replication_factor)
            for row in self.topics
        )
