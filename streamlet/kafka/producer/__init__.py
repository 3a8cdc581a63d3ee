"""The producer: records in, outcomes out. Its pages: docs/producer.md and docs/expired-batches.md.

Reading order is import order: ``hashing``, ``partitioners``, ``batch``, ``buffer_pool``, ``sequences``,
``accumulator``; ``transaction_state``, ``transaction_manager``; ``responses``; and with threads and sockets
``record_future``, ``sender``, ``append``, ``producer``.
"""

from streamlet.kafka.client.group_requests import ConsumerGroupMetadata
from streamlet.kafka.producer.producer import Producer
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.kafka.producer.record_future import FutureRecordMetadata, RecordMetadata

__all__ = ["ConsumerGroupMetadata", "FutureRecordMetadata", "Producer", "ProducerConfig", "RecordMetadata"]
