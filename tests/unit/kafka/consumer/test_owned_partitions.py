"""Partitions that change hands: what is committed, heard and read, in which order."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.kafka import TopicPartition
from streamlet.kafka.consumer.owned_partitions import ConsumerRebalanceListener, OwnedPartitions, checked_listener
from streamlet.kafka.consumer.subscription_state import SubscriptionState

A, B, C = (TopicPartition("t", number) for number in range(3))


class Rig(ConsumerRebalanceListener):
    """A consumer's partitions, its own listener: what happens, in order, with the partitions that are read then."""

    def __init__(self, *, automatic: bool = True) -> None:
        self.happened: list[tuple[str, tuple[TopicPartition, ...], tuple[TopicPartition, ...]]] = []
        self.raises = False
        self.subscriptions = SubscriptionState()
        self.subscriptions.subscribe(["t"])
        parts: Any = SimpleNamespace(
            set_topics=lambda topics: None,
            forget_unassigned=lambda: None,
            keep=lambda assigned: None,
            consumed=lambda: dict.fromkeys((A, B, C), 5),
            automatic=automatic,
            commit_sync=lambda offsets, timeout_s: self.note("commit", offsets),
            restart_timer=lambda: None,
        )
        self.it = OwnedPartitions(parts, self.subscriptions, parts, parts, parts, "g")
        self.it.take_over((A, B))
        self.it.listener = self

    def note(self, what: str, tps: Collection[TopicPartition]) -> None:
        self.happened.append((what, tuple(tps), self.subscriptions.assigned))
        if self.raises and what != "commit":
            raise ZeroDivisionError

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.note("revoked", revoked)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.note("assigned", assigned)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.note("lost", lost)


def test_what_a_share_lacks_is_committed_and_revoked_before_what_it_adds_is_announced() -> None:
    rig = Rig()
    rig.it.take_over((B, C))
    assert rig.happened == [("commit", (A,), (A, B)), ("revoked", (A,), (A, B)), ("assigned", (C,), (B, C))]


def test_without_automatic_commits_the_listener_alone_commits() -> None:
    rig = Rig(automatic=False)
    rig.it.take_over((B,))
    assert [what for what, *_ in rig.happened] == ["revoked", "assigned"]


def test_a_lost_partition_is_not_revoked_and_nothing_of_it_is_committed() -> None:
    """Others may own it already; once nothing is owned, the listener hears of no second loss."""
    rig = Rig()
    rig.it.lose()
    rig.it.lose()
    assert rig.happened == [("lost", (A, B), ())]


@pytest.mark.parametrize(
    ("change", "read"),
    [(lambda it: it.take_over((B, C)), (B, C)), (lambda it: it.keep((B,)), (B,)), (lambda it: it.lose(), ())],
    ids=["another share", "a join", "a loss"],
)
def test_a_listener_that_raises_keeps_no_partition(
    change: Callable[[OwnedPartitions], None], read: tuple[TopicPartition, ...]
) -> None:
    rig = Rig()
    rig.raises = True
    with pytest.raises(ZeroDivisionError):
        change(rig.it)
    assert rig.subscriptions.assigned == read


def test_a_partition_that_was_announced_is_fetched_though_its_listener_raised() -> None:
    rig = Rig()
    rig.raises = True
    with pytest.raises(ZeroDivisionError):
        rig.it.take_over((A, B, C))
    assert not any(row.pending_callback for row in rig.subscriptions.rows())


def test_a_listener_that_is_an_empty_list_too_is_heard() -> None:
    class Journal(ConsumerRebalanceListener, list[str]):
        """Keeps what it heard."""

    journal = Journal()
    assert checked_listener(journal) is journal
    assert type(checked_listener(None)) is ConsumerRebalanceListener
