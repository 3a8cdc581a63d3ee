"""One spout over several topics, by name and by pattern, on real brokers. Librdkafka and kazoo look at the stores."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.devcluster import DevCluster
from streamlet.spouts.kafka import JsonScheme, KafkaHosts, SpoutConfig, ZkHosts, coordinator
from streamlet.spouts.kafka.errors import NoTopicMatches
from tests.spout_harness import Harness, Witness

Make = Callable[..., Any]


class Topics:
    """Topics of one test, and the offsets of a group in them, as librdkafka sees both."""

    def __init__(self, cluster: DevCluster) -> None:
        self.servers = cluster.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.servers})
        self.start = f"several{uuid.uuid4().hex[:8]}"

    def make(self, name: str, partitions: int = 2) -> str:
        topic = f"{self.start}-{name}"
        self.admin.create_topics([NewTopic(topic, partitions)])[topic].result(20)
        return topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(20)

    def committed(self, *topics: str, partitions: int = 2) -> dict[tuple[str, int], int]:
        wanted = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
        asked = [ConsumerGroupTopicPartitions(self.start, wanted)]
        found = self.admin.list_consumer_group_offsets(asked)[self.start].result(20)
        return {(row.topic, row.partition): row.offset for row in found.topic_partitions}


def read(*spouts: Harness) -> tuple[Callable[[], bool], list[Any]]:
    """Acks all that comes; whether nothing is open and all is committed, and the values so far."""
    seen: list[Any] = []

    def ack_and_look() -> bool:
        for spout in spouts:
            spout.turn()
            seen.extend(values[0] for values in spout.values())
            spout.ack_all()
        rows = [row for spout in spouts for row in spout.spout.partition_status()]
        return bool(rows) and all(row["committed"] == row["position"] == row["end"] for row in rows)

    return ack_and_look, seen


@pytest.mark.real
def test_k9_2_two_topics_with_a_scheme_each_are_read_by_two_tasks_and_stored_by_topic(
    kafka4: DevCluster, witness4: Witness, harness: Make
) -> None:
    topics = Topics(kafka4)
    orders, payments = topics.make("orders", 3), topics.make("payments", 3)
    for number in range(3):
        witness4.produce(orders, [json.dumps({"id": f"o{number}-{n}"}) for n in range(200)], number)
        witness4.produce(payments, [json.dumps({"of": {"id": f"p{number}-{n}"}}) for n in range(100)], number)
    schemes = {orders: JsonScheme(["id"]), payments: JsonScheme({"id": "of.id"})}
    config = SpoutConfig(
        KafkaHosts(topics.servers), topics=[orders, payments], id=topics.start, scheme=schemes,
        state_update_interval_ms=100,
    )  # fmt: skip
    with ThreadPoolExecutor(2) as pool:  # side by side: a task that has begun is waited for by the one that comes
        tasks = list(pool.map(lambda task: harness(config, task_index=task, task_count=2, task_id=task + 1), (0, 1)))
    done, seen = read(*tasks)
    tasks[0].until(lambda: done() and len(seen) >= 900)
    wanted = [
        f"{kind}{number}-{n}" for kind, count in (("o", 200), ("p", 100)) for number in range(3) for n in range(count)
    ]
    assert sorted(seen) == sorted(wanted)
    shares = [{(row["topic"], row["partition"]) for row in task.spout.partition_status()} for task in tasks]
    assert shares[0].isdisjoint(shares[1]) and len(shares[0] | shares[1]) == 6
    assert topics.committed(orders, payments, partitions=3) == {
        **{(orders, number): 200 for number in range(3)},
        **{(payments, number): 100 for number in range(3)},
    }
    members = topics.admin.describe_consumer_groups([topics.start])[topics.start].result(20).members
    shown = {frozenset((tp.topic, tp.partition) for tp in row.assignment.topic_partitions) for row in members}
    assert shown == {frozenset(share) for share in shares}


@pytest.mark.real
def test_a_topic_that_appears_is_read_from_its_start_and_one_that_goes_is_told_and_closed(
    kafka4: DevCluster, witness4: Witness, harness: Make, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """With start_offset="latest": what was written before it was noticed counts too."""
    monkeypatch.setattr(coordinator, "TOPIC_GONE_GRACE_S", 0.3)
    caplog.set_level("INFO")
    topics = Topics(kafka4)
    first = topics.make("first")
    witness4.produce(first, ["before"], 0)
    config = SpoutConfig(
        KafkaHosts(topics.servers, refresh_freq_secs=0.2), topics_pattern=f"{topics.start}-.*", id=topics.start,
        start_offset="latest", state_update_interval_ms=100,
    )  # fmt: skip
    spout = harness(config)
    done, seen = read(spout)
    spout.until(done)
    second = topics.make("second")
    topics.admin.create_topics([NewTopic(f"x{topics.start}-no", 1)])[f"x{topics.start}-no"].result(20)
    for number in (0, 1):
        witness4.produce(second, [f"{number}-{n}" for n in range(100)], number)
    witness4.produce(first, ["after"], 1)
    spout.until(lambda: done() and len(seen) >= 201)
    assert sorted(seen) == sorted(["after", *(f"{number}-{n}" for number in (0, 1) for n in range(100))])
    assert topics.committed(first, second) == {(first, 0): 1, (first, 1): 1, (second, 0): 100, (second, 1): 100}
    assert f"topic '{second}' has appeared" in caplog.text

    # What is open when the topic goes is finished; then its partitions are closed, and the other topic is read on.
    witness4.produce(first, ["open"], 0)
    spout.until(lambda: len(spout.tuples) == 1)
    (row,) = (row for row in spout.spout.partition_status() if (row["topic"], row["partition"]) == (first, 0))
    assert (row["oldest_open"], row["open"], row["lag"]) == (1, 1, 1)
    assert 0 <= row["open_s"] < 60 and 0 <= row["behind_s"] < 60
    topics.delete(first)
    spout.until(lambda: f"topic '{first}' is not there any more" in caplog.text)
    assert {row["topic"] for row in spout.spout.partition_status()} == {first, second}
    spout.ack_all()
    spout.until(lambda: spout.turn() or {row["topic"] for row in spout.spout.partition_status()} == {second})
    witness4.produce(second, ["still"], 0)
    spout.until(lambda: done() and seen[-1] == "still")


@pytest.mark.real
def test_in_zookeeper_the_path_holds_the_topic_and_what_one_topic_has_stored_is_taken_over(
    kafka39: DevCluster, witness39: Witness, harness: Make
) -> None:
    topics = Topics(kafka39)
    first, second = topics.make("first", 1), topics.make("second", 1)
    witness39.produce(first, ["1", "2"])
    witness39.produce(second, ["3"])
    about: dict[str, Any] = {"zk_root": "/streamlet", "id": topics.start, "state_update_interval_ms": 100}
    hosts = ZkHosts(kafka39.zookeeper or "")
    one = harness(SpoutConfig(hosts, first, **about))
    done, seen = read(one)
    one.until(lambda: done() and seen == ["1", "2"])
    one.spout.begin_close()
    one.spout.close()
    witness39.produce(first, ["4"])
    both = harness(SpoutConfig(hosts, topics=[first, second], **about), topology_id="run-2")
    done, seen = read(both)
    both.until(lambda: done() and len(seen) >= 2)
    assert sorted(seen) == ["3", "4"]
    with witness39.zookeeper() as zk:
        root = f"/streamlet/{topics.start}"
        assert json.loads(zk.get(f"{root}/{first}/partition_0")[0])["offset"] == 3
        assert json.loads(zk.get(f"{root}/{second}/partition_0")[0])["offset"] == 1
        assert sorted(zk.get_children(root)) == sorted([first, "owners", "partition_0", second])


@pytest.mark.real
def test_a_pattern_that_matches_nothing_is_refused_by_a_run_that_ends_by_itself(kafka4: DevCluster) -> None:
    """Without a topic it would end at once, as if all were done."""
    config = SpoutConfig(KafkaHosts(kafka4.bootstrap_servers), topics_pattern="ordres-.*", id="typo")
    with pytest.raises(NoTopicMatches, match=r"No topic of the cluster matches topics_pattern='ordres-\.\*'"):
        Harness(config, conf={"streamlet.until.caught.up": True}).start()
