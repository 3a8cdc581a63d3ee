"""The producer's own errors. The text of each says where it was raised, and what its user can do."""

from __future__ import annotations

from streamlet.base.errors import BadInput
from streamlet.kafka.broker_errors import ProducerFenced as ProducerFenced  # what records and calls of it raise
from streamlet.kafka.errors import ClientTimeout, KafkaError, RequestTimedOut


class BatchExpired(RequestTimedOut):
    """``delivery_timeout_ms`` passed, and the batch was never sent: its records are not in the log.

    Base of :class:`OutcomeUnknown`, whose records may be there: catch that one first.
    """

    stale_metadata = False


class OutcomeUnknown(BatchExpired):
    """``delivery_timeout_ms`` passed, and the batch had been sent: it may be in the log."""

    # Sent again it may be there twice; what idempotence prevents is only the producer's own repetition.
    retriable = False


class BufferExhausted(ClientTimeout):
    """``buffer_memory`` stayed full for ``max_block_ms``; the record was not taken."""


class RecordTooLarge(KafkaError, BadInput):
    """A record exceeds ``max_request_size`` or ``buffer_memory``; it was not taken."""


class SerializationFailed(KafkaError, BadInput):
    """A serializer raised, or gave no bytes; the record was not taken."""


class PartitionerFailed(KafkaError, BadInput):
    """A partitioner raised, or gave no index of a partition; the record was not taken."""


class PartitionOutOfRange(KafkaError, BadInput):
    """The topic has no such partition, by fresh metadata; the record was not taken."""


class ProducerClosed(KafkaError):
    """The producer was closed, or its process forked."""


class IllegalProducerState(KafkaError):
    """A call in the wrong state, such as commit without a transaction."""


class TransactionAborted(KafkaError):
    """The record's transaction was aborted before the record was sent."""


class TransactionFailed(KafkaError):
    """Something in the transaction failed: abort it, then begin another. Says what failed."""
