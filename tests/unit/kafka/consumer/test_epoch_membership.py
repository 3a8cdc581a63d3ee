"""A membership of the newer group protocol: what is sent when, and what a member may believe."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streamlet.base.backoff import Backoff, no_jitter
from streamlet.kafka.broker_errors import TopicAuthorizationFailed
from streamlet.kafka.consumer.epoch_membership import (
    NOTHING,
    EpochBeat,
    EpochMembership,
    EpochSettings,
    EpochState,
    Farewell,
)
from streamlet.kafka.consumer.errors import MembershipFenced
from streamlet.kafka.consumer.membership import (
    NO_GENERATION,
    Assigned,
    Fatal,
    FindCoordinator,
    MembershipLost,
    News,
    PartitionsById,
    TopicsRefused,
)
from streamlet.kafka.errors import Disconnected, KafkaError, UnsupportedVersion
from streamlet.kafka.protocol.messages.groups import (
    AWAY_EPOCH,
    LEAVING_EPOCH,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
    MemberTopicPartitions,
)
from tests.unit.kafka.consumer.played_coordinator import FENCED_EPOCH, TOPIC, UNKNOWN_MEMBER, PlayedCoordinator

T = frozenset({"t"})


def member_of(name: str = "m", instance: str | None = None, **changes: Any) -> EpochMembership:
    rows: dict[str, Any] = {"rack": None, "assignor": None, "max_poll_interval_s": 60.0} | changes
    return EpochMembership(
        EpochSettings("g", name, instance, retry=Backoff(0.1, 1.0, jitter=0.0), **rows),
        no_jitter,
        coordinator_known=True,
    )


def given_to(*numbers: int, epoch: int = 1) -> ConsumerGroupHeartbeatResponse:
    rows = (MemberTopicPartitions(topic_id=TOPIC, partitions=numbers),) if numbers else ()
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=5000, assignment=MemberAssignment(topic_partitions=rows)
    )


def unchanged(epoch: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=5000)


def beat(member: EpochMembership, now_s: float) -> EpochBeat:
    action = member.step(now_s)
    assert isinstance(action, EpochBeat)
    return action


def takes(member: EpochMembership, *numbers: int, share: int = -1) -> None:
    """Have the user's thread read these of the newest share, or of one before it."""
    member.reconciled({TOPIC: frozenset(numbers)}, member._shares[share])


def stable(*numbers: int, **settings: Any) -> EpochMembership:
    """A member in epoch 1 that reads these partitions; joined at 0 s, told so at 0 s."""
    member = member_of(**settings)
    member.join(T, 0.0)
    member.beat_answered(beat(member, 0.0), given_to(*numbers), 0.0)
    if numbers:
        takes(member, *numbers)
        member.beat_answered(beat(member, 0.0), unchanged(1), 0.0)
    member.news.clear()
    assert member.state is EpochState.STABLE
    return member


def test_c5_a_join_says_everything_and_what_follows_only_what_changed() -> None:
    member = member_of(instance="i", rack="r", assignor="uniform")
    member.join(T, 0.0)
    first = beat(member, 0.0)
    assert (first.request.member_epoch, first.request.rebalance_timeout_ms) == (0, 60_000)
    assert (first.request.subscribed_topic_names, first.request.topic_partitions) == (("t",), ())
    assert (first.request.instance_id, first.request.rack_id, first.request.server_assignor) == ("i", "r", "uniform")
    assert member.step(0.0) is None, "one at a time"
    member.beat_answered(first, given_to(0, 1), 0.1)
    assert member.news == [Assigned(member.identity, {TOPIC: frozenset({0, 1})})]
    assert member.state is EpochState.RECONCILING
    assert member.step(4.9) is None
    second = beat(member, 5.0).request
    assert (second.member_epoch, second.rebalance_timeout_ms, second.subscribed_topic_names) == (1, -1, None)
    assert (second.topic_partitions, second.rack_id, second.server_assignor) == (None, None, None)
    assert second.instance_id == "i"


