"""Members that were away, on real brokers: one whose place was kept, and one the group has gone on without."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin, Consumer, KafkaError, Producer, TopicPartition
from tests.consumers import take, until

Make = Callable[..., Consumer]
QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000}


def test_c5_a_static_leader_that_comes_back_notices_new_partitions(
    cluster: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """The group goes on without a rebalance, and the one who leads it again watches its topics (KIP-814)."""
    topic = make_topic(cluster, partitions=2)
    names = {"group_id": topic, "group_instance_id": "a", "metadata_max_age_ms": 500, **QUICK}
    first = make_consumer(cluster, topic, **names)
    until([first], lambda: len(first.assignment()) == 2)
    generation = first.group_metadata().generation_id
    first.close()
    again = make_consumer(cluster, topic, **names)
    until([again], lambda: len(again.assignment()) == 2)
    assert again.group_metadata().generation_id == generation
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_partitions({topic: 3})
    until([again], lambda: len(again.assignment()) == 3)


def test_c9_a_member_the_group_has_gone_on_without_commits_in_no_transaction(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """What it gathered over several polls belongs to others by now, also when a poll has told it so already."""
    topic = make_topic(cluster)
    produce(cluster, topic, [b"x"] * 3)
    names = {"group_id": topic, "enable_auto_commit": False, **QUICK}
    slow = make_consumer(cluster, max_poll_interval_ms=1000, **names)
    slow.subscribe([topic])
    take(slow, 3)
    heir = make_consumer(cluster, topic, **names)
    until([heir], lambda: bool(heir.assignment()))
    slow.poll(0)
    assert slow.assignment() == frozenset(), "it was told"
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(KafkaError, match=r"UnknownMemberId|IllegalGeneration|FencedInstanceId|gone on without"):
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 3}, slow.group_metadata())
        producer.abort_transaction()
    assert heir.committed(TopicPartition(topic, 0)) == {}
