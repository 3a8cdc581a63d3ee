"""Ctrl-C in the middle of a poll: nothing counts as handed out that was not."""

from __future__ import annotations

import pytest

from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.protocol.api import ApiKey
from streamlet.testing.fake_broker import FakeBroker

from .scripted import Log, first_offsets, poll_until

ZERO = TopicPartition("t", 0)


@pytest.mark.parametrize("records", [10, 500])
def test_positions_go_back_when_a_poll_is_interrupted(records: int) -> None:
    """A commit at close would else cover records that nobody has seen. With less than an answer a poll, and more."""
    interrupts = iter([7])

    def slow(data: bytes) -> int:
        number = int(data)
        if number == 7 and next(interrupts, None):
            raise KeyboardInterrupt
        return number

    with FakeBroker(topics={"t": 1}) as broker:
        broker.ranges[ApiKey.FETCH] = (10, 12)
        broker.on(ApiKey.LIST_OFFSETS, first_offsets).on(ApiKey.FETCH, Log(p0=20))
        with Consumer(
            bootstrap_servers=broker.address,
            auto_offset_reset="earliest",
            value_deserializer=slow,
            max_poll_records=records,
            fetch_max_wait_ms=50,
        ) as consumer:
            consumer.assign([ZERO])
            with pytest.raises(KeyboardInterrupt):
                poll_until(consumer, lambda: False)
            assert consumer.position(ZERO) == 0
            assert poll_until(consumer, lambda: consumer.position(ZERO) == 20) == list(range(20))
