"""Client settings: Kafka's names, Java's defaults, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from streamlet.base.errors import SettingError
from streamlet.kafka import Broker, ClientConfig


def test_kafkas_dotted_names_work_too() -> None:
    """As they stand in Kafka's own documentation."""
    config = ClientConfig.of({"bootstrap.servers": ["h:1", "i:2"], "request.timeout.ms": 5})
    assert config.request_timeout_ms == 5
    assert config.brokers() == (Broker(-1, "h", 1), Broker(-1, "i", 2))


def test_servers_may_stand_in_one_string_and_in_brackets() -> None:
    """Commas, spaces, brackets; the same address twice counts once."""
    config = ClientConfig("h:1, [::1]:2 ,h:1")
    assert config.brokers() == (Broker(-1, "h", 1), Broker(-1, "::1", 2))
    assert str(config.brokers()[1]) == "[::1]:2"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "bootstrap_servers is missing"),
        ({"bootstrap_servers": "h:1", "request_timeout": 5}, "the nearest one is request_timeout_ms"),
        ({"bootstrap_servers": "h:1", "zzz": 5}, "streamlet docs client-settings` lists them all"),
        ({"bootstrap_servers": ""}, "is empty"),
        ({"bootstrap_servers": 5}, "must be host:port"),
        ({"bootstrap_servers": "h"}, "'h' is not a broker address"),
        ({"bootstrap_servers": "a b:1"}, "'a b' cannot be a host name"),
        ({"bootstrap_servers": "h\0:1"}, "cannot be a host name"),
        ({"bootstrap_servers": "a" * 64 + ":1"}, "cannot be a host name"),
        ({"bootstrap_servers": "h:x"}, "the port must be a number"),
        ({"bootstrap_servers": "h:70000"}, "the port must be a number"),
        ({"bootstrap_servers": "PLAINTEXT://h:1"}, "write host:port"),
        ({"bootstrap_servers": "::1:2"}, "write host:port"),
        ({"bootstrap_servers": "h:1", "request_timeout_ms": 0}, "request_timeout_ms = 0 must be"),
        ({"bootstrap_servers": "h:1", "retry_backoff_ms": "5"}, "retry_backoff_ms = '5' must be"),
        ({"bootstrap_servers": "h:1", "retry_backoff_ms": True}, "retry_backoff_ms = True must be"),
        ({"bootstrap_servers": "h:1", "retry_backoff_ms": 5000}, "greater than retry_backoff_max_ms"),
        ({"bootstrap_servers": "h:1", "security_protocol": "TLS"}, "the nearest one is SSL"),
        ({"bootstrap_servers": "h:1", "ssl.ca.location": "x"}, "it is called ssl_cafile here"),
        ({"bootstrap_servers": "h:1", "metadata_max_age_ms": -2}, "whole number of at least -1"),
        ({"bootstrap_servers": "h:1", "metadata_recovery_strategy": "no"}, "choose from rebootstrap, none"),
        ({"bootstrap_servers": "h:1", "client_id": 5}, "client_id = 5 must be a string"),
        ({"bootstrap_servers": "h:1", "client_id": "a\ud800"}, "client_id = 'a\\ud800' must be at most 32767 bytes of"),
        ({"bootstrap_servers": "h:1", "client_id": "x" * 40_000}, "must be at most 32767 bytes of UTF-8"),
    ],
)
def test_a_wrong_setting_is_refused_by_name_with_a_remedy(settings: dict[str, object], words: str) -> None:
    """Each by a paragraph that names the setting and what to do, before anything starts."""
    with pytest.raises(SettingError) as caught:
        ClientConfig.of(settings)
    assert words in caught.value.message and caught.value.message.endswith(".")


@dataclass(frozen=True, slots=True)
class MoreConfig(ClientConfig):
    """As a producer's would be."""

    linger_ms: int = 5
    batch_size: int = 16_384
    acks: str | int = "all"
    group_id: str | None = None
    enable_idempotence: bool = True

    LEAST: ClassVar[Mapping[str, int]] = {"batch_size": 1}
    ORDERED: ClassVar[Sequence[tuple[str, str]]] = (("linger_ms", "request_timeout_ms"),)
    CHOICES: ClassVar[Mapping[str, Sequence[object]]] = {"acks": ("all", 0, 1)}


def test_a_subclass_adds_settings_with_bounds_of_its_own() -> None:
    """``of`` gives the class it is called on, and knows the names, bounds, pairs and choices of both."""
    config = MoreConfig.of({"bootstrap.servers": "h:1", "linger.ms": 7, "client.id": "c", "acks": 0})
    assert type(config) is MoreConfig and (config.linger_ms, config.client_id) == (7, "c")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"linger": 5}, "the nearest one is linger_ms"),
        ({"batch_size": 0}, "batch_size = 0 must be a whole number of at least 1"),
        ({"batch_size": 1 << 31}, "batch_size = 2147483648 must be a whole number of at most 2147483647"),
        ({"request_timeout_ms": 1 << 31}, "must be a whole number of at most 2147483647"),
        ({"linger_ms": 1 << 63}, "at most 9223372036854775807"),
        ({"linger_ms": -1}, "linger_ms = -1 must be a whole number of at least 0"),
        ({"linger_ms": 60_000}, "linger_ms = 60000 is greater than request_timeout_ms"),
        ({"request_timeout_ms": 0}, "request_timeout_ms = 0 must be"),
        ({"acks": 2}, "acks = 2 is not possible: choose from all, 0, 1"),
        ({"group_id": 5}, "group_id = 5 must be a string"),
        ({"enable_idempotence": 1}, "enable_idempotence = 1 must be True or False"),
    ],
)
def test_a_subclass_refuses_by_its_own_tables_and_the_bases(settings: dict[str, object], words: str) -> None:
    """By its own tables and by those of the base."""
    with pytest.raises(SettingError) as caught:
        MoreConfig.of({"bootstrap_servers": "h:1", **settings})
    assert words in caught.value.message
