"""The Kafka tower: protocol, records, metadata, network and client. It knows nothing of Storm.

Reading order is import order: ``errors``, ``protocol`` and ``records``, ``metadata``, ``net``, ``client``,
and on top of it ``leader_requests`` (fetch, list offsets) and ``group_requests``; above these ``admin``,
``consumer`` and ``producer``.
"""

from typing import TYPE_CHECKING

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
from streamlet.kafka.settings.foreign_names import answer_missing

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
    __getattr__ = answer_missing(__name__)
