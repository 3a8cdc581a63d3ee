"""What was handed out, as far as it matters for commits: records not given yet, and records just given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from streamlet.kafka.consumer.records import ConsumerRecord
from streamlet.kafka.consumer.subscription_state import Position
from streamlet.kafka.group_offsets import OffsetAndMetadata
from streamlet.kafka.metadata.cluster import TopicPartition


def but_for_held(
    positions: Mapping[TopicPartition, Position], held: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What may be committed: the positions, or where what is held (offset and leader epoch) begins before them."""
    found = {tp: OffsetAndMetadata(position.offset, position.offset_epoch) for tp, position in positions.items()}
    for tp, (offset, epoch) in held.items():
        if tp in found and offset < found[tp].offset:
            found[tp] = OffsetAndMetadata(offset, epoch)
    return found


class InHand:
    """The records given last. That they are worked on is known when their user comes back for more, or commits."""

    __slots__ = ("_firsts", "record")

    def __init__(self) -> None:
        self._firsts: dict[TopicPartition, tuple[int, int]] = {}
        self.record: ConsumerRecord | None = None
        """What an iteration gave."""

    def put(self, firsts: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """What a poll gave: the first record of each partition, and its leader epoch."""
        self._firsts, self.record = dict(firsts), None

    def clear(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """It is worked on, all of it or that of some partitions."""
        firsts = {} if partitions is None else self.first_offsets()
        self.put({tp: first for tp, first in firsts.items() if tp not in set(partitions or ())})

    def first_offsets(self) -> dict[TopicPartition, tuple[int, int]]:
        """The first record of each partition, and its leader epoch."""
        if self.record is None:
            return self._firsts
        return {
            TopicPartition(self.record.topic, self.record.partition): (self.record.offset, self.record.leader_epoch)
        }


class Undelivered:
    """Records taken by an iteration and not given yet: partitions in the order they came, each in offset order."""

    def __init__(self) -> None:
        self._rows: dict[TopicPartition, deque[ConsumerRecord]] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def put_all(self, rows: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """What a poll took, all at once; asked for when nothing is left."""
        self._rows = {tp: deque(records) for tp, records in rows.items()}

    def next(self) -> ConsumerRecord | None:
        """The next record, None when there is none."""
        for tp, records in self._rows.items():
            record = records.popleft()
            if not records:
                del self._rows[tp]
            return record
        return None

    def take_all(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Everything, and nothing is left."""
        rows, self._rows = self._rows, {}
        return {tp: list(records) for tp, records in rows.items()}

    def first_offsets(self) -> dict[TopicPartition, tuple[int, int]]:
        """The first record of each that was not given, and its leader epoch."""
        return {tp: (records[0].offset, records[0].leader_epoch) for tp, records in self._rows.items()}

    def drop(self, tp: TopicPartition) -> None:
        """Its position was changed."""
        self._rows.pop(tp, None)

    def keep(self, assigned: Iterable[TopicPartition]) -> None:
        """The others are no longer ours."""
        ours = set(assigned)
        self._rows = {tp: records for tp, records in self._rows.items() if tp in ours}
