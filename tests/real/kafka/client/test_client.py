"""The client against real brokers; what it reads is compared with what librdkafka wrote and sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from streamlet.devcluster import DevCluster
from streamlet.kafka import ClientConfig, KafkaClient, RequestFuture, TopicPartition
from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.kafka.client.group_requests import GroupOffsetCalls, OffsetAndMetadata
from streamlet.kafka.client.leader_requests import (
    FetchPosition,
    FetchSettings,
    fetch,
    list_offsets,
    offsets_for_leader_epoch,
)
from streamlet.kafka.errors import Disconnected, KafkaError
from streamlet.kafka.protocol.messages.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from streamlet.kafka.protocol.messages.metadata import MetadataRequest
from tests.patience import PATIENCE_S

MakeTopic = Callable[..., str]


@pytest.fixture(params=["kafka39", "kafka4"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    return request.getfixturevalue(request.param)


@pytest.fixture
def client(cluster: DevCluster) -> Iterator[KafkaClient]:
    with KafkaClient(ClientConfig(cluster.bootstrap_servers)) as client:
        client.bootstrap(10)
        yield client


def produce(cluster: DevCluster, topic: str, values: list[bytes], partition: int = 0, **config: object) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **config})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0


def read_all(client: KafkaClient, tp: TopicPartition, start: int = 0, **settings: object) -> list[tuple[int, bytes]]:
    """Every (offset, value) up to the log's end, through our client."""
    leader = client.cluster.leader_for(tp)
    assert leader is not None
    committed = bool(settings.get("read_committed", True))
    ends = list_offsets(client, leader, {tp: LATEST_TIMESTAMP}, read_committed=committed)
    end = client.wait(ends, 10)[tp].offset
    found, position = [], start
    while position < end:
        chosen = FetchSettings(fetch_max_wait_ms=100, **settings)  # type: ignore[arg-type]
        part = client.wait(fetch(client, leader, {tp: FetchPosition(position)}, chosen), 10)[tp]
        for batch in part.batches():
            found += [(offset, value) for offset, value in zip(batch.offsets(), batch.values, strict=True)]
            position = batch.next_offset
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_wrote_is_read(
    cluster: DevCluster, client: KafkaClient, make_topic: MakeTopic, codec: str
) -> None:
    """Every record of every codec arrives with its offset, from any position on."""
    topic = make_topic(cluster, partitions=2)
    values = [b"line %d" % number * (number % 7) for number in range(3000)]
    produce(cluster, topic, values, 1, **{"compression.type": codec})
    client.wait_on_metadata(topic, 10)
    tp = TopicPartition(topic, 1)
    assert read_all(client, tp) == list(enumerate(values))
    assert read_all(client, tp, 1234) == list(enumerate(values))[1234:]
    assert read_all(client, TopicPartition(topic, 0)) == []


def test_offsets_by_time_and_ends(cluster: DevCluster, client: KafkaClient, make_topic: MakeTopic) -> None:
    """Earliest, latest and a time give the offsets that librdkafka gives."""
    topic = make_topic(cluster)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=1_700_000_000_000 + number * 1000)
    assert producer.flush(20) == 0
    client.wait_on_metadata(topic, 10)
    tp = TopicPartition(topic, 0)
    leader = client.cluster.leader_for(tp)
    assert leader is not None
    asked = {EARLIEST_TIMESTAMP: 0, LATEST_TIMESTAMP: 10, 1_700_000_003_500: 4, 1_800_000_000_000: -1}
    for timestamp, offset in asked.items():
        row = client.wait(list_offsets(client, leader, {tp: timestamp}), 10)[tp]
        assert (row.error, row.offset) == (None, offset)
    epoch = client.cluster.leader_epoch(tp)
    end = client.wait(offsets_for_leader_epoch(client, leader, {tp: (epoch, epoch)}), 10)[tp]
    assert (end.error, end.leader_epoch, end.end_offset) == (None, epoch, 10)


def test_read_committed_sees_no_aborted_record(
    cluster: DevCluster, client: KafkaClient, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """Aborted transactions are hidden, committed ones seen, an open one bounds the log's end."""
    topic = make_topic(cluster)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic_name()}
    producer = Producer(config)
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(50):
            producer.produce(topic, b"aborted" if number % 2 else b"kept", partition=0)
        producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    produce(cluster, topic, [b"plain"])
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(20)
    client.wait_on_metadata(topic, 10)
    tp = TopicPartition(topic, 0)
    assert [value for _, value in read_all(client, tp)] == [b"kept"] * 150 + [b"plain"]
    everything = [value for _, value in read_all(client, tp, read_committed=False)]
    assert everything == ([b"kept"] * 50 + [b"aborted"] * 50) * 3 + [b"plain", b"open"]
    producer.abort_transaction(20)