def test_c5_what_was_taken_is_told_at_once() -> None:
    """The others wait for what this one gives back."""
    member = stable(0, 1)
    assert member.next_wake_s(1.0) == 4.0
    late = beat(member, 5.0)
    member.beat_answered(late, given_to(0), 5.0)
    assert member.state is EpochState.RECONCILING
    assert member.step(5.1) is None, "not before the user's thread has given it back"
    takes(member, 0)
    assert member.state is EpochState.ACKNOWLEDGING
    assert member.next_wake_s(5.1) == 0.0
    told = beat(member, 5.1).request
    assert told.topic_partitions == (MemberTopicPartitions(topic_id=TOPIC, partitions=(0,)),)
    assert member.state is EpochState.STABLE


def test_c5_another_share_while_one_is_taken_is_heard_and_taken_too() -> None:
    member = stable(0, 1)
    member.beat_answered(beat(member, 5.0), given_to(0, epoch=2), 5.0)
    member.beat_answered(beat(member, 10.0), given_to(0, 1, epoch=3), 10.0)
    shares = [row.partitions for row in member.news if isinstance(row, Assigned)]
    assert shares == [{TOPIC: frozenset({0})}, {TOPIC: frozenset({0, 1})}]
    takes(member, 0, share=1)
    beat(member, 10.0)
    assert member.state is EpochState.RECONCILING, "the last share is not read yet"


def says(*numbers: int) -> tuple[MemberTopicPartitions, ...]:
    return (MemberTopicPartitions(topic_id=TOPIC, partitions=numbers),)


def test_c5_what_was_given_and_taken_back_between_two_polls_is_told_too() -> None:
    """The coordinator gives it to nobody else before it hears that; only the user's thread knows it."""
    member = stable(0)
    member.beat_answered(beat(member, 5.0), given_to(0, 1, epoch=2), 5.0)
    member.beat_answered(beat(member, 10.0), given_to(0, epoch=2), 10.0)
    assert member.step(10.0) is None
    takes(member, 0)
    assert beat(member, 10.0).request.topic_partitions == says(0)
    assert member.state is EpochState.STABLE


def test_c5_what_is_taken_back_while_it_is_being_taken_is_not_told_as_never_read() -> None:
    """A listener may commit for it: the next owner must wait for the end of that."""
    member = stable(0)
    member.beat_answered(beat(member, 5.0), given_to(0, 1), 5.0)
    member.beat_answered(beat(member, 10.0), given_to(0), 10.0)
    for now_s in (10.0, 14.9):
        assert member.step(now_s) is None
    quiet = beat(member, 15.0)
    assert quiet.request.topic_partitions is None
    member.beat_answered(quiet, unchanged(1), 15.0)
    takes(member, 0, 1, share=1)
    taken = beat(member, 15.0)
    assert taken.request.topic_partitions == says(0, 1)
    member.beat_answered(taken, unchanged(1), 15.0)
    assert member.state is EpochState.RECONCILING
    takes(member, 0)
    assert beat(member, 15.0).request.topic_partitions == says(0)
    assert member.state is EpochState.STABLE


def test_c5_after_a_lost_answer_what_may_be_being_taken_is_said_too() -> None:
    """The lost answer may have asked it back."""
    member = stable(0)
    member.beat_answered(beat(member, 5.0), given_to(0, 1), 5.0)
    for lost_s in (10.0, 11.0):
        member.beat_failed(beat(member, lost_s), Disconnected("cut"), lost_s)
        assert isinstance(member.step(lost_s + 0.5), FindCoordinator)
        member.coordinator_found()
    full = beat(member, 12.0)
    assert full.request.topic_partitions == says(0, 1)
    member.beat_answered(full, given_to(0), 12.0)
    takes(member, 0)
    assert beat(member, 12.0).request.topic_partitions == says(0)


