"""The cluster as a value: who leads what, and who is reached over which connection."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from streamlet.base.errors import WrongArgument
from streamlet.kafka.broker_errors import LeaderNotAvailable
from streamlet.kafka.metadata.cluster import (
    NO_LEADER,
    UNKNOWN_EPOCH,
    UNKNOWN_NODE,
    Address,
    Broker,
    Cluster,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)

ONE, TWO = Broker(1, "a", 9092), Broker(2, "b", 9092)


def topic(name: str, *leaders: int) -> TopicInfo:
    """A topic with one partition a leader."""
    return TopicInfo(name, "id", {n: PartitionInfo(name, n, leader, n + 3) for n, leader in enumerate(leaders)})


CLUSTER = Cluster.of([ONE, TWO], [topic("t", 2, NO_LEADER, 7, 1), TopicInfo("gone", error=LeaderNotAvailable)])


def test_a_leader_is_one_of_the_living_brokers_or_nobody() -> None:
    """Partition 1 has none; that of partition 2 is down, and no broker of this id is known."""
    leaders = [CLUSTER.leader_for(TopicPartition("t", n)) for n in range(5)]
    assert leaders == [TWO, None, None, ONE, None]
    assert CLUSTER.leader_for(TopicPartition("gone", 0)) is CLUSTER.leader_for(TopicPartition("never", 0)) is None
    assert [info.partition for info in CLUSTER.available_partitions_for("t")] == [0, 3]


def test_partitions_come_by_number_whatever_order_the_answer_had() -> None:
    info = TopicInfo("t", None, {n: PartitionInfo("t", n) for n in (2, 0, 1)})
    assert [row.partition for row in Cluster.of([], [info]).partitions_for("t")] == [0, 1, 2]


def test_a_topic_with_an_error_is_not_taken_for_one_without_partitions() -> None:
    for name in ("gone", "never"):
        assert CLUSTER.partition_count(name) is None and not CLUSTER.has(name) and CLUSTER.partitions_for(name) == ()
    assert CLUSTER.partition_count("t") == 4
    assert CLUSTER.has("t") and CLUSTER.has("t", 3) and not CLUSTER.has("t", 4)


def test_what_is_not_known_has_its_own_number() -> None:
    assert CLUSTER.leader_epoch(TopicPartition("t", 3)) == 6
    assert CLUSTER.leader_epoch(TopicPartition("t", 9)) == UNKNOWN_EPOCH
    assert CLUSTER.topic_id("t") == "id" and CLUSTER.topic_id("gone") is None


def test_each_broker_knows_what_it_leads_in_all_topics() -> None:
    cluster = Cluster.of([ONE, TWO], [topic("t", 2, 1), topic("u", 1)])
    led = {node: [str(info.topic_partition) for info in cluster.partitions_led_by(node)] for node in (1, 2, 3)}
    assert led == {1: ["t-1", "u-0"], 2: ["t-0"], 3: []}


def test_a_cluster_cannot_be_changed_by_who_reads_it() -> None:
    for table in (CLUSTER.brokers, CLUSTER.topics):
        with pytest.raises(TypeError):
            table["x"] = None  # type: ignore[index]


def test_one_broker_has_one_connection_for_each_purpose() -> None:
    """A bootstrap address is met again by its id, and keeps its connection; a group's coordinator has its own."""
    assert Broker(UNKNOWN_NODE, "a", 9092).address == ONE.address == Address("a", 9092)
    group = ONE.dedicated("group")
    assert group.address != ONE.address and group.address == Address("a", 9092, "group")
    assert Broker(1, "c", 9092).address != ONE.address


def test_the_rack_is_no_part_of_who_a_broker_is() -> None:
    assert Broker(1, "a", 9092, "rack-1") == ONE


@pytest.mark.parametrize(
    ("broker", "text"),
    [
        (Broker(UNKNOWN_NODE, "a", 9092), "a:9092"),
        (Broker(3, "::1", 9092), "[::1]:9092 (id 3)"),
        (Broker(3, "a", 9092, purpose="group"), "a:9092 (id 3, group)"),
    ],
)
def test_a_broker_is_written_as_one_types_its_address(broker: Broker, text: str) -> None:
    assert str(broker) == text


def test_any_tuple_of_topic_and_number_is_a_partition() -> None:
    class Theirs(NamedTuple):
        topic: str
        partition: int

    assert TopicPartition.of(Theirs("t", 0)) == TopicPartition.of(("t", 0)) == TopicPartition("t", 0)


@pytest.mark.parametrize("value", [("t", -1), ("t", True), ("", 0), ("t", "0"), ("t",), ("t", 0, 1), "t-0", None, 5])
def test_anything_else_is_refused_with_how_to_write_it(value: Any) -> None:
    with pytest.raises(WrongArgument, match=r"is not a partition: write TopicPartition\(topic, number\)"):
        TopicPartition.of(value)
