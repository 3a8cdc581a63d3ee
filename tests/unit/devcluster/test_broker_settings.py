"""Configuration files: pure text, and nothing in it that listens beyond loopback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamlet.devcluster import broker_settings as settings

DATA = Path("/data")
ZOOKEEPER = settings.zookeeper(DATA, 2181)
BROKERS = [
    settings.broker_with_zookeeper(1, 9092, 2181, DATA, replicas=1),
    settings.broker_with_kraft(1, 9092, [9001, 9002, 9003], DATA, replicas=3),
]


def test_properties_are_one_key_and_value_a_line() -> None:
    """One key=value a line."""
    assert settings.properties({"a.b": 1, "c": "x"}) == "a.b=1\nc=x\n"


@pytest.mark.parametrize("values", BROKERS)
def test_brokers_listen_on_loopback_alone(values: dict[str, object]) -> None:
    """Every address in the file, listeners and voters, is 127.0.0.1."""
    for key in ("listeners", "advertised.listeners"):
        assert all("://127.0.0.1:" in address for address in str(values[key]).split(","))
    addresses = re.findall(r"[\w.]+(?=:\d)", settings.properties(values))
    assert set(addresses) == {"127.0.0.1"}


def test_zookeeper_listens_on_loopback_alone() -> None:
    """And without its admin server, which would listen everywhere on 8080."""
    assert ZOOKEEPER["clientPortAddress"] == "127.0.0.1"
    assert ZOOKEEPER["admin.enableServer"] == "false"


def test_each_kraft_node_is_one_of_the_voters() -> None:
    """Its own controller listener is the port the voters' list gives it."""
    values = BROKERS[1]
    assert values["controller.quorum.voters"] == "0@127.0.0.1:9001,1@127.0.0.1:9002,2@127.0.0.1:9003"
    assert "CONTROLLER://127.0.0.1:9002" in str(values["listeners"])


@pytest.mark.parametrize("text", [settings.reload4j("INFO", "out"), settings.log4j2("INFO", "out")])
def test_servers_log_to_their_console(text: str) -> None:
    """Which is a file; level and stream are the caller's."""
    assert "INFO" in text and re.search(r"System\.out|SYSTEM_OUT", text)