def test_c5_another_share_that_comes_before_the_last_was_acknowledged_does_not_keep_it_back() -> None:
    """The new one may wait for a topic's name, and others wait for what was given back."""
    member = stable(0, 1)
    member.beat_answered(beat(member, 5.0), given_to(0, epoch=1), 5.0)
    under_way = beat(member, 10.0)
    takes(member, 0)
    member.beat_answered(under_way, given_to(0, 2, epoch=1), 10.1)
    assert beat(member, 10.1).request.topic_partitions == says(0, 2), "not 1, which was asked back"
    assert member.state is EpochState.RECONCILING


def test_c5_an_acknowledgement_names_what_came_after_the_share_that_it_answers() -> None:
    """The user's thread may be taking that by now, and the coordinator gives away at once what is not named."""
    member = stable(0)
    member.beat_answered(beat(member, 5.0), given_to(0, 1), 5.0)
    member.beat_answered(beat(member, 10.0), given_to(0, 1, 2), 10.0)
    takes(member, 0, 1, share=1)
    acknowledged = beat(member, 10.0)
    assert acknowledged.request.topic_partitions == says(0, 1, 2)
    member.beat_answered(acknowledged, given_to(0, 1, epoch=2), 10.1)
    takes(member, 0, 1, 2, share=1)
    takes(member, 0, 1)
    assert beat(member, 10.1).request.topic_partitions == says(0, 1)
    assert member.state is EpochState.STABLE


def test_c5_what_has_no_name_yet_is_named_to_the_coordinator_until_it_is_taken_back() -> None:
    """It is read as soon as metadata tells its name, without another word of the coordinator."""
    member = stable()
    member.beat_answered(beat(member, 5.0), given_to(0, 1), 5.0)
    takes(member, 0)
    acknowledged = beat(member, 5.0)
    assert acknowledged.request.topic_partitions == says(0, 1)
    member.beat_answered(acknowledged, given_to(0, epoch=2), 5.1)
    takes(member, 0)
    assert beat(member, 5.1).request.topic_partitions == says(0)


def test_c5_another_subscription_is_told_at_once_and_only_it() -> None:
    member = stable(0)
    member.subscribe(frozenset({"t", "a"}))
    request = beat(member, 1.0).request
    assert (request.member_epoch, request.subscribed_topic_names, request.topic_partitions) == (1, ("a", "t"), None)


def test_c5_after_a_lost_answer_everything_is_said_again() -> None:
    """The coordinator may have moved the epoch: it takes the one before only from who says what it reads."""
    member = stable(0, 1)
    member.beat_failed(beat(member, 5.0), Disconnected("cut"), 5.5)
    assert member.state is EpochState.STABLE and member.identity is not NO_GENERATION
    assert isinstance(member.step(5.7), FindCoordinator)
    member.coordinator_found()
    again = beat(member, 5.7).request
    assert again.member_epoch == 1 and again.subscribed_topic_names == ("t",)
    assert again.topic_partitions == (MemberTopicPartitions(topic_id=TOPIC, partitions=(0, 1)),)


@pytest.mark.parametrize("code", [FENCED_EPOCH, UNKNOWN_MEMBER])
def test_c6_a_refused_member_has_lost_all_and_joins_only_when_the_user_knows(code: int) -> None:
    """A commit of lost partitions must not carry the epoch of the next membership."""
    member = stable(0, 1)
    member.beat_answered(beat(member, 5.0), ConsumerGroupHeartbeatResponse(error_code=code), 5.0)
    assert member.state is EpochState.FENCED and member.identity is NO_GENERATION
    (lost,) = member.news
    assert isinstance(lost, MembershipLost)
    assert "the last heartbeat it took was sent 5.0 s ago" in lost.reason
    assert member.step(100.0) is None and member.next_wake_s(100.0) == float("inf")
    member.reconciled({TOPIC: frozenset({0})}, {})  # of the share that is lost
    member.join(T, 100.0)
    assert code == UNKNOWN_MEMBER or isinstance(member.step(100.0), Farewell)
    request = beat(member, 100.0).request
    assert (request.member_epoch, request.member_id, request.topic_partitions) == (0, "m", ())


