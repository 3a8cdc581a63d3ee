"""The consumer: subscriptions, groups, positions, fetches and commits."""

from streamlet.kafka.consumer.consumer import Consumer
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.positions import OffsetAndTimestamp
from streamlet.kafka.consumer.rebalance import ConsumerRebalanceListener
from streamlet.kafka.consumer.records import ConsumerRecord, RecordColumns

__all__ = [
    "Consumer",
    "ConsumerConfig",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "OffsetAndTimestamp",
    "RecordColumns",
]
