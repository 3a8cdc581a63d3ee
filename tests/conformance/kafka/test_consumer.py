"""Rules of the consumer that hold at every far end."""

from __future__ import annotations

import select
from collections.abc import Callable

import pytest

from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.protocol.schema import ApiKey
from tests.consumers import take, until
from tests.far_ends import FarEnd, ScriptedFarEnd
from tests.patience import PATIENCE_S


def test_c12_an_idle_consumer_asks_nothing_but_long_polls(
    far_end: FarEnd, make_consumer: Callable[..., Consumer]
) -> None:
    """About one fetch in fetch_max_wait_ms, and no other request over the connections of its polls."""
    consumer = far_end.reader(make_consumer, far_end.make_topic(), fetch_max_wait_ms=500)
    until([consumer], lambda: consumer._fetcher.requests_sent >= 2)
    requests, fetches = consumer._client.counts.requests, consumer._fetcher.requests_sent
    polls = consumer._client._network.polls
    recorded = len(far_end.cluster.broker.requests) if isinstance(far_end, ScriptedFarEnd) else 0
    assert consumer.poll(2500) == {}
    fetched = consumer._fetcher.requests_sent - fetches
    assert 1 <= fetched <= 6
    assert consumer._client.counts.requests - requests == fetched
    if isinstance(far_end, ScriptedFarEnd):
        assert {row.api_key for row in far_end.cluster.broker.requests[recorded:]} == {ApiKey.FETCH}
        assert consumer._client._network.polls - polls <= 5 * fetched + 10


@pytest.mark.parametrize("prefetch", [True, False])
def test_c3_the_next_records_arrive_while_the_user_works(
    far_end: FarEnd, make_consumer: Callable[..., Consumer], prefetch: bool
) -> None:
    """The poll that empties what was fetched has asked for more: it comes though nobody polls."""
    topic = far_end.make_topic()
    tp = TopicPartition(topic, 0)
    far_end.fill(topic, 2000)
    consumer = make_consumer(far_end, max_partition_fetch_bytes=20_000, max_poll_records=10_000)
    consumer._fetcher.prefetch = prefetch
    consumer.assign([tp])
    assert take(consumer, 1)
    position = consumer.position(tp)
    assert position < 2000, "there is more"
    # What came so quickly that this poll took it off the socket waits in the fetcher.
    came = (
        consumer._fetcher.buffered_bytes
        or select.select([consumer._client], [], [], PATIENCE_S if prefetch else 0.5)[0]
    )
    assert bool(came) == prefetch
    assert take(consumer, 1)[0].offset == position
