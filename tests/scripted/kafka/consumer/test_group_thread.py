"""The group's thread, without its thread: what the leader shares out, and what it watches afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from streamlet.base.backoff import Backoff, no_jitter
from streamlet.base.clock import ManualClock
from streamlet.kafka.broker_errors import IllegalGeneration
from streamlet.kafka.consumer.assignors import RangeAssignor
from streamlet.kafka.consumer.assignors.base import Subscription, encode_assignment
from streamlet.kafka.consumer.classic_group import JOIN_TOLD_S, ClassicGroup, Protocols
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.group_thread import GroupThread
from streamlet.kafka.consumer.membership import (
    NEVER_S,
    Generation,
    GroupSettings,
    Join,
    Joined,
    Membership,
    MembershipLost,
    MemberState,
    RejoinNeeded,
    Share,
    Sync,
)
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Broker, Cluster, PartitionInfo, TopicInfo, TopicPartition
from streamlet.kafka.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

CONFIG = ConsumerConfig.of({"bootstrap_servers": "127.0.0.1:1", "group_id": "g"})


@pytest.fixture
def leader() -> Iterator[ClassicGroup]:
    """A stable member that leads, and sends nothing."""
    membership = Membership(GroupSettings("g", None, 10.0, 3.0, 60.0, Backoff(0.1, 1.0)), no_jitter)
    group = ClassicGroup(CONFIG, membership, {"range": RangeAssignor()}, ManualClock())
    membership.generation, membership.leads = Generation(1, "m", "range"), True
    yield group
    group.client.close()


@pytest.fixture
def thread(leader: ClassicGroup) -> GroupThread[Protocols]:
    """The thread of that member, which does not run."""
    return GroupThread(CONFIG, leader, lambda: None, ManualClock())


def cluster_of(**counts: int) -> Cluster:
    rows = {
        name: {number: PartitionInfo(name, number, 1, 0, (1,), (1,), (), None) for number in range(count)}
        for name, count in counts.items()
    }
    return Cluster.of([], [TopicInfo(name, None, partitions) for name, partitions in rows.items()])


def share_out(leader: ClassicGroup, *topics: str) -> None:
    leader._begin_share(Share("range", {"m": (None, Subscription(topics).encode())}))
    leader._try_share()
    leader.membership.state = MemberState.STABLE
    leader._metadata_changed(leader.client.cluster)


def rejoins(leader: ClassicGroup) -> list[str]:
    return [news.reason for news in leader.membership.news if isinstance(news, RejoinNeeded)]


def test_c5_a_topic_that_nobody_wants_any_more_is_no_reason_to_rebalance(leader: ClassicGroup) -> None:
    """The leader asked about it once; its partitions are in no share, and would differ from the share for ever."""
    leader.client.metadata.cluster = cluster_of(a=2, b=2)
    share_out(leader, "a", "b")
    share_out(leader, "a")
    assert rejoins(leader) == []


def test_c5_the_leader_notices_partitions_that_came(leader: ClassicGroup) -> None:
    """Also of a topic that was not there when it shared out."""
    leader.client.metadata.cluster = cluster_of(a=2)
    share_out(leader, "a")
    assert rejoins(leader) == []
    leader.client.metadata.cluster = cluster_of(a=3)
    leader._metadata_changed(leader.client.cluster)
    assert rejoins(leader) == ["the partitions of a changed"]


def in_racks(*replicas: tuple[int, ...], away: int = 0) -> Cluster:
    """A topic "a" with these replicas; broker n stands in rack rn, and one of them may be away."""
    rows = {n: PartitionInfo("a", n, brokers[0], 0, brokers, brokers, (), None) for n, brokers in enumerate(replicas)}
    brokers = [Broker(n, "h", 9000 + n, f"r{n}") for n in (1, 2, 3) if n != away]
    return Cluster.of(brokers, [TopicInfo("a", None, rows)])


def test_c5_a_member_that_tells_its_rack_gets_what_is_near_and_new_racks_are_a_reason(leader: ClassicGroup) -> None:
    """A broker that is away for a moment is none, nor one that comes back."""
    handed: list[dict[str, bytes]] = []
    leader._hand_in = lambda shares: handed.append(dict(shares))  # type: ignore[method-assign,assignment]
    near = {f"m{n}": (None, Subscription(("a",), rack_id=f"r{3 - n}").encode()) for n in (1, 2)}
    leader.client.metadata.cluster = in_racks((1,), (2,))
    leader._begin_share(Share("range", near))
    leader._try_share()
    leader.membership.state = MemberState.STABLE
    assert handed == [
        {"m1": encode_assignment([TopicPartition("a", 1)]), "m2": encode_assignment([TopicPartition("a", 0)])}
    ]
    for cluster in (in_racks((1,), (2,), away=2), in_racks((1,), (2,))):
        leader._metadata_changed(cluster)
        leader.client.metadata.cluster = cluster
        assert rejoins(leader) == []
    leader.client.metadata.cluster = in_racks((1,), (2, 3))
    leader._metadata_changed(leader.client.cluster)
    assert rejoins(leader) == ["copies of a came to other racks"]


def test_c5_a_join_that_waits_for_a_dead_member_says_so_once(
    leader: ClassicGroup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its session takes 45 s to end; in silence a consumer that was killed and started again looks broken."""
    answer: RequestFuture[Any] = RequestFuture()
    monkeypatch.setattr(leader.client, "send", lambda *_: answer)
    clock = leader._clock
    assert isinstance(clock, ManualClock)
    leader.membership.coordinator_found(clock.monotonic())
    leader.membership.join((), clock.monotonic())
    leader.turn()
    assert leader.wait_s(clock.monotonic()) == JOIN_TOLD_S and not caplog.messages
    for _ in range(3):
        clock.advance(JOIN_TOLD_S)
        leader.turn()
    (said,) = caplog.messages
    assert "joining it has taken 5 s" in said and "session_timeout_ms, 45 s" in said
    assert leader.wait_s(clock.monotonic()) > JOIN_TOLD_S


