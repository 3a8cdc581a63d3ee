"""Consumers of the newer group protocol against a scripted coordinator: records, commits, listeners, the end."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from streamlet.kafka import Consumer, ConsumerRebalanceListener, TopicPartition
from streamlet.kafka.broker_errors import TopicAuthorizationFailed, UnreleasedInstanceId
from streamlet.kafka.consumer.epoch_membership import EpochState
from streamlet.kafka.consumer.errors import CommitFailed
from streamlet.kafka.errors import UnsupportedVersion
from streamlet.kafka.protocol.messages.groups import AWAY_EPOCH, LEAVING_EPOCH, ConsumerGroupHeartbeatResponse
from streamlet.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from streamlet.kafka.protocol.messages.offsets import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.consumers import Told
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import CLOSE
from tests.scripted.fake_cluster import FakeCluster
from tests.unit.kafka.consumer.played_coordinator import TOPIC, Known, PlayedCoordinator

STALE, UNKNOWN_MEMBER = 113, 25
BEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


class Group:
    """A cluster with topic t of two partitions, and a coordinator whose heartbeats are quick."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster, self.broker = cluster, cluster.broker
        self.coordinator = PlayedCoordinator(2, interval_ms=50)
        self.refusals: list[int] = []
        """Errors of the next commits, used up one by one."""
        self.commit_epochs: list[int] = []
        self.broker.on(BEAT, self.coordinator.answer)
        self.broker.on(ApiKey.OFFSET_COMMIT, self.commit)
        self.broker.on(ApiKey.OFFSET_FETCH, self.stored)

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        self.commit_epochs.append(request.generation_id)
        known = self.coordinator.members.get(request.member_id)
        code = UNKNOWN_MEMBER if known is None else 0 if known.epoch == request.generation_id else STALE
        code = self.refusals.pop(0) if self.refusals else code
        rows = []
        for topic in request.topics:
            parts = [OffsetCommitPartitionResponse(partition_index=row.partition_index, error_code=code)
                     for row in topic.partitions]  # fmt: skip
            rows.append(OffsetCommitTopicResponse(name=topic.name, partitions=tuple(parts)))
            for row in topic.partitions if not code else ():
                self.cluster.committed[request.group_id, topic.name, row.partition_index] = row
        return OffsetCommitResponse(topics=tuple(rows))

    def stored(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if not request.groups:  # asked by a member that knows it is none any more
            return self.cluster.stored(request)
        (group,) = request.groups
        known = self.coordinator.members.get(group.member_id or "")
        code = UNKNOWN_MEMBER if known is None else 0 if known.epoch == group.member_epoch else STALE
        rows = []
        for topic in group.topics or ():
            parts = []
            for number in topic.partition_indexes:
                kept = self.cluster.committed.get((group.group_id, topic.name, number))
                offset = -1 if kept is None else kept.committed_offset
                parts.append(
                    OffsetFetchPartitionResponse(partition_index=number, committed_offset=offset, error_code=0)
                )
            rows.append(OffsetFetchTopicResponse(name=topic.name, partitions=tuple(parts)))
        row = OffsetFetchGroupResponse(group_id=group.group_id, topics=() if code else tuple(rows), error_code=code)
        return OffsetFetchResponse(groups=(row,))

    def committed(self) -> dict[int, int]:
        return {number: row.committed_offset for (_group, _topic, number), row in self.cluster.committed.items()}

    def beats(self) -> list[Any]:
        return [row.request for row in self.broker.seen(BEAT)]


@pytest.fixture
def group() -> Iterator[Group]:
    with FakeCluster({"t": 2}) as cluster:
        cluster.topic_ids["t"] = TOPIC
        yield Group(cluster)


@pytest.fixture
def member_of(group: Group) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        names = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20, "group_id": "g", **settings}
        made.append(Consumer(bootstrap_servers=group.broker.address, group_protocol="consumer", **names))
        return made[-1]

    yield make
    for one in made:
        one.close(2)


def until(reached: Callable[[], bool], *consumers: Consumer) -> int:
    """Poll all until it is so; the number of records they got."""
    count, deadline = 0, time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline
        count += sum(len(rows) for one in consumers for rows in one.poll(20).values())
    return count


def test_c5_two_members_share_the_records_and_what_one_leaves_the_other_reads_on(
    group: Group, member_of: Callable[..., Consumer]
) -> None:
    """Committed before it is given back: no record is read twice, and none by nobody."""
    group.cluster.fill("t", 100, 100)
    told = Told()
    first = member_of(max_poll_records=30)
    first.subscribe(["t"], listener=told)
    count = until(lambda: len(first.assignment()) == 2, first)
    count += sum(len(rows) for rows in first.poll(2000).values())
    second = member_of()
    second.subscribe("t")
    count += until(lambda: len(first.assignment()) == len(second.assignment()) == 1, first, second)
    while count < 200:
        count += until(lambda: True, first, second) + sum(
            len(rows) for one in (first, second) for rows in one.poll(20).values()
        )
    assert [(what, len(rows)) for what, rows in told.events] == [("assigned", 2), ("revoked", 1), ("assigned", 0)]
    second.close()
    count += until(lambda: len(first.assignment()) == 2, first)
    first.close()
    assert (count, group.committed()) == (200, {0: 100, 1: 100})


