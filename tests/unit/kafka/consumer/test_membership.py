"""The membership's machine, with answers of a scripted group."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamlet.base.backoff import Backoff, no_jitter
from streamlet.kafka.broker_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from streamlet.kafka.consumer.errors import MembershipFenced
from streamlet.kafka.consumer.membership import (
    Action,
    Disconnect,
    Fatal,
    FindCoordinator,
    Generation,
    GroupSettings,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Membership,
    MembershipLost,
    MemberState,
    RejoinNeeded,
    Share,
    Sync,
)
from streamlet.kafka.errors import Disconnected, KafkaError

PROTOCOLS = (("range", b"subscription"),)
FIRST = Generation(1, "m-1", "range")


def machine(**changes: Any) -> Membership:
    names: dict[str, Any] = {
        "group_id": "g",
        "group_instance_id": None,
        "session_timeout_s": 10.0,
        "heartbeat_interval_s": 3.0,
        "max_poll_interval_s": 60.0,
        "retry": Backoff(0.1, 1.0),
    }
    return Membership(GroupSettings(**{**names, **changes}), no_jitter)


def steps(membership: Membership, now: float) -> list[Action]:
    found = []
    while (action := membership.step(now)) is not None:
        found.append(action)
    return found


def syncing() -> Membership:
    """A member of generation 1 that follows and waits for its share."""
    membership = machine()
    membership.join(PROTOCOLS, 0.0)
    steps(membership, 0.0)
    membership.coordinator_found(0.0)
    steps(membership, 0.0)
    membership.joined(FIRST, False, {}, 0.0)
    assert steps(membership, 0.0) == [Sync(FIRST, {})]
    return membership


def stable(now: float = 0.0, **changes: Any) -> Membership:
    """A member of generation 1 that follows."""
    membership = machine(**changes)
    membership.join(PROTOCOLS, now)
    assert steps(membership, now) == [FindCoordinator()]
    membership.coordinator_found(now)
    assert steps(membership, now) == [Join("", PROTOCOLS)]
    membership.joined(FIRST, False, {}, now)
    assert steps(membership, now) == [Sync(FIRST, {})]
    membership.synced(b"share", now)
    assert membership.news == [Joined(FIRST, b"share", False)]
    membership.news.clear()
    return membership


def test_c5_the_leader_shares_out_and_everyone_syncs() -> None:
    """Coordinator, join, share, sync; then the news."""
    membership = machine()
    assert membership.step(0.0) is None, "nothing before the first poll"
    membership.join(PROTOCOLS, 0.0)
    steps(membership, 0.0)
    membership.coordinator_found(0.0)
    steps(membership, 0.0)
    members = {"m-1": (None, b"a"), "m-2": ("static", b"b")}
    membership.joined(FIRST, True, members, 0.0)
    assert steps(membership, 0.0) == [Share("range", members)]
    membership.shared({"m-1": b"x", "m-2": b"y"})
    assert steps(membership, 0.0) == [Sync(FIRST, {"m-1": b"x", "m-2": b"y"})]
    membership.synced(b"x", 0.0)
    assert membership.news == [Joined(FIRST, b"x", True)]


def test_c5_a_leader_that_comes_back_leads_and_shares_out_nothing() -> None:
    """KIP-814: the group goes on as it was, but somebody must watch its topics."""
    membership = machine(group_instance_id="a")
    membership.join(PROTOCOLS, 0.0)
    steps(membership, 0.0)
    membership.coordinator_found(0.0)
    steps(membership, 0.0)
    membership.joined(FIRST, True, {"m-1": ("a", b"s")}, 0.0, skip=True)
    assert steps(membership, 0.0) == [Share("range", {"m-1": ("a", b"s")}, skip=True)]
    membership.shared({})
    assert steps(membership, 0.0) == [Sync(FIRST, {})]
    membership.synced(b"x", 0.0)
    assert membership.news == [Joined(FIRST, b"x", True)]


def test_c5_the_member_id_that_is_asked_for_is_brought_at_once() -> None:
    """JoinGroup 4 and later: the first answer names an id."""
    membership = machine()
    membership.join(PROTOCOLS, 0.0)
    steps(membership, 0.0)
    membership.coordinator_found(0.0)
    steps(membership, 0.0)
    membership.join_failed(MemberIdRequired(), "m-7", 0.0)
    assert steps(membership, 0.0) == [Join("m-7", PROTOCOLS)]


def test_c6_heartbeats_keep_their_interval_and_one_is_under_way() -> None:
    """A late answer is waited for; next_wake_s is the moment of the next."""
    membership = stable()
    assert steps(membership, 2.9) == []
    assert membership.next_wake_s(2.9) == pytest.approx(0.1)
    assert steps(membership, 3.0) == [Heartbeat(FIRST)]
    assert steps(membership, 7.0) == []
    membership.beat_answered(None, FIRST, 7.0)
    assert steps(membership, 7.0) == [Heartbeat(FIRST)]


def test_c6_heartbeats_go_out_before_the_share_is_known() -> None:
    """From the answer to JoinGroup on: the leader may take its time."""
    membership = syncing()
    assert steps(membership, 3.0) == [Heartbeat(FIRST)]
    membership.beat_answered(RebalanceInProgress(), FIRST, 3.0)
    assert membership.news == [], "some brokers say so while members sync"


def test_c6_silence_of_the_coordinator_makes_it_unknown_and_the_membership_goes_on() -> None:
    """It may have moved; the new one knows us or says that it does not."""
    membership = stable()
    assert steps(membership, 3.0) == [Heartbeat(FIRST)]
    assert steps(membership, 10.0) == [Disconnect(), FindCoordinator()]
    membership.coordinator_found(10.2)
    assert steps(membership, 10.2) == [Heartbeat(FIRST)], "the one that was owed holds none up"
    assert steps(membership, 13.6) == [Disconnect(), FindCoordinator()], "a third of the session: it may hang, too"
    membership.coordinator_found(13.6)
    assert steps(membership, 13.6) == [Heartbeat(FIRST)]
    membership.beat_answered(None, FIRST, 13.7)
    assert steps(membership, 17.5) == [Heartbeat(FIRST)]
    assert steps(membership, 23.6) == [] and steps(membership, 23.8) == [Disconnect(), FindCoordinator()]
    assert membership.generation == FIRST


def test_c6_a_coordinator_that_is_silent_while_a_share_is_awaited_is_looked_for_and_not_hung_up_on() -> None:
    """The leader may take its time, and heartbeats stand behind the sync on its connection."""
    membership = syncing()
    assert steps(membership, 3.0) == [Heartbeat(FIRST)]
    assert steps(membership, 10.0) == []
    membership.coordinator_found(10.2)
    assert steps(membership, 10.2) == [Heartbeat(FIRST)]


def test_c5_a_join_that_is_refused_though_it_names_no_member_is_tried_again_after_a_pause() -> None:
    """Nothing is lost by it, so nobody hears of it and asks for another join."""
    membership = machine()
    membership.join(PROTOCOLS, 0.0)
    steps(membership, 0.0)
    membership.coordinator_found(0.0)
    assert steps(membership, 0.0) == [Join("", PROTOCOLS)]
    membership.join_failed(UnknownMemberId(), "", 0.0)
    assert membership.news == []
    assert steps(membership, 0.0) == []
    assert membership.next_wake_s(0.0) == pytest.approx(0.1)
    assert steps(membership, 0.2) == [Join("", PROTOCOLS)]


@pytest.mark.parametrize("waiting_for_a_share", [True, False])
def test_c6_a_member_without_a_coordinator_sleeps_until_it_can_do_something(waiting_for_a_share: bool) -> None:
    """Else its thread turns without a pause for as long as the brokers are gone, or the leader takes its time."""
    membership = syncing() if waiting_for_a_share else stable()
    steps(membership, 3.0)
    steps(membership, 10.0)
    if not waiting_for_a_share:
        membership.coordinator_not_found(CoordinatorNotAvailable(), 15.0)
        assert membership.next_wake_s(15.0) == pytest.approx(0.1), "the pause before the next search"
        assert steps(membership, 15.2) == [FindCoordinator()]
    assert steps(membership, 15.3) == []
    assert membership.next_wake_s(15.3) > 1.0


@pytest.mark.parametrize("error", [NotCoordinator(), CoordinatorNotAvailable(), Disconnected("gone")])
def test_c6_a_coordinator_that_is_gone_is_looked_for_after_a_pause(error: KafkaError) -> None:
    """Without losing the generation."""
    membership = stable()
    steps(membership, 3.0)
    membership.beat_answered(error, FIRST, 3.0)
    assert steps(membership, 3.0) == []
    assert membership.next_wake_s(3.0) == pytest.approx(0.1)
    assert steps(membership, 3.2) == [FindCoordinator()]


def test_c5_a_rebalance_is_told_once_and_heartbeats_go_on_until_the_consumer_joins() -> None:
    """The user's work may take as long as the rebalance time-out."""
    membership = stable()
    for now in (3.0, 6.0, 9.0):
        assert steps(membership, now) == [Heartbeat(FIRST)]
        membership.beat_answered(RebalanceInProgress(), FIRST, now)
    assert membership.news == [RejoinNeeded("the group rebalances")]
    membership.join(PROTOCOLS, 9.5)
    assert steps(membership, 9.5) == [Join("m-1", PROTOCOLS)]
    assert steps(membership, 20.0) == [], "no heartbeat while a join is under way"


