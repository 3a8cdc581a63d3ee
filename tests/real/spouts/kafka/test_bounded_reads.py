"""Bounded reads on a real broker: what is read, and what is stored, is compared with librdkafka's own reading."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from streamlet.base.errors import BadInput
from streamlet.devcluster import DevCluster
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from tests.spout_harness import Harness, Witness

pytestmark = pytest.mark.real

Make = Callable[..., Any]
ENDS_BY_ITSELF = {"streamlet.until.caught.up": True}
"""What ``streamlet run`` sets where every spout is bounded."""


def read_by_librdkafka(servers: str, topic: str, partition: int, first: int, stop: int) -> list[str]:
    """The values of a range, committed ones only."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "range", "isolation.level": "read_committed",
         "enable.partition.eof": True, "enable.auto.commit": False}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, first)])
    values: list[str] = []
    while (message := consumer.poll(20)) is not None and message.error() is None and message.offset() < stop:
        values.append(message.value().decode())
    consumer.close()
    return values


def in_transaction(servers: str, topic: str, values: list[str], *, aborts: bool = False) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0  # an abort drops what was not sent
    producer.abort_transaction(20) if aborts else producer.commit_transaction(20)


def drained(spout: Harness) -> list[str]:
    """Ack all that comes until the spout says that it has reached its stops."""
    seen: list[str] = []

    def ack_and_look() -> bool:
        seen.extend(values[0] for values in spout.values())
        spout.ack_all()
        return spout.spout.caught_up()

    spout.until(ack_and_look)
    return seen


def stored(servers: str, group: str, topic: str) -> list[int]:
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in range(3)])]
    admin = AdminClient({"bootstrap.servers": servers})
    found = admin.list_consumer_group_offsets(asked)[group].result(20)
    return [row.offset for row in sorted(found.topic_partitions, key=lambda row: row.partition)]


def test_a_bounded_read_is_exact_by_offset_by_time_and_at_the_gaps_of_transactions(
    kafka4: DevCluster, witness4: Witness, harness: Make, make_topic: Make
) -> None:
    """Partition 0 stops at "latest", behind aborted records and a marker; 1 and 2 in the middle of a batch."""
    servers, topic = kafka4.bootstrap_servers, make_topic(kafka4, partitions=3)
    in_transaction(servers, topic, [f"0-{n}" for n in range(50)])
    in_transaction(servers, topic, [f"gone-{n}" for n in range(20)], aborts=True)
    for number in (1, 2):
        witness4.produce(topic, [f"{number}-{n}" for n in range(400)], number)
    cut = time.time()
    config = SpoutConfig(
        KafkaHosts(servers), topic, id=topic, start_offset={1: 100, 2: datetime.fromtimestamp(1, UTC)},
        stop_offset={1: 333, 2: datetime.fromtimestamp(cut + 0.001, UTC)},
    )  # fmt: skip
    time.sleep(0.01)
    for number in (1, 2):
        witness4.produce(topic, ["later"] * 10, number)
    spout = harness(config, conf=ENDS_BY_ITSELF)
    in_transaction(servers, topic, ["later"])
    seen = drained(spout)
    spout.spout.begin_close()
    ranges = [(0, 72), (100, 333), (0, 400)]
    by_others = [
        value for number, bounds in enumerate(ranges) for value in read_by_librdkafka(servers, topic, number, *bounds)
    ]
    assert sorted(seen) == sorted(by_others) and len(seen) == 50 + 233 + 400
    assert stored(servers, topic, topic) == [72, 333, 400]


@pytest.mark.parametrize("stop", [1, 100, 14_990, 19_999])
def test_a_read_that_stops_far_before_the_end_of_a_large_topic_ends_there(
    kafka4: DevCluster, witness4: Witness, harness: Make, make_topic: Make, stop: int
) -> None:
    """One answer holds hundreds of kilobytes behind the stop; the last records of it are in many batches."""
    servers, topic = kafka4.bootstrap_servers, make_topic(kafka4)
    witness4.produce(topic, [f"{n:050d}" for n in range(20_000)], 0)
    config = SpoutConfig(KafkaHosts(servers), topic, id=topic, stop_offset={0: stop})
    spout = harness(config, conf=ENDS_BY_ITSELF)
    seen = drained(spout)
    spout.spout.begin_close()
    assert [int(value) for value in seen] == list(range(stop))


def test_a_place_for_a_partition_that_is_not_there_is_refused(
    kafka4: DevCluster, harness: Make, make_topic: Make
) -> None:
    """A typo would read the whole log."""
    servers, topic = kafka4.bootstrap_servers, make_topic(kafka4, partitions=2)
    for setting in ("start_offset", "stop_offset"):
        config = SpoutConfig(KafkaHosts(servers), topic, id=topic, **{setting: {3: 50}})
        with pytest.raises(BadInput, match=f"{setting} names partition 3 of topic '{topic}', which has 0, 1:"):
            harness(config)


def test_a_read_that_begins_behind_its_stop_says_so(
    kafka4: DevCluster, witness4: Witness, harness: Make, make_topic: Make, caplog: pytest.LogCaptureFixture
) -> None:
    servers, topic = kafka4.bootstrap_servers, make_topic(kafka4, partitions=1)
    witness4.produce(topic, [str(n) for n in range(30)], 0)
    whole = harness(SpoutConfig(KafkaHosts(servers), topic, id=topic), conf=ENDS_BY_ITSELF)
    assert len(drained(whole)) == 30
    whole.spout.close()
    part = harness(SpoutConfig(KafkaHosts(servers), topic, id=topic, stop_offset={0: 10}), conf=ENDS_BY_ITSELF)
    assert drained(part) == []
    assert f"nothing is read, for it begins behind its stop: {topic!r} has read further before" in caplog.text


def test_a_stop_in_the_future_is_refused(kafka4: DevCluster, harness: Make, make_topic: Make) -> None:
    topic = make_topic(kafka4, partitions=1)
    config = SpoutConfig(
        KafkaHosts(kafka4.bootstrap_servers), topic, id=topic, stop_offset=int((time.time() + 90) * 1e3)
    )
    with pytest.raises(BadInput, match=f"The spout on topic '{topic}' is to stop at a time that is"):
        harness(config)
