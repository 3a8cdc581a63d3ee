"""Requests that wait for a connection."""

from __future__ import annotations

import time

import pytest

from streamlet.kafka import ClientConfig, KafkaClient, RequestFuture
from streamlet.kafka.errors import Disconnected
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.fake_broker import FakeBroker


def test_a_request_queued_in_a_listener_does_not_fail_of_an_older_error() -> None:
    """A coordinator that came back is asked again, though the search for it ends in a listener: the error of the
    connection that it lost belongs to the requests of then.
    """
    answer = FindCoordinatorResponse(error_code=0, node_id=2, host="127.0.0.1", port=1)
    with FakeBroker(node_id=1) as near, FakeBroker(node_id=2) as far:
        for broker in (near, far):
            broker.on(ApiKey.FIND_COORDINATOR, answer)
        config = ClientConfig(bootstrap_servers=near.address, reconnect_backoff_ms=50, reconnect_backoff_max_ms=50)
        with KafkaClient(config) as client:
            request = FindCoordinatorRequest(key="g")
            client.wait(client.send(request, far.broker), 10)
            far.stop()
            with pytest.raises(Disconnected):
                client.wait(client.send(request, far.broker), 10)
            far.start()
            reconnect = time.monotonic() + 0.2
            while time.monotonic() < reconnect:
                client.poll(0.05)
            second: list[RequestFuture[FindCoordinatorResponse]] = []
            first = client.send(request, near.broker)
            first.add_listener(lambda _done: second.append(client.send(request, far.broker)))
            client.wait(first, 10)
            assert client.wait(second[0], 10) == answer
