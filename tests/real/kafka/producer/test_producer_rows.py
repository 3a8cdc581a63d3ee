"""The producer's rows (docs/evidence/mechanisms.md) on real brokers, one test each; read back by librdkafka."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Producer as Confluent
from confluent_kafka.admin import AdminClient, NewPartitions

from streamlet.devcluster import DevCluster
from streamlet.kafka.broker_errors import MessageTooLarge
from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.errors import PartitionerFailed, PartitionOutOfRange
from tests.patience import PATIENCE_S
from tests.read_back import read_back

MakeTopic = Callable[..., str]


@pytest.fixture(params=["kafka39", "kafka4"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    return request.getfixturevalue(request.param)


def test_p1_keyless_records_stick_then_move_on(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """The default goes on after a batch's worth and is even in the long run; the old one stays for its interval."""
    topic, old = make_topic(cluster, partitions=4), make_topic(cluster, partitions=4)
    values = [b"%05d" % n + b"x" * 195 for n in range(4000)]
    with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=2000) as producer:
        for value in values:
            producer.send(topic, value)
    rows = read_back(cluster, topic, 4000)
    assert sorted(row.value for row in rows) == values
    assert min(Counter(row.partition for row in rows).values()) > 400
    with Producer(bootstrap_servers=cluster.bootstrap_servers, partitioner="interval_sticky") as producer:
        producer.send_many(old, values)
    assert len({row.partition for row in read_back(cluster, old, 4000)}) == 1


@pytest.mark.parametrize(("ours", "theirs"), [("murmur2", "murmur2"), ("crc32", "consistent")])
def test_p2_keys_go_where_librdkafka_sends_them(
    cluster: DevCluster, make_topic: MakeTopic, ours: str, theirs: str
) -> None:
    """Both hashes that it shares with us, over keys of every kind of length, beyond 256 bytes too."""
    mine, other = make_topic(cluster, partitions=7), make_topic(cluster, partitions=7)
    keys = [b"k" * (n * 7 % 331) + b"%d" % n for n in range(300)]
    with Producer(bootstrap_servers=cluster.bootstrap_servers, partitioner=ours) as producer:
        producer.send_many(mine, [b"v"] * 300, keys=keys)
    confluent = Confluent(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "partitioner": theirs}
    )
    for key in keys:
        confluent.produce(other, b"v", key=key)
    assert confluent.flush(20) == 0
    placed = [{row.key: row.partition for row in read_back(cluster, topic, 300)} for topic in (mine, other)]
    assert placed[0] == placed[1] and len(placed[0]) == 300


