"""Errors of a consumer, beside those of the client and the broker."""

from __future__ import annotations

from collections.abc import Mapping

from streamlet.base.errors import BadInput
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition


class ConsumerError(KafkaError):
    """Base of errors that only a consumer raises."""


class IllegalSubscription(ConsumerError, BadInput):
    """``subscribe`` and ``assign`` were mixed, or the call fits neither."""


class NotAssigned(ConsumerError):
    """The partition is not assigned to this consumer."""


class ConcurrentUse(ConsumerError):
    """A second thread called while the first was in a call."""


class ConsumerClosed(ConsumerError):
    """The consumer was closed."""


class ConsumerWakeup(ConsumerError):
    """``wakeup()`` was called; nothing is lost, poll again or close."""


class NoOffsetForPartition(ConsumerError):
    """No position, none committed, and ``auto_offset_reset`` is ``none``."""

    def __init__(self, message: str, partitions: tuple[TopicPartition, ...]) -> None:
        super().__init__(message)
        self.partitions = partitions


class PositionOutOfRange(ConsumerError):
    """A position is not in the log, and ``auto_offset_reset`` is ``none``."""

    def __init__(self, message: str, offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(message)
        self.offsets = dict(offsets)


class LogTruncated(ConsumerError):
    """Records that were read are gone from the log, from ``divergent_offsets`` on."""

    def __init__(
        self,
        message: str,
        divergent_offsets: Mapping[TopicPartition, int],
        topic_partition: TopicPartition | None = None,
    ) -> None:
        super().__init__(message)
        self.divergent_offsets = dict(divergent_offsets)
        self.topic_partition = topic_partition
        """Whose log it is; also where ``divergent_offsets`` is empty."""


class RecordDeserializationFailed(ConsumerError):
    """A deserializer raised. The position stays at its record."""

    def __init__(self, message: str, topic_partition: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset


class CommitFailed(ConsumerError):
    """The group has moved on: the offsets of this member are refused."""


class RebalanceUnderWay(ConsumerError):
    """The group is rebalancing: poll, then commit for the partitions still assigned."""

    retriable = True


class MembershipFenced(ConsumerError):
    """Another member with this ``group_instance_id`` has taken this one's place."""


class GroupThreadDied(ConsumerError):
    """The group's thread ended with an error of its own."""
