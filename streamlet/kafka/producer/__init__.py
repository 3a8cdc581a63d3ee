"""The producer: records in, outcomes out. docs/internals/send.md follows one record through this room.

For users: ``streamlet docs producer`` and ``streamlet docs expired-batches``. Reading order is import order. Pure:
``producer_batch`` (states, sequences), ``accumulator``, ``partitioners``, ``transaction_requests``, ``transaction``,
``batch_ledger`` (decisions). With threads and sockets: ``record_future``, ``sender``, ``append``, ``producer``,
``topic_wait``.
"""

from typing import TYPE_CHECKING

from streamlet.kafka.client.group_requests import ConsumerGroupMetadata
from streamlet.kafka.producer.producer import Producer
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.kafka.producer.record_future import FutureRecordMetadata, RecordMetadata
from streamlet.kafka.settings.foreign_names import answer_missing

__all__ = ["ConsumerGroupMetadata", "FutureRecordMetadata", "Producer", "ProducerConfig", "RecordMetadata"]

if not TYPE_CHECKING:  # with it a type checker would accept every name
    __getattr__ = answer_missing(__name__)
