"""Positions and the moves between fetch states."""

from __future__ import annotations

import re

import pytest

from streamlet.kafka import Cluster, TopicPartition
from streamlet.kafka.consumer.errors import IllegalSubscription, NotAssigned
from streamlet.kafka.consumer.subscription_state import (
    FetchState,
    Position,
    ResetStrategy,
    SubscriptionState,
)
from streamlet.kafka.metadata.cluster import TopicInfo

A, B, C = (TopicPartition("t", number) for number in range(3))


def assigned(*tps: TopicPartition) -> SubscriptionState:
    state = SubscriptionState()
    state.assign_from_user(tps)
    return state


def test_c1_the_three_kinds_exclude_one_another() -> None:
    """Until unsubscribe."""
    state = SubscriptionState()
    state.subscribe(["t"])
    for other in (lambda: state.assign_from_user([A]), lambda: state.subscribe_pattern(re.compile("t"))):
        with pytest.raises(IllegalSubscription, match="exclude one another"):
            other()
    state.unsubscribe()
    assert state.assign_from_user([A])
    assert not state.assign_from_user([A]), "no change"


def test_c1_a_pattern_matches_whole_names_and_not_internal_topics() -> None:
    """As Java's, but for fullmatch: a name that only begins like it is another topic."""
    state = SubscriptionState()
    state.subscribe_pattern(re.compile("t.?"))
    cluster = Cluster.of([], [TopicInfo("t1"), TopicInfo("t12"), TopicInfo("t_", is_internal=True)])
    assert state.topics_matched(cluster)
    assert state.topics == {"t1"}
    assert not state.topics_matched(cluster)


def test_c2_only_a_valid_position_is_fetched() -> None:
    """Not before it is known, nor while paused, revoked or before its callback."""
    state = assigned(A)
    assert state.fetchable() == []
    state.seek(A, Position(5))
    row = state.require(A)
    assert state.fetchable() == [row]
    for flag in ("paused", "pending_revocation", "pending_callback"):
        setattr(row, flag, True)
        assert state.fetchable() == []
        setattr(row, flag, False)
    state.request_reset(A, ResetStrategy.EARLIEST)
    assert state.fetchable() == []
    assert state.consumed() == {}


def test_c2_a_move_that_is_not_in_the_table_is_a_fault_of_ours() -> None:
    """A reset cannot turn into a check."""
    state = assigned(A)
    state.request_reset(A, ResetStrategy.LATEST)
    with pytest.raises(RuntimeError, match="AWAIT_RESET to AWAIT_VALIDATION"):
        state.require(A).move(FetchState.AWAIT_VALIDATION)


def test_c2_an_answer_that_is_out_of_date_changes_nothing() -> None:
    """The user sought elsewhere, asked for the other end, or lost the partition meanwhile."""
    state = assigned(A, B)
    state.request_reset(A, ResetStrategy.EARLIEST)
    assert not state.maybe_reset_to(A, ResetStrategy.LATEST, Position(9))
    assert not state.maybe_reset_to(C, ResetStrategy.EARLIEST, Position(9))
    state.seek(A, Position(3))
    assert not state.maybe_reset_to(A, ResetStrategy.EARLIEST, Position(9))
    assert state.require(A).position == Position(3)


def test_c2_a_new_leader_epoch_makes_a_position_await_a_check() -> None:
    """Only where the epoch of the last record is known; an older epoch is no news."""
    state = assigned(A, B)
    state.seek(A, Position(5, offset_epoch=2, leader_epoch=2))
    state.seek(B, Position(5))
    for tp in (A, B):
        state.leader_changed(tp, 3)
    assert state.require(A).state is FetchState.AWAIT_VALIDATION
    assert state.require(B).state is FetchState.FETCHING
    asked = state.require(A).position
    assert asked == Position(5, 2, 3)
    state.leader_changed(A, 4)
    assert not state.validated(A, asked), "that answer is of an older leader"
    state.leader_changed(A, 3)
    assert state.validated(A, Position(5, 2, 4))
    assert state.require(A).fetchable


def test_c2_a_second_new_leader_is_asked_at_once_though_the_first_has_not_answered() -> None:
    """The first one's answer will be of no use; waiting for it would stop the partition for a request time-out."""
    state = assigned(A)
    state.seek(A, Position(5, offset_epoch=2, leader_epoch=2))
    state.leader_changed(A, 3)
    state.retry_at([A], 31.0)  # asked, at second 0
    state.leader_changed(A, 4)
    assert [row.topic_partition for row in state.in_state(FetchState.AWAIT_VALIDATION, 0.0)] == [A]


def test_c2_what_stays_over_a_rebalance_keeps_its_state() -> None:
    """Position and pause; what comes back after it went begins again."""
    state = SubscriptionState()
    state.subscribe(["t"])
    state.assign_from_subscribed([A, B], [A, B])
    for tp in (A, B):
        state.require(tp).pending_callback = False
        state.seek(tp, Position(7))
    state.require(A).paused = True
    state.assign_from_subscribed([A, C], [C])
    assert state.require(A).paused
    assert state.require(A).position == Position(7)
    assert state.require(C).pending_callback
    state.assign_from_subscribed([B], [B])
    assert state.require(B).position is None
    with pytest.raises(NotAssigned, match="assigned: t-1"):
        state.require(A)


def test_c4_a_partition_that_delivered_goes_to_the_end() -> None:
    """So that none starves behind a busy one."""
    state = assigned(A, B, C)
    state.move_to_end(A)
    assert state.assigned == (B, C, A)
