"""A producer on several brokers: whom it asks, whom it writes to, and how many connections they count."""

from __future__ import annotations

from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.partitioners import murmur2_partition
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_cluster import FakeCluster
from tests.scripted.kafka.producer.scripted import scripted

NOT_LEADER = 6


def test_p3_records_go_to_brokers_outside_of_the_list_and_these_are_asked_for_metadata_too() -> None:
    """Of the list one of three lives, and leads nothing; later it is gone, and another topic is found all the same."""
    with FakeCluster({"t": 2, "later": 1}, brokers=3) as cluster:
        listed, second, third = cluster.brokers
        cluster.leaders = {("t", 0): 2, ("t", 1): 3, ("later", 0): 3}
        servers = ("127.0.0.1:1", listed.address, "127.0.0.1:2")
        with Producer(bootstrap_servers=servers, enable_idempotence=False) as producer:
            for partition in (0, 1):
                assert producer.send("t", b"x", partition=partition).get(PATIENCE_S).offset == 0
            assert [len(broker.seen(ApiKey.PRODUCE)) for broker in cluster.brokers] == [0, 1, 1]
            assert not second.seen(ApiKey.METADATA) and not third.seen(ApiKey.METADATA)
            listed.stop()
            assert producer.send("later", b"x").get(PATIENCE_S).offset == 0
            assert second.seen(ApiKey.METADATA) or third.seen(ApiKey.METADATA)


def test_p6_p10_brokers_count_one_connection_each_and_one_request_for_all_their_partitions() -> None:
    """Eight partitions on two brokers, one by one and as a list: one connection and two requests for each broker."""
    keys = [next(b"%d" % n for n in range(999) if murmur2_partition(b"%d" % n, 8) == at) for at in range(7, -1, -1)]
    with FakeCluster({"t": 8}, brokers=2) as cluster:
        cluster.leaders = {("t", number): 1 + number % 2 for number in range(8)}
        servers = cluster.broker.address
        with Producer(bootstrap_servers=servers, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
            for sent in (1, 2):
                if sent == 1:
                    futures = [producer.send("t", b"x", partition=number) for number in range(7, -1, -1)]
                else:
                    futures = producer.send_many("t", [b"many %s" % key for key in keys], keys=keys)
                producer.flush(PATIENCE_S)
                places = [(future.get(0).partition, future.get(0).offset) for future in futures]
                assert places == [(number, sent - 1) for number in range(7, -1, -1)]
                assert [len(broker.seen(ApiKey.PRODUCE)) for broker in cluster.brokers] == [sent, sent]
            assert all(cluster.values["t", 7 - at] == [b"x", b"many %s" % key] for at, key in enumerate(keys))
            partitions = [
                sorted(part.index for topic in row.request.topic_data for part in topic.partition_data)
                for broker in cluster.brokers
                for row in broker.seen(ApiKey.PRODUCE)
            ]
            assert partitions == [[0, 2, 4, 6]] * 2 + [[1, 3, 5, 7]] * 2
            assert [broker.connections for broker in cluster.brokers] == [1, 1]


def test_p1_an_error_of_a_send_makes_the_next_keyless_record_go_to_another_partition() -> None:
    """Though the interval has minutes left; without an error it stays, whatever chance says."""
    with scripted({"t": 2}, partitioner="interval_sticky") as (_broker, log, producer):
        topics = producer._appender.topics
        topics._uniform = lambda: 0.0
        assert producer.send("t", b"a").get(PATIENCE_S).partition == 0
        topics._uniform = lambda: 0.9
        assert producer.send("t", b"b").get(PATIENCE_S).partition == 0
        log.answers = [NOT_LEADER]
        assert producer.send("t", b"c").get(PATIENCE_S).partition == 0, "the record itself stays where it was put"
        assert producer.metrics()["retries"] == 1
        assert producer.send("t", b"d").get(PATIENCE_S).partition == 1
        assert log.values == {("t", 0): [b"a", b"b", b"c"], ("t", 1): [b"d"]}