def test_c6_another_subscription_does_not_join_for_a_user_who_has_not_heard_that_all_is_lost() -> None:
    member = stable(0)
    member.beat_answered(beat(member, 5.0), ConsumerGroupHeartbeatResponse(error_code=FENCED_EPOCH), 5.0)
    member.subscribe(frozenset({"t", "a"}))
    assert (member.state, member.step(6.0)) == (EpochState.FENCED, None)
    member.join(frozenset({"t", "a"}), 7.0)
    assert isinstance(member.step(7.0), Farewell)
    assert beat(member, 7.0).request.subscribed_topic_names == ("a", "t")


@pytest.mark.parametrize(("code", "leaves"), [(FENCED_EPOCH, True), (UNKNOWN_MEMBER, False)])
def test_c6_a_join_that_is_refused_is_tried_again_after_a_pause(code: int, leaves: bool) -> None:
    """Brokers before KAFKA-19233 refuse it while they have the old member: that leaves first."""
    member = member_of()
    member.join(T, 0.0)
    now_s = 0.0
    for pause_s in (0.1, 0.2, 0.4):
        member.beat_answered(beat(member, now_s), ConsumerGroupHeartbeatResponse(error_code=code), now_s)
        assert (member.state, member.news) == (EpochState.JOINING, [])
        action = member.step(now_s)
        assert isinstance(action, Farewell) if leaves else action is None
        assert member.step(now_s) is None and member.next_wake_s(now_s) == pytest.approx(pause_s)
        now_s += pause_s
    member.beat_answered(beat(member, now_s), given_to(0), now_s)
    assert member.epoch == 1


def test_c6_a_member_whose_epoch_was_refused_leaves_before_it_joins_again() -> None:
    """The coordinator still has it, and may refuse its join; a user who closes instead does not keep others waiting."""
    for joins in (True, False):
        member = stable(0)
        member.beat_answered(beat(member, 5.0), ConsumerGroupHeartbeatResponse(error_code=FENCED_EPOCH), 5.0)
        assert member.step(6.0) is None and member.next_wake_s(6.0) == float("inf"), "its user still reads"
        member.join(T, 6.0) if joins else member.leave()
        assert member.next_wake_s(6.0) == 0.0
        assert isinstance(member.step(6.0), Farewell)
        action = member.step(6.0)
        assert (isinstance(action, EpochBeat) and action.request.member_epoch == 0) if joins else action is None


def test_c6_without_a_coordinator_a_refused_member_leaves_once_one_is_found() -> None:
    member = stable(0)
    member.beat_answered(beat(member, 5.0), ConsumerGroupHeartbeatResponse(error_code=FENCED_EPOCH), 5.0)
    member.coordinator_known = False
    member.join(T, 6.0)
    assert isinstance(member.step(6.0), FindCoordinator)
    assert member.step(6.0) is None and member.next_wake_s(6.0) == float("inf")
    member.coordinator_found()
    assert isinstance(member.step(6.0), Farewell)


def test_c6_a_membership_has_one_identity_until_its_epoch_moves() -> None:
    """A refused commit is compared with it: a heartbeat in between must not make it one of an older membership."""
    member = stable(0)
    before = member.identity
    member.beat_answered(beat(member, 5.0), unchanged(1), 5.0)
    assert member.identity is before
    member.beat_answered(beat(member, 10.0), unchanged(2), 10.0)
    assert member.identity is not before and member.identity.generation_id == 2


def test_c6_a_group_that_the_coordinator_has_forgotten_is_joined_again() -> None:
    """Only to a join does the same error say that the group is one of the classic protocol."""
    member = stable(0)
    member.beat_answered(beat(member, 5.0), ConsumerGroupHeartbeatResponse(error_code=69), 5.0)
    (lost,) = member.news
    assert isinstance(lost, MembershipLost) and "GroupIdNotFound" in lost.reason
    member.join(T, 6.0)
    assert beat(member, 6.0).request.member_epoch == 0


