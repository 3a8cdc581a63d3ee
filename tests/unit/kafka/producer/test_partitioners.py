"""Where records go: sticking, moving on, leaning to short queues, and what a user's partitioner may say."""

from __future__ import annotations

from collections import Counter

import pytest

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.kafka.metadata.cluster import Broker, Cluster, PartitionInfo, TopicInfo, TopicPartition
from streamlet.kafka.producer.accumulator import AccumulatorSettings, BufferPool, RecordAccumulator, Topics
from streamlet.kafka.producer.errors import PartitionerFailed
from streamlet.kafka.producer.partitioners import StickyPartition, all_replicas_down, weighted
from streamlet.kafka.producer.producer_config import ProducerConfig


def cluster(leaders: dict[int, int], brokers: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = ()) -> Cluster:
    rows = {number: PartitionInfo("t", number, leader, 0, replicas or (leader,)) for number, leader in leaders.items()}
    return Cluster.of([Broker(node, "h", node) for node in brokers], [TopicInfo("t", None, rows)])


def topics(seen: Cluster, uniform: float = 0.0, **settings: object) -> Topics:
    config = ProducerConfig.of({"bootstrap_servers": "h:1", **settings})
    accumulator = RecordAccumulator(
        AccumulatorSettings(config.batch_size, 0, 120, Backoff(0.1, 1)), BufferPool(1 << 20), None, lambda: uniform
    )
    made = Topics(config, accumulator, lambda: uniform)
    made.take_cluster(seen)
    return made


def test_p1_the_interval_partitioner_stays_for_its_interval_then_draws_again() -> None:
    """And however many bytes went there; after a send error it draws at once."""
    sticky = StickyPartition(100, interval_s=600)
    seen = cluster({0: 1, 1: 1, 2: 2})
    assert sticky.due(0.0)
    assert sticky.draw(seen, "t", 3, None, 0.5, now_s=10.0) == 1
    assert sticky.left == float("inf") and not sticky.due(609.9) and sticky.due(610.0)
    sticky.forget()
    assert sticky.due(20.0)


def test_p1_a_send_error_makes_the_interval_partitioner_choose_again() -> None:
    """Through the topic's state, as the sender tells it."""
    made = topics(cluster({0: 1, 1: 1}), partitioner="interval_sticky")
    state = made.get("t")
    assert state is not None
    assert made.keyless(state, 0.0).topic_partition.partition == 0
    made._uniform = lambda: 0.9
    assert made.keyless(state, 599.0).topic_partition.partition == 0
    made.send_failed("t")
    assert made.keyless(state, 599.5).topic_partition.partition == 1


def test_p1_keyless_records_go_to_another_partition_when_the_interval_is_over() -> None:
    """Ten minutes, unless ``interval_sticky_ms`` says otherwise."""
    for settings, interval_s in (({}, 600.0), ({"interval_sticky_ms": 2000}, 2.0)):
        made = topics(cluster({0: 1, 1: 1}), partitioner="interval_sticky", **settings)
        state = made.get("t")
        assert state is not None
        assert made.keyless(state, 50.0).topic_partition.partition == 0
        made._uniform = lambda: 0.9
        assert made.keyless(state, 50.0 + interval_s - 0.5).topic_partition.partition == 0
        assert made.keyless(state, 50.0 + interval_s).topic_partition.partition == 1


def test_p1_the_default_sticks_until_a_batch_is_full() -> None:
    """KIP-794: batch_size bytes to one partition, then another."""
    made = topics(cluster({0: 1, 1: 1}), batch_size=100)
    state = made.get("t")
    assert state is not None
    first = made.keyless(state, 0.0)
    made._uniform = lambda: 0.9
    state.sticky.left -= 99
    assert made.keyless(state, 0.0) is first
    state.sticky.left -= 1
    assert made.keyless(state, 0.0) is not first


def test_p1_keyless_records_avoid_partitions_without_a_leader() -> None:
    """As long as one has a leader."""
    made = topics(cluster({0: -1, 1: 9, 2: 1}), uniform=0.0)
    state = made.get("t")
    assert state is not None
    assert made.keyless(state, 0.0).topic_partition.partition == 2
    made.take_cluster(cluster({0: 1, 1: 1, 2: -1}))
    assert made.keyless(state, 0.0).topic_partition.partition == 0


def test_p1_short_queues_are_likelier() -> None:
    """The weight is the longest queue + 1 - its own."""
    lengths = [4, 0, 2]
    drawn = Counter(weighted([0, 1, 2], lambda number: lengths[number], step / 900) for step in range(900))
    assert drawn == {0: 100, 1: 500, 2: 300}


