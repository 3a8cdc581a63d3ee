"""When metadata is asked for and what is believed of an answer.

All of it without a clock or a socket.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamlet.kafka.broker_errors import LeaderNotAvailable, UnknownTopicOrPartition
from streamlet.kafka.metadata.cluster import Broker, Cluster, TopicPartition
from streamlet.kafka.metadata.metadata import Metadata
from streamlet.kafka.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)

BROKERS = tuple(MetadataBroker(node_id=n, host=f"b{n}", port=9092) for n in (1, 2))


def topic(
    name: str = "t", leader: int = 1, epoch: int = 0, error: int = 0, topic_id: str | None = "i"
) -> MetadataTopic:
    part = MetadataPartition(error_code=0, partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataTopic(error_code=error, name=name, topic_id=topic_id, partitions=() if error else (part,))


def answer(*topics: MetadataTopic, brokers: tuple[MetadataBroker, ...] = BROKERS) -> MetadataResponse:
    return MetadataResponse(brokers=brokers, topics=topics, cluster_id="c", controller_id=1)


def leader_of(metadata: Metadata, name: str = "t") -> int | None:
    broker = metadata.cluster.leader_for(TopicPartition(name, 0))
    return None if broker is None else broker.node_id


@pytest.fixture
def metadata() -> Metadata:
    """Knows topic "t" since second 0."""
    found = Metadata()
    found.add_topic("t")
    assert found.update(found.next_request(), answer(topic()), 0.0)
    return found


def test_a_new_one_wants_an_update_at_once() -> None:
    """Nothing is known, nothing was tried."""
    metadata = Metadata()
    assert metadata.update_requested and metadata.time_to_next_update(0.0) == 0.0
    assert metadata.next_request().request.topics == ()


def test_m1_age_makes_it_due(metadata: Metadata) -> None:
    """300 s after the last success, by ``metadata.max.age.ms``."""
    assert metadata.time_to_next_update(10.0) == 290.0
    assert metadata.time_to_next_update(300.0) == 0.0


def test_m1_a_request_waits_for_the_back_off_only(metadata: Metadata) -> None:
    """100 ms after the last answer, however often it is asked for."""
    version = metadata.request_update()
    assert version == metadata.update_version == 1
    assert metadata.time_to_next_update(0.0) == pytest.approx(0.1)
    assert metadata.time_to_next_update(0.2) == 0.0


def test_m1_the_age_counts_from_the_last_success(metadata: Metadata) -> None:
    """Asked at 290 s without an answer: it is due at 300 s all the same, and then 300 s after that success."""
    metadata.failed_update(290.0)
    assert (metadata.last_refresh_s, metadata.last_success_s) == (290.0, 0.0)
    assert metadata.time_to_next_update(290.5) == 9.5
    metadata.update(metadata.next_request(), answer(topic()), 301.0)
    assert (metadata.last_refresh_s, metadata.last_success_s) == (301.0, 301.0)
    assert metadata.time_to_next_update(302.0) == 299.0


def test_m1_failures_back_off_up_to_a_second(metadata: Metadata) -> None:
    """The cluster stays, the waits double: 0.1, 0.2, 0.4, 0.8, 1.0, 1.0."""
    known, waits = metadata.cluster, []
    metadata.request_update()
    for _ in range(6):
        metadata.failed_update(10.0)
        waits.append(round(metadata.time_to_next_update(10.0), 3))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert metadata.cluster is known and metadata.last_refresh_s == 10.0 and metadata.last_success_s == 0.0


def test_answers_that_tell_nothing_new_are_asked_for_ever_more_slowly(metadata: Metadata) -> None:
    """KIP-580: an election under way draws no storm; a caller with news of its own starts afresh."""
    waits = []
    for _ in range(4):
        metadata.request_update(reset_equivalent=False)
        metadata.update(metadata.next_request(), answer(topic()), 10.0)
        metadata.request_update(reset_equivalent=False)
        waits.append(round(metadata.time_to_next_update(10.0), 3))
    assert waits == [0.1, 0.2, 0.4, 0.8]
    metadata.request_update()
    metadata.update(metadata.next_request(), answer(topic(epoch=5)), 20.0)
    metadata.request_update(reset_equivalent=False)
    assert metadata.time_to_next_update(20.0) == pytest.approx(0.1)


def test_m4_a_new_topic_is_asked_for_at_once_and_alone(metadata: Metadata) -> None:
    """And its answer is merged with what is known."""
    assert metadata.add_topic("u") and not metadata.add_topic("u")
    assert metadata.time_to_next_update(0.001) == 0.0
    ask = metadata.next_request()
    assert ask.partial and [row.name for row in ask.request.topics or ()] == ["u"]
    metadata.update(ask, answer(topic("u", leader=2)), 1.0)
    assert (leader_of(metadata), leader_of(metadata, "u")) == (1, 2)
    assert metadata.last_success_s == 0.0 and not metadata.update_requested


def test_an_answer_from_before_the_newest_topic_does_not_settle_it(metadata: Metadata) -> None:
    """``request_version`` tells that the question was older."""
    metadata.request_update()
    ask = metadata.next_request()
    metadata.add_topic("u")
    metadata.update(ask, answer(topic()), 1.0)
    assert metadata.update_requested
    assert [row.name for row in metadata.next_request().request.topics or ()] == ["u"]


def test_an_answer_without_brokers_is_a_failed_update(metadata: Metadata) -> None:
    """The cache is never wiped by a broker that knows nothing."""
    known = metadata.cluster
    metadata.request_update()
    assert not metadata.update(metadata.next_request(), answer(brokers=()), 5.0)
    assert metadata.cluster is known and metadata.update_version == 1 and metadata.update_requested


def test_m5_an_older_leader_epoch_is_not_believed(metadata: Metadata) -> None:
    """A broker that lags behind must not send us back to the old leader."""
    metadata.update(metadata.next_request(), answer(topic(leader=2, epoch=4)), 1.0)
    metadata.update(metadata.next_request(), answer(topic(leader=1, epoch=3)), 2.0)
    assert leader_of(metadata) == 2 and metadata.cluster.leader_epoch(TopicPartition("t", 0)) == 4
    metadata.update(metadata.next_request(), answer(topic(leader=1, epoch=4)), 3.0)
    assert leader_of(metadata) == 1


def test_a_topic_made_again_begins_at_epoch_0(metadata: Metadata) -> None:
    """Another topic id: what was seen of the old one counts no longer."""
    metadata.update(metadata.next_request(), answer(topic(leader=2, epoch=9)), 1.0)
    metadata.update(metadata.next_request(), answer(topic(leader=1, epoch=0, topic_id="j")), 2.0)
    assert leader_of(metadata) == 1 and metadata.cluster.topic_id("t") == "j"
    assert metadata.cluster.leader_epoch(TopicPartition("t", 0)) == 0


def test_a_topic_made_again_is_known_as_such_though_it_was_missing_in_between(metadata: Metadata) -> None:
    """Else leaders of the new one are not believed until their epochs pass those of the old one."""
    metadata.update(metadata.next_request(), answer(topic(leader=2, epoch=5)), 1.0)
    metadata.update(metadata.next_request(), answer(topic(error=3, topic_id=None)), 2.0)
    metadata.update(metadata.next_request(), answer(topic(leader=1, epoch=0, topic_id="j")), 3.0)
    metadata.update(metadata.next_request(), answer(topic(leader=2, epoch=1, topic_id="j")), 4.0)
    assert leader_of(metadata) == 2


def test_m4_stale_errors_in_an_answer_ask_for_another(metadata: Metadata) -> None:
    """Of a topic or of a partition; an election keeps the partitions that are known."""
    metadata.update(metadata.next_request(), answer(topic(error=5)), 1.0)
    assert metadata.update_requested
    info = metadata.cluster.topics["t"]
    assert info.error is LeaderNotAvailable and len(info.partitions) == 1
    metadata.update(metadata.next_request(), answer(topic(error=3)), 2.0)
    info = metadata.cluster.topics["t"]
    assert info.error is UnknownTopicOrPartition and metadata.cluster.partition_count("t") is None
    part = MetadataPartition(error_code=5, partition_index=0, leader_id=-1, leader_epoch=1)
    metadata.update(metadata.next_request(), answer(MetadataTopic(error_code=0, name="t", partitions=(part,))), 3.0)
    assert metadata.update_requested and leader_of(metadata) is None
    assert metadata.cluster.available_partitions_for("t") == ()


def test_topics_nobody_asked_about_are_left_out(metadata: Metadata) -> None:
    """And one that is asked about no longer leaves with the next full answer."""
    metadata.request_update()
    metadata.update(metadata.next_request(), answer(topic(), topic("other")), 1.0)
    assert set(metadata.cluster.topics) == {"t"}
    metadata.remove_topic("t")
    metadata.request_update()
    metadata.update(metadata.next_request(), answer(), 2.0)
    assert not metadata.cluster.topics


def test_m1_listeners_see_each_update_and_a_faulty_one_costs_nothing(
    metadata: Metadata, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, the update stands, the others are called."""
    seen: list[Cluster] = []

    def faulty(_cluster: Cluster) -> None:
        raise ZeroDivisionError("mine")

    metadata.add_listener(faulty)
    metadata.add_listener(seen.append)
    with caplog.at_level(logging.ERROR):
        assert metadata.update(metadata.next_request(), answer(topic()), 1.0)
    assert seen == [metadata.cluster] and "mine" in caplog.text