@pytest.mark.parametrize(("instance", "epoch"), [(None, LEAVING_EPOCH), ("i", AWAY_EPOCH)])
def test_c6_a_user_who_does_not_poll_makes_the_member_leave(instance: str | None, epoch: int) -> None:
    """And a poll joins again; a static member is away for a time only."""
    member = stable(0, instance=instance)
    assert isinstance(member.step(59.9), EpochBeat)
    assert member.next_wake_s(59.9) == pytest.approx(0.1)
    farewell = member.step(60.0)
    assert isinstance(farewell, Farewell) and farewell.request.member_epoch == epoch
    assert member.state is EpochState.STALE
    (lost,) = member.news
    assert isinstance(lost, MembershipLost) and "max_poll_interval_ms is 60000" in lost.reason
    assert member.step(61.0) is None
    member.join(T, 61.0)
    assert beat(member, 61.0).request.member_epoch == 0


@pytest.mark.parametrize(("instance", "epoch"), [(None, LEAVING_EPOCH), ("i", AWAY_EPOCH)])
def test_c5_leaving_is_one_heartbeat_and_the_answer_under_way_is_not_heard(instance: str | None, epoch: int) -> None:
    member = stable(0, instance=instance)
    late = beat(member, 5.0)
    member.leave()
    assert member.next_wake_s(5.0) == 0.0
    farewell = member.step(5.0)
    assert isinstance(farewell, Farewell) and farewell.request.member_epoch == epoch
    member.beat_answered(late, given_to(0, 1, epoch=2), 5.1)
    assert (member.state, member.news, member.identity) == (EpochState.UNSUBSCRIBED, [], NO_GENERATION)
    assert member.next_wake_s(5.1) == float("inf")
    member.leave()
    assert member.step(5.2) is None, "it has left already"


def test_c5_who_leaves_and_joins_in_one_breath_does_both() -> None:
    member = stable(0)
    member.leave()
    member.join(T, 1.0)
    assert isinstance(member.step(1.0), Farewell)
    assert beat(member, 1.0).request.member_epoch == 0


def test_c5_without_a_coordinator_nobody_is_told_and_the_end_does_not_wait() -> None:
    member = stable(0)
    member.coordinator_known = False
    member.leave()
    assert member.step(1.0) is None
    assert member.next_wake_s(1.0) == float("inf")


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (35, UnsupportedVersion, "brokers of Kafka 4.0 or later.*or set group_protocol='classic'"),
        (82, MembershipFenced, "group_instance_id 'i', and has taken this one's place"),
        (111, KafkaError, "with the group_instance_id 'i'.*If the other is closing, or was killed, poll again"),
        (112, KafkaError, "UnsupportedAssignor.*The coordinator says: uniform, range"),
        (69, KafkaError, "members of the classic protocol.*group.consumer.migration.policy"),
        (30, KafkaError, "GroupAuthorizationFailed"),
    ],
)
def test_c5_an_error_that_stays_is_told_with_what_to_do(code: int, kind: type[KafkaError], words: str) -> None:
    member = member_of(instance="i")
    member.join(T, 0.0)
    detail = "uniform, range" if code == 112 else None
    refusal = ConsumerGroupHeartbeatResponse(error_code=code, error_message=detail)
    member.beat_answered(beat(member, 0.0), refusal, 0.0)
    (fatal,) = member.news
    assert isinstance(fatal, Fatal) and isinstance(fatal.error, kind)
    with pytest.raises(kind, match=words):
        raise fatal.error
    assert member.state is EpochState.FATAL and member.step(10.0) is None
    member.join(T, 10.0)
    assert isinstance(member.step(10.0), EpochBeat), "the next poll tries again"