@pytest.mark.parametrize(("error", "member_id"), [(UnknownMemberId(), ""), (IllegalGeneration(), "m-1")])
def test_c6_a_member_that_was_forgotten_hears_that_it_lost_everything(error: KafkaError, member_id: str) -> None:
    """And which setting decides about it; the id is kept only where it is still known."""
    membership = stable()
    steps(membership, 3.0)
    membership.beat_answered(error, FIRST, 12.0)
    (news,) = membership.news
    assert isinstance(news, MembershipLost)
    assert "session_timeout_ms" in news.reason
    assert membership.state is MemberState.UNJOINED
    membership.join(PROTOCOLS, 12.0)
    assert steps(membership, 12.0) == [Join(member_id, PROTOCOLS)]


def test_c6_silence_is_counted_from_when_a_heartbeat_was_sent_that_was_taken() -> None:
    """Its answer may be read long after that, by a process that was stopped: 20 s here."""
    membership = stable()
    assert steps(membership, 3.0) == [Heartbeat(FIRST)]
    membership.beat_answered(None, FIRST, 23.0)
    assert steps(membership, 23.0) == [Heartbeat(FIRST)]
    membership.beat_answered(UnknownMemberId(), FIRST, 23.1)
    (news,) = membership.news
    assert isinstance(news, MembershipLost) and "was sent 20.1 s ago" in news.reason