def test_m1_the_cluster_has_the_maps_of_the_article(metadata: Metadata) -> None:
    """Brokers by id, partitions by topic, by name, by leader, and those with a leader; the ids beside them."""
    cluster = metadata.cluster
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 1)
    (info,) = cluster.partitions_for("t")
    assert cluster.brokers[1] == Broker(1, "b1", 9092) and str(cluster.brokers[1]) == "b1:9092 (id 1)"
    assert cluster.partition(TopicPartition("t", 0)) is info and cluster.partition(TopicPartition("t", 1)) is None
    assert cluster.partitions_led_by(1) == (info,) == cluster.available_partitions_for("t")
    assert cluster.partitions_led_by(2) == () == cluster.partitions_for("u")
    assert info.topic_partition == TopicPartition("t", 0) and str(info.topic_partition) == "t-0"


def test_m1_the_cluster_tells_internal_topics_from_those_the_user_may_not_see() -> None:
    """And before the first answer that only the bootstrap addresses are known; a failed update leaves it so."""
    metadata = Metadata()
    for name in ("t", "secret", "__consumer_offsets"):
        metadata.add_topic(name)
    metadata.update(metadata.next_request(), answer(brokers=()), 0.0)
    before = metadata.cluster
    assert before.is_bootstrap_configured and before.unauthorized_topics == before.internal_topics == frozenset()
    hidden = MetadataTopic(error_code=0, name="__consumer_offsets", is_internal=True)
    metadata.update(metadata.next_request(), answer(topic(), topic("secret", error=29), hidden), 1.0)
    assert not metadata.cluster.is_bootstrap_configured
    assert metadata.cluster.unauthorized_topics == {"secret"}
    assert metadata.cluster.internal_topics == {"__consumer_offsets"}