def test_p3_one_living_entry_of_the_bootstrap_list_is_enough(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """Between two that are dead; brokers outside of the list are in the scripted tests of P3."""
    topic = make_topic(cluster)
    servers = f"127.0.0.1:1,{cluster.bootstrap_servers},127.0.0.1:2"
    with Producer(bootstrap_servers=servers) as producer:
        assert producer.send(topic, b"x").get(20).offset == 0


def test_p5_p10_sync_and_async_one_and_many_are_one_path(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """Waiting for the future, a callback, or a list's futures: one log, in order."""
    topic = make_topic(cluster)
    called: list[int] = []
    with Producer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=str.encode) as producer:
        assert producer.send(topic, "sync").get(20).offset == 0
        producer.send(topic, "async").add_callback(lambda metadata: called.append(metadata.offset))
        many = producer.send_many(topic, [f"many {n}" for n in range(10)])
        producer.flush(20)
        assert called == [1] and [future.value.offset for future in many if future.value] == list(range(2, 12))
    rows = read_back(cluster, topic, 12)
    assert [row.value for row in rows] == [b"sync", b"async", *(b"many %d" % n for n in range(10))]


def test_p6_one_request_carries_all_partitions_of_a_broker(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """Eight partitions and one leader: one request; serializers are the user's."""
    topic = make_topic(cluster, partitions=8)
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=200, key_serializer=lambda n: b"%d" % n
    ) as producer:
        for number in range(8):
            producer.send(topic, b"first", key=100, partition=number)
        producer.flush(20)
        before = producer.metrics()
        futures = [producer.send(topic, b"v", key=n, partition=n) for n in range(8)]
        assert [future.get(20).partition for future in futures] == list(range(8))
        after = producer.metrics()
        assert [after[name] - before[name] for name in ("requests", "batches_sent")] == [1, 8]  # type: ignore[operator]
        assert len(producer._sender.client.connected_brokers()) <= 2
    assert {row.key for row in read_back(cluster, topic, 16)} == {b"100", *(b"%d" % n for n in range(8))}


def test_p7_partitions_that_are_added_later_are_used(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """Without a restart: a record names one, which makes the producer look, and then keys are spread over all."""
    topic = make_topic(cluster, partitions=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=20_000) as producer:
        assert producer.send(topic, b"x").get(20).partition == 0
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
        assert producer.send(topic, b"y", partition=2).get(20).partition == 2
        used = {producer.send(topic, b"z", key=b"%d" % n).get(20).partition for n in range(30)}
    assert used == {0, 1, 2}


def test_p9_a_users_partitioner_decides(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """From the partition key where there is one; an index out of range is an error, and nothing is written."""
    topic = make_topic(cluster, partitions=3)

    def by_length(key: bytes | str | None, count: int) -> int:
        return len(key or "")

    with Producer(bootstrap_servers=cluster.bootstrap_servers, partitioner=by_length) as producer:
        assert producer.send(topic, b"x", key=b"a").get(20).partition == 1
        assert producer.send(topic, b"x", key=b"a", partition_key="ab").get(20).partition == 2
        with pytest.raises(PartitionerFailed, match=r"by_length gave 3.*3 partitions"):
            producer.send(topic, b"x", key=b"abc")
    assert len(read_back(cluster, topic, 2)) == 2


def test_p11_failures_and_their_rate_are_counted(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """By topic too; other topics go on."""
    small, other = make_topic(cluster, configs={"max.message.bytes": "1000"}), make_topic(cluster)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        refused = producer.send(small, b"x" * 5000)
        assert producer.send(other, b"y").get(20).offset == 0
        with pytest.raises(MessageTooLarge):
            refused.get(20)
        found = producer.metrics()
        assert found["records_failed"] == 1 and found["failed_by_topic"] == {small: 1}
        assert found["records_sent"] == 1 and found["failed_per_second"] > 0  # type: ignore[operator]


def test_too_large_batches_are_split(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """A topic that takes less than our batches: every record arrives, once and in order."""
    topic = make_topic(cluster, configs={"max.message.bytes": "3000"})
    values = [b"%04d" % n * 50 for n in range(500)]
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=100) as producer:
        futures = producer.send_many(topic, values)
        producer.flush(30)
        assert [future.get(0).offset for future in futures] == list(range(500))
        assert producer.metrics()["splits"] > 0  # type: ignore[operator]
    assert [row.value for row in read_back(cluster, topic, 500)] == values


def test_many_threads_may_send(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """One producer, each thread's records in its order."""
    topic = make_topic(cluster, partitions=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=200_000) as producer:

        def work(name: int) -> None:
            for n in range(2000):
                producer.send(topic, b"%d %d" % (name, n))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    rows = [row.value or b"" for row in read_back(cluster, topic, 8000)]
    for name in range(4):
        mine = [value for value in rows if value.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, n) for n in range(2000)]


def test_log_append_time_is_told(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """The broker's time in the future's metadata, not ours."""
    topic = make_topic(cluster, configs={"message.timestamp.type": "LogAppendTime"})
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        told = producer.send(topic, b"x", timestamp_ms=5).get(20).timestamp
    assert told == read_back(cluster, topic, 1)[0].timestamp > 5


def test_p4_a_refused_first_record_costs_no_other(cluster: DevCluster, make_topic: MakeTopic) -> None:
    """The broker knows nothing of the producer yet, and would take the second batch under its own number."""
    topic = make_topic(cluster, configs={"max.message.bytes": "50000"})
    with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=1) as producer:
        producer.partitions_for(topic)
        refused = producer.send(topic, b"x" * 900_000)
        first = producer.send(topic, b"first")
        with pytest.raises(MessageTooLarge):
            refused.get(20)
        assert first.get(20).offset == 0
        assert [producer.send(topic, b"%d" % n).get(20).offset for n in range(5)] == [1, 2, 3, 4, 5]
    assert [row.value for row in read_back(cluster, topic, 6)] == [b"first", b"0", b"1", b"2", b"3", b"4"]


def test_m2_a_partition_out_of_range_is_told_at_once_and_found_once_the_topic_has_grown(
    cluster: DevCluster, make_topic: MakeTopic
) -> None:
    """The wait is for two fresh answers, however long max_block_ms is."""
    topic = make_topic(cluster, partitions=2)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=600_000) as producer:
        with pytest.raises(PartitionOutOfRange, match=f"Partition 2 of topic '{topic}'.* has 2 partitions"):
            producer.send(topic, b"x", partition=2)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
        producer.send(topic, b"x", partition=2).get(PATIENCE_S)
    assert [(row.partition, row.value) for row in read_back(cluster, topic, 1)] == [(2, b"x")]
