"""Progress in a consumer group: an answer belongs to the claim it was asked for by."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.kafka.broker_errors import (
    BrokerRequestTimedOut,
    FencedInstanceId,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMemberId,
)
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata
from streamlet.kafka.errors import BrokerError
from streamlet.spouts.kafka.activity import Activity, NextPoll, Steps
from streamlet.spouts.kafka.errors import Deposed, NotAMember
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.stores.group_offsets import KafkaGroupOffsets
from streamlet.spouts.kafka.stores.offset_store import CommitPosition, Owner, Reason, StartDecision, StoredOffset

P = Partition("lines", 0)


MEMBER = ConsumerGroupMetadata("demo", 7, "m-1", "run-1-lines-0")


class Member:
    """A member of the group, unless the test takes it away."""

    member: ConsumerGroupMetadata | None = MEMBER
    is_fenced = False

    def granted(self) -> Steps[ConsumerGroupMetadata]:
        again = NextPoll()
        while self.member is None:
            yield again
        return self.member

    def fenced(self) -> None:
        self.is_fenced = True


class Group:
    """A group in memory; ``done`` is whether it answers."""

    group_id = "demo"

    def __init__(self) -> None:
        self.offsets: dict[Any, Any] = {}
        self.answers: list[Any] = []
        self.done = True

    def fetch(self, wanted: Any, *, require_stable: bool) -> Any:
        return self._answer({each: self.offsets.get(each) for each in wanted})

    def commit(self, rows: dict[Any, Any], member: Any) -> Any:
        assert member == MEMBER
        self.offsets.update(rows)
        return self._answer(dict.fromkeys(rows))

    def _answer(self, value: Any) -> Any:
        self.answers.append(SimpleNamespace(value=value, done=self.done))
        return self.answers[-1]


def from_three(stored: StoredOffset | None) -> Steps[StartDecision]:
    yield from ()
    return StartDecision(3, Reason.FIRST_EARLIEST)


def test_a_partition_released_during_a_commit_stops_nobody() -> None:
    """It went with its topic while the group's offsets were read back."""
    store, group = KafkaGroupOffsets(None, "demo", Owner("run-1", "words"), Member()), Group()  # type: ignore[arg-type]
    store._group = group  # type: ignore[assignment]
    opening = Activity(store.open(P, None, None, from_three))
    assert opening.poll() and opening.take().offset == 3
    group.done = False
    commit = Activity(store.commit({P: CommitPosition(5)}))
    assert not commit.poll()
    store.release(P)
    while not commit.poll():
        group.answers[-1].done = True
    assert commit.take() == {P: None}
    (row,) = group.offsets.values()
    assert row.offset == 5


class LostAnswers(Group):
    """Carries the next commit out and loses its answer, by an error of the request or of the partition."""

    lose: Any = None

    def commit(self, rows: dict[Any, Any], member: Any) -> Any:
        lose, self.lose = self.lose, None
        answer = super().commit(rows, member)
        if isinstance(lose, type):
            answer.value = dict.fromkeys(rows, lose)
        return Failed(lose) if isinstance(lose, Exception) else answer


class Failed:
    """A request that failed."""

    done = True

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def value(self) -> Any:
        raise self._error


of_both = pytest.mark.parametrize(
    "lost", [BrokerRequestTimedOut, BrokerRequestTimedOut("no answer")], ids=["partition", "request"]
)


def opened(group: Group, run: str = "run-1") -> KafkaGroupOffsets:
    store = KafkaGroupOffsets(None, "demo", Owner(run, "words"), Member())  # type: ignore[arg-type]
    store._group = group  # type: ignore[assignment]
    finish(store.open(P, None, None, from_three))
    return store


def finish(steps: Steps[Any]) -> Any:
    activity = Activity(steps)
    while not activity.poll():
        pass
    return activity.take()


@of_both
def test_a_group_claim_whose_answer_was_lost_deposes_nobody(lost: Any) -> None:
    group = LostAnswers()
    store = opened(group)
    group.lose = lost
    with pytest.raises(BrokerRequestTimedOut):
        finish(store.open(P, None, None, from_three))
    assert finish(store.open(P, None, None, from_three)).offset == 3
    assert finish(store.commit({P: CommitPosition(5)})) == {P: None}


@of_both
def test_a_claim_without_an_answer_takes_nothing_back_from_a_new_owner(lost: Any) -> None:
    group = LostAnswers()
    store = opened(group)
    group.lose = lost
    with pytest.raises(BrokerRequestTimedOut):
        finish(store.open(P, None, None, from_three))
    opened(group, "run-2")
    with pytest.raises(Deposed):
        finish(store.open(P, None, None, from_three))


def test_while_the_group_rebalances_nothing_is_committed_and_the_next_round_tries_again() -> None:
    group = Group()
    store = opened(group)
    before = dict(group.offsets)
    store._place.member = None  # type: ignore[misc]
    (outcome,) = finish(store.commit({P: CommitPosition(5)})).values()
    assert isinstance(outcome, NotAMember) and outcome.retriable
    assert group.offsets == before


def test_nothing_is_read_and_claimed_before_the_run_has_the_topic() -> None:
    """What the former owner commits last is where the next one begins."""
    group, place = Group(), Member()
    place.member = None
    store = KafkaGroupOffsets(None, "demo", Owner("run-2", "words"), place)  # type: ignore[arg-type]
    store._group = group  # type: ignore[assignment]
    opening = Activity(store.open(P, None, None, from_three))
    for _ in range(3):
        assert not opening.poll()
    assert not group.answers
    place.member = MEMBER
    while not opening.poll():
        pass
    assert opening.take().offset == 3


@pytest.mark.parametrize("refused", [IllegalGeneration, RebalanceInProgress, UnknownMemberId])
def test_a_commit_refused_for_its_generation_deposes_nobody(refused: type[BrokerError]) -> None:
    """The heartbeats tell what becomes of the membership."""
    group = LostAnswers()
    store = opened(group)
    group.lose = refused
    (outcome,) = finish(store.commit({P: CommitPosition(5)})).values()
    assert isinstance(outcome, NotAMember)


def test_a_commit_refused_as_fenced_ends_the_place_at_once() -> None:
    group = LostAnswers()
    store = opened(group)
    group.lose = FencedInstanceId
    finish(store.commit({P: CommitPosition(5)}))
    assert store._place.is_fenced  # type: ignore[attr-defined]


def test_a_commit_that_our_own_next_membership_fenced_ends_nothing() -> None:
    """A member that was forgotten while it slept has joined again, under another member id."""
    group = LostAnswers()
    store = opened(group)
    group.lose, group.done = FencedInstanceId, False
    commit = Activity(store.commit({P: CommitPosition(5)}))
    while not commit.poll():
        group.answers[-1].done = True
        store._place.member = replace(MEMBER, member_id="m-2")  # type: ignore[misc]
    assert isinstance(commit.take()[P], NotAMember)
    assert not store._place.is_fenced  # type: ignore[attr-defined]


def test_a_run_that_was_away_finds_that_another_one_had_its_partitions_meanwhile() -> None:
    """The other one is gone again, so the group itself tells nothing."""
    group = Group()
    store = opened(group)
    finish(store.check())
    opened(group, "run-2")
    with pytest.raises(Deposed):
        finish(store.check())
