"""KafkaSpout: partitions of a Kafka topic as tracked tuples. Storm-kafka's design, its known traps closed.

The bridge between the two towers: it stands on ``streamlet.kafka`` and on ``streamlet.components``.
"""

from streamlet.spouts.kafka.hosts import KafkaHosts, StaticHosts, ZkHosts
from streamlet.spouts.kafka.partition import Broker, GlobalPartitionInformation, Partition
from streamlet.spouts.kafka.scheme import KeyValueScheme, RawScheme, Record, Scheme, StringKeyValueScheme, StringScheme
from streamlet.spouts.kafka.spout import KafkaSpout
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig, ZkOffsets

__all__ = [
    "Broker",
    "GlobalPartitionInformation",
    "GroupOffsets",
    "KafkaHosts",
    "KafkaSpout",
    "KeyValueScheme",
    "Partition",
    "RawScheme",
    "Record",
    "Scheme",
    "SpoutConfig",
    "StaticHosts",
    "StringKeyValueScheme",
    "StringScheme",
    "ZkHosts",
    "ZkOffsets",
]
