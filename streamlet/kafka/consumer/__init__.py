"""The consumer: subscriptions, groups, positions, fetches and commits."""

from typing import TYPE_CHECKING

from streamlet.kafka.consumer.consumer import Consumer
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.owned_partitions import ConsumerRebalanceListener
from streamlet.kafka.consumer.positions import OffsetAndTimestamp
from streamlet.kafka.consumer.records import ConsumerRecord, RecordColumns
from streamlet.kafka.settings.foreign_names import answer_missing

__all__ = [
    "Consumer",
    "ConsumerConfig",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "OffsetAndTimestamp",
    "RecordColumns",
]

if not TYPE_CHECKING:  # with it a type checker would accept every name
    __getattr__ = answer_missing(__name__)