def test_c5_a_topic_that_may_not_be_read_is_told_and_the_membership_stays() -> None:
    """An administrator may grant it, or the user subscribe to others; once per poll, however often it is asked."""
    member = stable(0)
    owned = member.identity
    member.subscribe(frozenset({"t", "secret"}))
    answer = ConsumerGroupHeartbeatResponse(error_code=29, error_message="secret")
    for now_s in (1.0, 2.0):
        member.beat_answered(beat(member, now_s), answer, now_s)
        assert member.step(now_s + 0.05) is None, "a pause first"
    (refused,) = member.news
    assert isinstance(refused, TopicsRefused)
    with pytest.raises(TopicAuthorizationFailed, match=r"keeps what it reads.*The coordinator says: secret"):
        raise refused.error
    assert (member.state, member.identity) == (EpochState.STABLE, owned)
    again = beat(member, 3.0)
    assert (again.request.member_epoch, again.request.subscribed_topic_names) == (1, ("secret", "t"))
    member.polled_s = 3.0
    member.beat_answered(again, answer, 3.0)
    assert len(member.news) == 2


@pytest.mark.parametrize("lost", [False, True])
def test_c5_while_topics_are_refused_heartbeats_without_them_keep_the_session(lost: bool) -> None:
    """The broker refuses such a heartbeat before the coordinator sees it: to it the member would be silent."""
    member = stable(0)
    member.subscribe(frozenset({"t", "secret"}))
    now_s, taken, asked = 1.0, [0.0], 0
    if lost:
        member.beat_failed(beat(member, now_s), Disconnected("cut"), now_s)
        member.coordinator_known = True
    for _ in range(400):
        now_s += max(member.next_wake_s(now_s), 0.01)
        member.polled_s = now_s
        sent = beat(member, now_s).request
        refused = sent.subscribed_topic_names is not None
        answer = ConsumerGroupHeartbeatResponse(error_code=29) if refused else unchanged(1)
        member.beat_answered(EpochBeat(sent, member._number), answer, now_s)
        asked += refused
        if not refused:
            assert not lost or sent.topic_partitions == says(0), "the epoch before is taken from who says what it reads"
            taken.append(now_s)
    assert asked > 300 and max(late - early for early, late in pairwise(taken)) < 7
    member.subscribe(T)
    assert member._at_once(now_s) is lost and member.state is EpochState.STABLE


def test_c5_an_acknowledgement_that_is_refused_with_the_topics_is_said_again_without_them() -> None:
    member = stable(0, 1)
    member.beat_answered(beat(member, 5.0), given_to(0), 5.0)
    takes(member, 0)
    member.subscribe(frozenset({"t", "secret"}))
    both = beat(member, 5.0)
    assert (both.request.topic_partitions, both.request.subscribed_topic_names) == (says(0), ("secret", "t"))
    member.beat_answered(both, ConsumerGroupHeartbeatResponse(error_code=29), 5.0)
    again = beat(member, 5.0)
    assert (again.request.topic_partitions, again.request.subscribed_topic_names) == (says(0), None)
    assert member.state is EpochState.STABLE


@pytest.mark.parametrize(("code", "leaves"), [(30, True), (112, True), (82, False)])
def test_c5_an_error_that_ends_a_membership_makes_it_leave_first(code: int, leaves: bool) -> None:
    """Others go on with its partitions at once; one whose place another has taken leaves nothing."""
    member = stable(0)
    member.beat_answered(beat(member, 5.0), ConsumerGroupHeartbeatResponse(error_code=code), 5.0)
    assert member.state is EpochState.FATAL
    assert member.next_wake_s(5.0) == (0.0 if leaves else float("inf"))
    farewell = member.step(5.0)
    assert isinstance(farewell, Farewell) if leaves else farewell is None
    assert member.step(5.0) is None and member.next_wake_s(5.0) == float("inf")


