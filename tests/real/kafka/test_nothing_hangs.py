"""close() of each client ends in its time: nobody answers, half of the cluster is stopped, or all of it is dead; and
soon, without being given a time, when all is well.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import Producer as Confluent
from confluent_kafka.admin import AdminClient

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin, Consumer, Producer, TopicPartition
from tests.brokers import BROKERS
from tests.patience import PATIENCE_S
from tests.read_back import read_back
from tests.scripted.kafka.test_nothing_hangs import KINDS, Busy


@pytest.mark.faults
def test_close_ends_in_its_time_with_half_of_the_brokers_stopped_and_with_all_dead(
    make_topic: Callable[..., str],
) -> None:
    """All were at work before: two of three are paused (SIGSTOP), one set closes; all are killed, the other closes."""
    with DevCluster("4", brokers=3) as cluster:
        topics = {kind: make_topic(cluster, partitions=3, replication=1) for kind in KINDS}
        sets = [[Busy(kind, cluster.bootstrap_servers, topics[kind]) for kind in KINDS] for _ in range(2)]
        with contextlib.ExitStack() as left:
            for busy in [one for row in sets for one in row]:
                left.callback(busy.closes_in_time)  # a second close is nothing
                write(cluster, topics[busy.kind])
                busy.work(topics[busy.kind])
            for broker in (0, 1):
                cluster.pause(broker)
            for busy in sets[0]:
                busy.work(topics[busy.kind])
                busy.closes_in_time()
            for broker in range(3):
                cluster.kill(broker)
            for busy in sets[1]:
                busy.work(topics[busy.kind])
                busy.closes_in_time()


SOON_S = 15.0
"""Far below what the settings would let a close() without an argument wait: 30 s and more."""


@pytest.fixture(params=BROKERS)
def healthy(request: pytest.FixtureRequest) -> DevCluster:
    found: DevCluster = request.getfixturevalue(request.param)
    return found


def closes_soon(close: Callable[[], None]) -> None:
    """Without an argument; on a thread, so that one that hangs is seen as that."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            close()
        except BaseException as err:  # told to the test's own thread
            failure.append(err)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SOON_S)
    assert not thread.is_alive(), f"close() has not returned after {SOON_S} s"
    assert not failure, failure


@pytest.mark.parametrize("kind", ["plain", "idempotent", "transactional"])
def test_close_of_a_producer_sends_everything_and_ends_soon(
    healthy: DevCluster, make_topic: Callable[..., str], kind: str
) -> None:
    """Nobody flushed and nobody waited; of transactions the committed one stays, and the open one is aborted."""
    topic = make_topic(healthy, partitions=2)
    settings: dict[str, Any] = {"enable_idempotence": kind != "plain", "linger_ms": 1000, "buffer_memory": 1 << 24}
    if kind == "transactional":
        settings["transactional_id"] = topic
    producer = Producer(bootstrap_servers=healthy.bootstrap_servers, **settings)
    values = [b"%d" % number * 100 for number in range(5000)]
    if kind == "transactional":
        producer.init_transactions()
        producer.begin_transaction()
        futures = producer.send_many(topic, values)
        producer.commit_transaction()
        producer.begin_transaction()
        open_ones = producer.send_many(topic, [b"open"] * 100)
        closes_soon(producer.close)
        assert all(future.is_done for future in open_ones)
    else:
        futures = producer.send_many(topic, values)
        closes_soon(producer.close)
    assert all(future.succeeded() for future in futures)
    assert sorted(row.value or b"" for row in read_back(healthy, topic, 5000)) == sorted(values)


@pytest.mark.parametrize("kind", ["member", "assigned"])
def test_close_of_a_consumer_ends_soon(healthy: DevCluster, make_topic: Callable[..., str], kind: str) -> None:
    """In the middle of reading; a member has committed what it handed out, and the group is empty at once."""
    topic = make_topic(healthy, partitions=3)
    write(healthy, topic)
    group = f"{topic}-g" if kind == "member" else None
    consumer = Consumer(bootstrap_servers=healthy.bootstrap_servers, group_id=group, auto_offset_reset="earliest")
    if kind == "member":
        consumer.subscribe([topic])
    else:
        consumer.assign([TopicPartition(topic, number) for number in range(3)])
    taken, deadline = 0, time.monotonic() + PATIENCE_S
    while taken < 20:
        assert time.monotonic() < deadline
        taken += sum(map(len, consumer.poll(100, max_records=7).values()))
    closes_soon(consumer.close)
    if group is None:
        return
    admin = AdminClient({"bootstrap.servers": healthy.bootstrap_servers})
    assert admin.describe_consumer_groups([group])[group].result(PATIENCE_S).members == []
    (stored,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert sum(max(row.offset, 0) for row in stored.result(PATIENCE_S).topic_partitions) == taken


def test_close_of_an_administrator_ends_soon(healthy: DevCluster, make_topic: Callable[..., str]) -> None:
    """After calls to the controller, the leader and a coordinator."""
    topic = make_topic(healthy)
    admin = Admin(bootstrap_servers=healthy.bootstrap_servers)
    assert topic in admin.list_topics()
    admin.list_groups()
    closes_soon(admin.close)


def write(cluster: DevCluster, topic: str) -> None:
    """Something for the consumers to read."""
    producer = Confluent({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in range(30):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    assert producer.flush(30) == 0