def test_c7_a_commit_under_a_stale_epoch_is_made_again_under_the_next(
    group: Group, member_of: Callable[..., Consumer]
) -> None:
    """The coordinator moves the epoch with any heartbeat; its caller hears nothing of it."""
    one = member_of(enable_auto_commit=False)
    one.subscribe("t")
    until(lambda: len(one.assignment()) == 2, one)
    group.refusals = [STALE, STALE]
    one.commit({TopicPartition("t", 0): 5})
    assert group.committed() == {0: 5}
    assert len(group.commit_epochs) == 3


def test_c7_a_group_metadata_names_the_newest_epoch(group: Group, member_of: Callable[..., Consumer]) -> None:
    """A transaction under the epoch of the last poll would be refused."""
    one = member_of()
    one.subscribe("t")
    until(lambda: len(one.assignment()) == 2, one)
    group.coordinator.epoch += 1
    deadline = time.monotonic() + PATIENCE_S
    while one.group_metadata().generation_id != group.coordinator.epoch:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_c6_a_member_that_was_forgotten_commits_nothing_and_hears_that_all_is_lost(
    group: Group, member_of: Callable[..., Consumer]
) -> None:
    """It joins again with the next poll, from what is committed."""
    told = Told()
    one = member_of(enable_auto_commit=False)
    one.subscribe("t", listener=told)
    until(lambda: len(one.assignment()) == 2, one)
    before = one.group_metadata()
    group.coordinator.remove(before.member_id)
    with pytest.raises(CommitFailed, match="gone on without this member"):
        one.commit({TopicPartition("t", 0): 5})
    assert group.committed() == {}
    until(lambda: len(told.events) == 3 and len(one.assignment()) == 2, one)
    assert told.events == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])]
    after = one.group_metadata()
    assert after.member_id == before.member_id and after.generation_id > before.generation_id