def test_group_offsets_are_those_other_clients_see(
    cluster: DevCluster, client: KafkaClient, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """A commit of ours is read by librdkafka, and one of librdkafka's by us, leader epoch and all."""
    topic, group = make_topic(cluster, partitions=3), topic_name()
    store = GroupOffsetCalls(client, group)
    mine = {TopicPartition(topic, n): OffsetAndMetadata(10 + n, 0, f"m{n}") for n in range(2)}
    assert client.wait_retrying(lambda: store.fetch(mine), 30) == {}
    stored = client.wait_retrying(lambda: store.commit(mine), 30)
    assert set(stored.values()) == {None}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    asked = ConsumerGroupTopicPartitions(group, [ConfluentPartition(topic, n) for n in range(3)])
    seen = admin.list_consumer_group_offsets([asked])[group].result(20).topic_partitions
    # Not its metadata: the binding reads past the end of it (seen with 2.16) and may fail on what lies there.
    assert [(row.offset, row.leader_epoch) for row in seen[:2]] == [(10, 0), (11, 0)]
    assert seen[2].offset < 0
    theirs = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    theirs.commit(offsets=[ConfluentPartition(topic, 2, 77)], asynchronous=False)
    theirs.close()
    everything = client.wait_retrying(lambda: store.fetch(None), 30)
    assert everything == mine | {TopicPartition(topic, 2): OffsetAndMetadata(77)}


def test_a_topic_that_is_not_there_is_named(client: KafkaClient, topic_name: Callable[[], str]) -> None:
    """The error is the broker's, names the topic and says how long it was waited for."""
    missing = topic_name()
    with pytest.raises(UnknownTopicOrPartition, match=rf"'{missing}'.*wait of 0\.5 s"):
        client.wait_on_metadata(missing, 0.5)


def test_a_topic_made_again_is_refused_by_its_old_id(
    cluster: DevCluster, client: KafkaClient, make_topic: MakeTopic
) -> None:
    """A fetch under the id of a deleted topic gets an error, never the records of its successor."""
    topic = make_topic(cluster)
    produce(cluster, topic, [b"old"])
    client.wait_on_metadata(topic, 10)
    tp = TopicPartition(topic, 0)
    leader = client.cluster.leader_for(tp)
    assert leader is not None and read_all(client, tp) == [(0, b"old")]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(20)

    def refused() -> bool:
        settings = FetchSettings(fetch_max_wait_ms=50)
        part = client.wait(fetch(client, leader, {tp: FetchPosition(0)}, settings), 10)[tp]
        return part.error is not None and part.error.stale_metadata

    assert any(refused() for _ in range(200))


def test_c8_a_request_goes_out_in_a_poll_and_every_listener_hears_its_answer(
    cluster: DevCluster, client: KafkaClient
) -> None:
    """send() alone sends nothing; listeners run in polls, in order, and what is chained resolves with them."""
    heard: list[str] = []
    before = client.counts.requests
    found = client.send(MetadataRequest(topics=()))
    port = found.then(lambda answer: answer.brokers[0].port)
    copy: RequestFuture[int] = RequestFuture()
    port.chain(copy)
    for name in ("first", "second"):
        found.add_listener(lambda _done, name=name: heard.append(name))  # type: ignore[misc]
    found.add_listener(lambda _done: 1 // 0)
    port.add_listener(lambda done: heard.append(f"port {done.value}"))
    assert client.counts.requests == before and not found.done and not heard
    client.wait(copy, PATIENCE_S)
    (broker,) = client.cluster.brokers.values()
    assert heard == [f"port {broker.port}", "first", "second"] and copy.value == broker.port
    assert client.counts.requests > before
    found.add_listener(lambda _done: heard.append("late"))
    assert heard[-1] == "late"


def test_c8_a_failed_future_reaches_every_listener(
    cluster: DevCluster, client: KafkaClient, make_topic: MakeTopic
) -> None:
    """A long poll whose connection goes: listeners behind one that raises, derived futures and late listeners hear."""
    topic = make_topic(cluster)
    produce(cluster, topic, [b"x"])
    client.wait_on_metadata(topic, PATIENCE_S)
    tp = TopicPartition(topic, 0)
    leader = client.cluster.leader_for(tp)
    assert leader is not None
    heard: list[KafkaError | None] = []
    waiting = fetch(client, leader, {tp: FetchPosition(1)}, FetchSettings(fetch_max_wait_ms=25_000))
    waiting.add_listener(lambda done: heard.append(done.exception))
    waiting.add_listener(lambda _done: 1 // 0)
    waiting.add_listener(lambda done: heard.append(done.exception))
    derived = waiting.then(len)
    while not client._network.in_flight.count(leader.address):
        assert not waiting.done
        client.poll(0.05)
    client.disconnect(leader)
    with pytest.raises(Disconnected):
        client.wait(derived, 20)
    waiting.add_listener(lambda done: heard.append(done.exception))
    assert heard == [waiting.exception] * 3 and isinstance(derived.exception, Disconnected)
