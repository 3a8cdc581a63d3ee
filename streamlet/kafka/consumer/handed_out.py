"""Records taken by an iteration and not given yet. What is committed must stop before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from streamlet.kafka.consumer.records import ConsumerRecord
from streamlet.kafka.metadata.cluster import TopicPartition


class Undelivered:
    """Partitions in the order they came, each with its records in offset order."""

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