def test_c6_topics_that_change_before_a_loss_is_heard_wait_for_the_listener_with_their_join(
    group: Group, member_of: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is lost must not be committed under the epoch of the next membership."""
    joins: list[int] = []

    class Counts(ConsumerRebalanceListener):
        def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
            time.sleep(0.2)  # a join that is on its way has come by then
            joins.append(sum(row.member_epoch == 0 for row in group.beats()))

    one = member_of()
    one.subscribe("t", listener=Counts())
    until(lambda: len(one.assignment()) == 2, one)
    member = one._rebalancer._member
    assert member is not None

    def lose() -> None:
        """Lose the membership between the news and the join of one poll."""
        monkeypatch.undo()
        group.coordinator.remove(member.settings.member_id)
        deadline = time.monotonic() + PATIENCE_S
        while member.state is not EpochState.FENCED:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    monkeypatch.setattr(one._rebalancer, "_match_pattern", lose)
    one.subscribe(["t", "other"], listener=Counts())
    until(lambda: len(joins) == 1 and len(one.assignment()) == 2, one)
    assert joins == [1]


def test_c6_a_listener_that_unsubscribes_reads_again_after_the_next_subscription(
    group: Group, member_of: Callable[..., Consumer]
) -> None:
    """The share of the next membership is the same as that of the one that ended in the listener."""
    one = member_of()
    group.cluster.fill("t", 5, 5)
    left: list[int] = []

    class Leaves(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            if not left:
                left.append(len(assigned))
                one.unsubscribe()

    one.subscribe("t", listener=Leaves())
    until(lambda: left == [2], one)
    one.subscribe("t")
    seen: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < 10:
        assert time.monotonic() < deadline, "its partitions belong to it, and it does not read them"
        seen += [record.offset for records in one.poll(50).values() for record in records]
    assert len(one.assignment()) == 2


@pytest.mark.parametrize(("instance", "epoch"), [(None, LEAVING_EPOCH), ("i", AWAY_EPOCH)])
def test_c5_a_close_leaves_and_a_static_member_for_a_time_only(
    group: Group, member_of: Callable[..., Consumer], instance: str | None, epoch: int
) -> None:
    one = member_of(group_instance_id=instance)
    one.subscribe("t")
    until(lambda: len(one.assignment()) == 2, one)
    one.close()
    assert (group.beats()[-1].member_epoch, group.beats()[-1].instance_id) == (epoch, instance)


def test_c5_an_unsubscribed_consumer_leaves_and_may_subscribe_at_once(
    group: Group, member_of: Callable[..., Consumer]
) -> None:
    one = member_of()
    one.subscribe("t")
    until(lambda: len(one.assignment()) == 2, one)
    one.unsubscribe()
    assert one.assignment() == frozenset()
    one.subscribe("t")
    until(lambda: len(one.assignment()) == 2, one)
    assert [row.member_epoch for row in group.beats() if row.member_epoch < 1] == [0, LEAVING_EPOCH, 0]


def test_c5_a_connection_that_breaks_costs_no_membership(group: Group, member_of: Callable[..., Consumer]) -> None:
    told = Told()
    one = member_of()
    one.subscribe("t", listener=told)
    until(lambda: len(one.assignment()) == 2, one)
    seen = len(group.beats())
    group.broker.on(BEAT, CLOSE, CLOSE, group.coordinator.answer)
    until(lambda: len(group.beats()) > seen + 4, one)
    assert told.events == [("assigned", [0, 1])]


def test_c5_a_share_that_comes_before_the_names_of_its_topics_is_announced_once(
    group: Group, member_of: Callable[..., Consumer]
) -> None:
    """A listener must not hear of nothing first, as if the group had no partition for it."""
    early: list[MetadataRequest] = []

    def metadata(request: MetadataRequest) -> MetadataResponse:
        answer = group.cluster.metadata(request)
        if group.coordinator.members and len(early) > 2:
            return answer
        early.append(request)
        return dataclasses.replace(
            answer, topics=tuple(MetadataTopic(error_code=3, name=row.name) for row in answer.topics)
        )

    group.broker.on(ApiKey.METADATA, metadata)
    told = Told()
    one = member_of()
    one.subscribe("t", listener=told)
    until(lambda: len(one.assignment()) == 2, one)
    assert told.events == [("assigned", [0, 1])]


def test_c5_what_is_asked_back_while_the_listener_takes_it_is_given_up_after_it(
    group: Group, member_of: Callable[..., Consumer]
) -> None:
    """Until then it belongs to this member, which may commit for it."""
    held: list[frozenset[int]] = []

    class Slow(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            if TopicPartition("t", 1) not in assigned:
                return
            # Another member comes while this one takes what it was given.
            seen = len(group.beats())
            group.coordinator.members["z"] = Known()
            group.coordinator._share_out()
            deadline = time.monotonic() + PATIENCE_S
            while len(group.beats()) < seen + 6:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            held.append(group.coordinator.members[one.group_metadata().member_id].held)

    group.coordinator.members["z"] = Known()
    one = member_of()
    one.subscribe("t", listener=Slow())
    until(lambda: len(one.assignment()) == 1, one)
    group.coordinator.remove("z")
    until(lambda: len(held) == 1, one)
    until(lambda: group.coordinator.members[one.group_metadata().member_id].held == {0}, one)
    assert held == [frozenset({0, 1})] and len(one.assignment()) == 1


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (35, UnsupportedVersion, "Kafka 4.0 or later.*set group_protocol='classic'"),
        (111, UnreleasedInstanceId, "rename one of the two.*poll again: the id is free once it has left"),
    ],
)
def test_c5_a_refusal_is_raised_by_each_poll_until_it_is_over(
    group: Group, member_of: Callable[..., Consumer], code: int, kind: type[Exception], words: str
) -> None:
    group.broker.on(BEAT, ConsumerGroupHeartbeatResponse(error_code=code))
    one = member_of(group_instance_id="i")
    one.subscribe("t")
    for _ in range(2):
        with pytest.raises(kind, match=words):
            until(lambda: False, one)
    group.broker.on(BEAT, group.coordinator.answer)
    until(lambda: len(one.assignment()) == 2, one)


def test_c5_a_topic_that_may_not_be_read_costs_no_partition(group: Group, member_of: Callable[..., Consumer]) -> None:
    told = Told()
    one = member_of()
    one.subscribe("t", listener=told)
    until(lambda: len(one.assignment()) == 2, one)
    group.broker.on(BEAT, ConsumerGroupHeartbeatResponse(error_code=29))
    one.subscribe(["t", "secret"], listener=told)
    for _ in range(2):
        with pytest.raises(TopicAuthorizationFailed, match="keeps what it reads"):
            until(lambda: False, one)
    group.broker.on(BEAT, group.coordinator.answer)
    seen = len(group.beats())
    while len(group.beats()) <= seen + 1:
        with contextlib.suppress(TopicAuthorizationFailed):  # what was refused before may be heard now
            until(lambda: len(group.beats()) > seen + 1, one)
    assert told.events == [("assigned", [0, 1])] and len(one.assignment()) == 2


def test_c5_a_broker_without_the_api_is_named_with_what_to_do(member_of: Callable[..., Consumer], group: Group) -> None:
    del group.broker.ranges[BEAT]
    one = member_of()
    one.subscribe("t")
    with pytest.raises(UnsupportedVersion, match=r"Group 'g' cannot be joined.*does not offer.*'classic'"):
        until(lambda: False, one)


def test_c1_a_pattern_is_matched_here_and_joined_by_names(group: Group, member_of: Callable[..., Consumer]) -> None:
    """Python's expressions, of the whole name, as in a classic group."""
    one = member_of()
    one.subscribe(pattern="[t]")
    until(lambda: len(one.assignment()) == 2, one)
    assert group.beats()[0].subscribed_topic_names == ("t",)
