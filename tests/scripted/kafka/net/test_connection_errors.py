"""A port that takes connections and closes them: a proxy whose broker is not there yet, or a TLS listener."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from streamlet.kafka import ClientConfig, KafkaClient
from streamlet.kafka.errors import BootstrapFailed, HungUp
from streamlet.kafka.net import connection_errors as failures
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import CLOSE, FakeBroker


def test_a_broker_that_comes_up_behind_its_proxy_is_waited_for() -> None:
    """More hang-ups than count as a wrong protocol, but in less than a second."""
    closed = itertools.count(1)

    def answer(request: Any) -> Any:
        return CLOSE if next(closed) <= failures.HANG_UPS + 2 else broker._api_versions(3)

    with FakeBroker() as broker, KafkaClient(ClientConfig(broker.address)) as client:
        broker.on(ApiKey.API_VERSIONS, answer)
        client.bootstrap(PATIENCE_S)
        assert broker.connections >= failures.HANG_UPS + 3


def test_a_port_that_goes_on_hanging_up_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting to look at; and whoever does not wait so long reads of it, too."""
    monkeypatch.setattr(failures, "HANG_UPS_S", 1.0)
    with FakeBroker() as broker:
        broker.on(ApiKey.API_VERSIONS, CLOSE)
        with KafkaClient(ClientConfig(broker.address)) as client:
            begun = time.monotonic()
            with pytest.raises(HungUp, match=r"a listener that wants TLS.*, such as ZooKeeper's 2181\."):
                client.bootstrap(PATIENCE_S)
            assert time.monotonic() - begun >= 1.0
        monkeypatch.setattr(failures, "HANG_UPS_S", PATIENCE_S)
        with (
            KafkaClient(ClientConfig(broker.address)) as client,
            pytest.raises(BootstrapFailed, match="a listener that wants TLS"),
        ):
            client.bootstrap(3.0)  # three hang-ups come in a quarter of a second, on a busy machine later
