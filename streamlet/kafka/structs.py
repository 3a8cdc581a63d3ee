"""kafka-python's place of these: programs that import them from ``structs`` need no other line."""

from typing import TYPE_CHECKING

from streamlet.kafka.client.group_requests import OffsetAndMetadata
from streamlet.kafka.consumer.positions import OffsetAndTimestamp
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.settings.foreign_names import answer_missing

__all__ = ["OffsetAndMetadata", "OffsetAndTimestamp", "TopicPartition"]

if not TYPE_CHECKING:  # with it a type checker would accept every name
    __getattr__ = answer_missing(__name__)