def test_m5_a_producers_topic_expires_when_it_is_not_used(metadata: Metadata) -> None:
    """After ``metadata_max_idle_ms``, with the next answer; each use renews it; without the setting it never does."""
    assert metadata.topics == {"t"}
    metadata.update(metadata.next_request(), answer(topic()), 1e6)
    assert metadata.topics == {"t"}
    producers = Metadata(topic_idle_s=300.0)
    producers.add_topic("idle", 0.0)
    producers.add_topic("used", 0.0)
    producers.update(producers.next_request(), answer(topic("idle"), topic("used")), 1.0)
    assert not producers.add_topic("used", 200.0)
    producers.request_update()
    producers.update(producers.next_request(), answer(topic("idle"), topic("used")), 299.0)
    assert producers.topics == {"idle", "used"}
    producers.request_update()
    producers.update(producers.next_request(), answer(topic("idle"), topic("used")), 300.0)
    assert producers.topics == {"used"} == set(producers.cluster.topics)
    assert producers.add_topic("idle", 301.0) and producers.next_request().partial


def test_m5_a_topic_that_was_never_answered_for_does_not_expire() -> None:
    """However long the brokers were away: whoever waits for it must not wait for ever."""
    metadata = Metadata(topic_idle_s=300.0)
    metadata.update(metadata.next_request(), answer(), 0.0)
    metadata.add_topic("new", 0.0)
    metadata.failed_update(500.0)
    ask = metadata.next_request()
    assert [row.name for row in ask.request.topics or ()] == ["new"]
    metadata.update(ask, answer(topic("new")), 501.0)
    assert metadata.cluster.partition_count("new") == 1


