"""The context of one poll: from when its records count as handed out, and what an interrupt does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from streamlet.kafka.consumer.delivery import HandedOut, Taking
from streamlet.kafka.consumer.errors import ConcurrentUse
from streamlet.kafka.consumer.subscription_state import Position, SubscriptionState
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition

TP = TopicPartition("t", 0)


class Rig:
    """One partition at offset 3, of which a poll takes up to offset 8."""

    def __init__(self) -> None:
        self.subscriptions = SubscriptionState()
        self.subscriptions.assign_from_user([TP])
        self.subscriptions.seek(TP, Position(3))
        self.handed_out = HandedOut(self.subscriptions)

    def take(self) -> None:
        row = self.subscriptions.require(TP)
        self.handed_out.note_positions([row])
        row.position = Position(8)

    @property
    def consumed(self) -> int:
        """What a commit would store."""
        return self.handed_out.consumed()[TP].offset

    @property
    def position(self) -> int:
        position = self.subscriptions.require(TP).position
        assert position is not None
        return position.offset


def test_records_count_as_handed_out_only_after_the_lock_is_released() -> None:
    """A signal's handler may commit in the middle of the release."""
    rig, seen = Rig(), []

    @contextmanager
    def alone() -> Iterator[None]:
        yield
        seen.append(rig.consumed)

    with Taking(rig.handed_out, alone()):
        rig.take()
        seen.append(rig.consumed)
    assert (seen, rig.consumed) == ([3, 3], 8)


@pytest.mark.parametrize(("error", "position"), [(KeyboardInterrupt, 3), (MemoryError, 3), (KafkaError, 8)])
def test_an_interrupt_moves_positions_back_and_an_error_of_a_partition_does_not(
    error: type[BaseException], position: int
) -> None:
    rig = Rig()
    with pytest.raises(error), Taking(rig.handed_out, nullcontext()):
        rig.take()
        raise error("a test")
    assert (rig.position, rig.consumed) == (position, position)


def test_a_refused_second_thread_ends_nothing_of_the_first_ones_poll() -> None:
    rig = Rig()

    @contextmanager
    def refused() -> Iterator[None]:
        raise ConcurrentUse("a test")
        yield

    with Taking(rig.handed_out, nullcontext()):
        rig.take()
        with pytest.raises(ConcurrentUse), Taking(rig.handed_out, refused()):
            pass
        assert rig.consumed == 3
    assert rig.consumed == 8
