"""The Kafka tower: protocol, records, metadata, network and client. It knows nothing of Storm.

Reading order is import order: ``errors``, ``protocol`` and ``records``, ``metadata``, ``net``, ``client``,
and on top of it ``leader_requests`` (fetch, list offsets) and ``group_requests``; above these ``admin``,
``consumer`` and ``producer``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from streamlet.base.names_on_demand import loads_on_demand
from streamlet.kafka.settings.foreign_names import answer_missing

if TYPE_CHECKING:
    from streamlet.kafka.admin import Admin, AdminError, ConfigResource, NewPartitions, NewTopic
    from streamlet.kafka.client.client import KafkaClient
    from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
    from streamlet.kafka.consumer import (
        Consumer,
        ConsumerConfig,
        ConsumerRebalanceListener,
        ConsumerRecord,
        OffsetAndTimestamp,
        RecordColumns,
    )
    from streamlet.kafka.errors import KafkaError
    from streamlet.kafka.future import RequestFuture
    from streamlet.kafka.metadata.cluster import Broker, Cluster, TopicPartition
    from streamlet.kafka.producer import FutureRecordMetadata, Producer, ProducerConfig, RecordMetadata
    from streamlet.kafka.settings.client_config import ClientConfig

# Rule: a name's module is loaded when the name is first used. A worker with a KafkaSpout needs no Admin and no
# producer, which take a third of the time that the spout takes to load, in each process of a run.
_MODULES = {
    "Admin": "admin",
    "AdminError": "admin",
    "Broker": "metadata.cluster",
    "ClientConfig": "settings.client_config",
    "Cluster": "metadata.cluster",
    "ConfigResource": "admin",
    "Consumer": "consumer",
    "ConsumerConfig": "consumer",
    "ConsumerGroupMetadata": "client.group_requests",
    "ConsumerRebalanceListener": "consumer",
    "ConsumerRecord": "consumer",
    "FutureRecordMetadata": "producer",
    "KafkaClient": "client.client",
    "KafkaError": "errors",
    "NewPartitions": "admin",
    "NewTopic": "admin",
    "OffsetAndMetadata": "client.group_requests",
    "OffsetAndTimestamp": "consumer",
    "Producer": "producer",
    "ProducerConfig": "producer",
    "RecordColumns": "consumer",
    "RecordMetadata": "producer",
    "RequestFuture": "future",
    "TopicPartition": "metadata.cluster",
}
_SUBMODULES = frozenset(
    {
        "admin",
        "broker_errors",
        "client",
        "consumer",
        "errors",
        "fetch",
        "future",
        "metadata",
        "net",
        "producer",
        "protocol",
        "records",
        "settings",
    }
)
"""Attributes of this module, whatever was imported before."""

__all__ = [
    "Admin",
    "AdminError",
    "Broker",
    "ClientConfig",
    "Cluster",
    "ConfigResource",
    "Consumer",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "FutureRecordMetadata",
    "KafkaClient",
    "KafkaError",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "ProducerConfig",
    "RecordColumns",
    "RecordMetadata",
    "RequestFuture",
    "TopicPartition",
]

if not TYPE_CHECKING:  # with it a type checker would accept every name
    _missing = answer_missing(__name__)
    __getattr__ = loads_on_demand(
        __name__,
        _MODULES,
        lambda name: import_module(f"{__name__}.{name}") if name in _SUBMODULES else _missing(name),
    )

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_SUBMODULES})
