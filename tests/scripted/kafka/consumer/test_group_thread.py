"""The group's thread, without its thread: what the leader shares out, and what it watches afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamlet.base.backoff import Backoff, no_jitter
from streamlet.base.clock import ManualClock
from streamlet.kafka.broker_errors import IllegalGeneration
from streamlet.kafka.consumer.assignors import RangeAssignor
from streamlet.kafka.consumer.assignors.base import Subscription, encode_assignment
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.group_thread import GroupThread
from streamlet.kafka.consumer.membership import (
    Generation,
    GroupSettings,
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
    JoinGroupMember,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


@pytest.fixture
def leader() -> Iterator[GroupThread]:
    """A stable member that leads, and sends nothing."""
    clock = ManualClock()
    membership = Membership(GroupSettings("g", None, 10.0, 3.0, 60.0, Backoff(0.1, 1.0)), no_jitter)
    config = ConsumerConfig.of({"bootstrap_servers": "127.0.0.1:1", "group_id": "g"})
    thread = GroupThread(config, membership, {"range": RangeAssignor()}, lambda: None, clock)
    membership.generation, membership.leads = Generation(1, "m", "range"), True
    yield thread
    thread.stop(0)


def cluster_of(**counts: int) -> Cluster:
    rows = {
        name: {number: PartitionInfo(name, number, 1, 0, (1,), (1,), (), None) for number in range(count)}
        for name, count in counts.items()
    }
    return Cluster.of([], [TopicInfo(name, None, partitions) for name, partitions in rows.items()])


def share_out(thread: GroupThread, *topics: str) -> None:
    thread._begin_share(Share("range", {"m": (None, Subscription(topics).encode())}))
    thread._try_share()
    thread._membership.state = MemberState.STABLE
    thread._metadata_changed(thread._client.cluster)


def rejoins(thread: GroupThread) -> list[str]:
    return [news.reason for news in thread._membership.news if isinstance(news, RejoinNeeded)]


def test_c5_a_topic_that_nobody_wants_any_more_is_no_reason_to_rebalance(leader: GroupThread) -> None:
    """The leader asked about it once; its partitions are in no share, and would differ from the share for ever."""
    leader._client.metadata.cluster = cluster_of(a=2, b=2)
    share_out(leader, "a", "b")
    share_out(leader, "a")
    assert rejoins(leader) == []


def test_c5_the_leader_notices_partitions_that_came(leader: GroupThread) -> None:
    """Also of a topic that was not there when it shared out."""
    leader._client.metadata.cluster = cluster_of(a=2)
    share_out(leader, "a")
    assert rejoins(leader) == []
    leader._client.metadata.cluster = cluster_of(a=3)
    leader._metadata_changed(leader._client.cluster)
    assert rejoins(leader) == ["the partitions of a changed"]


def test_c5_a_static_leader_that_comes_back_watches_and_syncs_without_shares(leader: GroupThread) -> None:
    """KIP-814: what is shared out stays, and partitions that are added later must not be read by nobody."""
    leader._client.metadata.cluster = cluster_of(a=2)
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
    leader._join_answered(leader._joins, done)
    while (action := leader._membership.step(0.0)) is not None:
        leader._do(action)
    leader._try_share()
    assert synced == [Sync(Generation(7, "m", "range"), {})]
    leader._membership.synced(b"", 0.0)
    leader._metadata_changed(leader._client.cluster)
    assert rejoins(leader) == []
    leader._client.metadata.cluster = cluster_of(a=3)
    leader._metadata_changed(leader._client.cluster)
    assert rejoins(leader) == ["the partitions of a changed"]


@pytest.mark.parametrize("left", [False, True], ids=["the group went on", "this member left"])
def test_c5_a_share_of_an_older_generation_is_dropped(
    leader: GroupThread, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    """It came late: others own those partitions now, and this member is about to join again."""
    sent: list[tuple[Any, RequestFuture[Any]]] = []

    def send(request: Any, *_to: object) -> RequestFuture[Any]:
        sent.append((request, RequestFuture()))
        return sent[-1][1]

    monkeypatch.setattr(leader._client, "send", send)
    membership = leader._membership
    membership.coordinator_known, leader._coordinator = True, Broker(1, "127.0.0.1", 1)
    first = Generation(1, "m", "range")

    def do_all() -> None:
        while (action := membership.step(0.0)) is not None:
            leader._do(action)

    def answer_sync(number: int, *partitions: TopicPartition) -> None:
        share = SyncGroupResponse(error_code=0, assignment=encode_assignment(partitions))
        syncs = [future for request, future in sent if isinstance(request, SyncGroupRequest)]
        syncs[number].complete(share)

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


def test_c5_news_of_a_membership_that_was_left_are_not_heard(leader: GroupThread) -> None:
    """An answer that comes between unsubscribe() and the thread's leaving is of partitions of others."""
    tell = leader._membership.news.append
    tell(RejoinNeeded("before"))
    leader._pass_on()
    leader.leave()
    assert leader.next_news() is None
    tell(RejoinNeeded("meanwhile"))
    leader._pass_on()
    assert leader.next_news() is None
    while leader._wishes:
        leader._wishes.popleft()()
    tell(RejoinNeeded("after"))
    leader._pass_on()
    assert leader.next_news() == RejoinNeeded("after")


def test_c6_a_membership_that_is_lost_is_told_in_the_log_at_once(
    leader: GroupThread, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is at work for too long does not poll, and may never do so again."""
    leader._membership.news.append(MembershipLost("poll() was not called"))
    leader._pass_on()
    assert [record.getMessage() for record in caplog.records] == ["group 'g': poll() was not called"]
    assert leader.next_news() == MembershipLost("poll() was not called")