@pytest.mark.parametrize(("code", "searches"), [(14, False), (15, True), (16, True)])
def test_c5_a_coordinator_that_is_not_ready_is_asked_again_after_a_pause(code: int, searches: bool) -> None:
    member = stable(0)
    member.beat_answered(beat(member, 5.0), ConsumerGroupHeartbeatResponse(error_code=code), 5.0)
    assert member.step(5.05) is None
    assert member.next_wake_s(5.05) == pytest.approx(0.05)
    assert isinstance(member.step(5.1), FindCoordinator if searches else EpochBeat)
    assert member.identity is not NO_GENERATION


def test_c5_a_search_that_fails_for_good_after_the_end_says_nothing() -> None:
    member = member_of()
    member.coordinator_known = False
    member.join(T, 0.0)
    assert isinstance(member.step(0.0), FindCoordinator)
    member.leave()
    member.step(0.0)
    member.coordinator_not_found(KafkaError("no right"), 0.1)
    assert (member.news, member.state) == ([], EpochState.UNSUBSCRIBED)


# -- many members, many accidents


@dataclass
class Reader:
    """A member's two threads. Wishes and news wait between them, a heartbeat on its way to the coordinator and back."""

    member: EpochMembership
    reading: frozenset[int] = frozenset()
    """What it may commit: while a share is taken, that and what it read before."""
    taking: frozenset[int] | None = None
    """What it will read once the listener has run."""
    given: PartitionsById | None = None
    """The last share that it has heard of; None outside the group."""
    unanswered: bool = False
    wanted: bool = True
    wishes: list[Callable[[], None]] = field(default_factory=list)
    heard: list[News] = field(default_factory=list)
    under_way: EpochBeat | None = None
    answer: ConsumerGroupHeartbeatResponse | None = None
    """What the coordinator says to it; None before it has come there."""
    forbidden: bool = False
    """Whether the broker refuses heartbeats that name topics; the coordinator does not see them."""

    # -- the user's thread

    def join(self, now_s: float) -> None:
        self.wishes.append(partial(self.member.join, T, now_s))

    def subscribe(self, now_s: float, topics: frozenset[str]) -> None:
        """Subscribe to others, too, which have no partitions."""
        self.wishes.append(partial(self.member.subscribe, topics)) if self.given is not None else self.join(now_s)

    def poll(self, now_s: float, unnamed: frozenset[int] = frozenset()) -> None:
        """Begin to take a share, but for what has no name yet, or end that."""
        self.member.polled_s = now_s
        if self.taking is not None and self.given is not None:
            self.reading, self.taking = self.taking, None
            owned = {TOPIC: self.reading} if self.reading else NOTHING
            self.wishes.append(partial(self.member.reconciled, owned, self.given))
            return
        heard, self.heard = self.heard, []
        for news in heard:
            if isinstance(news, Assigned):
                self.given, self.unanswered = news.partitions, True
            elif not isinstance(news, TopicsRefused):
                assert isinstance(news, MembershipLost), news
                self.drop()
                self.join(now_s)
        if self.given is not None:
            named = self.given.get(TOPIC, frozenset()) - (unnamed - self.reading)
            if self.unanswered or named != self.reading:
                self.unanswered, self.taking = False, named
                self.reading |= named

    def drop(self) -> None:
        self.reading, self.taking, self.given, self.unanswered = frozenset(), None, None, False
        self.heard.clear()

    def leave(self) -> None:
        self.drop()
        self.wishes += [self.member.news.clear, self.member.leave]

    # -- the group's thread

    def turn(self, group: PlayedCoordinator, now_s: float, lost: str = "") -> None:
        """Run the wishes, bring a heartbeat one way on, and send what is due.

        ``lost``: its ``request``, its ``answer``, or nothing.
        """
        for wish in self.wishes:
            wish()
        self.wishes.clear()
        self._bring(group, now_s, lost)
        while (action := self.member.step(now_s)) is not None:
            match action:
                case FindCoordinator():
                    self.member.coordinator_found()
                case Farewell():
                    self._arrive(group)
                    group.answer(action.request)
                case EpochBeat():
                    self._arrive(group)
                    self.under_way, self.answer = action, None
        self.heard += self.member.news
        self.member.news.clear()

    def _bring(self, group: PlayedCoordinator, now_s: float, lost: str) -> None:
        beat, answer = self.under_way, self.answer
        if beat is None:
            return
        if lost != "request":
            self._arrive(group)
        if lost:
            self.under_way = None
            self.member.beat_failed(beat, Disconnected("cut"), now_s)
        elif answer is not None:
            self.under_way = None
            self.member.beat_answered(beat, answer, now_s)

    def _arrive(self, group: PlayedCoordinator) -> None:
        """Have the coordinator take what is under way: one connection keeps the order."""
        if self.under_way is None or self.answer is not None:
            return
        request = self.under_way.request
        refused = self.forbidden and request.subscribed_topic_names is not None
        self.answer = ConsumerGroupHeartbeatResponse(error_code=29) if refused else group.answer(request)


