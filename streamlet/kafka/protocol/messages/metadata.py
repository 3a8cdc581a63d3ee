"""Metadata: brokers, topics, leaders. Version 7 (broker 2.1) and version 12 (topic ids, from 3.1)."""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UUID,
    ApiKey,
    Array,
    Request,
    message,
    request,
    wire,
)

UNKNOWN_LEADER_EPOCH = -1
_NO_OPERATIONS = -(1 << 31)


@message
class MetadataBroker:
    """A living broker and its advertised address."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, default=None, nullable_since=0)


@message
class MetadataPartition:
    """One partition: ``leader_id`` -1 means none."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=UNKNOWN_LEADER_EPOCH)
    replica_nodes: tuple[int, ...] = wire(Array(INT32), default=())
    isr_nodes: tuple[int, ...] = wire(Array(INT32), default=())
    offline_replicas: tuple[int, ...] = wire(Array(INT32), default=())


@message
class MetadataTopic:
    """One topic, or the error that it has."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable_since=12)
    topic_id: str | None = wire(UUID, default=None, since=10, ignorable=True)
    is_internal: bool = wire(BOOL, default=False)
    partitions: tuple[MetadataPartition, ...] = wire(Array(MetadataPartition), default=())
    topic_authorized_operations: int = wire(INT32, default=_NO_OPERATIONS, since=8, ignorable=True)


@message
class MetadataResponse:
    """The cluster as one broker sees it."""

    throttle_time_ms: int = wire(INT32, default=0)
    brokers: tuple[MetadataBroker, ...] = wire(Array(MetadataBroker))
    cluster_id: str | None = wire(STRING, default=None, nullable_since=0)
    controller_id: int = wire(INT32, default=-1)
    topics: tuple[MetadataTopic, ...] = wire(Array(MetadataTopic))
    cluster_authorized_operations: int = wire(INT32, default=_NO_OPERATIONS, since=8, until=10, ignorable=True)


@message
class MetadataRequestTopic:
    """A topic asked for, by name."""

    topic_id: str | None = wire(UUID, default=None, since=10)
    name: str | None = wire(STRING, nullable_since=10)


@request(ApiKey.METADATA, versions=(7, 12), flexible_since=9)
class MetadataRequest(Request[MetadataResponse]):
    """``topics`` None asks for all topics, an empty tuple for none."""

    topics: tuple[MetadataRequestTopic, ...] | None = wire(Array(MetadataRequestTopic), nullable_since=0)
    allow_auto_topic_creation: bool = wire(BOOL, default=False)
    include_cluster_authorized_operations: bool = wire(BOOL, default=False, since=8, until=10)
    include_topic_authorized_operations: bool = wire(BOOL, default=False, since=8)
