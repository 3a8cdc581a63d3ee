"""What a user may give to ``send_offsets_to_transaction``, as what it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamlet.kafka.group_offsets import OffsetAndMetadata
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.transaction_state import ConsumerGroupMetadata


def offset_rows(offsets: Mapping[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets as our own type: ours, kafka-python's, or plain numbers."""
    rows: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, row in offsets.items():
        if isinstance(row, int):
            row = OffsetAndMetadata(row)
        elif not isinstance(row, OffsetAndMetadata):
            epoch = getattr(row, "leader_epoch", None)
            row = OffsetAndMetadata(row.offset, -1 if epoch is None else epoch, row.metadata or "")
        rows[TopicPartition(*tp)] = row
    return rows


def group_metadata(group: Any) -> ConsumerGroupMetadata:  # Any: whatever has a group_id
    """A group id, our group metadata, or another consumer's."""
    if isinstance(group, ConsumerGroupMetadata):
        return group
    if isinstance(group, str):
        return ConsumerGroupMetadata(group)
    return ConsumerGroupMetadata(
        group.group_id, group.generation_id, group.member_id, getattr(group, "group_instance_id", None)
    )
