"""close() of each client ends in its time: nobody answers, half of the cluster is stopped, or all of it is dead; and
soon, without being given a time, when all is well.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import Producer as Confluent
from confluent_kafka.admin import AdminClient

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin, ClientConfig, Consumer, KafkaClient, KafkaError, Producer, TopicPartition
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest
from tests.brokers import BROKERS
from tests.kafka.producer.witness import read_back
from tests.patience import PATIENCE_S

CLOSE_S = 1.0
"""What close is given."""
LATE_S = 6.0
"""How much later it may return on a machine that has other things to do: far below every other time-out here."""
KINDS = ["client", "producer", "consumer", "member", "admin", "transaction"]


class Busy:
    """One client of each kind, with something under way, made while the servers were well or not."""

    def __init__(self, kind: str, servers: str, topic: str) -> None:
        self.kind = kind
        self.futures: list[Any] = []
        self.client = getattr(self, f"_{kind}")({"bootstrap_servers": servers, "request_timeout_ms": 20_000}, topic)

    def _client(self, settings: dict[str, Any], _topic: str) -> KafkaClient:
        return KafkaClient(ClientConfig.of(settings))

    def _producer(self, settings: dict[str, Any], _topic: str) -> Producer:
        return Producer(**settings, max_block_ms=500)

    def _transaction(self, settings: dict[str, Any], topic: str) -> Producer:
        return Producer(**settings, max_block_ms=500, transactional_id=f"{topic}-hangs")

    def _consumer(self, settings: dict[str, Any], topic: str) -> Consumer:
        consumer = Consumer(**settings, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, number) for number in range(3)])
        return consumer

    def _member(self, settings: dict[str, Any], topic: str) -> Consumer:
        return Consumer(topic, **settings, group_id=f"{topic}-g", auto_offset_reset="earliest")

    def _admin(self, settings: dict[str, Any], _topic: str) -> Admin:
        return Admin(**settings)

    def work(self, topic: str) -> None:
        """Begin something that needs an answer; whatever is known to fail may fail."""
        with contextlib.suppress(KafkaError):
            if self.kind == "client":
                self.futures.append(self.client.send(FindCoordinatorRequest(key="g")))
                self.client.poll(0.05)
            elif self.kind == "producer":
                self.futures += [self.client.send(topic, b"x", partition=number) for number in range(3)]
            elif self.kind == "transaction":
                if not self.futures:
                    self.client.init_transactions()
                    self.client.begin_transaction()
                self.futures += [self.client.send(topic, b"x", partition=number) for number in range(3)]
            elif self.kind == "admin":
                self.client.list_topics(timeout=0.3)
            else:
                for _ in range(4):
                    self.client.poll(50)

    def closes_in_time(self) -> None:
        """On a thread, so that one that hangs is seen as that; what was under way has an end."""
        failure: list[BaseException] = []

        def close() -> None:
            try:
                self.client.close(*(() if self.kind == "admin" else (CLOSE_S,)))  # an Admin has nothing to wait for
            except BaseException as err:  # told to the test's own thread
                failure.append(err)

        thread = threading.Thread(target=close, daemon=True)
        start = time.monotonic()
        thread.start()
        thread.join(CLOSE_S + LATE_S)
        assert not thread.is_alive(), (
            f"close() of a {self.kind} has not returned after {time.monotonic() - start:.1f} s"
        )
        assert not failure or isinstance(failure[0], KafkaError), failure
        for future in self.futures:
            assert future.done if self.kind == "client" else future.is_done


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that accepts, as often as is wanted, and never says a word."""
    accepted: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted.append(listener.accept()[0])

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    for one in (listener, *accepted):
        one.close()


@pytest.mark.parametrize("kind", KINDS)
def test_close_ends_in_its_time_when_a_socket_accepts_and_never_answers(kind: str, mute: str) -> None:
    """From the first word on."""
    busy = Busy(kind, mute, "t")
    busy.work("t")
    busy.closes_in_time()


@pytest.mark.parametrize("kind", KINDS)
def test_close_ends_in_its_time_when_nobody_listens(kind: str) -> None:
    """Each connection is refused at once."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        server = f"127.0.0.1:{gone.getsockname()[1]}"
    busy = Busy(kind, server, "t")
    busy.work("t")
    busy.closes_in_time()


@pytest.mark.real
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


@pytest.mark.real
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


@pytest.mark.real
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


@pytest.mark.real
def test_close_of_an_administrator_ends_soon(healthy: DevCluster, make_topic: Callable[..., str]) -> None:
    """After calls to the controller, the leader and a coordinator."""
    topic = make_topic(healthy)
    admin = Admin(bootstrap_servers=healthy.bootstrap_servers)
    assert topic in admin.list_topics()
    admin.list_groups()
    closes_soon(admin.close)


def write(cluster: DevCluster, topic: str) -> None:
    """Something for the consumers to read."""
    producer = Confluent({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(30):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    assert producer.flush(30) == 0
