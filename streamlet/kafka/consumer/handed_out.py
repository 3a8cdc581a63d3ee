"""What was handed out, as far as it matters for commits: records not given yet, and records just given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from streamlet.kafka.client.group_requests import OffsetAndMetadata
from streamlet.kafka.consumer.records import (
    ConsumerRecord,
    DecodedChunk,
    RecordColumns,
    columns_by_partition,
    records_by_partition,
)
from streamlet.kafka.consumer.subscription_state import PartitionState, Position, SubscriptionState
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

    __slots__ = ("_firsts", "_named", "record")

    def __init__(self) -> None:
        self._firsts: dict[TopicPartition, tuple[int, int]] = {}
        self._named: dict[TopicPartition, OffsetAndMetadata] = {}
        self.record: ConsumerRecord | None = None
        """What an iteration gave."""

    def put(self, firsts: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """What a poll gave: the first record of each partition, and its leader epoch."""
        self._firsts, self._named, self.record = dict(firsts), {}, None

    def clear(self) -> None:
        """It is worked on, all of it."""
        self.put({})

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None) -> None:
        """It is worked on up to these offsets, None: all of it. What lies behind them stays in hand."""
        if offsets is None:
            self.clear()
            return
        firsts, named = self.first_offsets(), {**self.named(), **offsets}
        self.put({**firsts, **{tp: (offset.offset, offset.leader_epoch) for tp, offset in offsets.items()}})
        self._named = named

    def named(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What was committed by name since the last records were given: it holds, before the position or behind it."""
        return {} if self.record is not None else self._named

    def forget(self, tp: TopicPartition) -> None:
        """Its position was changed."""
        self._named.pop(tp, None)

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
            record, last = records[0], len(records) == 1
            # By statements: no signal's handler, which may commit, comes between a record's leaving and its return.
            if last:
                del self._rows[tp]
            else:
                del records[0]
            return record
        return None

    def take(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """So many records at most; the others wait on."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        rest: dict[TopicPartition, deque[ConsumerRecord]] = {}
        for tp, records in self._rows.items():
            rows = list(records)
            if limit > 0:
                taken[tp] = rows[:limit]
            if len(rows) > limit:
                rest[tp] = deque(rows[limit:])
            limit = max(limit - len(rows), 0)
        self._rows = rest
        return taken

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


class HandedOut:
    """One consumer's: what its user has, what waits, and what may be committed for that.

    One thread; but a signal's handler may close the consumer, or commit, in the middle of anything.
    """

    __slots__ = ("_subscriptions", "in_hand", "in_hand_counts", "taking", "undelivered")

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self._subscriptions = subscriptions
        self.undelivered, self.in_hand = Undelivered(), InHand()
        self.in_hand_counts = True
        """As worked on."""
        self.taking: Mapping[TopicPartition, tuple[int, int]] = {}
        """Where positions stood before what is being taken and unpacked: nobody has that yet."""

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What may be committed: the positions, but for what nobody has got, and after an error for what is in hand."""
        in_hand = {} if self.in_hand_counts else self.in_hand.first_offsets()
        held = {**self.undelivered.first_offsets(), **in_hand, **self.taking}
        found = but_for_held(self._subscriptions.consumed(), held)
        if not self.in_hand_counts:
            found.update((tp, offset) for tp, offset in self.in_hand.named().items() if tp in found)
        return found

    def began(self, before: Iterable[tuple[PartitionState, Position | None]]) -> None:
        """Positions will run ahead of what was given. Who ends that stores ``{}`` in :attr:`taking`, last of all."""
        self.taking = {
            row.topic_partition: (position.offset, position.offset_epoch)
            for row, position in before
            if position is not None
        }

    def take(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What an iteration left, so much of it at most."""
        self.taking = self.undelivered.first_offsets()
        found = self.undelivered.take(limit)
        self.give(found)
        return found

    def give(self, found: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """A poll gives these."""
        self.in_hand.put({tp: (rows[0].offset, rows[0].leader_epoch) for tp, rows in found.items()})

    def records(self, parts: list[DecodedChunk]) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What a poll gives, made of what was taken."""
        found = records_by_partition(parts)
        self.give(found)
        return found

    def columns(self, parts: list[DecodedChunk]) -> dict[TopicPartition, RecordColumns]:
        """The same for a poll by columns."""
        found = columns_by_partition(parts)
        self.in_hand.put({tp: columns.first() for tp, columns in found.items()})
        return found

    def iterate(self, parts: list[DecodedChunk]) -> None:
        """The same for an iteration, which gives them one by one."""
        self.undelivered.put_all(records_by_partition(parts))

    def moved(self, tp: TopicPartition) -> None:
        """Its position was changed by its user, who has done with what there was of it."""
        self.undelivered.drop(tp)
        self.in_hand.forget(tp)

    def put_back(self, row: PartitionState) -> None:
        """What an iteration took of this partition and has not given is read again."""
        first = self.undelivered.first_offsets().get(row.topic_partition)
        if first is not None and row.position is not None:
            row.position = replace(row.position, offset=first[0], offset_epoch=first[1])
            self.undelivered.drop(row.topic_partition)

    def keep(self, assigned: Iterable[TopicPartition]) -> None:
        """The other partitions are no longer ours."""
        self.undelivered.keep(assigned)