def test_m5_all_topics_are_asked_about_on_demand(metadata: Metadata) -> None:
    """For a pattern subscription: at once, keeping what comes; and back to those of interest."""
    metadata.set_all_topics(True)
    assert metadata.all_topics and metadata.time_to_next_update(0.0) == 0.0
    ask = metadata.next_request()
    assert ask.request.topics is None
    metadata.update(ask, answer(topic(), topic("other", leader=2)), 1.0)
    assert set(metadata.cluster.topics) == {"t", "other"} and not metadata.update_requested
    metadata.add_topic("u")
    assert metadata.next_request().request.topics is None
    metadata.update(metadata.next_request(), answer(topic(), topic("other"), topic("u")), 2.0)
    metadata.set_all_topics(False)
    metadata.update(metadata.next_request(), answer(topic(), topic("u")), 3.0)
    assert set(metadata.cluster.topics) == {"t", "u"}


def test_m5_an_answer_asked_before_the_mode_changed_does_not_settle_it(metadata: Metadata) -> None:
    """The question was about some topics, and all are wanted now."""
    metadata.request_update()
    ask = metadata.next_request()
    metadata.set_all_topics(True)
    metadata.update(ask, answer(topic()), 1.0)
    assert metadata.update_requested and metadata.next_request().request.topics is None


def test_a_leader_named_by_an_error_is_believed_when_its_epoch_is_newer(metadata: Metadata) -> None:
    """KIP-951: of a known partition, at a known broker or one whose endpoint came along; listeners hear of it."""
    seen: list[Cluster] = []
    metadata.add_listener(seen.append)
    tp, version = TopicPartition("t", 0), metadata.update_version
    assert not metadata.update_leader(tp, 2, 0)
    assert not metadata.update_leader(tp, 3, 1)
    assert not metadata.update_leader(TopicPartition("t", 1), 2, 1)
    assert not metadata.update_leader(TopicPartition("u", 0), 2, 1)
    assert not seen and leader_of(metadata) == 1
    assert metadata.update_leader(tp, 3, 1, [Broker(3, "b3", 9092)])
    assert metadata.cluster.leader_for(tp) == Broker(3, "b3", 9092) and seen == [metadata.cluster]
    assert metadata.cluster.leader_epoch(tp) == 1 and metadata.update_version == version
    metadata.update(metadata.next_request(), answer(topic(leader=1, epoch=0)), 2.0)
    assert metadata.cluster.leader_epoch(tp) == 1