def test_p7_partitions_that_are_added_get_records() -> None:
    """Keys are spread over the new count; what is queued stays where it is."""
    made = topics(cluster({0: 1}))
    state = made.get("t")
    assert state is not None
    assert made.choose(state, b"foobar", None, 0).topic_partition.partition == 0
    made.take_cluster(cluster(dict.fromkeys(range(8), 1)))
    assert made.choose(state, b"foobar", None, 0).topic_partition.partition == (-790332482 & 0x7FFFFFFF) % 8


def test_p8_only_when_every_replica_is_down() -> None:
    """A living replica may become leader: then it is worth waiting."""
    info = PartitionInfo("t", 0, -1, 0, (1, 2))
    up = [TopicInfo("t", None, {0: info})]
    assert not all_replicas_down(Cluster.of([Broker(2, "h", 2)], up), info)
    assert all_replicas_down(Cluster.of([Broker(3, "h", 3)], up), info)
    assert not all_replicas_down(Cluster.of([Broker(3, "h", 3)], up), None)


def test_p8_records_stay_where_they_belong_unless_the_user_says_otherwise() -> None:
    assert ProducerConfig.of({"bootstrap_servers": "h:1"}).partition_failover == "off"


def test_p8_a_record_whose_partition_is_dead_goes_to_one_that_lives() -> None:
    """Where there is one; else it waits in its own."""
    for seen, expected in ((cluster({0: 9, 1: 1}), 1), (cluster({0: 9, 1: 8}), 0), (cluster({0: 1, 1: 1}), 0)):
        made = topics(seen, uniform=0.9, partition_failover="all")
        state = made.get("t")
        assert state is not None
        assert made.living(state, state.queues[0]) is state.queues[expected]


@pytest.mark.parametrize("answer", [3, -1, "0", None, True, 1.0])
def test_p9_an_index_out_of_range_names_partitioner_index_and_count(answer: object) -> None:
    """Whatever is no index from 0 below the count."""

    def mine(key: object, count: int) -> object:
        return answer

    made = topics(cluster({0: 1, 1: 1, 2: 1}), partitioner=mine)
    state = made.get("t")
    assert state is not None
    with pytest.raises(PartitionerFailed, match=rf"mine.*{answer!r}.*3 partitions.*0 to 2"):
        made.ask("t", state.count, b"k", None)


def test_p9_a_partitioner_gets_key_and_count_and_gives_an_index() -> None:
    """(key, number of partitions) -> index from 0; the partition key goes before the key; an object will do."""
    asked = []

    class Mine:
        def partition(self, key: object, count: int) -> int:
            asked.append((key, count))
            if key == b"bad":
                raise LookupError("no such key")
            return count - 1

    made = topics(cluster({0: 1, 1: 1}), partitioner=Mine())
    state = made.get("t")
    assert state is not None
    assert made.ask("t", state.count, b"k", None) == 1
    assert made.ask("t", state.count, b"k", {"any": "thing"}) == 1
    assert made.ask("t", state.count, None, None) == 1
    assert asked == [(b"k", 2), ({"any": "thing"}, 2), (None, 2)]
    with pytest.raises(PartitionerFailed, match=r"Mine\.partition raised LookupError: no such key"):
        made.ask("t", state.count, b"bad", None)


def test_p9_a_partition_key_decides_in_place_of_the_key() -> None:
    """With a ready partitioner too."""
    made = topics(cluster(dict.fromkeys(range(8), 1)))
    state = made.get("t")
    assert state is not None
    wanted = made.choose(state, b"foobar", None, 0)
    assert made.choose(state, b"other", b"foobar", 0) is wanted
    assert made.choose(state, None, "foobar", 0) is wanted
    assert wanted.topic_partition == TopicPartition("t", (-790332482 & 0x7FFFFFFF) % 8)


def test_p2_keys_of_the_java_hash_are_those_of_its_user() -> None:
    """A str counts as Java's String, whatever the serializer makes of it; the interval partitioner is 0.8's, too."""
    for partitioner in ("java_hash", "interval_sticky"):
        made = topics(cluster(dict.fromkeys(range(7), 1)), partitioner=partitioner)
        state = made.get("t")
        assert state is not None and made.wants_raw_keys
        assert made.choose(state, b"hello", "hello", 0) is state.queues[99162322 % 7]
        with pytest.raises(PartitionerFailed, match=r"java_hash.*float"):
            made.choose(state, b"x", 1.5, 0)


def test_a_topic_that_is_missed_for_a_while_still_takes_keyless_records() -> None:
    """An answer without its partitions, of a broker that lags or after its deletion: they wait for the next one."""
    made = topics(cluster({0: 1, 1: 1}))
    state = made.get("t")
    assert state is not None
    made.take_cluster(Cluster.of([Broker(1, "h", 1)], [TopicInfo("t", None, {}, UnknownTopicOrPartition)]))
    assert made.keyless(state, 0.0) in state.queues
