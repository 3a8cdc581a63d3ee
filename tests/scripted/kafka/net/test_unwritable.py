"""A request that holds what the protocol has no room for."""

from __future__ import annotations

import pytest

from streamlet.kafka import ClientConfig, KafkaClient
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import FakeBroker

FOUND = FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1)


def test_a_request_that_cannot_be_written_fails_alone() -> None:
    """Whoever waits for it hears that, and whoever polls for others does not."""
    with FakeBroker() as broker, KafkaClient(ClientConfig(broker.address)) as client:
        broker.on(ApiKey.FIND_COORDINATOR, FOUND)
        bad = client.send(FindCoordinatorRequest(key="x" * 40_000))
        good = client.send(FindCoordinatorRequest(key="g"))
        assert client.wait(good, PATIENCE_S) == FOUND
        assert bad.done
        with pytest.raises(KafkaError, match=r"FIND_COORDINATOR cannot be sent to 127\.0\.0\.1"):
            client.wait(bad, PATIENCE_S)
        assert client.wait(client.send(FindCoordinatorRequest(key="g")), PATIENCE_S) == FOUND
