"""The share of a member of the newer protocol, from ids of topics to what is read."""

from __future__ import annotations

from streamlet.kafka.consumer.reconciliation import NamedShare, Reconciliation
from streamlet.kafka.metadata.cluster import Cluster, TopicInfo, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
AB = frozenset({"a", "b"})


def cluster_of(**ids: str) -> Cluster:
    return Cluster.of([], [TopicInfo(name, topic_id) for name, topic_id in ids.items()])


def due(one: Reconciliation, cluster: Cluster, topics: frozenset[str] = AB) -> NamedShare | None:
    return one.due(cluster, topics, topics.__contains__)


def test_c5_a_share_is_taken_once() -> None:
    one, cluster = Reconciliation(), cluster_of(a="A", b="B")
    assert due(one, cluster) is None
    one.give({"A": frozenset({0, 1}), "B": frozenset({0})})
    share = due(one, cluster)
    assert share is not None and share.partitions == (A0, A1, B0)
    one.take(share)
    assert due(one, cluster) is None
    assert due(one, cluster_of(a="A", b="B")) is None, "new metadata, the same share"


def test_c5_each_share_that_is_given_is_answered_once_also_the_one_that_is_read() -> None:
    """It may have been another in between, and the coordinator waits for the word of who reads."""
    one, cluster = Reconciliation(), cluster_of(a="A")
    one.give({"A": frozenset({0})})
    first = due(one, cluster)
    assert first is not None and not one.is_taken(first)
    one.take(first)
    one.give({"A": frozenset({0, 1})})
    one.give({"A": frozenset({0})})
    again = due(one, cluster)
    assert again is not None and one.is_taken(again) and one.unanswered
    one.take(again)
    assert due(one, cluster) is None and due(one, cluster_of(a="A")) is None and not one.unanswered


def test_c5_a_topic_whose_name_is_unknown_is_read_as_soon_as_it_is_known() -> None:
    """What is known is read meanwhile."""
    one = Reconciliation()
    one.give({"A": frozenset({0}), "B": frozenset({0})})
    share = due(one, first := cluster_of(a="A"))
    assert share is not None and (share.partitions, share.unnamed) == ((A0,), ("B",))
    one.take(share)
    assert due(one, first) is None, "it is asked for once, until metadata has come"
    again = due(one, cluster_of(a="A", c="C"))
    assert again is not None and one.is_taken(again) and again.unnamed == ("B",)
    both = due(one, cluster_of(a="A", b="B"))
    assert both is not None and both.partitions == (A0, B0) and not one.is_taken(both)


def test_c5_a_first_share_without_any_name_is_not_taken_for_an_empty_one() -> None:
    """The group may answer before the first metadata has come."""
    one = Reconciliation()
    one.give({"A": frozenset({0})})
    share = due(one, cluster_of())
    assert share is not None and one.nothing_named(share) and share.unnamed == ("A",)
    share = due(one, cluster_of(a="A"))
    assert share is not None and not one.is_taken(share) and share.partitions == (A0,)


def test_c5_a_topic_that_metadata_has_lost_is_still_read() -> None:
    one = Reconciliation()
    one.give({"A": frozenset({0})})
    share = due(one, cluster_of(a="A"))
    assert share is not None
    one.take(share)
    assert due(one, cluster_of()) is None
    one.give({"A": frozenset({0, 1})})
    more = due(one, cluster_of())
    assert more is not None and more.partitions == (A0, A1)


def test_c5_a_topic_unsubscribed_and_subscribed_again_comes_back_without_a_word_of_the_coordinator() -> None:
    """It tells a share only when that changes, and may never have heard of the first change."""
    one, cluster = Reconciliation(), cluster_of(a="A", b="B")
    one.give({"A": frozenset({0}), "B": frozenset({0})})
    for topics, wanted in ((AB, (A0, B0)), (frozenset({"b"}), (B0,)), (frozenset(AB), (A0, B0))):
        share = due(one, cluster, topics)
        assert share is not None and share.partitions == wanted
        one.take(share)


def test_c5_a_topic_made_again_is_the_same_partitions_under_another_id() -> None:
    one = Reconciliation()
    one.give({"A": frozenset({0})})
    first = due(one, cluster_of(a="A"))
    assert first is not None
    one.take(first)
    one.give({"A2": frozenset({0})})
    share = due(one, cluster_of(a="A2"))
    assert share is not None and (share.partitions, share.by_id) == ((A0,), {"A2": frozenset({0})})


def test_c5_of_a_lost_membership_nothing_is_taken() -> None:
    one, cluster = Reconciliation(), cluster_of(a="A")
    one.give({"A": frozenset({0})})
    one.forget()
    assert due(one, cluster) is None
    one.give({})
    share = due(one, cluster)
    assert share is not None and share.partitions == (), "the first share counts, also an empty one"
