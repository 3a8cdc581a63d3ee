"""KafkaSpout: partitions of a Kafka topic as tracked tuples. Storm-kafka's design, its known traps closed.

The bridge between the two towers: it stands on ``streamlet.kafka`` and on ``streamlet.components``.
"""

from streamlet.spouts.kafka.errors import SchemeNotReady
from streamlet.spouts.kafka.hosts import KafkaHosts, StaticHosts, ZkHosts
from streamlet.spouts.kafka.partition import Broker, GlobalPartitionInformation, Partition
from streamlet.spouts.kafka.schemes.avro_scheme import AvroScheme
from streamlet.spouts.kafka.schemes.json_scheme import JsonScheme
from streamlet.spouts.kafka.schemes.protobuf_scheme import ProtobufScheme
from streamlet.spouts.kafka.schemes.schema_registry import SchemaRegistry
from streamlet.spouts.kafka.schemes.scheme import (
    KeyValueScheme,
    RawScheme,
    Record,
    Scheme,
    StringKeyValueScheme,
    StringScheme,
)
from streamlet.spouts.kafka.spout import KafkaSpout
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig, ZkOffsets

__all__ = [
    "AvroScheme",
    "Broker",
    "GlobalPartitionInformation",
    "GroupOffsets",
    "JsonScheme",
    "KafkaHosts",
    "KafkaSpout",
    "KeyValueScheme",
    "Partition",
    "ProtobufScheme",
    "RawScheme",
    "Record",
    "SchemaRegistry",
    "Scheme",
    "SchemeNotReady",
    "SpoutConfig",
    "StaticHosts",
    "StringKeyValueScheme",
    "StringScheme",
    "ZkHosts",
    "ZkOffsets",
]
