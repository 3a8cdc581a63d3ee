"""What is no partition, no offset or no time is refused at once, by name, before anything is asked of a broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from streamlet.kafka import Consumer, OffsetAndMetadata, Producer, TopicPartition
from streamlet.testing.fake_broker import FakeBroker

from .scripted import ZERO

NO_PARTITIONS: list[Any] = ["t", ("t",), ("t", "0"), ("t", -1), ("t", True), (0, "t"), ("", 0), 7, None]
CALLS: dict[str, Callable[[Consumer, Any], object]] = {
    "assign": lambda consumer, wrong: consumer.assign([wrong]),
    "seek": lambda consumer, wrong: consumer.seek(wrong, 0),
    "seek_to_end": lambda consumer, wrong: consumer.seek_to_end(wrong),
    "position": lambda consumer, wrong: consumer.position(wrong),
    "pause": lambda consumer, wrong: consumer.pause(wrong),
    "resume": lambda consumer, wrong: consumer.resume(wrong),
    "lag": lambda consumer, wrong: consumer.lag(wrong),
    "beginning_offsets": lambda consumer, wrong: consumer.beginning_offsets([wrong]),
    "end_offsets": lambda consumer, wrong: consumer.end_offsets([wrong]),
    "offsets_for_times": lambda consumer, wrong: consumer.offsets_for_times({wrong: 0}),
    "committed": lambda consumer, wrong: consumer.committed(wrong),
    "commit": lambda consumer, wrong: consumer.commit({wrong: OffsetAndMetadata(1)}),
}


@pytest.fixture
def consumer(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> Consumer:
    """Of a group, with one partition. Its broker must not be asked."""
    made = consumer_of(group_id="g")
    made.assign([ZERO])
    return made


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("wrong", NO_PARTITIONS, ids=repr)
def test_what_is_no_partition(
    broker: FakeBroker, consumer: Consumer, call: Callable[[Consumer, Any], object], wrong: Any
) -> None:
    with pytest.raises(TypeError, match=re.escape(f"{wrong!r} is no partition: write TopicPartition(topic, number)")):
        call(consumer, wrong)
    assert broker.connections == 0


@pytest.mark.parametrize("row", ["5", -1, 1.5, True, None, OffsetAndMetadata(-2), (5, "")], ids=repr)
def test_what_is_no_offset_to_store(broker: FakeBroker, consumer: Consumer, row: Any) -> None:
    """By a consumer or, in a transaction, by a producer; neither waits for anything first."""
    for store in (consumer.commit, consumer.commit_async):
        with pytest.raises(TypeError, match=r"is no offset to store for .*t.*: write a number from 0"):
            store({ZERO: row})
    assert broker.connections == 0
    producer = Producer(bootstrap_servers=broker.address, transactional_id="x")
    with producer, pytest.raises(TypeError, match="is no offset to store"):
        producer.send_offsets_to_transaction({ZERO: row}, "g")


@pytest.mark.parametrize("offsets", [[ZERO], 5, "t"], ids=repr)
def test_what_is_no_mapping_of_offsets(consumer: Consumer, offsets: Any) -> None:
    for store in (consumer.commit, consumer.commit_async):
        with pytest.raises(TypeError, match=r"are no offsets: write \{TopicPartition\(topic, number\): offset\}"):
            store(offsets)


@pytest.mark.parametrize("when", [-1, "now", 1.5, True, 1 << 63], ids=repr)
def test_what_is_no_time(broker: FakeBroker, consumer: Consumer, when: Any) -> None:
    with pytest.raises(TypeError, match=f"{when!r} is no time to look for in t-0: write whole milliseconds"):
        consumer.offsets_for_times({TopicPartition("t", 0): when})
    assert broker.connections == 0