def test_c5_a_join_that_is_answered_or_left_is_not_said_to_take_long(
    leader: ClassicGroup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = leader._clock
    assert isinstance(clock, ManualClock)
    answer: RequestFuture[Any] = RequestFuture()
    monkeypatch.setattr(leader.client, "send", lambda *_: answer)
    leader._send_join(Join("m", ()))
    answer.complete(JoinGroupResponse(error_code=25))
    assert leader._tell_join_s == math.inf
    answer = RequestFuture()
    leader._send_join(Join("m", ()))
    leader.leave()
    clock.advance(JOIN_TOLD_S)
    leader.turn()
    assert not caplog.messages


def test_c5_a_static_leader_that_comes_back_watches_and_syncs_without_shares(leader: ClassicGroup) -> None:
    """KIP-814: what is shared out stays, and partitions that are added later must not be read by nobody."""
    leader.client.metadata.cluster = cluster_of(a=2)
    members = (JoinGroupMember(member_id="m", group_instance_id="i", metadata=Subscription(("a",)).encode()),)
    answer = JoinGroupResponse(
        error_code=0,
        generation_id=7,
        protocol_name="range",
        leader="m",
        member_id="m",
        members=members,
        skip_assignment=True,
    )
    done: RequestFuture[JoinGroupResponse] = RequestFuture()
    done.complete(answer)
    synced: list[Sync] = []
    leader._send_sync = synced.append  # type: ignore[method-assign]
    leader.membership.join((), 0.0)
    leader._join_answered(leader._joins, done)
    while (action := leader.membership.step(0.0)) is not None:
        leader._do(action)
    leader._try_share()
    assert synced == [Sync(Generation(7, "m", "range"), {})]
    leader.membership.synced(b"", 0.0)
    leader._metadata_changed(leader.client.cluster)
    assert rejoins(leader) == []
    leader.client.metadata.cluster = cluster_of(a=3)
    leader._metadata_changed(leader.client.cluster)
    assert rejoins(leader) == ["the partitions of a changed"]


def test_c6_a_member_of_a_coordinator_that_hangs_beats_at_the_next_one_at_once(
    leader: ClassicGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session time-out is far shorter than the request time-out of the heartbeat that is owed, or has not left."""
    clock, membership = leader._clock, leader.membership
    assert isinstance(clock, ManualClock)
    sent: list[tuple[Any, Any, RequestFuture[Any]]] = []

    def send(request: Any, to: Any = None, timeout_s: float | None = None) -> RequestFuture[Any]:
        sent.append((request, to, RequestFuture()))
        assert to is not None or timeout_s == 5.0, "the broker that is asked may be the one that hangs"
        return sent[-1][2]

    closed: list[Broker] = []
    monkeypatch.setattr(leader.client, "send", send)
    monkeypatch.setattr(leader.client, "disconnect", closed.append)
    hung, other = (Broker(node, "127.0.0.1", node).dedicated("group") for node in (1, 2))
    membership.state, membership.coordinator_known, leader._coordinator = MemberState.STABLE, True, hung
    membership._heard_s = clock.monotonic()
    clock.advance(3.0)
    leader.turn()
    clock.advance(7.0)
    leader.turn()
    search: RequestFuture[Any] = RequestFuture()
    search.complete(Broker(2, "127.0.0.1", 2))
    leader._found(search)
    clock.advance(0.2)
    leader.turn()
    beats = [to for request, to, _ in sent if isinstance(request, HeartbeatRequest)]
    assert beats == [hung, other] and hung in closed
    owed, _ = [future for request, _, future in sent if isinstance(request, HeartbeatRequest)]
    owed.complete(HeartbeatResponse(error_code=0))
    assert membership.granted_s == NEVER_S, "what was given up proves nothing"


@pytest.mark.parametrize("how", ["leave", "join again"])
def test_c5_nothing_is_shared_out_for_a_generation_that_was_left(
    leader: ClassicGroup, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its topics' metadata comes late."""
    monkeypatch.setattr(leader.client, "send", lambda *_: RequestFuture())
    leader.membership.state = MemberState.COMPLETING_REBALANCE
    leader._begin_share(Share("range", {"m": (None, Subscription(("a",)).encode())}))
    leader._try_share()
    leader.leave() if how == "leave" else leader._send_join(Join("m", ()))
    leader.client.metadata.cluster = cluster_of(a=2)
    leader._try_share()
    assert not leader._counts


@pytest.mark.parametrize("left", [False, True], ids=["the group went on", "this member left"])
def test_c5_a_share_of_an_older_generation_is_dropped(
    leader: ClassicGroup, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    """It came late: others own those partitions now, and this member is about to join again."""
    sent: list[tuple[Any, RequestFuture[Any]]] = []

    def send(request: Any, *_to: object) -> RequestFuture[Any]:
        sent.append((request, RequestFuture()))
        return sent[-1][1]

    monkeypatch.setattr(leader.client, "send", send)
    membership = leader.membership
    membership.coordinator_known, leader._coordinator = True, Broker(1, "127.0.0.1", 1)
    first = Generation(1, "m", "range")

    def do_all() -> None:
        while (action := membership.step(0.0)) is not None:
            leader._do(action)

    def answer_sync(number: int, *partitions: TopicPartition) -> None:
        share = SyncGroupResponse(error_code=0, assignment=encode_assignment(partitions))
        syncs = [future for request, future in sent if isinstance(request, SyncGroupRequest)]
        syncs[number].complete(share)

    membership.join((), 0.0)
    membership.joined(first, False, {}, 0.0)
    do_all()
    if left:
        membership.leave()
    else:
        membership.beat_answered(IllegalGeneration("a test"), first, 0.0)
    membership.join((("range", b""),), 0.0)
    answer_sync(0, TopicPartition("t", 0))
    assert membership.state is MemberState.PREPARING_REBALANCE
    second = Generation(2, "m", "range")
    membership.joined(second, False, {}, 0.0)
    do_all()
    answer_sync(1, TopicPartition("t", 1))
    shares = [news for news in membership.news if isinstance(news, Joined)]
    assert shares == [Joined(second, encode_assignment([TopicPartition("t", 1)]), False)]


def test_c5_news_of_a_membership_that_was_left_are_not_heard(
    leader: ClassicGroup, thread: GroupThread[Protocols]
) -> None:
    """An answer that comes between unsubscribe() and the thread's leaving is of partitions of others."""
    tell = leader.membership.news.append
    tell(RejoinNeeded("before"))
    thread._pass_on()
    thread.leave()
    assert thread.next_news() is None
    tell(RejoinNeeded("meanwhile"))
    thread._pass_on()
    assert thread.next_news() is None
    while thread._wishes:
        thread._wishes.popleft()()
    tell(RejoinNeeded("after"))
    thread._pass_on()
    assert thread.next_news() == RejoinNeeded("after")


def test_c5_news_that_was_not_passed_on_before_the_leaving_is_not_taken_for_the_next_life(
    leader: ClassicGroup, thread: GroupThread[Protocols]
) -> None:
    """The answer came in the last look at the network; the wish to leave is done before news is passed on."""
    leader.membership.news.append(MembershipLost("of the life that ends"))
    thread.leave()
    while thread._wishes:
        thread._wishes.popleft()()
    thread._pass_on()
    assert thread.next_news() is None


def test_c6_a_membership_that_is_lost_is_told_in_the_log_at_once(
    leader: ClassicGroup, thread: GroupThread[Protocols], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is at work for too long does not poll, and may never do so again."""
    leader.membership.news.append(MembershipLost("poll() was not called"))
    thread._pass_on()
    assert [record.getMessage() for record in caplog.records] == ["group 'g': poll() was not called"]
    assert thread.next_news() == MembershipLost("poll() was not called")
