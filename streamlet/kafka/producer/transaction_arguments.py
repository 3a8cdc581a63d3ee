"""What a user may give to ``send_offsets_to_transaction``, as what it means."""

from __future__ import annotations

from typing import Any

from streamlet.base.errors import WrongArgument
from streamlet.kafka.producer.transaction_state import ConsumerGroupMetadata


def group_metadata(group: Any) -> ConsumerGroupMetadata:  # Any: whatever has a group_id
    """A group id, our group metadata, or another consumer's."""
    if isinstance(group, ConsumerGroupMetadata):
        return group
    if isinstance(group, str) and group:
        return ConsumerGroupMetadata(group)
    if not isinstance(getattr(group, "group_id", None), str) or not hasattr(group, "member_id"):
        raise WrongArgument(f"{group!r} is no group: give consumer.group_metadata(), or the group's id as a str.")
    return ConsumerGroupMetadata(
        group.group_id, group.generation_id, group.member_id, getattr(group, "group_instance_id", None)
    )
