"""Rules of the consumer that hold at every far end."""

from __future__ import annotations

from collections.abc import Callable

from streamlet.kafka import Consumer
from streamlet.kafka.protocol.schema import ApiKey
from tests.consumers import until
from tests.far_ends import FarEnd, ScriptedFarEnd


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
