"""What a consumer raises beside the errors of the client and the broker."""

from __future__ import annotations

from collections.abc import Mapping

from streamlet.base.errors import BadInput
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition


class ConsumerError(KafkaError):
    """Base of what only a consumer raises."""


class IllegalSubscription(ConsumerError, BadInput):
    """``subscribe`` and ``assign`` were mixed, or something was asked that the kind of subscription forbids."""

    exit_status = BadInput.exit_status


class NotAssigned(ConsumerError):
    """The partition is not assigned to this consumer."""


class ConcurrentUse(ConsumerError):
    """A second thread called the consumer while the first was in a call."""


class ConsumerClosed(ConsumerError):
    """The consumer was closed."""


class ConsumerWakeup(ConsumerError):
    """``wakeup()`` was called from another thread; nothing was lost, poll again or close."""


class NoOffsetForPartition(ConsumerError):
    """No position, none committed, and ``auto_offset_reset`` is ``none``."""

    def __init__(self, message: str, partitions: tuple[TopicPartition, ...]) -> None:
        super().__init__(message)
        self.partitions = partitions


class PositionOutOfRange(ConsumerError):
    """The position is not in the log, and ``auto_offset_reset`` is ``none``. ``offsets``: what was asked for."""

    def __init__(self, message: str, offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(message)
        self.offsets = dict(offsets)


class LogTruncated(ConsumerError):
    """Records that were read are no longer in the log: it parted from ours at ``divergent_offsets``."""

    def __init__(self, message: str, divergent_offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(message)
        self.divergent_offsets = dict(divergent_offsets)


class RecordDeserializationFailed(ConsumerError):
    """A deserializer raised. The position stays at this record: mend it and poll again, or seek past it."""

    def __init__(self, message: str, topic_partition: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset


class CommitFailed(ConsumerError):
    """The group has moved on: this member may not commit for the partitions it had."""


class RebalanceUnderWay(ConsumerError):
    """The group is rebalancing: poll, which joins it again, then commit what is still assigned."""

    retriable = True


class MembershipFenced(ConsumerError):
    """Another member with the same ``group_instance_id`` has taken this one's place."""


class GroupThreadDied(ConsumerError):
    """The thread that keeps the membership ended with an error of its own."""
