"""Joins, fetches ahead and long polls on real brokers: what is asked when, and what is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, OffsetAndMetadata, TopicPartition
from tests.consumers import take, until
from tests.patience import PATIENCE_S

Make = Callable[..., Consumer]


def test_c3_nothing_is_joined_before_the_first_poll_and_a_poll_ends_at_its_time_out(
    cluster: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """Making and subscribing connect to nothing; librdkafka's admin client hears of no group until polls begin."""
    topic = make_topic(cluster)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def groups() -> set[str]:
        return {row.group_id for row in admin.list_consumer_groups().result(PATIENCE_S).valid}

    consumer = make_consumer(cluster, topic, group_id=topic, heartbeat_interval_ms=200)
    assert consumer._client.counts.connections_made == 0
    assert topic not in groups()
    begun = time.monotonic()
    assert consumer.poll(0) == {}
    assert time.monotonic() - begun < 5
    until([consumer], lambda: len(consumer.assignment()) == 1)
    assert topic in groups()
    begun = time.monotonic()
    assert consumer.poll(300) == {}
    assert 0.3 <= time.monotonic() - begun < 5.3


def test_c12_a_record_ends_the_long_poll_and_fetch_min_bytes_lets_it_wait(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """Pulling is no slower than being pushed to: the broker answers when there is something, or enough of it."""
    topic = make_topic(cluster)
    tp = TopicPartition(topic, 0)
    eager = make_consumer(cluster, fetch_max_wait_ms=300_000, request_timeout_ms=400_000)
    eager.assign([tp])
    until([eager], lambda: eager._fetcher.requests_sent == 1)
    later = threading.Timer(0.2, produce, (cluster, topic, [b"x"]))
    later.start()
    assert take(eager, 1)[0].value == b"x"
    later.join()
    assert eager._fetcher.requests_sent <= 2, "the one that waited was answered, and the next is under way"
    patient = make_consumer(cluster, fetch_max_wait_ms=1500, fetch_min_bytes=100_000)
    patient.assign([tp])
    begun = time.monotonic()
    assert take(patient, 1)[0].value == b"x"
    assert time.monotonic() - begun >= 1.4


def test_c2_committed_offsets_with_a_text_are_sought_again_and_the_ends_of_the_log_are_known(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """The partition's state has position, committed offset, high watermark and last stable offset."""
    topic = make_topic(cluster, partitions=2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(cluster, topic, [b"a", b"b", b"c"])
    consumer = make_consumer(cluster, group_id=topic, enable_auto_commit=False, auto_offset_reset="earliest")
    consumer.assign([zero, one])
    assert consumer.highwater(zero) is None is consumer.last_stable_offset(zero)
    assert [row.value for row in take(consumer, 3)] == [b"a", b"b", b"c"]
    assert consumer.highwater(zero) == consumer.last_stable_offset(zero) == 3
    stored = OffsetAndMetadata(1, metadata="after a")
    consumer.commit({zero: stored})
    assert consumer._subscriptions.require(zero).committed == stored
    assert consumer.seek_to_committed() == {zero: stored}
    assert (consumer.position(zero), consumer.position(one)) == (1, 0)
    assert [row.value for row in take(consumer, 2)] == [b"b", b"c"]
