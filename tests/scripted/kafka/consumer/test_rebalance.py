"""The consumer's side of a rebalance, with news that a test invents instead of a group's thread."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka import Consumer, ConsumerRebalanceListener, TopicPartition
from streamlet.kafka.broker_errors import (
    IllegalGeneration,
    NotCoordinator,
    OffsetMetadataTooLarge,
    UnknownMemberId,
)
from streamlet.kafka.client.group_requests import OffsetAndMetadata
from streamlet.kafka.consumer.assignors import CooperativeStickyAssignor
from streamlet.kafka.consumer.assignors.base import decode_subscription, encode_assignment
from streamlet.kafka.consumer.errors import CommitFailed, MembershipFenced, RebalanceUnderWay
from streamlet.kafka.consumer.membership import Fatal, Generation, Joined, MembershipLost, News, RejoinNeeded
from streamlet.kafka.errors import BrokerError, Disconnected, KafkaError
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Cluster, TopicInfo

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST = Generation(1, "m", "range")


class FakeThread:
    """Takes wishes down; its news are the test's."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self.joins: list[tuple[tuple[str, bytes], ...]] = []

    def polled(self, now_s: float) -> None:
        pass

    def join(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self.joins.append(protocols)

    def leave(self) -> None:
        pass

    def expelled(self, error: type[KafkaError]) -> str:
        self.news.clear()
        return f"expelled: {error.__name__}"

    def next_news(self) -> News | None:
        return self.news.pop(0) if self.news else None

    def unheard(self) -> list[News]:
        return self.news

    def stop(self, timeout_s: float) -> None:
        pass

    def topics_of_last_join(self) -> tuple[str, ...]:
        return decode_subscription(self.joins[-1][0][1]).topics


class Rig:
    """A consumer in a group of the test's making; it sends nothing."""

    def __init__(self, **settings: Any) -> None:
        self.consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", **settings)
        self.coordinator = self.consumer._rebalancer
        self.thread = FakeThread()
        self.coordinator._thread = self.thread  # type: ignore[assignment]
        commits = self.coordinator.commits
        assert commits is not None
        commits._offsets = self  # type: ignore[assignment]
        self.committed: list[RequestFuture[Any]] = []
        self.members: list[Any] = []

    def commit(self, offsets: Any, member: Any) -> RequestFuture[Any]:
        self.members.append(member)
        self.committed.append(RequestFuture())
        return self.committed[-1]

    def fetch(self, partitions: Any, *, require_stable: bool = False) -> RequestFuture[Any]:
        return RequestFuture()

    def joined(self, *tps: TopicPartition) -> Joined:
        return Joined(FIRST, encode_assignment(tps), False)


@pytest.fixture
def rig() -> Iterator[Rig]:
    one = Rig(enable_auto_commit=False)
    yield one
    one.consumer.close(0)


class Raises(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        raise ZeroDivisionError


def test_c5_news_behind_a_listener_that_raised_are_heard(rig: Rig) -> None:
    """Else nobody would ever hear that the membership is lost, or that the group rebalances."""
    rig.consumer.subscribe(["t"], listener=Raises())
    rig.coordinator.poll()
    rig.thread.news = [rig.joined(ZERO), MembershipLost("a test")]
    with pytest.raises(ZeroDivisionError):
        rig.coordinator.poll()
    assert rig.consumer.assignment() == {ZERO}
    rig.coordinator.poll()
    assert rig.consumer.assignment() == frozenset()
    assert len(rig.thread.joins) == 2


def test_c1_another_pattern_is_matched_at_once(rig: Rig) -> None:
    """Against the topics known; not only when the cluster changes next, minutes later."""
    rig.consumer.subscribe(pattern="a.*")
    rig.consumer._client.metadata.cluster = Cluster.of([], [TopicInfo("a1"), TopicInfo("b1")])
    rig.consumer._client.metadata.update_version = 1
    rig.coordinator.poll()
    assert rig.thread.topics_of_last_join() == ("a1",)
    rig.thread.news = [Joined(FIRST, encode_assignment([]), False)]
    rig.coordinator.poll()
    rig.consumer.subscribe(pattern="b.*")
    rig.coordinator.poll()
    assert rig.thread.topics_of_last_join() == ("b1",)


def test_c1_the_same_subscription_again_is_no_reason_to_rebalance(rig: Rig) -> None:
    """A program that subscribes in its loop does not stop the group each time."""
    for _again in range(2):
        rig.consumer.subscribe(["t"])
        rig.coordinator.poll()
        rig.thread.news = [] if rig.consumer.assignment() else [rig.joined(ZERO)]
        rig.coordinator.poll()
    assert len(rig.thread.joins) == 1
    rig.consumer.subscribe(["t", "u"])
    rig.coordinator.poll()
    assert len(rig.thread.joins) == 2


def test_c7_nothing_is_handed_out_between_the_last_commit_and_the_revocation() -> None:
    """Positions would run ahead of what is committed, and the next owner would read the records again."""
    rig = Rig(enable_auto_commit=True, partition_assignment_strategy=["range"])
    rig.consumer.subscribe(["t"])
    rig.coordinator.poll()
    rig.thread.news = [rig.joined(ZERO)]
    rig.coordinator.poll()
    rig.consumer.seek(ZERO, 5)
    state = rig.consumer._subscriptions
    assert [row.topic_partition for row in state.fetchable()] == [ZERO]
    rig.thread.news = [RejoinNeeded("a test")]
    rig.coordinator.poll()
    assert len(rig.committed) == 1
    assert state.fetchable() == []
    rig.committed[0].complete({ZERO: None})
    rig.coordinator.poll()
    assert rig.consumer.assignment() == frozenset()
    assert len(rig.thread.joins) == 2
    rig.consumer.close(0)


def begin_commit_before_a_join(rig: Rig) -> None:
    """Subscribe, get ZERO, read on to offset 5, and hear of a rebalance."""
    rig.consumer.subscribe(["t"])
    rig.coordinator.poll()
    rig.thread.news = [rig.joined(ZERO)]
    rig.coordinator.poll()
    rig.consumer.seek(ZERO, 5)
    rig.thread.news = [RejoinNeeded("a test")]
    rig.coordinator.poll()


def before_a_join(clock: ManualClock) -> Rig:
    """One that commits before it gives its partition back, and joins."""
    rig = Rig(enable_auto_commit=True, partition_assignment_strategy=["range"], clock=clock)
    begin_commit_before_a_join(rig)
    assert len(rig.committed) == 1 and len(rig.thread.joins) == 1
    return rig


@pytest.mark.parametrize("ends", [NotCoordinator, Disconnected])
def test_c7_the_commit_before_a_join_is_tried_again(ends: type[KafkaError]) -> None:
    """A coordinator that moves is no reason to read everything since the last commit twice."""
    clock = ManualClock()
    rig = before_a_join(clock)
    if ends is Disconnected:
        rig.committed[0].fail(Disconnected("gone"))
    else:
        rig.committed[0].complete({ZERO: ends})
    rig.coordinator.poll()
    assert len(rig.committed) == 1 and len(rig.thread.joins) == 1, "not before a pause"
    assert 0 < rig.coordinator.next_wake_s(clock.monotonic()) < 1
    clock.advance(rig.coordinator.next_wake_s(clock.monotonic()))
    rig.coordinator.poll()
    assert len(rig.committed) == 2 and len(rig.thread.joins) == 1
    rig.committed[1].complete({ZERO: None})
    rig.coordinator.poll()
    assert len(rig.thread.joins) == 2
    rig.consumer.close(0)


def test_c7_the_commit_before_a_join_holds_it_up_for_seconds_at_most(caplog: pytest.LogCaptureFixture) -> None:
    """And an error that stays does not hold it up at all."""
    clock = ManualClock()
    rig = before_a_join(clock)
    while len(rig.thread.joins) == 1:
        if not rig.committed[-1].done:
            rig.committed[-1].complete({ZERO: NotCoordinator})
        rig.coordinator.poll()
        clock.advance(0.05)
        assert clock.monotonic() < 6.0
    assert len(rig.committed) > 3
    assert "the automatic commit before a rebalance failed" in caplog.text
    rig.consumer.close(0)
    rig = before_a_join(clock)
    rig.committed[0].complete({ZERO: OffsetMetadataTooLarge})
    rig.coordinator.poll()
    assert len(rig.thread.joins) == 2
    rig.consumer.close(0)


def test_c6_a_poll_that_waits_for_long_counts_as_polled_meanwhile() -> None:
    """A wait longer than max_poll_interval_ms would make the member leave although its user polls."""
    clock = ManualClock()
    rig = Rig(enable_auto_commit=False, max_poll_interval_ms=20_000, clock=clock)
    rig.consumer.subscribe("t")
    rig.coordinator.poll()
    assert rig.coordinator.next_wake_s(clock.monotonic()) == 10.0
    rig.consumer.unsubscribe()
    rig.consumer.assign([ZERO])
    assert rig.coordinator.next_wake_s(clock.monotonic()) != 10.0
    rig.consumer.close(0)


def test_c9_a_member_that_was_lost_is_named_as_what_it_was(rig: Rig) -> None:
    """A coordinator does not look at offsets of generation -1, and would take them for partitions of others."""
    assert rig.consumer.group_metadata().generation_id == -1
    rig.consumer.subscribe(["t"])
    rig.coordinator.poll()
    rig.thread.news = [rig.joined(ZERO), MembershipLost("a test")]
    rig.coordinator.poll()
    assert rig.consumer.assignment() == frozenset()
    told = rig.consumer.group_metadata()
    assert (told.generation_id, told.member_id) == (1, "m")
    rig.consumer.unsubscribe()
    assert rig.consumer.group_metadata() == told
    rig.consumer.assign([ZERO])
    assert rig.consumer.group_metadata().generation_id == -1


def test_what_ended_the_membership_is_told_by_each_poll_again(rig: Rig) -> None:
    """One object raised again and again would keep the frames of every poll, and what is in them."""
    rig.consumer.subscribe(["t"])
    rig.coordinator.poll()
    rig.thread.news = [Fatal(MembershipFenced("a test"))]
    raised = []
    for _again in range(3):
        with pytest.raises(MembershipFenced, match="a test") as info:
            rig.coordinator.poll()
        raised.append(info.value)
    assert len(set(map(id, raised))) == 3
    assert len({len(info.traceback) for info in map(pytest.ExceptionInfo.from_exception, raised[1:])}) == 1


def test_c5_a_cooperative_member_reads_on_while_it_commits_and_joins() -> None:
    """What it keeps is not stopped."""
    rig = Rig(enable_auto_commit=True, partition_assignment_strategy=[CooperativeStickyAssignor])
    rig.consumer.subscribe(["t"])
    rig.coordinator.poll()
    rig.thread.news = [rig.joined(ZERO, ONE)]
    rig.coordinator.poll()
    rig.consumer.seek(ZERO, 5)
    rig.thread.news = [RejoinNeeded("a test")]
    rig.coordinator.poll()
    assert [row.topic_partition for row in rig.consumer._subscriptions.fetchable()] == [ZERO]
    rig.committed[0].complete({ZERO: None})
    rig.coordinator.poll()
    assert rig.consumer.assignment() == {ZERO, ONE}
    rig.consumer.close(0)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_c7_a_commit_while_the_group_is_joined_again_says_so_and_succeeds_when_it_is(strategy: str) -> None:
    """The generation is over for the broker before its successor is heard of: that is no silence of this member's."""
    rig = Rig(enable_auto_commit=False, partition_assignment_strategy=[strategy])
    rig.consumer.subscribe(["t"])
    rig.coordinator.poll()
    rig.thread.news = [rig.joined(ZERO)]
    rig.coordinator.poll()
    commits = rig.coordinator.commits
    assert commits is not None
    rig.thread.news = [RejoinNeeded("a test")]
    rig.coordinator.poll()
    future = commits.send({ZERO: OffsetAndMetadata(5)})
    rig.committed[-1].complete({ZERO: IllegalGeneration})
    assert isinstance(future.exception, RebalanceUnderWay) and commits.refused is None
    waits = commits._ends_by_itself(future.exception, [ZERO])
    assert waits is (strategy == "cooperative-sticky"), "the other owns nothing meanwhile, and must poll first"
    if not waits:
        rig.consumer.close(0)
        return
    rig.thread.news = [Joined(Generation(2, "m"), encode_assignment([ZERO]), False)]
    commits.send({ZERO: OffsetAndMetadata(5)})
    assert (rig.members[-2].generation_id, rig.members[-1].generation_id) == (FIRST.generation_id, 2)
    rig.coordinator.poll()
    commits.send({ZERO: OffsetAndMetadata(5)})
    assert rig.members[-1].generation_id == 2 and rig.consumer.assignment() == {ZERO}
    rig.consumer.close(0)


def test_c7_a_commit_before_a_join_that_was_given_up_does_not_stand_for_the_next() -> None:
    """unsubscribe() while it was under way; the next rebalance commits again."""
    rig = Rig(enable_auto_commit=True, partition_assignment_strategy=["range"])
    for round_ in (1, 2):
        begin_commit_before_a_join(rig)
        assert len(rig.committed) == round_
        rig.consumer.unsubscribe()
        rig.committed[-1].complete({ZERO: None})
    rig.consumer.close(0)


class Lost(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.lost: list[Collection[TopicPartition]] = []

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.lost.append(lost)


@pytest.mark.parametrize("lost", [True, False])
def test_c3_a_poll_that_hears_of_a_loss_commits_nothing_that_was_due(lost: bool) -> None:
    """The partitions are others' by then: what the group says is heard before the commit's time is looked at."""
    clock = ManualClock()
    rig = Rig(enable_auto_commit=True, clock=clock)
    rig.consumer.subscribe(["t"])
    rig.coordinator.poll()
    rig.thread.news = [rig.joined(ZERO)]
    rig.coordinator.poll()
    rig.consumer.seek(ZERO, 5)
    clock.advance(rig.consumer.config.auto_commit_interval_ms / 1000)
    rig.thread.news = [MembershipLost("a test")] if lost else []
    rig.coordinator.poll()
    assert len(rig.committed) == (0 if lost else 1)
    rig.consumer.close(0)


def test_c6_a_refused_commit_of_a_consumer_that_never_joins_is_not_answered_with_a_poll(rig: Rig) -> None:
    """Its partitions were assigned by hand, and the group has living members."""
    rig.consumer.assign([ZERO])
    told: list[Any] = []
    rig.consumer.commit_async({ZERO: 5}, lambda _offsets, error: told.append(error))
    rig.committed[0].complete({ZERO: UnknownMemberId})
    rig.coordinator.poll()
    assert "group 'g' has living members" in str(told[0]) and "Poll until" not in str(told[0])


@pytest.mark.parametrize("error", [UnknownMemberId, IllegalGeneration])
def test_c6_a_refused_commit_ends_the_membership_before_more_is_handed_out(rig: Rig, error: type[BrokerError]) -> None:
    """The others have the partitions already; a heartbeat would say so only seconds later."""
    listener = Lost()
    rig.consumer.subscribe(["t"], listener=listener)
    rig.coordinator.poll()
    rig.thread.news = [rig.joined(ZERO)]
    rig.coordinator.poll()
    rig.consumer.commit_async({ZERO: 5}, lambda _offsets, told: refusals.append(told))
    refusals: list[Any] = []
    rig.committed[0].complete({ZERO: error})
    rig.coordinator.poll()
    assert [type(told) for told in refusals] == [CommitFailed]
    assert listener.lost == [(ZERO,)] and rig.consumer.assignment() == frozenset()
    assert len(rig.thread.joins) == 2
    with pytest.raises(CommitFailed, match=f"expelled: {error.__name__}"):
        rig.consumer.commit({ZERO: 5})


def test_c6_a_commit_refused_under_an_older_generation_ends_nothing(rig: Rig) -> None:
    """The group had gone on with us: the new share is heard of first."""
    listener = Lost()
    rig.consumer.subscribe(["t"], listener=listener)
    rig.coordinator.poll()
    rig.thread.news = [rig.joined(ZERO)]
    rig.coordinator.poll()
    rig.consumer.commit_async({ZERO: 5}, lambda *_: None)
    rig.committed[0].complete({ZERO: IllegalGeneration})
    rig.thread.news = [Joined(Generation(2, "m", "range"), encode_assignment([ZERO]), False)]
    rig.coordinator.poll()
    assert listener.lost == [] and rig.consumer.assignment() == {ZERO}
    assert len(rig.thread.joins) == 1


class AsksPosition(ConsumerRebalanceListener):
    def __init__(self, consumer: Consumer) -> None:
        self.consumer, self.positions = consumer, dict[TopicPartition, int]()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.positions = {tp: self.consumer.position(tp, timeout=5) for tp in assigned}


def test_c5_a_listener_that_asks_for_a_position_is_answered_before_it_returns(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The committed offset, asked for there and then: nothing else asks before the listener has returned."""

    def fetch(tps: Collection[TopicPartition], **_settings: Any) -> RequestFuture[Any]:
        future: RequestFuture[Any] = RequestFuture()
        future.complete({tp: OffsetAndMetadata(40 + tp.partition) for tp in tps})
        return future

    monkeypatch.setattr(rig, "fetch", fetch)
    listener = AsksPosition(rig.consumer)
    rig.consumer.subscribe(["t"], listener=listener)
    rig.coordinator.poll()
    rig.thread.news = [rig.joined(ZERO, ONE)]
    rig.coordinator.poll()
    assert listener.positions == {ZERO: 40, ONE: 41}