class Refresh(RuleBasedStateMachine):
    """Any order of events: the clock forward, requests, answers good and bad."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = Metadata()
        self.now = 0.0
        self.last_answer: float | None = None
        self.epoch = -1

    @rule(seconds=st.floats(0.0, 400.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(reset=st.booleans())
    def asked_for(self, reset: bool) -> None:
        self.metadata.request_update(reset_equivalent=reset)

    @rule(epoch=st.integers(0, 5), brokers=st.booleans())
    def answered(self, epoch: int, brokers: bool) -> None:
        if self.metadata.time_to_next_update(self.now) > 0:
            return
        before = self.metadata.update_version
        rows = BROKERS if brokers else ()
        took = self.metadata.update(self.metadata.next_request(), answer(topic(epoch=epoch), brokers=rows), self.now)
        self.last_answer = self.now
        assert took == brokers and self.metadata.update_version == before + took

    @rule(name=st.sampled_from(["t", "u"]))
    def topic_added(self, name: str) -> None:
        if self.metadata.add_topic(name):
            self.last_answer = None
            assert self.metadata.time_to_next_update(self.now) == 0.0

    @invariant()
    def never_sooner_than_the_back_off_nor_later_than_the_age(self) -> None:
        wait = self.metadata.time_to_next_update(self.now)
        assert 0.0 <= wait <= 300.0 + 1e-6
        if self.last_answer is not None:
            assert wait + self.now - self.last_answer >= 0.1 - 1e-6
            assert not (self.metadata.update_requested and self.now - self.last_answer >= 1.0 and wait > 0)

    @invariant()
    def epochs_never_go_back(self) -> None:
        info = self.metadata.cluster.partition(TopicPartition("t", 0))
        if info is not None:
            assert info.leader_epoch >= self.epoch
            self.epoch = info.leader_epoch


Refresh.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRefresh = Refresh.TestCase


def test_a_topic_made_again_after_it_was_missed_begins_at_epoch_0(metadata: Metadata) -> None:
    """An answer between the two that says it is unknown must not hide that this is another topic."""
    metadata.update(metadata.next_request(), answer(topic(epoch=5)), 1.0)
    metadata.request_update()
    metadata.update(metadata.next_request(), answer(topic(error=3, topic_id=None)), 2.0)
    metadata.request_update()
    metadata.update(metadata.next_request(), answer(topic(leader=1, epoch=0, topic_id="j")), 3.0)
    metadata.request_update()
    metadata.update(metadata.next_request(), answer(topic(leader=2, epoch=1, topic_id="j")), 4.0)
    assert leader_of(metadata) == 2


def test_epochs_of_topics_that_are_asked_about_no_longer_are_forgotten() -> None:
    """They would be kept for ever."""
    metadata = Metadata(topic_idle_s=10.0)
    metadata.add_topic("t", 0.0)
    metadata.update(metadata.next_request(), answer(topic(epoch=5)), 0.0)
    metadata.request_update()
    metadata.update(metadata.next_request(), answer(), 20.0)
    metadata.add_topic("t", 20.0)
    for leader in (1, 2):
        metadata.request_update()
        metadata.update(metadata.next_request(), answer(topic(leader=leader, epoch=4)), 21.0)
    assert leader_of(metadata) == 2


def test_an_answer_with_the_id_of_an_earlier_topic_of_that_name_is_not_believed(metadata: Metadata) -> None:
    """A broker that lags behind gives it: taken for a topic made again, it would reset positions twice."""
    metadata.update(metadata.next_request(), answer(topic(topic_id="j", leader=2, epoch=3)), 1.0)
    assert metadata.cluster.topic_id("t") == "j" and not metadata.update_requested
    metadata.update(metadata.next_request(), answer(topic(topic_id="i", epoch=7)), 2.0)
    assert metadata.cluster.topic_id("t") == "j" and leader_of(metadata) == 2
    assert metadata.update_requested, "another broker is asked"
    metadata.update(metadata.next_request(), answer(topic(topic_id="j", leader=1, epoch=4)), 3.0)
    assert leader_of(metadata) == 1 and not metadata.update_requested
    metadata.update(metadata.next_request(), answer(topic(error=3)), 4.0)
    metadata.update(metadata.next_request(), answer(topic(topic_id="i")), 5.0)
    assert leader_of(metadata) is None, "nor while the present one is missing"