def test_c6_a_user_who_does_not_poll_leaves_and_is_told_what_to_change() -> None:
    """A static member only falls silent: it may come back."""
    membership = stable(max_poll_interval_s=20.0)
    membership.beat_answered(None, FIRST, 19.9)
    assert Leave("m-1") not in steps(membership, 19.9)
    assert steps(membership, 20.0) == [Leave("m-1")]
    (news,) = membership.news
    assert isinstance(news, MembershipLost)
    assert "max_poll_interval_ms is 20000" in news.reason
    assert "max_poll_records" in news.reason
    static = stable(max_poll_interval_s=5.0, group_instance_id="a")
    assert steps(static, 5.0) == []
    assert isinstance(static.news[0], MembershipLost)


def test_c6_an_answer_of_an_old_generation_says_nothing() -> None:
    """It was under way when the member joined again."""
    membership = stable()
    steps(membership, 3.0)
    membership.join(PROTOCOLS, 3.0)
    steps(membership, 3.0)
    second = Generation(2, "m-1", "range")
    membership.joined(second, False, {}, 3.1)
    membership.beat_answered(IllegalGeneration(), FIRST, 3.2)
    assert membership.generation == second
    assert membership.news == []


def test_c5_errors_that_joining_again_does_not_mend_are_fatal() -> None:
    """No right, or another with our static id."""
    membership = stable(group_instance_id="a")
    steps(membership, 3.0)
    membership.beat_answered(FencedInstanceId(), FIRST, 3.0)
    (news,) = membership.news
    assert isinstance(news, Fatal)
    assert isinstance(news.error, MembershipFenced)
    membership = machine()
    membership.join(PROTOCOLS, 0.0)
    steps(membership, 0.0)
    membership.coordinator_not_found(GroupAuthorizationFailed(), 0.0)
    assert isinstance(membership.news[0], Fatal)
    assert steps(membership, 100.0) == []


ERRORS: list[KafkaError] = [
    CoordinatorLoadInProgress(),
    CoordinatorNotAvailable(),
    Disconnected("gone"),
    IllegalGeneration(),
    NotCoordinator(),
    RebalanceInProgress(),
    UnknownMemberId(),
]


def test_c5_a_search_for_the_coordinator_outlives_the_membership_that_began_it() -> None:
    """A second one beside it could end in two JoinGroups: the first answer would be one that nobody waits for."""
    membership = stable()
    membership.beat_answered(Disconnected("gone"), FIRST, 1.0)
    assert steps(membership, 2.0) == [FindCoordinator()]
    membership.beat_answered(UnknownMemberId("forgotten"), FIRST, 2.0)
    membership.join(PROTOCOLS, 2.0)
    assert steps(membership, 2.0) == []
    membership.coordinator_found(2.1)
    assert steps(membership, 2.1) == [Join("", PROTOCOLS)]
    assert steps(membership, 2.2) == []


