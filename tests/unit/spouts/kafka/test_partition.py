"""Broker addresses and one look at a topic."""

from __future__ import annotations

import pytest

from streamlet.base.errors import SettingError
from streamlet.spouts.kafka.partition import Broker, GlobalPartitionInformation, Partition


@pytest.mark.parametrize(
    ("text", "broker"),
    [
        ("kafka1:9093", Broker("kafka1", 9093)),
        ("kafka1", Broker("kafka1", 9092)),
        (" 127.0.0.1:1 ", Broker("127.0.0.1", 1)),
        ("[::1]:9093", Broker("::1", 9093)),
        ("::1", Broker("::1", 9092)),
        ("[fe80::1]", Broker("fe80::1", 9092)),
    ],
)
def test_addresses_are_understood(text: str, broker: Broker) -> None:
    assert Broker.parse(text) == broker
    assert Broker.parse(str(broker)) == broker


@pytest.mark.parametrize("text", ["", ":9092", "kafka1:", "kafka1:x", "kafka1:0", "kafka1:65536", "k:9_0"])
def test_texts_that_are_not_addresses_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="is not a broker address"):
        Broker.parse(text)


def test_k1_partitions_are_ordered_and_leaders_looked_up() -> None:
    info = GlobalPartitionInformation("t", {2: Broker("a"), 0: None, 1: Broker("b")})
    assert [p.number for p in info.get_ordered_partitions()] == [0, 1, 2]
    assert info.get_broker_for(0) is None
    assert info.get_broker_for(1) == Broker("b")
    assert info.get_broker_for(9) is None


def test_k1_identity_is_topic_and_number() -> None:
    assert Partition("t", 1) == Partition("t", 1)
    assert Partition("t", 1) != Partition("u", 1)
