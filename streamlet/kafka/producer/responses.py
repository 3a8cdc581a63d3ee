"""What to do with a batch when its request has ended. Pure: one table of questions, in Java's order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamlet.kafka.broker_errors import (
    DuplicateSequenceNumber,
    MessageTooLarge,
    RecordListTooLarge,
    error_class,
)
from streamlet.kafka.errors import KafkaError, also
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.producer.batch import ProducerBatch
from streamlet.kafka.producer.sequences import Sequences
from streamlet.kafka.protocol.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from streamlet.kafka.records.appending import HEADER_SIZE


class Verdict(Enum):
    """What becomes of a batch."""

    SUCCEEDED = "written"
    SPLIT = "sent again in smaller ones"
    RETRY = "sent again"
    FAILED = "given up"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended for one batch. ``error`` None: written at ``base_offset``."""

    error: KafkaError | None
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    leader: tuple[int, int] | None = None
    """A newer leader, as (node id, epoch) (KIP-951)."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """``retries``, and ``delivery_timeout_ms`` in seconds."""

    retries: int
    delivery_timeout_s: float


def decide(
    batch: ProducerBatch, outcome: Outcome, sequences: Sequences | None, limits: RetryLimits, now_s: float
) -> Verdict:
    """What becomes of a batch without a final state; may ask ``sequences`` for a new epoch."""
    error = outcome.error
    if error is None or isinstance(error, DuplicateSequenceNumber):
        return Verdict.SUCCEEDED
    if isinstance(error, (MessageTooLarge, RecordListTooLarge)) and batch.count > 1:
        return Verdict.SPLIT
    in_time = now_s - batch.created_s < limits.delivery_timeout_s and batch.attempts < limits.retries
    if in_time and _can_retry(batch, error, outcome, sequences):
        return Verdict.RETRY
    return Verdict.FAILED


def with_size(error: KafkaError, batch: ProducerBatch) -> KafkaError:
    """An error of a batch that is given up; one of a record that is too large says how large, and what to raise."""
    if not isinstance(error, (MessageTooLarge, RecordListTooLarge)):
        return error
    topic = batch.topic_partition.topic
    size = batch.size if batch.packed is None else HEADER_SIZE + len(batch.packed)
    return also(
        error,
        f"It was one record, {size} bytes with its batch's header as sent: write a smaller one, compress it "
        f"(compression_type), or raise max.message.bytes of topic {topic!r} (message.max.bytes of the brokers, where "
        "the topic has none of its own). The producer's own limit is max_request_size.",
    )


def _can_retry(batch: ProducerBatch, error: KafkaError, outcome: Outcome, sequences: Sequences | None) -> bool:
    if sequences is None or not batch.has_sequence:
        return error.retriable
    return sequences.can_retry(batch, error, outcome.log_start_offset)


def produce_request(
    encoded: dict[TopicPartition, bytes], acks: int, timeout_ms: int, transactional_id: str | None
) -> ProduceRequest:
    """One request for batches of one leader, grouped by topic (P6)."""
    topics: dict[str, list[ProducePartition]] = {}
    for tp, records in encoded.items():
        topics.setdefault(tp.topic, []).append(ProducePartition(index=tp.partition, records=records))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(ProduceTopic(name=name, partition_data=tuple(rows)) for name, rows in topics.items()),
    )


def read_response(response: ProduceResponse) -> dict[TopicPartition, Outcome]:
    """The outcome of each partition in an answer."""
    return {
        TopicPartition(topic.name, row.index): _outcome(topic.name, row)
        for topic in response.responses
        for row in topic.partition_responses
    }


def endpoints(response: ProduceResponse) -> tuple[Broker, ...]:
    """Where the leaders named in the answer are reached."""
    return tuple(Broker(row.node_id, row.host, row.port, row.rack) for row in response.node_endpoints)


def _outcome(topic: str, row: ProducePartitionResponse) -> Outcome:
    fault = error_class(row.error_code)
    if fault is None:
        return Outcome(None, row.base_offset, row.log_append_time_ms, row.log_start_offset)
    said = [row.error_message] if row.error_message else []
    said += [f"record {one.batch_index}: {one.batch_index_error_message}" for one in row.record_errors[:3]]
    error = fault(f"Writing to topic {topic!r}, partition {row.index}", " ".join(said))
    leader = row.current_leader
    newer = (leader.leader_id, leader.leader_epoch) if leader.leader_id >= 0 else None
    return Outcome(error, row.base_offset, -1, row.log_start_offset, newer)