@pytest.mark.parametrize("heard", [False, True])
def test_c5_a_join_whose_member_is_lost_while_it_is_under_way_asks_one_thing_at_a_time(heard: bool) -> None:
    """A heartbeat of the generation before is refused; ``heard``: the user knows, and joins again before the answer."""
    membership = stable()
    assert steps(membership, 3.0) == [Heartbeat(FIRST)]
    membership.join(PROTOCOLS, 3.0)
    assert steps(membership, 3.0) == [Join("m-1", PROTOCOLS)]
    membership.beat_answered(IllegalGeneration(), FIRST, 3.1)
    assert isinstance(membership.news.pop(), MembershipLost)
    if heard:
        membership.join(PROTOCOLS, 3.1)
    second = Generation(2, "m-1", "range")
    membership.joined(second, False, {}, 3.2)
    assert steps(membership, 60.0) == ([Sync(second, {})] if heard else [])
    assert membership.generation.generation_id == (2 if heard else -1)


class AnyGroup(RuleBasedStateMachine):
    """Answers of every kind at any time: the member asks one thing at a time, and is never stuck."""

    def __init__(self) -> None:
        super().__init__()
        self.membership = machine()
        self.now = 0.0
        self.open: list[Action] = []
        self.generation = 0
        self.wants = True
        self.membership.join(PROTOCOLS, 0.0)

    @rule(seconds=st.sampled_from([0.0, 0.05, 1.0, 3.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.membership.polled_s = self.now
        for action in steps(self.membership, self.now):
            if isinstance(action, Share):
                self.membership.shared({})
                self.open += steps(self.membership, self.now)
            else:
                self.open.append(action)
        kinds = [type(action) for action in self.open]
        assert kinds.count(Join) + kinds.count(Sync) + kinds.count(FindCoordinator) <= 1
        assert kinds.count(Heartbeat) <= 1
        assert self.membership.next_wake_s(self.now) > 0, "its thread would turn without a pause"

    @precondition(lambda self: self.open)
    @rule(good=st.booleans(), leads=st.booleans(), error=st.sampled_from(ERRORS))
    def an_answer_comes(self, good: bool, leads: bool, error: KafkaError) -> None:
        action, membership, now = self.open.pop(0), self.membership, self.now
        if isinstance(action, FindCoordinator):
            if good:
                membership.coordinator_found(now)
            else:
                membership.coordinator_not_found(CoordinatorNotAvailable(), now)
        elif isinstance(action, Join):
            self.generation += 1
            if good:
                membership.joined(Generation(self.generation, "m", "range"), leads, {}, now)
            else:
                membership.join_failed(error, "", now)
        elif isinstance(action, Sync):
            if action.generation == membership.generation:
                if good:
                    membership.synced(b"", now)
                else:
                    membership.sync_failed(error, now)
        elif isinstance(action, Heartbeat):
            membership.beat_answered(None if good else error, action.generation, now)

    @rule()
    def the_consumer_hears(self) -> None:
        """As the coordinator does: whatever takes the membership away is followed by another join."""
        news, self.membership.news = self.membership.news, []
        if any(not isinstance(one, Joined) for one in news):
            self.membership.join(PROTOCOLS, self.now)

    @invariant()
    def it_is_never_stuck(self) -> None:
        """Something is under way, told, or due at a known time; or it is a member and beats."""
        waits = self.membership.next_wake_s(self.now) < float("inf")
        assert self.open or self.membership.news or waits


TestAnyGroup = AnyGroup.TestCase


def test_a_place_is_granted_from_when_the_answered_request_was_sent_and_by_good_answers_alone() -> None:
    """A lease: the coordinator cannot have given the place away within a session time-out from then on."""
    membership = machine()
    membership.join(PROTOCOLS, 0.0)
    steps(membership, 0.0)
    membership.coordinator_found(0.0)
    steps(membership, 0.0)
    membership.joined(FIRST, False, {}, 1.0)
    assert steps(membership, 1.0) == [Sync(FIRST, {})]
    assert membership.granted_s == -float("inf"), "joined, but no share yet"
    membership.sync_sent(1.0)
    membership.synced(b"share", 7.0)
    assert membership.granted_s == 1.0, "the process may have slept until the answer"
    assert steps(membership, 7.0) == [Heartbeat(FIRST)]
    membership.beat_answered(None, FIRST, 9.0)
    assert membership.granted_s == 7.0
    assert steps(membership, 10.5) == [Heartbeat(FIRST)]
    membership.beat_answered(RebalanceInProgress("a test"), FIRST, 10.6)
    assert membership.granted_s == 7.0, "others may get the place: nothing is granted by that answer"
    assert steps(membership, 14.0) == [Heartbeat(FIRST)]
    membership.beat_answered(UnknownMemberId("a test"), FIRST, 14.1)
    assert membership.granted_s == -float("inf")


def test_a_static_member_that_never_comes_back_under_its_id_says_that_it_leaves() -> None:
    membership = stable(group_instance_id="run-1-lines-0", static_leaves=True)
    membership.leave()
    assert steps(membership, 0.0) == [Leave("m-1")]
    stays = stable(group_instance_id="a")
    stays.leave()
    assert steps(stays, 0.0) == []