def no_partition_has_two_readers(readers: list[Reader], group: PlayedCoordinator) -> None:
    """Of those that may commit. One that the coordinator has given up reads on until it hears of it."""
    for reader in readers:
        known, identity = group.members.get(reader.member.settings.member_id), reader.member.identity
        if (
            known is not None
            and identity is not NO_GENERATION
            and identity.generation_id in (known.epoch, known.before)
        ):
            assert reader.reading <= known.held, (reader, group)


@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 4), partitions=st.integers(0, 6), asks=st.booleans())
@hypothesis_settings(max_examples=300, deadline=None)
def test_c5_members_share_everything_out_whatever_is_lost_and_no_two_read_the_same(
    seed: int, count: int, partitions: int, asks: bool
) -> None:
    """Requests, answers, members and polls are lost in any order; then nothing more is, and all settles."""
    rng = random.Random(seed)
    group = PlayedCoordinator(partitions, asks=asks)
    readers = [Reader(member_of(f"m{number}")) for number in range(count)]
    now = 0.0
    for reader in readers:
        reader.join(now)
    for _ in range(90):
        now += rng.choice((0.0, 0.1, 5.0))
        an_accident(rng.choice(readers), group, now, rng)
        now += 61.0 * (rng.randrange(20) == 0)
        no_partition_has_two_readers(readers, group)
    for reader in readers:
        reader.forbidden = False
        if not reader.wanted:
            group.remove(reader.member.settings.member_id)  # its session ends, where nobody could be told
    # One whose share changed there and back in answers that were lost has nothing to give back, and says nothing. Where
    # the coordinator asks all the same, the rebalance time-out ends that.
    group.patience = 12 if asks else None
    for _ in range(60):
        now += 5.0
        for reader in readers:
            for _ in range(3):
                reader.turn(group, now)
                no_partition_has_two_readers(readers, group)
            if reader.wanted:
                reader.poll(now)
    living = [reader for reader in readers if reader.wanted]
    assert all(reader.member.state is EpochState.STABLE for reader in living)
    assert sorted(number for reader in living for number in reader.reading) == (
        list(range(partitions)) if living else []
    )


def an_accident(reader: Reader, group: PlayedCoordinator, now_s: float, rng: random.Random) -> None:
    """Let one thing happen to a member, mostly its next step."""
    match rng.randrange(16):
        case 0:
            group.remove(reader.member.settings.member_id)
        case 1:
            reader.wanted = not reader.wanted
            reader.join(now_s) if reader.wanted else reader.leave()
        case 2 if reader.wanted:
            reader.subscribe(now_s, T | rng.choice((T, {"a"}, {"b"})))
            reader.forbidden = rng.random() < 0.3
        case 3 | 4 | 5 | 6 if reader.wanted:
            reader.poll(now_s, rng.choice((frozenset(), frozenset(), frozenset({0, 1}), frozenset({2}))))
        case _:
            reader.turn(group, now_s, rng.choice(("", "", "", "", "", "request", "answer")))
