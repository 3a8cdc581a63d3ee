"""Faults of a cluster made to happen on real brokers that others use meanwhile: no broker is stopped here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer as Confluent

from streamlet.devcluster import DevCluster
from streamlet.devcluster.members import data_directory
from streamlet.kafka import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from streamlet.kafka.consumer.errors import PositionOutOfRange
from streamlet.kafka.errors import CorruptRecord
from streamlet.kafka.producer.errors import ProducerFenced
from tests.patience import PATIENCE_S
from tests.read_back import read_back

MakeTopic = Callable[..., str]


@pytest.fixture(params=["kafka39", "kafka4"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    cluster: DevCluster = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture
def consumer_of(cluster: DevCluster) -> Iterator[Callable[..., Consumer]]:
    """``consumer_of(topic, **settings)``: partition 0 of it, from the beginning; closed after the test."""
    made: list[Consumer] = []

    def make(topic: str, **settings: Any) -> Consumer:
        made.append(
            Consumer(bootstrap_servers=cluster.bootstrap_servers, **{"auto_offset_reset": "earliest", **settings})  # type: ignore[arg-type]
        )
        made[-1].assign([TopicPartition(topic, 0)])
        return made[-1]

    yield make
    for one in made:
        one.close(5)


def write(cluster: DevCluster, topic: str, *values: bytes, **settings: Any) -> None:
    """One batch by librdkafka."""
    producer = Confluent(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 50, **settings}
    )
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def take(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found[-3:]
        found += [row.value for rows in consumer.poll(100).values() for row in rows]
    return found


def until_it_raises(consumer: Consumer, kind: type[KafkaError], words: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    with pytest.raises(kind, match=words) as caught:
        while True:
            assert time.monotonic() < deadline
            assert consumer.poll(100) == {}
    return caught.value


def test_fault_f7_what_retention_took_is_told_with_its_range(
    cluster: DevCluster, make_topic: MakeTopic, consumer_of: Callable[..., Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    """Without a policy an error with the position and where the log begins; with one a warning that says the same."""
    topic = make_topic(cluster)
    tp = TopicPartition(topic, 0)
    write(cluster, topic, *(b"%d" % n for n in range(30)))
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_records({tp: 20})
    strict = consumer_of(topic, auto_offset_reset="none")
    strict.seek(tp, 5)
    error = until_it_raises(strict, PositionOutOfRange, rf"Offset 5 is not in the log of topic '{topic}'")
    assert error.offsets == {tp: 5} and strict.beginning_offsets([tp]) == {tp: 20}
    strict.seek(tp, 20)
    assert take(strict, 10) == [b"%d" % n for n in range(20, 30)]
    lenient = consumer_of(topic)
    lenient.seek(tp, 5)
    assert take(lenient, 10) == [b"%d" % n for n in range(20, 30)]
    assert f"offset 5 is not in the log of {tp}" in caplog.text
    assert f"records of {tp} from offset 5 to 19 were not read" in caplog.text


def test_fault_f9_f10_a_topic_deleted_under_the_reader_is_waited_for_and_the_new_one_read_whole(
    cluster: DevCluster, make_topic: MakeTopic, consumer_of: Callable[..., Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    """The new one is longer than the old: at the old offset records would be passed over in silence."""
    topic = make_topic(cluster)
    write(cluster, topic, *(b"old %d" % n for n in range(10)))
    consumer = consumer_of(topic, group_id=topic, enable_auto_commit=False)
    assert take(consumer, 10) == [b"old %d" % n for n in range(10)]
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        for _ in range(5):
            assert consumer.poll(50) == {}
        admin.create_topics([NewTopic(topic, 1)])
    write(cluster, topic, *(b"new %d" % n for n in range(50)))
    assert take(consumer, 50) == [b"new %d" % n for n in range(50)]
    assert "was deleted and created again" in caplog.text
    consumer.commit()
    tp = TopicPartition(topic, 0)
    assert consumer.committed(tp)[tp].offset == 50


def test_fault_f13_the_last_stable_offset_holds_and_markers_without_records_do_not(
    cluster: DevCluster, make_topic: MakeTopic, consumer_of: Callable[..., Consumer]
) -> None:
    """Aborts with records and without, then an open one: nothing of it, nor behind it, until its end is known."""
    topic = make_topic(cluster)
    tp = TopicPartition(topic, 0)

    def transactional(name: str) -> Confluent:
        producer = Confluent({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{topic}-{name}"})
        producer.init_transactions(30)
        return producer

    first, second = transactional("1"), transactional("2")
    for turn in range(6):
        first.begin_transaction()
        if turn != 4:
            first.produce(topic, b"%d" % turn, partition=0)
            first.flush(20)
        first.abort_transaction(20) if turn % 3 == 1 else first.commit_transaction(20)
    second.begin_transaction()
    second.produce(topic, b"open", partition=0)
    assert second.flush(20) == 0
    write(cluster, topic, b"behind")
    consumer = consumer_of(topic, isolation_level="read_committed")
    assert take(consumer, 4) == [b"0", b"2", b"3", b"5"]
    assert consumer.poll(200) == {}
    assert consumer.end_offsets([tp]) == {tp: consumer.position(tp)}, "the last stable offset is reached"
    stable, end = consumer.last_stable_offset(tp), consumer.highwater(tp)
    assert (stable, end) == (consumer.position(tp), consumer.position(tp) + 2), "the open record, and one behind it"
    second.abort_transaction(20)
    assert take(consumer, 1) == [b"behind"]
    deadline = time.monotonic() + PATIENCE_S
    loose = consumer_of(topic)
    while consumer.position(tp) < loose.end_offsets([tp])[tp]:  # the markers at the end
        assert time.monotonic() < deadline
        assert consumer.poll(50) == {}


def test_fault_f14_a_byte_changed_on_the_brokers_disk_is_found_and_named(
    cluster: DevCluster, make_topic: MakeTopic, consumer_of: Callable[..., Consumer]
) -> None:
    """In a closed segment, which the broker sends as it lies there: what stands before it comes, then the error, every
    time, and never what stands behind; a seek passes it.
    """
    topic = make_topic(cluster, configs={"segment.bytes": "1048576"})
    tp = TopicPartition(topic, 0)
    write(cluster, topic, b"before")
    write(cluster, topic, b"to be damaged")
    write(cluster, topic, b"x" * 900_000)
    write(cluster, topic, b"y" * 900_000)  # a new segment
    folder = data_directory(cluster.installation, 0) / f"{topic}-0"
    first, *others = sorted(folder.glob("*.log"))
    assert others
    data = first.read_bytes()
    with first.open("r+b") as file:
        file.seek(data.index(b"damaged"))
        file.write(b"D")
    consumer = consumer_of(topic)
    assert take(consumer, 1) == [b"before"]
    for _ in range(2):
        until_it_raises(consumer, CorruptRecord, rf"'{topic}', partition 0, at offset 1 .*checksum")
        assert consumer.position(tp) == 1
    consumer.seek(tp, 2)
    assert [len(value or b"") for value in take(consumer, 2)] == [900_000, 900_000]


def test_fault_f15_a_record_larger_than_the_fetch_sizes_comes_all_the_same(
    cluster: DevCluster, make_topic: MakeTopic, consumer_of: Callable[..., Consumer]
) -> None:
    """KIP-74: the first batch comes whole; our producer refuses by name what is larger than it may send."""
    topic = make_topic(cluster, configs={"max.message.bytes": "5000000"})
    large = bytes(range(256)) * 12_000
    with Producer(bootstrap_servers=cluster.bootstrap_servers, max_request_size=4_000_000) as producer:
        producer.send_many(topic, [b"a", large, b"b"])
        with pytest.raises(KafkaError, match="max_request_size"):
            producer.send(topic, bytes(5_000_000)).get(20)
    consumer = consumer_of(topic, max_partition_fetch_bytes=10_000, fetch_max_bytes=20_000)
    assert take(consumer, 3) == [b"a", large, b"b"]


@contextmanager
def fenced(cluster: DevCluster, topic: str, name: str) -> Iterator[tuple[Producer, Producer]]:
    """Two producers of one transactional id: the older with a record in an open transaction, the younger after it."""
    settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": name}
    with Producer(**settings) as older, Producer(**settings) as younger:
        older.init_transactions()
        older.begin_transaction()
        older.send(topic, b"older").get(20)
        younger.init_transactions()
        yield older, younger


def test_f21_a_record_of_a_fenced_producer_raises_what_its_transaction_raises(
    cluster: DevCluster, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """The leader refuses it by its epoch: nobody asks the coordinator first."""
    topic, name = make_topic(cluster), topic_name()
    with fenced(cluster, topic, name) as (older, _younger):
        with pytest.raises(ProducerFenced, match=name):
            older.send(topic, b"late").get(20)
        with pytest.raises(ProducerFenced, match=name):
            older.commit_transaction()


def test_fault_f21_of_two_producers_with_one_id_the_older_is_fenced(
    cluster: DevCluster, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """It stops, says which id, and what it had open is never seen; the younger goes on."""
    topic, name = make_topic(cluster), topic_name()
    with fenced(cluster, topic, name) as (older, younger):
        with pytest.raises(ProducerFenced, match=name):
            older.commit_transaction()
        with pytest.raises(ProducerFenced, match=name):
            older.begin_transaction()
        younger.begin_transaction()
        younger.send(topic, b"younger")
        younger.commit_transaction()
    assert [row.value for row in read_back(cluster, topic, 1)] == [b"younger"]
