"""Client settings: Kafka's names, Java's defaults, and what is refused."""

from __future__ import annotations

import pytest

from streamlet.base.errors import SettingError
from streamlet.kafka import Broker, ClientConfig


def test_kafkas_dotted_names_work_too() -> None:
    """As they stand in Kafka's own documentation."""
    config = ClientConfig.of({"bootstrap.servers": ["h:1", "i:2"], "request.timeout.ms": 5})
    assert config.request_timeout_ms == 5
    assert config.brokers() == (Broker(-1, "h", 1), Broker(-1, "i", 2))


def test_servers_in_one_string_and_ipv6() -> None:
    """Commas, spaces, brackets; the same address twice counts once."""
    config = ClientConfig("h:1, [::1]:2 ,h:1")
    assert config.brokers() == (Broker(-1, "h", 1), Broker(-1, "::1", 2))
    assert str(config.brokers()[1]) == "[::1]:2"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "bootstrap_servers is missing"),
        ({"bootstrap_servers": "h:1", "request_timeout": 5}, "the nearest one is request_timeout_ms"),
        ({"bootstrap_servers": "h:1", "zzz": 5}, "known settings: "),
        ({"bootstrap_servers": ""}, "is empty"),
        ({"bootstrap_servers": 5}, "must be host:port"),
        ({"bootstrap_servers": "h"}, "'h' is no broker address"),
        ({"bootstrap_servers": "h:x"}, "the port must be a number"),
        ({"bootstrap_servers": "h:70000"}, "the port must be a number"),
        ({"bootstrap_servers": "PLAINTEXT://h:1"}, "write host:port"),
        ({"bootstrap_servers": "::1:2"}, "write host:port"),
        ({"bootstrap_servers": "h:1", "request_timeout_ms": 0}, "request_timeout_ms = 0 must be"),
        ({"bootstrap_servers": "h:1", "retry_backoff_ms": "5"}, "retry_backoff_ms = '5' must be"),
        ({"bootstrap_servers": "h:1", "retry_backoff_ms": True}, "retry_backoff_ms = True must be"),
        ({"bootstrap_servers": "h:1", "retry_backoff_ms": 5000}, "greater than retry_backoff_max_ms"),
        ({"bootstrap_servers": "h:1", "security_protocol": "SSL"}, "'SSL' is not supported"),
        ({"bootstrap_servers": "h:1", "client_id": 5}, "client_id = 5 must be a string"),
    ],
)
def test_what_is_refused(settings: dict[str, object], words: str) -> None:
    """Each by a paragraph that names the setting and what to do, before anything starts."""
    with pytest.raises(SettingError) as caught:
        ClientConfig.of(settings)
    assert words in caught.value.message and caught.value.message.endswith(".")
