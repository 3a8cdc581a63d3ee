"""What a refresh changed: partitions opened, closed, or led by another broker now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlet.spouts.kafka.partition import Broker, Partition


@dataclass(frozen=True, slots=True)
class Move:
    """A partition whose leader changed; either side may be None (no leader for a while)."""

    partition: Partition
    old: Broker | None
    new: Broker | None


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """The difference between two looks, each part in partition order."""

    opened: tuple[Partition, ...] = ()
    closed: tuple[Partition, ...] = ()
    moved: tuple[Move, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.opened or self.closed or self.moved)


Leaders = Mapping[Partition, Broker | None]


def partition_changes(have: Leaders, want: Leaders) -> PartitionChanges:
    """From what a task runs (``have``) to what the last look says it should run (``want``)."""
    return PartitionChanges(
        opened=tuple(sorted(want.keys() - have.keys())),
        closed=tuple(sorted(have.keys() - want.keys())),
        moved=tuple(
            Move(partition, have[partition], want[partition])
            for partition in sorted(have.keys() & want.keys())
            if have[partition] != want[partition]
        ),
    )
